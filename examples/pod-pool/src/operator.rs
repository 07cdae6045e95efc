//! Informers and the controller, with `kcm`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kcm::{
    expectations::GroupResource,
    prelude::*,
    workload::{OwnedObjects, pod_indexers},
};

use crate::{
    controller::{Caches, NAME, NODE, PodPools},
    plan::node,
    pool::PodPool,
    reservations::Reservations,
};

/// Adds the operator to a manager.
///
/// # Panics
///
/// Outside of a Tokio runtime.
pub fn add_to<R: Reservations>(manager: &mut Manager, reservations: R) {
    let pools = manager.informer::<PodPool>(ListParams::default());
    let nodes = manager.informer::<Node>(ListParams::default());
    let pods = manager.informer::<Pod>(ListParams::default());
    pods.add_indexers(pod_indexers().with(NODE, |pod| Some(node(pod).into())));

    let caches = Caches { pools: pools.store(), pods: pods.store(), nodes: nodes.store() };
    let (adopters, on_node) = (caches.clone(), caches.clone());

    let context = manager.context();
    let pod_cache = (GroupResource::PODS, pods.store().version_reader());
    let own_writes = Arc::new(OwnWrites::new(context.clock(), [pod_cache]));
    let owned_pods = OwnedObjects {
        clock: context.clock(),
        random: context.random(),
        cache: pods.store(),
        resource: GroupResource::PODS,
        own_writes: Arc::clone(&own_writes),
    };
    let client = context.client(NAME);
    let controller = context
        .controller(NAME)
        .reconciles(Watch::new(&pools).when(predicate::resource_version_changed()))
        .owns(Watch::new(&pods).orphans(|pod| &pod.metadata.labels, move |pod| adopters.adopters(pod)))
        .watches(&nodes, move |node| on_node.pools_on(node))
        .own_writes(own_writes)
        .workers(4)
        .build(PodPools {
            caches,
            owned_pods,
            reservations,
            reserved: Default::default(),
            recorder: context.recorder(&client, NAME),
            client,
            clock: context.clock(),
        });
    manager.add(controller);
}

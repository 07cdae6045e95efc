//! Informers and the controller, with `kcm`.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use kcm::{
    expectations::{GroupResource, ReadVersion},
    prelude::*,
    runtime::owner_of,
    workload::pod_indexers,
};

use crate::{
    controller::{NAME, NODE, PodPools},
    plan::{node, selects},
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

    let (context, store) = (manager.context(), pods.store());
    let version: ReadVersion = Arc::new(move || store.last_sync_resource_version());
    let own_writes = Arc::new(OwnWrites::new(context.clock(), [(GroupResource::PODS, version)]));
    let (on_node, owners, adopters) = (pods.store(), pools.store(), pools.store());
    let client = context.client(NAME);
    let controller = context
        .controller(NAME)
        .reconciles(Watch::new(&pools).when(predicate::resource_version_changed()))
        .owns(Watch::new(&pods).orphans(
            |pod| &pod.metadata.labels,
            move |pod| {
                adopters.list().iter().filter(|pool| selects(pool, pod)).map(|pool| pool.key()).collect()
            },
        ))
        .watches(&nodes, move |node| {
            let pods = on_node.by_index(NODE, &node.key().name);
            pods.iter().filter_map(|pod| Some(owner_of(&owners, &**pod)?.key())).collect::<Vec<_>>()
        })
        .own_writes(Arc::clone(&own_writes))
        .workers(4)
        .build(PodPools {
            pools: pools.store(),
            pods: pods.store(),
            nodes: nodes.store(),
            own_writes,
            reservations,
            reserved: Default::default(),
            recorder: context.recorder(&client, NAME),
            client,
            clock: context.clock(),
            random: context.random(),
        });
    manager.add(controller);
}

//! Informers and the controller.

use std::sync::Arc;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service, policy::v1::PodDisruptionBudget};
use kcm::prelude::*;

use crate::{
    controller::{NAME, WebsiteReconciler},
    dns::Dns,
    website::Website,
};

/// Adds the operator to a manager.
///
/// # Panics
///
/// Outside of a Tokio runtime.
pub fn add_to(manager: &mut Manager, dns: Arc<dyn Dns>) {
    let owned = ListParams::labels("app.kubernetes.io/name=website");
    let websites = manager.informer::<Website>(ListParams::default());
    let deployments = manager.informer::<Deployment>(owned.clone());
    let services = manager.informer::<Service>(owned.clone());
    let budgets = manager.informer::<PodDisruptionBudget>(owned);

    let context = manager.context();
    let client = context.client(NAME);
    let reconciler = WebsiteReconciler {
        websites: websites.store(),
        deployments: deployments.store(),
        services: services.store(),
        budgets: budgets.store(),
        recorder: context.recorder(&client, NAME),
        client,
        dns,
        clock: context.clock(),
    };
    let controller = context
        .controller("website")
        .reconciles(Watch::new(&websites).when(predicate::resource_version_changed()))
        .owns(&deployments)
        .owns(&services)
        .owns(&budgets)
        .workers(2)
        .build(reconciler);
    manager.add(controller);
}

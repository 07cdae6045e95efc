//! Wrong variants of the operator.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service, policy::v1::PodDisruptionBudget};
use kcm::{client::Request, prelude::*};
use kube_core::ResourceExt;
use serde_json::{Value, json};
use website_operator::{
    controller::{Error, NAME, WebsiteReconciler},
    dns::FakeDns,
    website::Website,
};

/// Adds the operator with another reconciler.
fn add_to<R: Reconciler>(
    manager: &mut Manager,
    dns: Arc<FakeDns>,
    wrong: impl FnOnce(WebsiteReconciler) -> R,
) {
    let websites = manager.informer::<Website>(ListParams::default());
    let deployments = manager.informer::<Deployment>(ListParams::default());
    let services = manager.informer::<Service>(ListParams::default());
    let budgets = manager.informer::<PodDisruptionBudget>(ListParams::default());
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
    let controller = context.controller("website").reconciles(&websites).owns(&deployments);
    manager.add(controller.build(wrong(reconciler)));
}

/// Deletes Deployments without a website after the start, with a list from the watch cache of any API server.
pub(crate) fn with_old_list(manager: &mut Manager, dns: Arc<FakeDns>) {
    struct CleansUp(WebsiteReconciler, AtomicBool);

    impl Reconciler for CleansUp {
        type Error = Error;

        async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, Error> {
            if !self.1.load(Ordering::Relaxed) {
                let path = "/apis/example.org/v1/websites?resourceVersion=0";
                let list = self.0.client.send(&Request::get(path)).await?;
                let list: Value = serde_json::from_slice(&list).unwrap();
                let websites = list["items"].as_array().unwrap();
                let is_known =
                    |name: &str| websites.iter().any(|website| website["metadata"]["name"] == name);
                let deployments = self.0.client.api::<Deployment>();
                for deployment in deployments.list(&ListParams::default()).await?.items {
                    let name = deployment.name_any();
                    if !is_known(&name) {
                        let orphan = ObjectKey { name: name.into(), ..key.clone() };
                        deployments.delete(&orphan, &DeleteOptions::default()).await?;
                    }
                }
                self.1.store(true, Ordering::Relaxed);
            }
            self.0.reconcile(key).await
        }
    }
    add_to(manager, dns, |correct| CleansUp(correct, AtomicBool::new(false)));
}

/// Withdraws the host of a website when it receives the event of its deletion.
pub(crate) fn without_finalizer(manager: &mut Manager, dns: Arc<FakeDns>) {
    struct Remembers(WebsiteReconciler, Mutex<HashMap<ObjectKey, String>>);

    impl Reconciler for Remembers {
        type Error = Error;

        async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, Error> {
            let host = self.0.websites.get(key).map(|website| website.spec.host.clone());
            let known = self.1.lock().unwrap().get(key).cloned();
            if let Some(known) = known.filter(|known| Some(known) != host.as_ref()) {
                self.0.dns.withdraw(&known).await?;
                self.1.lock().unwrap().remove(key);
            }
            if let Some(host) = host {
                self.0.dns.publish(&host).await?;
                self.1.lock().unwrap().insert(key.clone(), host);
            }
            Ok(Requeue::Done)
        }
    }
    add_to(manager, dns, |correct| Remembers(correct, Mutex::default()));
}

/// Writes the status before the objects, and does nothing if the status is for the current generation.
pub(crate) fn status_first(manager: &mut Manager, dns: Arc<FakeDns>) {
    struct StatusFirst(WebsiteReconciler);

    impl Reconciler for StatusFirst {
        type Error = Error;

        async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, Error> {
            if let Some(website) = self.0.websites.get(key)
                && website.metadata.deletion_timestamp.is_none()
            {
                let generation = website.metadata.generation;
                if website.status.as_ref().and_then(|status| status.observed_generation) == generation {
                    return Ok(Requeue::Done);
                }
                let patch = Patch::merge(&json!({"status": {"observedGeneration": generation}}));
                self.0.client.api::<Website>().patch_status(key, &patch).await?;
            }
            self.0.reconcile(key).await
        }
    }
    add_to(manager, dns, StatusFirst);
}

//! Performs the operations of a plan.

use std::sync::Arc;

use k8s_openapi::api::{apps::v1::Deployment, core::v1::Service, policy::v1::PodDisruptionBudget};
use kcm::prelude::*;
use serde_json::{Value, json};
use thiserror::Error;

use crate::{
    dns::{Dns, DnsError},
    plan::{FINALIZER, HostState, Operation, View, plan, status},
    website::{Website, WebsiteStatus},
};

/// Name of the operator in events and in `metadata.managedFields`.
pub const NAME: &str = "website-operator";

/// Error of a reconciliation.
#[derive(Debug, Error)]
pub enum Error {
    /// A request failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The DNS provider failed.
    #[error(transparent)]
    Dns(#[from] DnsError),
}

/// Reconciles websites.
pub struct WebsiteReconciler {
    /// Cached websites.
    pub websites: Store<Website>,
    /// Cached Deployments of websites.
    pub deployments: Store<Deployment>,
    /// Cached Services of websites.
    pub services: Store<Service>,
    /// Cached PodDisruptionBudgets of websites.
    pub budgets: Store<PodDisruptionBudget>,
    /// Client for writes.
    pub client: ApiClient,
    /// DNS provider.
    pub dns: Arc<dyn Dns>,
    /// Recorder of events.
    pub recorder: Arc<dyn EventRecorder>,
    /// Clock for conditions.
    pub clock: Arc<dyn Clock>,
}

impl Reconciler for WebsiteReconciler {
    type Error = Error;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, Error> {
        let Some(website) = self.websites.get(key) else { return Ok(Requeue::Done) };
        let (deployment, service, budget) =
            (self.deployments.get(key), self.services.get(key), self.budgets.get(key));
        let view = View {
            website: &website,
            deployment: deployment.as_deref(),
            service: service.as_deref(),
            budget: budget.as_deref(),
        };
        let mut recorded = website.status.as_ref().and_then(|status| status.host.as_deref());
        let mut failure = None;
        for operation in plan(&view, self.clock.now()) {
            match self.perform(key, &website, &operation).await {
                Ok(()) => {}
                Err(Error::Dns(error)) => {
                    failure = Some(error);
                    break;
                }
                Err(error) => return Err(error),
            }
            match operation {
                // The next event continues.
                Operation::AddFinalizer | Operation::RemoveFinalizer => return Ok(Requeue::Done),
                Operation::RecordHost(_) => recorded = Some(&website.spec.host),
                Operation::WithdrawHost(_) => recorded = None,
                _ => {}
            }
        }
        let unpublished = failure.as_ref().map(|error| error.reason.as_str());
        let status = status(&view, HostState { recorded, unpublished }, self.clock.now());
        if website.status.as_ref() != Some(&status) {
            self.write_status(key, &status).await?;
        }
        failure.map_or(Ok(Requeue::Done), |error| Err(error.into()))
    }

    fn classify(error: &Error) -> ErrorClass {
        match error {
            // Deleted meanwhile.
            Error::Api(error) if error.is_not_found() => ErrorClass::ObjectDeleted,
            // The API server is not available, or the cache is behind.
            Error::Api(error) if error.is_temporary() => ErrorClass::Temporary,
            _ => ErrorClass::Failed,
        }
    }
}

impl WebsiteReconciler {
    async fn perform(&self, key: &ObjectKey, website: &Website, operation: &Operation) -> Result<(), Error> {
        match operation {
            Operation::AddFinalizer => {
                self.client.api().add_finalizer(website, FINALIZER).await?;
            }
            Operation::RemoveFinalizer => {
                self.client.api().remove_finalizer(website, FINALIZER).await?;
            }
            Operation::ApplyDeployment(object) => {
                apply(&self.client.api::<Deployment>(), key, object).await?;
                self.event(website, EventType::Normal, "Applied", "Applied Deployment".to_owned());
            }
            Operation::ApplyService(object) => {
                apply(&self.client.api::<Service>(), key, object).await?;
                self.event(website, EventType::Normal, "Applied", "Applied Service".to_owned());
            }
            Operation::ApplyBudget(object) => {
                apply(&self.client.api::<PodDisruptionBudget>(), key, object).await?;
                self.event(website, EventType::Normal, "Applied", "Applied PodDisruptionBudget".to_owned());
            }
            Operation::RecordHost(status) => self.write_status(key, status).await?,
            Operation::WithdrawHost(host) => {
                self.host_changed(website, "Withdrawn", host, self.dns.withdraw(host).await)?;
            }
            Operation::PublishHost(host) => {
                self.host_changed(website, "Published", host, self.dns.publish(host).await)?;
            }
        }
        Ok(())
    }

    async fn write_status(&self, key: &ObjectKey, status: &WebsiteStatus) -> Result<(), Error> {
        let patch = Patch::merge(&json!({ "status": status }));
        self.client.api::<Website>().patch_status(key, &patch).await?;
        Ok(())
    }

    fn host_changed(
        &self,
        website: &Website,
        reason: &str,
        host: &str,
        result: Result<(), DnsError>,
    ) -> Result<(), DnsError> {
        match &result {
            Ok(()) => self.event(website, EventType::Normal, reason, format!("{reason} {host}")),
            Err(error) => self.event(website, EventType::Warning, "ProviderFailed", error.to_string()),
        }
        result
    }

    fn event(&self, website: &Website, type_: EventType, reason: &str, message: String) {
        self.recorder.event(&ObjectReference::of(website), type_, reason, message);
    }
}

/// Applies `object` with force: fields that others have changed are restored.
async fn apply<K: Object>(api: &Api<K>, key: &ObjectKey, object: &Value) -> Result<(), Error> {
    let options = ApplyOptions { force: true, ..ApplyOptions::new(NAME) };
    api.patch(key, &Patch::apply(object, options)).await?;
    Ok(())
}

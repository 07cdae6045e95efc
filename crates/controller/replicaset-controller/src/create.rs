//! Creation of pods.

use std::sync::Arc;

use kcm_api::{ApiError, ObjectKey, Pod, ReplicaSet, Selector};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_controller_util::{Creation, PodControl, PodManifest};
use kcm_events::EventType;
use tracing::debug;

use crate::{ManageError, events::ReplicaSetEvents, execute::Executor, performed::Performed};

/// Requests and events of the pods that a sync creates.
struct PodCreation<'a> {
    replica_set: &'a ReplicaSet,
    manifest: PodManifest,
    pod_control: &'a dyn PodControl,
    events: &'a ReplicaSetEvents,
}

impl Executor {
    /// Creates `count` pods.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the names of requests without a response stay pending.
    pub(crate) async fn create_pods(
        &self,
        replica_set: &ReplicaSet,
        owner: &OwnerIdentity,
        count: usize,
    ) -> Performed {
        let controller = owner.controller_reference();
        let manifest = match PodManifest::from_template(&replica_set.spec.template, &controller) {
            Ok(manifest) => manifest,
            Err(error) => {
                let error = Some(ManageError::Manifest(Arc::new(error)));
                return Performed { error, ..Performed::default() };
            }
        };
        let pod_control = &*self.pod_control;
        let creation = PodCreation { replica_set, manifest, pod_control, events: &self.events };
        let created = self.pods.create(owner, count, &creation).await;
        Performed {
            error: created.error.map(ManageError::Create),
            has_events: created.has_objects,
            retry_after: created.retry_after,
        }
    }
}

impl Creation<Pod> for PodCreation<'_> {
    fn generate_name(&self) -> &str {
        self.manifest.generate_name()
    }

    async fn create(&self, key: &ObjectKey) -> Result<Pod, ApiError> {
        self.pod_control.create_pod(key, &self.manifest).await
    }

    async fn find(&self, key: &ObjectKey) -> Result<Option<Pod>, ApiError> {
        self.pod_control.find_pod(key).await
    }

    fn adopts(&self, orphan: &Pod) -> bool {
        Selector::new(self.replica_set.spec.selector.as_ref())
            .is_ok_and(|selector| selector.matches(&orphan.labels) && !orphan.is_finished())
    }

    fn created(&self, pod: &Pod) {
        let message = format!("Created pod: {}", pod.key.name);
        self.events.record(self.replica_set, EventType::Normal, "SuccessfulCreate", message);
    }

    fn failed(&self, key: &ObjectKey, error: &ApiError) {
        let text = error.to_string().replace(&*key.name, self.generate_name());
        debug!(pod = %key, err = text, "Failed to create pod");
        let message = format!("Error creating: {error}");
        self.events.record(self.replica_set, EventType::Warning, "FailedCreate", message);
    }
}

#[cfg(test)]
mod tests;

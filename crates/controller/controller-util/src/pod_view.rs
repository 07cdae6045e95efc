//! Pods of `kcm-api` and, with the feature `kube`, of k8s-openapi.

use std::sync::Arc;

use kcm_api::{Phase, Pod, Ready, Time};
use kcm_informer::Object;

/// Pod, as filters, ranking and lookups read it.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pod",
    note = "`kcm_api::Pod` implements `PodView`; with the feature `kube` of `kcm-controller-util` or `kcm`, that of k8s-openapi does, too"
)]
pub trait PodView: Object {
    /// Returns the namespace.
    fn namespace_str(&self) -> &str;

    /// Returns the UID of the controller.
    fn controller_uid(&self) -> Option<Arc<str>>;

    /// Returns the time of creation.
    fn created_at(&self) -> Option<Time>;

    /// Returns the node that the pod is bound to. Empty without one.
    fn node(&self) -> &str;

    /// Returns the phase.
    fn phase(&self) -> Phase;

    /// Returns the first condition of type `Ready`.
    fn readiness(&self) -> Ready;

    /// Returns the value of the annotation `controller.kubernetes.io/pod-deletion-cost`. 0 if it is absent or invalid.
    fn deletion_cost(&self) -> i32;

    /// Returns the maximum restart count of the containers.
    fn max_restarts(&self) -> i32;

    /// Returns the maximum restart count of the init containers with `restartPolicy: Always`.
    fn max_sidecar_restarts(&self) -> i32;

    /// `true` if the phase is `Succeeded` or `Failed`.
    fn is_finished(&self) -> bool {
        matches!(self.phase(), Phase::Succeeded | Phase::Failed)
    }

    /// `true` if the pod is neither finished nor being deleted (US-3.6).
    fn is_active(&self) -> bool {
        !self.is_finished() && !self.is_being_deleted()
    }

    /// `true` if the pod is being deleted and not finished (US-3.6).
    fn is_terminating(&self) -> bool {
        !self.is_finished() && self.is_being_deleted()
    }
}

impl PodView for Pod {
    fn namespace_str(&self) -> &str {
        &self.key.namespace
    }

    fn controller_uid(&self) -> Option<Arc<str>> {
        self.controller.as_ref().map(|controller| Arc::clone(&controller.uid))
    }

    fn created_at(&self) -> Option<Time> {
        self.creation_timestamp
    }

    fn node(&self) -> &str {
        self.node_name.as_deref().unwrap_or("")
    }

    fn phase(&self) -> Phase {
        self.phase
    }

    fn readiness(&self) -> Ready {
        self.ready
    }

    fn deletion_cost(&self) -> i32 {
        self.deletion_cost
    }

    fn max_restarts(&self) -> i32 {
        self.max_restarts
    }

    fn max_sidecar_restarts(&self) -> i32 {
        self.max_sidecar_restarts
    }

    // Without a conversion of times.
    fn is_active(&self) -> bool {
        Self::is_active(self)
    }

    fn is_terminating(&self) -> bool {
        Self::is_terminating(self)
    }
}

#[cfg(feature = "kube")]
mod kube {
    use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
    use kcm_api::{
        Phase, Ready, Time,
        pod::{DELETION_COST_ANNOTATION, deletion_cost},
    };

    use super::{Arc, Object, PodView};

    /// Returns `None` for Go's zero time.
    fn unless_zero(time: jiff::Timestamp) -> Option<Time> {
        Some(Time::new(time)).filter(|time| *time != Time::GO_ZERO)
    }

    impl PodView for Pod {
        fn namespace_str(&self) -> &str {
            self.metadata.namespace.as_deref().unwrap_or_default()
        }

        fn controller_uid(&self) -> Option<Arc<str>> {
            self.controller().map(|controller| controller.uid.into())
        }

        fn created_at(&self) -> Option<Time> {
            self.creation_time().and_then(unless_zero)
        }

        fn node(&self) -> &str {
            self.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default()
        }

        fn phase(&self) -> Phase {
            let phase = self.status.as_ref().and_then(|status| status.phase.as_deref());
            Phase::from_text(phase.unwrap_or_default())
        }

        fn readiness(&self) -> Ready {
            let conditions = self.status.iter().flat_map(|status| status.conditions.iter().flatten());
            let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
            ready.map_or_else(Ready::default, |condition| Ready {
                is_ready: condition.status == "True",
                since: condition.last_transition_time.as_ref().and_then(|time| unless_zero(time.0)),
            })
        }

        fn deletion_cost(&self) -> i32 {
            let annotations = self.metadata.annotations.as_ref();
            annotations
                .and_then(|all| all.get(DELETION_COST_ANNOTATION))
                .map_or(0, |text| deletion_cost(text))
        }

        fn max_restarts(&self) -> i32 {
            let status = self.status.as_ref();
            most_restarts(status.and_then(|status| status.container_statuses.as_deref()), |_| true)
        }

        fn max_sidecar_restarts(&self) -> i32 {
            let spec = self.spec.as_ref();
            let containers = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
            let is_sidecar = |status: &ContainerStatus| {
                containers.iter().any(|container| {
                    container.name == status.name && container.restart_policy.as_deref() == Some("Always")
                })
            };
            let status = self.status.as_ref();
            most_restarts(status.and_then(|status| status.init_container_statuses.as_deref()), is_sidecar)
        }
    }

    fn most_restarts(statuses: Option<&[ContainerStatus]>, counts: impl Fn(&ContainerStatus) -> bool) -> i32 {
        let counted = statuses.unwrap_or_default().iter().filter(|status| counts(status));
        counted.map(|status| status.restart_count).fold(0, i32::max)
    }
}

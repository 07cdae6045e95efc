//! Metric of stuck rollouts.

use std::{collections::HashMap, sync::Arc};

use kcm_api::{
    Deployment, ObjectKey,
    condition_status::{FALSE, TRUE},
    condition_type::{PROGRESSING, REPLICA_FAILURE},
};
use kcm_deployment_util::conditions::reason::TIMED_OUT;
use kcm_informer::{Deleted, EventHandler, Object};
use kcm_metrics::{Gauge, Registry, Spec};
use parking_lot::Mutex;

/// Reasons of a stuck rollout: values of the label `reason`.
const REASONS: [&str; REASON_COUNT] = [TIMED_OUT, REPLICA_FAILURE, "Paused"];
const REASON_COUNT: usize = 3;

/// `true` for each of [`REASONS`] that applies.
type StuckReasons = [bool; REASON_COUNT];

/// Counts stuck rollouts in an event handler. The cost of an event does not depend on the number of Deployments.
pub(super) struct Rollouts {
    stuck: [Arc<Gauge>; REASON_COUNT],
    /// Stuck rollouts, as counted. A deletion event may contain a state that no update contained, so the counted state
    /// cannot be derived from the old object.
    counted: Mutex<HashMap<ObjectKey, StuckReasons>>,
}

impl Rollouts {
    pub(super) fn new(registry: &Registry) -> Self {
        let stuck = registry.metric::<Gauge, 1>(Spec::own(
            "kcm_rollouts_stuck",
            ["reason"],
            "Deployments with a stuck rollout by reason: condition ProgressDeadlineExceeded, condition ReplicaFailure, or \
             Paused before all pods are updated. A Deployment can have several reasons.",
        ));
        Self { stuck: REASONS.map(|reason| stuck.with([reason])), counted: Mutex::default() }
    }

    fn count(&self, key: ObjectKey, new: StuckReasons) {
        let mut counted = self.counted.lock();
        let old =
            if new == StuckReasons::default() { counted.remove(&key) } else { counted.insert(key, new) };
        for ((gauge, old), new) in self.stuck.iter().zip(old.unwrap_or_default()).zip(new) {
            match (old, new) {
                (false, true) => gauge.add(1.0),
                (true, false) => gauge.add(-1.0),
                _ => {}
            }
        }
    }
}

fn stuck_reasons(deployment: &Deployment) -> StuckReasons {
    let condition =
        |kind: &str, status: &str| deployment.condition(kind).filter(|condition| condition.status == status);
    let too_slow = condition(PROGRESSING, FALSE).is_some_and(|condition| condition.reason == TIMED_OUT);
    let status = &deployment.status;
    let unfinished =
        status.updated_replicas < status.replicas || status.updated_replicas < deployment.replicas();
    [too_slow, condition(REPLICA_FAILURE, TRUE).is_some(), deployment.spec.paused && unfinished]
}

impl EventHandler<Deployment> for Rollouts {
    fn on_add(&self, object: &Arc<Deployment>, _initial: bool) {
        self.count(object.key(), stuck_reasons(object));
    }

    fn on_update(&self, _old: &Arc<Deployment>, new: &Arc<Deployment>) {
        self.count(new.key(), stuck_reasons(new));
    }

    fn on_delete(&self, deleted: &Deleted<Deployment>) {
        self.count(deleted.object().key(), StuckReasons::default());
    }
}

#[cfg(test)]
mod tests {
    use kcm_api::{DeploymentCondition, deployment::KIND};

    use kcm_metrics::MetricsOptions;

    use super::*;

    fn deployment(name: &str, change: impl FnOnce(&mut Deployment)) -> Arc<Deployment> {
        let mut deployment = Deployment { kind: KIND.to_owned(), ..Deployment::default() };
        deployment.metadata.namespace = "default".into();
        deployment.metadata.name = name.into();
        deployment.spec.replicas = Some(2);
        deployment.status.replicas = 2;
        deployment.status.updated_replicas = 2;
        change(&mut deployment);
        Arc::new(deployment)
    }

    fn condition(type_: &str, status: &str, reason: &str) -> DeploymentCondition {
        DeploymentCondition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            ..DeploymentCondition::default()
        }
    }

    fn too_slow(deployment: &mut Deployment) {
        let condition = condition("Progressing", "False", "ProgressDeadlineExceeded");
        deployment.status.conditions.push(condition);
    }

    fn failing(deployment: &mut Deployment) {
        deployment.status.conditions.push(condition("ReplicaFailure", "True", "FailedCreate"));
    }

    fn counts(rollouts: &Rollouts) -> [f64; REASON_COUNT] {
        [0, 1, 2].map(|i| rollouts.stuck[i].get())
    }

    fn rollouts() -> Rollouts {
        Rollouts::new(&Registry::new(&MetricsOptions::default()))
    }

    #[test]
    fn counts_by_reason_until_progress_or_deletion() {
        let rollouts = rollouts();
        let progressing = deployment("a", |_| {});
        let slow = deployment("a", too_slow);
        let both = deployment("b", |deployment| {
            too_slow(deployment);
            failing(deployment);
        });
        rollouts.on_add(&progressing, true);
        assert_eq!(counts(&rollouts), [0.0, 0.0, 0.0]);
        rollouts.on_update(&progressing, &slow);
        rollouts.on_add(&both, false);
        assert_eq!(counts(&rollouts), [2.0, 1.0, 0.0]);
        // Neither a resync nor a relist counts an object twice.
        rollouts.on_update(&slow, &slow);
        rollouts.on_add(&both, true);
        assert_eq!(counts(&rollouts), [2.0, 1.0, 0.0]);
        rollouts.on_update(&slow, &progressing);
        assert_eq!(counts(&rollouts), [1.0, 1.0, 0.0]);
        // The deletion event contains a state that was not counted.
        rollouts.on_delete(&Deleted::FinalState(deployment("b", |_| {})));
        assert_eq!(counts(&rollouts), [0.0, 0.0, 0.0]);
        assert!(rollouts.counted.lock().is_empty());
    }

    #[test]
    fn counts_paused_rollouts_before_completion() {
        let rollouts = rollouts();
        let paused = |updated: i32| {
            deployment("a", |deployment| {
                deployment.spec.paused = true;
                deployment.status.updated_replicas = updated;
            })
        };
        rollouts.on_add(&paused(2), false);
        assert_eq!(counts(&rollouts)[2], 0.0);
        rollouts.on_update(&paused(2), &paused(1));
        assert_eq!(counts(&rollouts)[2], 1.0);
    }

    #[test]
    fn ignores_conditions_with_other_statuses() {
        let rollouts = rollouts();
        rollouts.on_add(
            &deployment("a", |deployment| {
                let conditions = &mut deployment.status.conditions;
                conditions.push(condition("Progressing", "True", "ReplicaSetUpdated"));
                conditions.push(condition("ReplicaFailure", "False", ""));
            }),
            true,
        );
        assert_eq!(counts(&rollouts), [0.0, 0.0, 0.0]);
    }
}

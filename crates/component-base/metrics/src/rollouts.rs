//! Rollouts that are stuck.

use std::sync::Arc;

use kcm_api::{Deployment, ObjectKey};
use kcm_informer::{Deleted, EventHandler, Object};
use parking_lot::Mutex;
use std::collections::HashMap;

use crate::{Gauge, Registry, Spec};

/// Why a rollout does not go on, as a label's value.
const REASONS: [&str; REASON_COUNT] = ["ProgressDeadlineExceeded", "ReplicaFailure", "Paused"];
const REASON_COUNT: usize = 3;

/// For each of [`REASONS`] whether it holds.
type Why = [bool; REASON_COUNT];

/// Counts stuck rollouts as Deployments change: what an event costs does not depend on how many there are.
pub(crate) struct Rollouts {
    stuck: [Arc<Gauge>; REASON_COUNT],
    /// Those that are stuck now. What was counted is kept rather than computed from the old object: a deletion may
    /// show a state that no update did.
    counted: Mutex<HashMap<ObjectKey, Why>>,
}

impl Rollouts {
    pub(crate) fn new(registry: &Registry) -> Self {
        let stuck = registry.metric::<Gauge, 1>(Spec::own(
            "kcm_rollouts_stuck",
            ["reason"],
            "Deployments whose rollout does not go on, by reason: ProgressDeadlineExceeded and ReplicaFailure as their \
             conditions say, Paused with pods that are not of the wanted template. One may have several.",
        ));
        Self { stuck: REASONS.map(|reason| stuck.with([reason])), counted: Mutex::default() }
    }

    fn count(&self, key: ObjectKey, new: Why) {
        let mut counted = self.counted.lock();
        let old = if new == Why::default() { counted.remove(&key) } else { counted.insert(key, new) };
        for ((gauge, old), new) in self.stuck.iter().zip(old.unwrap_or_default()).zip(new) {
            match (old, new) {
                (false, true) => gauge.add(1.0),
                (true, false) => gauge.add(-1.0),
                _ => {}
            }
        }
    }
}

fn why(deployment: &Deployment) -> Why {
    let condition =
        |kind: &str, status: &str| deployment.condition(kind).filter(|condition| condition.status == status);
    let too_slow = condition("Progressing", "False")
        .is_some_and(|condition| condition.reason == "ProgressDeadlineExceeded");
    let status = &deployment.status;
    let unfinished =
        status.updated_replicas < status.replicas || status.updated_replicas < deployment.replicas();
    [too_slow, condition("ReplicaFailure", "True").is_some(), deployment.spec.paused && unfinished]
}

impl EventHandler<Deployment> for Rollouts {
    fn on_add(&self, object: &Arc<Deployment>, _initial: bool) {
        self.count(object.key(), why(object));
    }

    fn on_update(&self, _old: &Arc<Deployment>, new: &Arc<Deployment>) {
        self.count(new.key(), why(new));
    }

    fn on_delete(&self, deleted: &Deleted<Deployment>) {
        self.count(deleted.object().key(), Why::default());
    }
}

#[cfg(test)]
mod tests {
    use kcm_api::{DeploymentCondition, deployment::KIND};

    use super::*;
    use crate::MetricsOptions;

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
    fn rollouts_are_counted_by_reason_until_they_go_on_or_are_deleted() {
        let rollouts = rollouts();
        let fine = deployment("a", |_| {});
        let slow = deployment("a", too_slow);
        let both = deployment("b", |deployment| {
            too_slow(deployment);
            failing(deployment);
        });
        rollouts.on_add(&fine, true);
        assert_eq!(counts(&rollouts), [0.0, 0.0, 0.0]);
        rollouts.on_update(&fine, &slow);
        rollouts.on_add(&both, false);
        assert_eq!(counts(&rollouts), [2.0, 1.0, 0.0]);
        // A resync, and a relist that tells it as new, count nothing twice.
        rollouts.on_update(&slow, &slow);
        rollouts.on_add(&both, true);
        assert_eq!(counts(&rollouts), [2.0, 1.0, 0.0]);
        rollouts.on_update(&slow, &fine);
        assert_eq!(counts(&rollouts), [1.0, 1.0, 0.0]);
        // The last state is another than was counted.
        rollouts.on_delete(&Deleted::FinalState(deployment("b", |_| {})));
        assert_eq!(counts(&rollouts), [0.0, 0.0, 0.0]);
        assert!(rollouts.counted.lock().is_empty());
    }

    #[test]
    fn paused_deployment_counts_while_its_rollout_is_unfinished() {
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
    fn condition_that_holds_no_longer_does_not_count() {
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

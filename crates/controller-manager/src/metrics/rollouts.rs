//! Metric of stuck rollouts.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use kcm_api::{
    Deployment, ObjectKey, Pod, ReplicaSet,
    condition_status::{FALSE, TRUE},
    condition_type::{PROGRESSING, REPLICA_FAILURE},
};
use kcm_controller_util::{pod_index, replica_set_index};
use kcm_deployment_util::{conditions::reason::TIMED_OUT, replica_sets::ReplicaSetSplit};
use kcm_informer::{Deleted, EventHandler, Object, Store};
use kcm_metrics::{Family, Gauge, Registry, Spec};
use kcm_rollouts::{Cause, cached_cause};
use parking_lot::{Mutex, RwLock};

/// Reasons of a stuck rollout: values of the label `reason`.
const REASONS: [&str; REASON_COUNT] = [TIMED_OUT, REPLICA_FAILURE, "Paused"];
const REASON_COUNT: usize = 3;

/// Maximum number of stuck rollouts whose causes a scrape finds. The causes of others are `unknown`.
const MAX_EXPLAINED: usize = 1000;

/// Maximum number of pods of a ReplicaSet in which a cause is looked up.
const MAX_PODS: usize = 100;

/// `true` for each of [`REASONS`] that applies.
type StuckReasons = [bool; REASON_COUNT];

/// Caches in which causes are found.
struct Caches {
    deployments: Store<Deployment>,
    replica_sets: Store<ReplicaSet>,
    pods: Store<Pod>,
}

/// Finds stuck rollouts in an event handler, and their causes at each scrape.
///
/// The cost of an event does not depend on the number of Deployments, and that of a scrape depends on the stuck ones only.
pub(super) struct Rollouts {
    stuck: Mutex<HashMap<ObjectKey, StuckReasons>>,
    caches: RwLock<Option<Caches>>,
    gauges: Family<Gauge, 2>,
    /// Label values of the existing time series.
    exported: Mutex<BTreeSet<(&'static str, &'static str)>>,
}

impl Rollouts {
    pub(super) fn new(registry: &Registry) -> Arc<Self> {
        let gauges = registry.metric::<Gauge, 2>(Spec::own(
            "kcm_rollouts_stuck",
            ["cause", "reason"],
            "Deployments with a stuck rollout by reason: condition ProgressDeadlineExceeded, condition ReplicaFailure, or \
             Paused before all pods are updated. A Deployment can have several reasons. The cause is that of kubectl \
             rollouts why, as far as the caches of the manager contain it.",
        ));
        // A time series for each reason exists while no rollout is stuck.
        let exported = REASONS.map(|reason| (Cause::Unknown.name(), reason)).into();
        let this = Arc::new(Self {
            stuck: Mutex::default(),
            caches: RwLock::default(),
            gauges,
            exported: Mutex::new(exported),
        });
        let weak = Arc::downgrade(&this);
        registry.on_scrape(Box::new(move || {
            let this = weak.upgrade();
            if let Some(this) = &this {
                this.export();
            }
            this.is_some()
        }));
        this
    }

    /// Sets the caches in which causes are found.
    pub(super) fn set_caches(
        &self,
        deployments: Store<Deployment>,
        replica_sets: Store<ReplicaSet>,
        pods: Store<Pod>,
    ) {
        *self.caches.write() = Some(Caches { deployments, replica_sets, pods });
    }

    fn record(&self, key: ObjectKey, reasons: StuckReasons) {
        let mut stuck = self.stuck.lock();
        if reasons == StuckReasons::default() {
            stuck.remove(&key);
        } else {
            stuck.insert(key, reasons);
        }
    }

    /// Number of stuck rollouts by cause and reason.
    fn counts(&self) -> BTreeMap<(&'static str, &'static str), usize> {
        let stuck = self.stuck.lock().clone();
        let caches = self.caches.read();
        let mut counts = BTreeMap::new();
        for (at, (key, reasons)) in stuck.iter().enumerate() {
            let explained = caches.as_ref().filter(|_| at < MAX_EXPLAINED);
            let cause = explained.and_then(|caches| caches.cause(key)).unwrap_or(Cause::Unknown);
            let applies = REASONS.iter().zip(reasons).filter(|(_, applies)| **applies);
            for (reason, _) in applies {
                *counts.entry((cause.name(), *reason)).or_default() += 1;
            }
        }
        counts
    }

    fn export(&self) {
        let counts = self.counts();
        let mut exported = self.exported.lock();
        exported.extend(counts.keys());
        for (cause, reason) in &*exported {
            let count = counts.get(&(*cause, *reason)).copied().unwrap_or(0);
            self.gauges.with([cause, reason]).set(count as f64);
        }
    }
}

impl Caches {
    /// Finds the cause in the caches. `None` if they do not contain the Deployment.
    fn cause(&self, key: &ObjectKey) -> Option<Cause> {
        let deployment = self.deployments.get(key)?;
        let replica_sets =
            self.replica_sets.by_index(replica_set_index::CONTROLLER_UID, &deployment.metadata.uid);
        let sets = ReplicaSetSplit::find(&deployment, &replica_sets);
        let of = |set: &Arc<ReplicaSet>| {
            let (pods, uid) = (self.pods.read(), &set.metadata.uid);
            pods.by_index(pod_index::CONTROLLER_UID, uid).take(MAX_PODS).cloned().collect::<Vec<_>>()
        };
        let pods: Vec<Arc<Pod>> = sets.all().flat_map(of).collect();
        Some(cached_cause(&deployment, &sets, &pods))
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
        self.record(object.key(), stuck_reasons(object));
    }

    fn on_update(&self, _old: &Arc<Deployment>, new: &Arc<Deployment>) {
        self.record(new.key(), stuck_reasons(new));
    }

    fn on_delete(&self, deleted: &Deleted<Deployment>) {
        self.record(deleted.object().key(), StuckReasons::default());
    }
}

#[cfg(test)]
mod tests {
    use kcm_api::{DeploymentCondition, PodDecoder, deployment::KIND};
    use kcm_controller_util::{deployment_indexers, pod_indexers, replica_set_indexers};
    use kcm_informer::StoreWriter;
    use kcm_metrics::MetricsOptions;
    use serde_json::{Value, json};

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
        rollouts.export();
        REASONS.map(|reason| rollouts.gauges.with(["unknown", reason]).get())
    }

    fn rollouts() -> Arc<Rollouts> {
        Rollouts::new(&Registry::new(&MetricsOptions::default()))
    }

    fn with_caches(deployment: &Arc<Deployment>, set: &ReplicaSet, pod: &Value) -> Arc<Rollouts> {
        let mut deployments = StoreWriter::new(deployment_indexers());
        deployments.apply(Arc::clone(deployment));
        let mut sets = StoreWriter::new(replica_set_indexers());
        sets.apply(Arc::new(set.clone()));
        let mut pods = StoreWriter::new(pod_indexers());
        pods.apply(Arc::new(PodDecoder::default().decode_value(pod).unwrap()));
        let rollouts = rollouts();
        rollouts.set_caches(deployments.reader(), sets.reader(), pods.reader());
        rollouts.on_add(deployment, true);
        rollouts
    }

    #[test]
    fn cause_is_that_of_the_new_pods_until_the_rollout_progresses() {
        let web = deployment("web", |deployment| {
            deployment.metadata.uid = "u-web".into();
            too_slow(deployment);
        });
        let set: ReplicaSet = serde_json::from_value(json!({
            "metadata": {"namespace": "default", "name": "web-1", "uid": "u-set", "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u-web", "controller": true},
            ]},
            "spec": {"replicas": 2, "template": web.spec.template},
        }))
        .unwrap();
        let pod = json!({
            "metadata": {"namespace": "default", "name": "web-1-a", "uid": "u-pod", "ownerReferences": [
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "u-set", "controller": true},
            ]},
            "spec": {"nodeName": "n"},
            "status": {"containerStatuses": [{"name": "c", "state": {"waiting": {"reason": "ErrImagePull"}}}]},
        });
        let rollouts = with_caches(&web, &set, &pod);
        rollouts.export();
        let count = |cause: &str| rollouts.gauges.with([cause, TIMED_OUT]).get();
        assert_eq!((count("image_pull"), count("unknown")), (1.0, 0.0));
        rollouts.on_update(&web, &deployment("web", |_| {}));
        rollouts.export();
        assert_eq!((count("image_pull"), count("unknown")), (0.0, 0.0));
    }

    #[test]
    fn cause_of_a_refused_creation_is_in_the_condition() {
        let web = deployment("web", |deployment| {
            let mut failed = condition("ReplicaFailure", "True", "FailedCreate");
            failed.message =
                "pods \"web-1-a\" is forbidden: exceeded quota: small, requested: pods=1".to_owned();
            deployment.status.conditions.push(failed);
        });
        let rollouts = with_caches(&web, &ReplicaSet::default(), &json!({}));
        rollouts.export();
        assert_eq!(rollouts.gauges.with(["quota_exceeded", REPLICA_FAILURE]).get(), 1.0);
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
        assert!(rollouts.stuck.lock().is_empty());
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

//! Test objects, and a fake cluster.

mod api_server;
mod cluster;

pub(crate) use api_server::{Caches, FakeApiServer};
pub(crate) use cluster::FakeCluster;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use kcm_api::{
    Deployment, IntOrString, LabelSelector, Pod, PodDecoder, PodTemplate, ReplicaSet, RollingUpdate, Time,
};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_deployment_util::fenceposts::{RECREATE, ROLLING_UPDATE};
use serde_json::json;

use crate::{
    error::SyncError,
    plan::{Interrupt, PlanBuilder, PlanResult, PlannedAction, Requires},
    view::View,
};

/// Start of all tests, in seconds since the Unix epoch.
pub(crate) const START: i64 = 1_800_000_000;

pub(crate) fn template(image: &str) -> PodTemplate {
    PodTemplate::from_value(&json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": image}]},
    }))
    .unwrap()
}

/// Returns the Deployment `default/web` with defaults set.
pub(crate) fn deployment(replicas: i32) -> Deployment {
    let mut d = Deployment::default();
    d.metadata.name = "web".into();
    d.metadata.namespace = "default".into();
    d.metadata.uid = "deployment-uid".into();
    d.metadata.resource_version = "1".to_owned();
    d.metadata.generation = 1;
    d.metadata.creation_timestamp = Some(Time::from_unix(START));
    let match_labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    d.spec.selector = Some(LabelSelector { match_labels, ..LabelSelector::default() });
    d.spec.replicas = Some(replicas);
    d.spec.template = template("web:1");
    d.spec.revision_history_limit = Some(10);
    d.spec.progress_deadline_seconds = Some(600);
    set_strategy(&mut d, IntOrString::String("25%".to_owned()), IntOrString::String("25%".to_owned()));
    d
}

pub(crate) fn set_strategy(d: &mut Deployment, max_surge: IntOrString, max_unavailable: IntOrString) {
    d.spec.strategy.type_ = ROLLING_UPDATE.to_owned();
    d.spec.strategy.rolling_update = Some(RollingUpdate {
        max_unavailable: Some(max_unavailable),
        max_surge: Some(max_surge),
        ..RollingUpdate::default()
    });
}

pub(crate) fn set_recreate(d: &mut Deployment) {
    d.spec.strategy.type_ = RECREATE.to_owned();
    d.spec.strategy.rolling_update = None;
}

/// Returns a view of `deployment` without ReplicaSets.
pub(crate) fn view_of(deployment: Deployment) -> View {
    View {
        deployment: Arc::new(deployment),
        replica_sets: Vec::new(),
        running: BTreeSet::new(),
        unobserved_scale_downs: BTreeSet::new(),
        terminating_replicas: true,
        coalesce_status_writes: true,
    }
}

/// Runs `decide` on `view`. Each write succeeds and returns the object as sent. Returns the result and the actions.
pub(crate) fn decide<T>(
    view: &View,
    decide: impl Fn(&mut PlanBuilder<'_>) -> PlanResult<T>,
) -> (Result<T, SyncError>, Vec<PlannedAction>) {
    let mut results = Vec::new();
    loop {
        let mut plan = PlanBuilder::new(view, &results, Time::from_unix(START).timestamp());
        let mut result = decide(&mut plan);
        if result.is_ok() {
            result = plan.write_deferred_status(Requires::Success).and(result);
        }
        let (actions, _) = plan.into_parts();
        match result {
            Ok(value) => return (Ok(value), actions),
            Err(Interrupt::Failed(error)) => return (Err(error), actions),
            Err(Interrupt::ResultRequired) => {
                results
                    .extend(actions[results.len()..].iter().map(|planned| planned.action.result_as_sent()));
            }
        }
    }
}

/// Returns a ReplicaSet of [`deployment`] with this image, created `created` seconds after [`START`].
pub(crate) fn replica_set(name: &str, image: &str, created: i64, size: i32, available: i32) -> ReplicaSet {
    let mut set = ReplicaSet::default();
    set.metadata.name = name.into();
    set.metadata.namespace = "default".into();
    set.metadata.uid = format!("uid-of-{name}").into();
    set.metadata.resource_version = "10".to_owned();
    set.metadata.generation = 1;
    set.metadata.creation_timestamp = Some(Time::from_unix(START + created));
    set.metadata.labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
    set.metadata.owner_references = vec![OwnerIdentity::from(&deployment(1)).controller_reference()];
    set.spec.replicas = Some(size);
    set.spec.template = template(image);
    set.status.replicas = size;
    set.status.ready_replicas = available;
    set.status.available_replicas = available;
    set.status.terminating_replicas = Some(0);
    set.status.observed_generation = 1;
    set
}

/// Returns a pod of `owner`.
pub(crate) fn pod_of(owner: &ReplicaSet, name: &str, phase: &str) -> Pod {
    let pod = json!({
        "metadata": {
            "name": name, "namespace": owner.metadata.namespace, "uid": format!("uid-of-{name}"),
            "resourceVersion": "20", "ownerReferences": [OwnerIdentity::from(owner).controller_reference()],
        },
        "status": {"phase": phase},
    });
    PodDecoder::default().decode_value(&pod).unwrap()
}

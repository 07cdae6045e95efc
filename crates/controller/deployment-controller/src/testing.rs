//! Objects for tests, and the means to run one decision by itself.

mod server;
mod world;

pub(crate) use server::{Caches, Server};
pub(crate) use world::World;

use std::collections::BTreeMap;

use kcm_api::{
    Deployment, IntOrString, LabelSelector, Pod, PodDecoder, PodTemplate, ReplicaSet, RollingUpdate, Time,
};
use kcm_controller_ref_manager::OwnerIdentity;
use kcm_deployment_util::fenceposts::{RECREATE, ROLLING_UPDATE};
use serde_json::json;

use crate::{
    PlannedAction, SyncError, View,
    pass::{Pass, Step, Stop},
};

/// When every world begins.
pub(crate) const START: i64 = 1_800_000_000;

pub(crate) fn template(image: &str) -> PodTemplate {
    PodTemplate::from_value(&json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": image}]},
    }))
    .unwrap()
}

/// A Deployment `default/web` as it comes from a server that has filled in what was left out.
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

/// Runs `decide` over `view` until it has all its answers, each as sent; gives what comes out and what it did.
pub(crate) fn decide<T>(
    view: &View,
    decide: impl Fn(&mut Pass<'_>) -> Step<T>,
) -> (Result<T, SyncError>, Vec<PlannedAction>) {
    let mut answers = Vec::new();
    loop {
        let mut pass = Pass::new(view, &answers, Time::from_unix(START).timestamp());
        let step = decide(&mut pass);
        let actions = pass.into_actions();
        match step {
            Ok(value) => return (Ok(value), actions),
            Err(Stop::Failed(error)) => return (Err(error), actions),
            Err(Stop::NeedsAnswer) => {
                answers.extend(actions[answers.len()..].iter().map(|planned| planned.action.as_sent()));
            }
        }
    }
}

/// A ReplicaSet of [`deployment`]'s with this image, created so many seconds after the start.
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

/// A pod of `owner`'s.
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

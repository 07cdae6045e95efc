//! Test objects.

use kcm_api::{Deployment, IntOrString, PodTemplate, ReplicaSet, RollingUpdate};
use serde_json::json;

use crate::fenceposts::{RECREATE, ROLLING_UPDATE};

pub(crate) fn template(image: &str) -> PodTemplate {
    PodTemplate::from_value(&json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c", "image": image}]},
    }))
    .unwrap()
}

pub(crate) fn replica_set(name: &str, replicas: i32) -> ReplicaSet {
    let mut set = ReplicaSet::default();
    set.metadata.name = name.into();
    set.spec.replicas = Some(replicas);
    set.spec.template = template("image");
    set
}

pub(crate) fn deployment(replicas: i32) -> Deployment {
    let mut d = Deployment::default();
    d.metadata.name = "foo".into();
    d.spec.replicas = Some(replicas);
    d.spec.template = template("image");
    d
}

pub(crate) fn recreate(replicas: i32) -> Deployment {
    let mut d = deployment(replicas);
    d.spec.strategy.type_ = RECREATE.to_owned();
    d
}

pub(crate) fn rolling(replicas: i32, max_surge: IntOrString, max_unavailable: IntOrString) -> Deployment {
    let mut d = deployment(replicas);
    d.spec.strategy.type_ = ROLLING_UPDATE.to_owned();
    d.spec.strategy.rolling_update = Some(RollingUpdate {
        max_unavailable: Some(max_unavailable),
        max_surge: Some(max_surge),
        ..RollingUpdate::default()
    });
    d
}

pub(crate) fn count(count: i32) -> IntOrString {
    IntOrString::Int(count)
}

pub(crate) fn percent(percent: i64) -> IntOrString {
    IntOrString::String(format!("{percent}%"))
}

//! Objects for this crate's tests.

use std::sync::Arc;

use kcm_api::{Labels, ObjectKey, Phase, Pod, PodControllerRef, Ready, Time};
use kcm_clock::Timestamp;

/// The time of all tests that need one.
pub(crate) fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// So many seconds before [`now`].
pub(crate) fn ago(seconds: i64) -> Option<Time> {
    Some(Time::from_unix(now().as_second() - seconds))
}

/// A running pod, not ready, on no node.
pub(crate) fn pod(name: &str) -> Pod {
    Pod {
        key: ObjectKey::new("default", name),
        uid: format!("uid-{name}").into(),
        resource_version: "1".into(),
        labels: Arc::default(),
        controller: None,
        creation_timestamp: None,
        deletion_timestamp: None,
        node_name: None,
        phase: Phase::Running,
        ready: Ready::default(),
        deletion_cost: 0,
        max_restarts: 0,
        max_sidecar_restarts: 0,
        waiting: kcm_api::Waiting::NoFailure,
    }
}

/// `pod`, ready since then.
pub(crate) fn ready(pod: Pod, since: Option<Time>) -> Pod {
    Pod { ready: Ready { is_ready: true, since }, ..pod }
}

/// `pod` on `node`.
pub(crate) fn on(pod: Pod, node: &str) -> Pod {
    Pod { node_name: Some(node.into()), ..pod }
}

/// `pod` with one label.
pub(crate) fn labelled(pod: Pod, key: &str, value: &str) -> Pod {
    Pod { labels: Arc::new(Labels::from([(key.to_owned(), value.to_owned())])), ..pod }
}

/// `pod` managed by a ReplicaSet.
pub(crate) fn owned(pod: Pod, owner: &str, uid: &str) -> Pod {
    let controller = PodControllerRef {
        api_version: "apps/v1".into(),
        kind: "ReplicaSet".into(),
        name: owner.into(),
        uid: uid.into(),
        block_owner_deletion: Some(true),
    };
    Pod { controller: Some(Arc::new(controller)), ..pod }
}

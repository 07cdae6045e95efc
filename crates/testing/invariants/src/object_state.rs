//! Properties of objects that invariants depend on.

use jiff::{SignedDuration, Timestamp};
use kcm_api::{IntOrString, int_or_string::Round};
use kcm_apiserver::json::condition;
use serde_json::Value;

/// Properties of one state of an object.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ObjectState {
    Deployment(DeploymentState),
    ReplicaSet(ReplicaSetState),
    Pod(PodState),
}

/// Identity and controllers of an object.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Identity {
    pub(crate) kind: &'static str,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) uid: String,
    /// UIDs of its controllers. There must be at most one.
    pub(crate) controllers: Vec<String>,
    pub(crate) deleting: bool,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct DeploymentState {
    pub(crate) identity: Identity,
    pub(crate) generation: i64,
    pub(crate) observed: i64,
    pub(crate) bounds: Bounds,
    pub(crate) revision: Option<i64>,
    pub(crate) collisions: i64,
    pub(crate) status: Rollout,
    pub(crate) deadline: Option<ProgressDeadline>,
    pub(crate) template: Value,
}

/// Progress deadline of a rollout that is neither complete nor marked as timed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ProgressDeadline {
    pub(crate) at: Timestamp,
    /// `true` if the controller must check it. It does not while the Deployment is paused or being deleted, or while no ReplicaSet
    /// can be created.
    pub(crate) is_checked: bool,
}

/// Progress of a rollout, from the status of a Deployment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Rollout {
    pub(crate) replicas: i32,
    pub(crate) updated: i32,
    pub(crate) available: i32,
    /// Status of the condition `Available`.
    pub(crate) is_available: Option<bool>,
    /// Reason of the condition `Progressing`.
    pub(crate) progress: String,
}

/// Bounds that follow from the spec of a Deployment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// `spec.replicas`.
    pub(crate) replicas: i32,
    pub(crate) surge: i32,
    /// Smallest number of available replicas with which the Deployment is available.
    pub(crate) available_from: i32,
    /// Maximum number of replicas.
    pub(crate) max_replicas: i32,
    /// Minimum number of available replicas.
    pub(crate) min_available: i32,
    /// `true` if new pods may be created only after all old pods are deleted.
    pub(crate) recreate: bool,
    /// Number of old ReplicaSets to keep.
    pub(crate) history: usize,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ReplicaSetState {
    pub(crate) identity: Identity,
    pub(crate) generation: i64,
    pub(crate) observed: i64,
    pub(crate) replicas: i32,
    /// `status.replicas`.
    pub(crate) pods: i32,
    pub(crate) available: i32,
    pub(crate) revision: Option<i64>,
    /// `spec.replicas` of the Deployment when this ReplicaSet was last scaled.
    pub(crate) desired: Option<i64>,
    /// Largest number of replicas that the Deployment allowed then.
    pub(crate) desired_max: Option<i64>,
    pub(crate) template: Value,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PodState {
    pub(crate) identity: Identity,
    pub(crate) finished: bool,
    pub(crate) ready: bool,
}

impl ObjectState {
    /// Returns `None` for kinds without invariants.
    pub(crate) fn of(object: &Value) -> Option<Self> {
        Some(match object["kind"].as_str()? {
            "Deployment" => Self::Deployment(DeploymentState::of(object)),
            "ReplicaSet" => Self::ReplicaSet(ReplicaSetState::of("replicaset", object)),
            "ReplicationController" => Self::ReplicaSet(ReplicaSetState::of("replicationcontroller", object)),
            "Pod" => Self::Pod(PodState::of(object)),
            _ => return None,
        })
    }

    pub(crate) fn identity(&self) -> &Identity {
        match self {
            Self::Deployment(deployment) => &deployment.identity,
            Self::ReplicaSet(set) => &set.identity,
            Self::Pod(pod) => &pod.identity,
        }
    }
}

impl Identity {
    fn of(kind: &'static str, object: &Value) -> Self {
        let meta = &object["metadata"];
        let text = |field: &str| meta[field].as_str().unwrap_or_default().to_owned();
        let owners = meta["ownerReferences"].as_array().map_or(&[][..], Vec::as_slice);
        let controllers = owners.iter().filter(|owner| owner["controller"] == true);
        Self {
            kind,
            namespace: text("namespace"),
            name: text("name"),
            uid: text("uid"),
            controllers: controllers
                .map(|owner| owner["uid"].as_str().unwrap_or_default().to_owned())
                .collect(),
            deleting: !meta["deletionTimestamp"].is_null(),
        }
    }

    pub(crate) fn controller(&self) -> Option<&str> {
        self.controllers.first().map(String::as_str)
    }

    pub(crate) fn describe(&self) -> String {
        format!("{} {}/{}", self.kind, self.namespace, self.name)
    }
}

/// Reason of the condition `Progressing` of a complete rollout.
pub(crate) const COMPLETE: &str = "NewReplicaSetAvailable";

/// Reason of the condition `Progressing` of a rollout that has exceeded its progress deadline.
pub(crate) const TIMED_OUT: &str = "ProgressDeadlineExceeded";

/// Default of `revisionHistoryLimit`.
const DEFAULT_HISTORY_LIMIT: u64 = 10;

fn number(object: &Value, pointer: &str) -> i64 {
    object.pointer(pointer).and_then(Value::as_i64).unwrap_or(0)
}

fn small(object: &Value, pointer: &str) -> i32 {
    i32::try_from(number(object, pointer)).unwrap_or(i32::MAX)
}

fn annotation(object: &Value, name: &str) -> Option<i64> {
    object["metadata"]["annotations"][format!("deployment.kubernetes.io/{name}")].as_str()?.parse().ok()
}

impl DeploymentState {
    fn of(object: &Value) -> Self {
        let identity = Identity::of("deployment", object);
        Self {
            deadline: ProgressDeadline::of(object, identity.deleting),
            identity,
            generation: number(object, "/metadata/generation"),
            observed: number(object, "/status/observedGeneration"),
            bounds: Bounds::of(&object["spec"]),
            revision: annotation(object, "revision"),
            collisions: number(object, "/status/collisionCount"),
            status: Rollout::of(object),
            template: object["spec"]["template"].clone(),
        }
    }
}

impl Rollout {
    fn of(object: &Value) -> Self {
        let is_available = condition(object, "Available").map(|condition| condition["status"] == "True");
        let progress = condition(object, "Progressing").and_then(|condition| condition["reason"].as_str());
        Self {
            replicas: small(object, "/status/replicas"),
            updated: small(object, "/status/updatedReplicas"),
            available: small(object, "/status/availableReplicas"),
            is_available,
            progress: progress.unwrap_or_default().to_owned(),
        }
    }
}

impl ProgressDeadline {
    /// The deadline counts from the last update of the condition `Progressing`.
    fn of(object: &Value, is_deleting: bool) -> Option<Self> {
        let seconds = object.pointer("/spec/progressDeadlineSeconds").and_then(Value::as_i64)?;
        let progressing = condition(object, "Progressing")?;
        let reason = progressing["reason"].as_str().unwrap_or_default();
        if seconds >= i32::MAX.into() || [COMPLETE, TIMED_OUT].contains(&reason) {
            return None;
        }
        let is_checked =
            object["spec"]["paused"] != true && !is_deleting && reason != "ReplicaSetCreateError";
        // Without a time, the deadline has passed.
        let updated = progressing["lastUpdateTime"].as_str().and_then(|time| time.parse().ok());
        let updated: Timestamp = updated.unwrap_or(Timestamp::MIN);
        Some(Self { at: updated.checked_add(SignedDuration::from_secs(seconds)).ok()?, is_checked })
    }
}

impl Bounds {
    /// `maxSurge` is rounded up, `maxUnavailable` down; if both are 0, one pod may be unavailable (US-4.15). With
    /// Recreate there is no surge and no minimum.
    fn of(spec: &Value) -> Self {
        let replicas = small(spec, "/replicas");
        let is_recreate = spec["strategy"]["type"] == "Recreate";
        let limit = spec["revisionHistoryLimit"].as_u64().unwrap_or(DEFAULT_HISTORY_LIMIT);
        let share = |name: &str, round| {
            let value = &spec["strategy"]["rollingUpdate"][name];
            let value: Option<IntOrString> = serde_json::from_value(value.clone()).ok();
            value.and_then(|value| value.scaled(replicas, round).ok()).unwrap_or(0)
        };
        let (surge, unavailable) = match is_recreate {
            true => (0, 0),
            false => match (share("maxSurge", Round::Up), share("maxUnavailable", Round::Down)) {
                (0, 0) => (0, 1),
                shares => shares,
            },
        };
        let available_from = replicas - unavailable.min(replicas);
        Self {
            replicas,
            surge,
            available_from,
            max_replicas: if replicas == 0 { 0 } else { replicas.saturating_add(surge) },
            min_available: if is_recreate { 0 } else { available_from },
            // A paused Deployment is scaled independently of its strategy.
            recreate: is_recreate && spec["paused"] != true,
            history: usize::try_from(limit).unwrap_or(usize::MAX),
        }
    }
}

impl ReplicaSetState {
    fn of(kind: &'static str, object: &Value) -> Self {
        Self {
            identity: Identity::of(kind, object),
            generation: number(object, "/metadata/generation"),
            observed: number(object, "/status/observedGeneration"),
            replicas: small(object, "/spec/replicas"),
            pods: small(object, "/status/replicas"),
            available: small(object, "/status/availableReplicas"),
            revision: annotation(object, "revision"),
            desired: annotation(object, "desired-replicas"),
            desired_max: annotation(object, "max-replicas"),
            template: object["spec"]["template"].clone(),
        }
    }
}

impl PodState {
    fn of(object: &Value) -> Self {
        Self {
            identity: Identity::of("pod", object),
            finished: matches!(object["status"]["phase"].as_str(), Some("Succeeded" | "Failed")),
            ready: condition(object, "Ready").is_some_and(|condition| condition["status"] == "True"),
        }
    }

    /// `true` if the pod counts as a replica.
    pub(crate) fn is_active(&self) -> bool {
        !self.finished && !self.identity.deleting
    }
}

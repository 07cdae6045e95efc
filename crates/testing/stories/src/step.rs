//! Steps of a story.

use std::{collections::BTreeMap, fmt, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use crate::{
    expectation::Expectation,
    seconds::{seconds, some_seconds},
    target::Target,
};

/// Step of a story.
///
/// Strings can contain placeholders that are replaced when the step is executed: `${round}` is the round of the enclosing
/// [`Repeat`], from 1; `${replicaset#0}` is the name of an object; `${deployment/web /metadata/uid}` is a field of an
/// object.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Creates an object.
    Create(Value),
    /// Patches an object.
    Patch(Patch),
    /// Sets `spec.replicas`.
    Scale(Scale),
    /// Deletes an object.
    Delete(Delete),
    /// Reports the status of ReplicaSets, in place of a ReplicaSet controller.
    ReplicaSetStatus(ReplicaSetStatusReport),
    /// Reports the status of pods, in place of a kubelet.
    PodStatus(PodStatusReport),
    /// Binds a pod to a node, in place of a scheduler.
    Bind(Bind),
    /// Waits until the manager is quiet, and records its writes under a label.
    Settle(Settle),
    /// Waits for a time in seconds. Writes of the manager are recorded by the next `settle`.
    #[serde(deserialize_with = "seconds")]
    Wait(Duration),
    /// `kubectl set image`, for the first container.
    SetImage(SetImage),
    /// `kubectl rollout undo`.
    Undo(Undo),
    /// `kubectl rollout pause`.
    Pause(Target),
    /// `kubectl rollout resume`.
    Resume(Target),
    /// Evicts a pod. Fails if a disruption budget forbids it.
    Evict(Target),
    /// `kubectl drain`: cordons a node and evicts its pods.
    Drain(Drain),
    /// `kubectl uncordon`.
    Uncordon(String),
    /// Simulates the loss of a node: its pods become unready, then the node and its pods are deleted.
    LoseNode(String),
    /// Stops the manager and starts it again.
    RestartManager(RestartManager),
    /// Waits until the state is as expected.
    Until(Expectation),
    /// Checks that the state is as expected now.
    Expect(Expectation),
    /// Steps that may fail; errors are ignored.
    Attempt(Vec<Spanned<Self>>),
    /// Repeats steps.
    Repeat(Repeat),
}

/// Patch of an object.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Patch {
    /// Object to patch.
    pub object: Target,
    /// Subresource, for example `status`.
    pub subresource: Option<String>,
    /// Patch type.
    #[serde(default, rename = "type")]
    pub form: PatchForm,
    /// Patch.
    pub body: Value,
}

/// Patch type.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PatchForm {
    /// JSON merge patch (RFC 7396).
    #[default]
    Merge,
    /// Strategic merge patch.
    Strategic,
    /// JSON patch (RFC 6902).
    Json,
}

/// Change of `spec.replicas`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scale {
    /// Object to scale.
    pub object: Target,
    /// Number of replicas.
    pub replicas: i32,
}

/// Deletion of an object.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Delete {
    /// Object to delete.
    pub object: Target,
    /// Grace period in seconds; 0 deletes immediately.
    pub grace_period_seconds: Option<i64>,
    /// Propagation policy: `Background`, `Foreground` or `Orphan`.
    pub propagation_policy: Option<String>,
}

/// Status of ReplicaSets.
///
/// By default, all replicas of the spec are ready and available.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplicaSetStatusReport {
    /// ReplicaSet to report; all, oldest first, if absent.
    pub object: Option<Target>,
    /// Status fields that differ from the default.
    #[serde(default)]
    pub status: Map<String, Value>,
    /// Additional status fields of ReplicaSets, by the image of their first container.
    #[serde(default)]
    pub by_image: BTreeMap<String, Map<String, Value>>,
}

/// Status of pods.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodStatusReport {
    /// Pod to report; all, oldest first, if absent.
    pub object: Option<Target>,
    /// Status of the `Ready` condition. Default: `true`.
    pub ready: Option<bool>,
    /// Phase. Default: `Running`.
    pub phase: Option<String>,
}

/// Change of the image of the first container.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetImage {
    /// Deployment or ReplicaSet to change.
    pub object: Target,
    /// New image.
    pub image: String,
}

/// Rollback to a revision.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Undo {
    /// Deployment to roll back.
    pub object: Target,
    /// Revision. Default: the previous one.
    pub to_revision: Option<i64>,
}

/// Drain of a node.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Drain {
    /// Name of the node.
    pub node: String,
    /// Timeout in seconds. Default: 300.
    #[serde(default = "drain_limit", deserialize_with = "seconds")]
    pub limit: Duration,
}

/// Restart of the manager, written `restartManager: {}`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestartManager {}

/// Binding of a pod to a node.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bind {
    /// Pod to bind.
    pub object: Target,
    /// Name of the node, which need not exist.
    pub node: String,
}

/// Waits until the manager is quiet.
#[derive(Debug, Clone, PartialEq)]
pub struct Settle {
    /// Label under which the writes are recorded.
    pub label: String,
    /// Time without writes after which the manager is quiet.
    pub quiet: Duration,
    /// Maximum time to wait. Later writes are recorded by the next `settle`.
    pub limit: Duration,
}

/// Repeated steps.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Repeat {
    /// Number of rounds.
    pub times: usize,
    /// Steps of each round.
    pub steps: Vec<Spanned<Step>>,
}

impl Settle {
    /// Longer than the time between two related requests of a manager.
    const QUIET: Duration = Duration::from_millis(1200);
    const LIMIT: Duration = Duration::from_secs(30);

    pub(crate) fn labelled(label: &str) -> Self {
        Self { label: label.to_owned(), quiet: Self::QUIET, limit: Self::LIMIT }
    }
}

/// A label, or a map with times in seconds.
impl<'de> Deserialize<'de> for Settle {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Fields {
            label: String,
            #[serde(default, deserialize_with = "some_seconds")]
            quiet: Option<Duration>,
            #[serde(default, deserialize_with = "some_seconds")]
            limit: Option<Duration>,
        }

        struct Form;

        impl<'de> Visitor<'de> for Form {
            type Value = Settle;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a label, or a map with the keys label, quiet and limit")
            }

            fn visit_str<E: de::Error>(self, label: &str) -> Result<Settle, E> {
                Ok(Settle::labelled(label))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Settle, A::Error> {
                let Fields { label, quiet, limit } = Fields::deserialize(MapAccessDeserializer::new(map))?;
                let (quiet, limit) = (quiet.unwrap_or(Settle::QUIET), limit.unwrap_or(Settle::LIMIT));
                Ok(Settle { label, quiet, limit })
            }
        }

        deserializer.deserialize_any(Form)
    }
}

const fn drain_limit() -> Duration {
    Duration::from_secs(300)
}

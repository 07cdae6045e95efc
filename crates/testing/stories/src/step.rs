//! What can happen in a story.

use std::{collections::BTreeMap, fmt, str::FromStr, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor, value::MapAccessDeserializer},
};
use serde_json::{Map, Value};
use serde_saphyr::Spanned;

use crate::look::Look;

/// One thing that happens.
///
/// Text in it may hold `${…}`, which stands for something that is known only when the step is taken: `${round}` for
/// the number of the [`Repeat`]'s round, from 1; `${replicaset#0}` for a name; `${deployment/web /metadata/uid}` for
/// what is at that place in the object.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Step {
    /// Someone creates this object.
    Create(Value),
    /// Someone changes an object.
    Patch(Patch),
    /// Someone sets `spec.replicas`.
    Scale(Scale),
    /// Someone deletes an object.
    Delete(Delete),
    /// The story plays the ReplicaSet controller.
    ReplicaSetStatus(ReplicaSetStatus),
    /// The story plays the kubelet.
    PodStatus(PodStatus),
    /// The story plays the scheduler.
    Bind(Bind),
    /// Wait until the manager is quiet, and file what it has written.
    Settle(Settle),
    /// Time passes; what the manager writes belongs to what is settled next.
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
    /// Someone evicts a pod. It fails where a disruption budget forbids it.
    Evict(Target),
    /// `kubectl drain`: no new pods for the node, and those that are there evicted, as fast as budgets allow.
    Drain(Drain),
    /// `kubectl uncordon`.
    Uncordon(String),
    /// A node dies: its pods are no longer ready, then it is taken out of the cluster, and the pods with it.
    LoseNode(String),
    /// The manager is stopped and started again.
    RestartManager(RestartManager),
    /// Wait until things are as they should be.
    Until(Look),
    /// Things are as they should be now.
    Expect(Look),
    /// Steps that may be impossible; those that are leave no trace.
    Attempt(Vec<Spanned<Self>>),
    /// Several rounds of the same.
    Repeat(Repeat),
}

/// A change of one object.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Patch {
    /// Which object.
    pub object: Target,
    /// A part of it with an address of its own, such as `status`.
    pub subresource: Option<String>,
    /// How `body` is meant.
    #[serde(default, rename = "type")]
    pub form: PatchForm,
    /// What changes.
    pub body: Value,
}

/// The forms of a patch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PatchForm {
    /// RFC 7396; null removes.
    #[default]
    Merge,
    /// Kubernetes' own.
    Strategic,
    /// RFC 6902.
    Json,
}

/// A new size.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Scale {
    /// Of which object.
    pub object: Target,
    /// How many replicas it is to have.
    pub replicas: i32,
}

/// A deletion.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Delete {
    /// Of which object.
    pub object: Target,
    /// Seconds that it gets to stop; 0 for at once.
    pub grace_period_seconds: Option<i64>,
    /// What becomes of what it owns: `Background`, `Foreground` or `Orphan`.
    pub propagation_policy: Option<String>,
}

/// What a ReplicaSet controller reports.
///
/// Where nothing else is said, all is well: as many pods as the spec wants, all of them ready and available.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReplicaSetStatus {
    /// Of which ReplicaSet; of all, oldest first, when none is named.
    pub object: Option<Target>,
    /// What else is said: fields of the status.
    #[serde(default)]
    pub status: Map<String, Value>,
    /// What is said, besides, of ReplicaSets whose first container has this image.
    #[serde(default)]
    pub by_image: BTreeMap<String, Map<String, Value>>,
}

/// What a kubelet reports.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodStatus {
    /// Of which pod; of all, oldest first, when none is named.
    pub object: Option<Target>,
    /// Whether it is ready, from now on. Yes, if it is not said.
    pub ready: Option<bool>,
    /// Its phase. `Running`, if it is not said.
    pub phase: Option<String>,
}

/// A new image.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SetImage {
    /// For the pods of which object.
    pub object: Target,
    /// Which image.
    pub image: String,
}

/// A way back.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Undo {
    /// Of which Deployment.
    pub object: Target,
    /// To which revision; to the one before the present one, if none is given.
    pub to_revision: Option<i64>,
}

/// A node is emptied.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Drain {
    /// Which node.
    pub node: String,
    /// How long it may take, in seconds.
    #[serde(default = "drain_limit", deserialize_with = "seconds")]
    pub limit: Duration,
}

/// The manager is stopped and started again; written `restartManager: {}`.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RestartManager {}

/// A pod is put onto a node.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bind {
    /// Which pod.
    pub object: Target,
    /// Which node. It need not exist.
    pub node: String,
}

/// When the manager counts as quiet.
#[derive(Debug, Clone, PartialEq)]
pub struct Settle {
    /// What the writes since the last time are filed under.
    pub label: String,
    /// How long it must have written nothing.
    pub quiet: Duration,
    /// How long it may go on; what comes later is filed later.
    pub limit: Duration,
}

/// Rounds.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Repeat {
    /// How many.
    pub times: usize,
    /// What each consists of.
    pub steps: Vec<Spanned<Step>>,
}

/// One object: `deployment/web` by its name, or `pod#2` by its number.
///
/// The objects of a kind are numbered from 0 when a step first asks, oldest first and then by name, and keep their
/// numbers when they are gone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// What it is.
    pub kind: Kind,
    /// Which one.
    pub name: Name,
}

/// How an object is told from others of its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Name {
    /// By its name.
    Given(String),
    /// By its number.
    Number(usize),
}

/// The kinds of objects that stories are about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// A Deployment.
    Deployment,
    /// A ReplicaSet.
    ReplicaSet,
    /// A pod.
    Pod,
    /// A node.
    Node,
    /// A limit to what a namespace may hold.
    ResourceQuota,
    /// A limit to how many pods may be evicted.
    PodDisruptionBudget,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Deployment,
        Self::ReplicaSet,
        Self::Pod,
        Self::Node,
        Self::ResourceQuota,
        Self::PodDisruptionBudget,
    ];

    /// What objects of the kind say of themselves.
    pub fn of_object(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word().eq_ignore_ascii_case(kind))
    }

    /// What stories call it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Deployment => "deployment",
            Self::ReplicaSet => "replicaset",
            Self::Pod => "pod",
            Self::Node => "node",
            Self::ResourceQuota => "resourcequota",
            Self::PodDisruptionBudget => "poddisruptionbudget",
        }
    }

    /// What the API calls many of it, such as `deployments`.
    pub const fn resource(self) -> &'static str {
        match self {
            Self::Deployment => "deployments",
            Self::ReplicaSet => "replicasets",
            Self::Pod => "pods",
            Self::Node => "nodes",
            Self::ResourceQuota => "resourcequotas",
            Self::PodDisruptionBudget => "poddisruptionbudgets",
        }
    }

    /// The path of all of it in a namespace; nodes are in none.
    pub(crate) fn path(self, namespace: &str) -> String {
        let group = match self {
            Self::Node => return "/api/v1/nodes".to_owned(),
            Self::Pod | Self::ResourceQuota => "/api/v1",
            Self::Deployment | Self::ReplicaSet => "/apis/apps/v1",
            Self::PodDisruptionBudget => "/apis/policy/v1",
        };
        format!("{group}/namespaces/{namespace}/{}", self.resource())
    }
}

impl<'de> Deserialize<'de> for Kind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Self::ALL
            .into_iter()
            .find(|kind| kind.word() == word)
            .ok_or_else(|| de::Error::custom(format!("{word:?} is no kind such as pod or replicaset")))
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unusable =
            || format!("{text:?} names no object; write deployment/NAME, replicaset#NUMBER or the like");
        let (at, separator) =
            text.char_indices().find(|(_, char)| matches!(char, '/' | '#')).ok_or_else(unusable)?;
        let (word, rest) = (&text[..at], &text[at + 1..]);
        let kind = Kind::ALL.into_iter().find(|kind| kind.word() == word).ok_or_else(unusable)?;
        let name = match separator {
            '/' if !rest.is_empty() => Name::Given(rest.to_owned()),
            '#' => Name::Number(rest.parse().map_err(|_| unusable())?),
            _ => return Err(unusable()),
        };
        Ok(Self { kind, name })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Name::Given(name) => write!(f, "{}/{name}", self.kind.word()),
            Name::Number(number) => write!(f, "{}#{number}", self.kind.word()),
        }
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

impl Settle {
    /// Longer than two requests that follow from each other ever lie apart.
    const QUIET: Duration = Duration::from_millis(1200);
    const LIMIT: Duration = Duration::from_secs(30);

    pub(crate) fn labelled(label: &str) -> Self {
        Self { label: label.to_owned(), quiet: Self::QUIET, limit: Self::LIMIT }
    }
}

/// A label alone, or with times in seconds.
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
                f.write_str("a label, or a map of label, quiet and limit")
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

pub(crate) fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    Duration::try_from_secs_f64(f64::deserialize(deserializer)?).map_err(de::Error::custom)
}

pub(crate) fn some_seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    seconds(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_reads_as_it_is_written() {
        for text in ["deployment/web", "replicaset#0", "pod#12", "pod/a-b"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn target_of_no_object_is_refused() {
        for text in ["", "web", "deployment/", "pod#", "pod#x", "daemonset/d", "Deployment/web"] {
            assert!(text.parse::<Target>().is_err(), "{text:?}");
        }
    }
}

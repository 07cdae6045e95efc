//! References to objects in story files.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, de};

/// Reference to an object by name (`deployment/web`) or number (`pod#2`).
///
/// The objects of a kind are numbered from 0 when a step first refers to a number, by creation time and name. Numbers of
/// deleted objects are not reused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// ObjectKind of the object.
    pub kind: ObjectKind,
    /// Name or number of the object.
    pub name: TargetName,
}

/// Name or number of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TargetName {
    /// Name.
    Given(String),
    /// Number.
    Number(usize),
}

/// Kinds of objects that stories can refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// A Deployment.
    Deployment,
    /// A ReplicaSet.
    ReplicaSet,
    /// A pod.
    Pod,
    /// A node.
    Node,
    /// A ResourceQuota.
    ResourceQuota,
    /// A PodDisruptionBudget.
    PodDisruptionBudget,
}

impl ObjectKind {
    const ALL: [Self; 6] = [
        Self::Deployment,
        Self::ReplicaSet,
        Self::Pod,
        Self::Node,
        Self::ResourceQuota,
        Self::PodDisruptionBudget,
    ];

    /// Returns the kind with this name, ignoring case.
    pub fn of_object(kind: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.word().eq_ignore_ascii_case(kind))
    }

    /// Name of the kind in stories.
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

    /// Plural resource name, for example `deployments`.
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

    /// API path of the resource in a namespace. Nodes are cluster-scoped.
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

impl<'de> Deserialize<'de> for ObjectKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let word = String::deserialize(deserializer)?;
        Self::ALL.into_iter().find(|kind| kind.word() == word).ok_or_else(|| {
            de::Error::custom(format!("unknown kind {word:?}, expected for example pod or replicaset"))
        })
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let invalid =
            || format!("invalid object {text:?}, expected for example deployment/NAME or replicaset#NUMBER");
        let (at, separator) =
            text.char_indices().find(|(_, char)| matches!(char, '/' | '#')).ok_or_else(invalid)?;
        let (word, rest) = (&text[..at], &text[at + 1..]);
        let kind = ObjectKind::ALL.into_iter().find(|kind| kind.word() == word).ok_or_else(invalid)?;
        let name = match separator {
            '/' if !rest.is_empty() => TargetName::Given(rest.to_owned()),
            '#' => TargetName::Number(rest.parse().map_err(|_| invalid())?),
            _ => return Err(invalid()),
        };
        Ok(Self { kind, name })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            TargetName::Given(name) => write!(f, "{}/{name}", self.kind.word()),
            TargetName::Number(number) => write!(f, "{}#{number}", self.kind.word()),
        }
    }
}

impl<'de> Deserialize<'de> for Target {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn target_round_trips() {
        for text in ["deployment/web", "replicaset#0", "pod#12", "pod/a-b"] {
            assert_eq!(text.parse::<Target>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn invalid_target_is_rejected() {
        for text in ["", "web", "deployment/", "pod#", "pod#x", "daemonset/d", "Deployment/web"] {
            assert!(text.parse::<Target>().is_err(), "{text:?}");
        }
    }
}

//! Decoding of pods.

use std::{
    borrow::Cow,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::{
    Phase, Pod, PodDecodeError, Ready, Waiting, deletion_cost, protobuf,
    wire::{Item, WireContainerStatus, WireOwner, WirePod, WireSpec, WireStatus, WireTime},
};
use crate::{
    Labels, ObjectKey, PodControllerRef, ProtobufError, Time, identify::object_name, intern::Interner,
    json::Object,
};

/// Decodes pods. Pods of one decoder share equal parts.
///
/// Namespaces, node names, label sets and controller references are interned: equal values of all pods of one decoder
/// are the same allocation, which is freed with the last pod. A decoder can be used by several threads at the same
/// time.
///
/// ```
/// let decoder = kcm_api::PodDecoder::default();
/// let pod = decoder.decode(r#"{"metadata": {"name": "web-1", "namespace": "shop"}, "spec": {}}"#)?;
/// assert_eq!(pod.key.to_string(), "shop/web-1");
/// # Ok::<(), kcm_api::pod::PodDecodeError>(())
/// ```
#[derive(Debug, Default)]
pub struct PodDecoder {
    texts: Interner<str>,
    labels: Interner<Labels>,
    controllers: Interner<PodControllerRef>,
}

impl PodDecoder {
    /// Decodes a pod from JSON.
    ///
    /// Fields that [`Pod`] does not have are ignored, even if they are invalid.
    ///
    /// # Errors
    ///
    /// If `json` is not a JSON object, or a field of [`Pod`] has the wrong type.
    pub fn decode(&self, json: &str) -> Result<Pod, PodDecodeError> {
        serde_json::from_str(json)
            .and_then(|Object(wire)| self.assemble(&wire).map_err(serde::de::Error::custom))
            .map_err(|source| PodDecodeError { name: object_name(json).0, source })
    }

    /// Decodes a pod from a JSON value. For tests and tools.
    ///
    /// # Errors
    ///
    /// Those of [`decode`](Self::decode).
    pub fn decode_value(&self, value: &Value) -> Result<Pod, PodDecodeError> {
        Object::deserialize(value)
            .and_then(|Object(wire)| self.assemble(&wire).map_err(serde::de::Error::custom))
            .map_err(|source| PodDecodeError { name: object_name(&value.to_string()).0, source })
    }

    /// Decodes a pod from its protobuf message, without envelope. Also accepts the metadata of a pod:
    /// `PartialObjectMetadata` has the metadata in the same field.
    ///
    /// Fields that [`Pod`] does not have are skipped, even if they are invalid.
    ///
    /// # Errors
    ///
    /// If `message` is not a protobuf message, or a field of [`Pod`] has the wrong type.
    pub fn decode_protobuf(&self, message: &[u8]) -> Result<Pod, ProtobufError> {
        let wire = protobuf::pod(message)?;
        self.assemble(&wire).map_err(|InvalidTime(error)| ProtobufError::Time(error))
    }

    fn assemble(&self, wire: &WirePod<'_>) -> Result<Pod, InvalidTime> {
        let WirePod { metadata, spec, status } = wire;
        Ok(Pod {
            key: ObjectKey {
                namespace: self.texts.text(&metadata.namespace),
                name: Arc::from(&*metadata.name),
            },
            uid: Arc::from(&*metadata.uid),
            resource_version: Box::from(&*metadata.resource_version),
            labels: self.label_set(&metadata.labels.0),
            controller: metadata
                .owner_references
                .iter()
                .map(|reference| &reference.0)
                .find(|reference| reference.controller == Some(true))
                .map(|reference| self.controller(reference)),
            creation_timestamp: time(&metadata.creation_timestamp)?,
            deletion_timestamp: time(&metadata.deletion_timestamp)?,
            node_name: (!spec.node_name.is_empty()).then(|| self.texts.text(&spec.node_name)),
            phase: Phase::from_text(&status.phase),
            ready: ready(status)?,
            deletion_cost: deletion_cost(&metadata.annotations.0),
            max_restarts: most_restarts(&status.container_statuses, |_| true),
            max_sidecar_restarts: most_sidecar_restarts(spec, status),
            waiting: waiting(status),
        })
    }

    /// `pairs` are sorted by key and have no duplicates.
    fn label_set(&self, pairs: &[(Cow<'_, str>, Cow<'_, str>)]) -> Arc<Labels> {
        let same = |found: &Labels| {
            found.len() == pairs.len()
                && found.iter().zip(pairs).all(|((key, value), pair)| *key == pair.0 && *value == pair.1)
        };
        let owned = |(key, value): &(Cow<'_, str>, Cow<'_, str>)| (key.to_string(), value.to_string());
        self.labels.intern(pairs, same, || Arc::new(pairs.iter().map(owned).collect()))
    }

    fn controller(&self, reference: &WireOwner<'_>) -> Arc<PodControllerRef> {
        struct Key<'a>(&'a WireOwner<'a>);
        impl Hash for Key<'_> {
            fn hash<H: Hasher>(&self, state: &mut H) {
                // The other fields are compared.
                self.0.uid.hash(state);
                self.0.name.hash(state);
            }
        }
        let same = |found: &PodControllerRef| {
            *found.uid == *reference.uid
                && *found.name == *reference.name
                && *found.kind == *reference.kind
                && *found.api_version == *reference.api_version
                && found.block_owner_deletion == reference.block_owner_deletion
        };
        self.controllers.intern(&Key(reference), same, || {
            Arc::new(PodControllerRef {
                api_version: self.texts.text(&reference.api_version),
                kind: self.texts.text(&reference.kind),
                name: Arc::from(&*reference.name),
                uid: Arc::from(&*reference.uid),
                block_owner_deletion: reference.block_owner_deletion,
            })
        })
    }
}

/// Time that cannot be decoded.
#[derive(Debug)]
struct InvalidTime(String);

impl fmt::Display for InvalidTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "time {}", self.0)
    }
}

/// The empty string and Go's zero time, which some clients write, are `None`. So is 1970 in protobuf, as upstream.
fn time(time: &WireTime<'_>) -> Result<Option<Time>, InvalidTime> {
    const ZERO: &str = "0001-01-01T00:00:00Z";
    match time {
        WireTime::Unix(0) => Ok(None),
        WireTime::Unix(seconds) => {
            let valid = Timestamp::from_second(*seconds);
            valid.map(|time| Some(Time::new(time))).map_err(|error| InvalidTime(error.to_string()))
        }
        WireTime::Text(text) if text.is_empty() || &**text == ZERO => Ok(None),
        WireTime::Text(text) => {
            text.parse().map(Some).map_err(|error| InvalidTime(format!("{:?}: {error}", &**text)))
        }
    }
}

/// Uses the first condition of type `Ready`, as upstream (US-5.6).
fn ready(status: &WireStatus<'_>) -> Result<Ready, InvalidTime> {
    let mut conditions = status.conditions.iter().map(|condition| &condition.0);
    let Some(condition) = conditions.find(|condition| &*condition.type_ == "Ready") else {
        return Ok(Ready::default());
    };
    let is_ready = &*condition.status == crate::condition_status::TRUE;
    Ok(Ready { is_ready, since: time(&condition.last_transition_time)? })
}

fn most_restarts<'a>(
    statuses: &'a [Item<WireContainerStatus<'a>>],
    counts: impl Fn(&WireContainerStatus<'a>) -> bool,
) -> i32 {
    let counted = statuses.iter().map(|status| &status.0).filter(|status| counts(status));
    // As upstream, the maximum starts at zero.
    counted.map(|status| status.restart_count).fold(0, i32::max)
}

/// Maximum restart count of sidecars, which are init containers with `restartPolicy: Always`. Their statuses are
/// found by name.
fn most_sidecar_restarts(spec: &WireSpec<'_>, status: &WireStatus<'_>) -> i32 {
    most_restarts(&status.init_container_statuses, |status| {
        let mut containers = spec.init_containers.iter().map(|container| &container.0);
        containers.any(|container| container.name == status.name && &*container.restart_policy == "Always")
    })
}

/// Init containers run first, so their failures come first.
fn waiting(status: &WireStatus<'_>) -> Waiting {
    let failure =
        |status: &Item<WireContainerStatus<'_>>| Waiting::from_reason(&status.0.state.waiting.reason);
    let init = status.init_container_statuses.iter().map(failure).map(|failure| match failure {
        Waiting::CrashLoop => Waiting::InitCrashLoop,
        failure => failure,
    });
    let containers = status.container_statuses.iter().map(failure);
    init.chain(containers).find(|failure| *failure != Waiting::NoFailure).unwrap_or_default()
}

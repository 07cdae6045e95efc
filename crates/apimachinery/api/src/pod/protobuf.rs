//! Protobuf of a pod, reduced to the fields that are used and borrowed from the message.
//!
//! Field numbers are those of `k8s.io/api/core/v1/generated.proto`.

use std::borrow::Cow;

use super::{
    DELETION_COST_ANNOTATION,
    wire::{
        Item, WireCondition, WireContainer, WireContainerStatus, WireLabels, WireMeta, WireOwner, WirePod,
        WireSpec, WireStatus, WireTime,
    },
};
use crate::{
    json::Text,
    protobuf::{Message, ProtobufError, Value},
};

/// Reads a `Pod`. As in all protobuf, fields of a message that occurs twice are merged.
pub(super) fn pod(message: &[u8]) -> Result<WirePod<'_>, ProtobufError> {
    let mut pod = WirePod::default();
    for field in Message::new(message) {
        match field? {
            (1, value) => metadata(value.message()?, &mut pod.metadata)?,
            (2, value) => spec(value.message()?, &mut pod.spec)?,
            (3, value) => status(value.message()?, &mut pod.status)?,
            _ => {}
        }
    }
    Ok(pod)
}

fn metadata<'a>(message: Message<'a>, metadata: &mut WireMeta<'a>) -> Result<(), ProtobufError> {
    for field in message {
        match field? {
            (1, value) => metadata.name = text(value)?,
            (3, value) => metadata.namespace = text(value)?,
            (5, value) => metadata.uid = text(value)?,
            (6, value) => metadata.resource_version = text(value)?,
            (8, value) => metadata.creation_timestamp = time(value)?,
            (9, value) => metadata.deletion_timestamp = time(value)?,
            (11, value) => metadata.labels.0.push(entry(value)?),
            (12, value) => {
                let (key, value) = entry(value)?;
                if key == DELETION_COST_ANNOTATION {
                    metadata.annotations.0 = Text(value);
                }
            }
            (13, value) => metadata.owner_references.push(Item(owner(value.message()?)?)),
            _ => {}
        }
    }
    WireLabels::sort(&mut metadata.labels);
    Ok(())
}

fn owner(message: Message<'_>) -> Result<WireOwner<'_>, ProtobufError> {
    let mut owner = WireOwner::default();
    for field in message {
        match field? {
            (1, value) => owner.kind = text(value)?,
            (3, value) => owner.name = text(value)?,
            (4, value) => owner.uid = text(value)?,
            (5, value) => owner.api_version = text(value)?,
            (6, value) => owner.controller = Some(value.bool()?),
            (7, value) => owner.block_owner_deletion = Some(value.bool()?),
            _ => {}
        }
    }
    Ok(owner)
}

fn spec<'a>(message: Message<'a>, spec: &mut WireSpec<'a>) -> Result<(), ProtobufError> {
    for field in message {
        match field? {
            (10, value) => spec.node_name = text(value)?,
            (20, value) => {
                let mut container = WireContainer::default();
                for field in value.message()? {
                    match field? {
                        (1, value) => container.name = text(value)?,
                        (24, value) => container.restart_policy = text(value)?,
                        _ => {}
                    }
                }
                spec.init_containers.push(Item(container));
            }
            _ => {}
        }
    }
    Ok(())
}

fn status<'a>(message: Message<'a>, status: &mut WireStatus<'a>) -> Result<(), ProtobufError> {
    for field in message {
        match field? {
            (1, value) => status.phase = text(value)?,
            (2, value) => status.conditions.push(Item(condition(value.message()?)?)),
            (8, value) => status.container_statuses.push(Item(container_status(value.message()?)?)),
            (10, value) => status.init_container_statuses.push(Item(container_status(value.message()?)?)),
            _ => {}
        }
    }
    Ok(())
}

fn condition(message: Message<'_>) -> Result<WireCondition<'_>, ProtobufError> {
    let mut condition = WireCondition::default();
    for field in message {
        match field? {
            (1, value) => condition.type_ = text(value)?,
            (2, value) => condition.status = text(value)?,
            (4, value) => condition.last_transition_time = time(value)?,
            _ => {}
        }
    }
    Ok(condition)
}

fn container_status(message: Message<'_>) -> Result<WireContainerStatus<'_>, ProtobufError> {
    let mut status = WireContainerStatus::default();
    for field in message {
        match field? {
            (1, value) => status.name = text(value)?,
            (2, value) => status.state.waiting.reason = waiting_reason(value.message()?)?,
            (5, value) => status.restart_count = value.int32()?,
            _ => {}
        }
    }
    Ok(status)
}

/// Reason in `ContainerState{1 waiting}`, `ContainerStateWaiting{1 reason}`. Empty if the container does not wait.
fn waiting_reason(state: Message<'_>) -> Result<Text<'_>, ProtobufError> {
    let mut reason = Text::default();
    for field in state {
        if let (1, value) = field? {
            for field in value.message()? {
                if let (1, value) = field? {
                    reason = text(value)?;
                }
            }
        }
    }
    Ok(reason)
}

/// Text as the API server's JSON has it: bytes that are not UTF-8 are replaced.
fn text(value: Value<'_>) -> Result<Text<'_>, ProtobufError> {
    value.lossy_text().map(Text)
}

/// Entry of a map of strings.
fn entry(value: Value<'_>) -> Result<(Cow<'_, str>, Cow<'_, str>), ProtobufError> {
    let (mut key, mut content) = (Cow::Borrowed(""), Cow::Borrowed(""));
    for field in value.message()? {
        match field? {
            (1, value) => key = value.lossy_text()?,
            (2, value) => content = value.lossy_text()?,
            _ => {}
        }
    }
    Ok((key, content))
}

/// `Time{1 seconds, 2 nanos}`. The fraction is cut off; it is never negative.
fn time<'a>(value: Value<'a>) -> Result<WireTime<'a>, ProtobufError> {
    let mut seconds = 0;
    for field in value.message()? {
        if let (1, value) = field? {
            seconds = value.int64()?;
        }
    }
    Ok(WireTime::Unix(seconds))
}

//! Protobuf of the lossless types.
//!
//! Field numbers are those of the `generated.proto` files of `k8s.io/api/apps/v1` and `k8s.io/apimachinery`. Protobuf has
//! no names for fields that this version does not define, so these types keep them in JSON only: a message with such a field
//! is not decoded, and an object with such a field is not encoded. The client then uses JSON.

use std::{collections::BTreeMap, sync::Arc};

use super::{Message, MessageBuilder, ProtobufError, Value, envelope, scalars};
use crate::{
    Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus, DeploymentStrategy, Dropped,
    IntOrString, LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference, PodTemplate,
    ReplicaSet, ReplicaSetCondition, ReplicaSetSpec, ReplicaSetStatus, RollingUpdate, Time, deployment,
    lossless::Unset, replica_set,
};

/// Value of one field, or item of a list.
trait Item: Sized {
    fn decode(value: Value<'_>) -> Result<Self, ProtobufError>;

    /// Reads a further occurrence of the field.
    fn merge(&mut self, value: Value<'_>) -> Result<(), ProtobufError> {
        *self = Self::decode(value)?;
        Ok(())
    }

    /// Adds the value to `message`. Returns `None` if protobuf cannot carry it.
    fn encode(&self, number: u32, message: &mut MessageBuilder) -> Option<()>;

    /// `true` if the value is not written unless it is an item, or behind a pointer.
    fn is_zero(&self) -> bool {
        false
    }
}

/// Field of a struct: a value, a pointer, a list or a map.
trait Field {
    fn read(&mut self, value: Value<'_>) -> Result<(), ProtobufError>;
    fn write(&self, number: u32, message: &mut MessageBuilder) -> Option<()>;
}

impl<T: Item> Field for T {
    fn read(&mut self, value: Value<'_>) -> Result<(), ProtobufError> {
        self.merge(value)
    }

    fn write(&self, number: u32, message: &mut MessageBuilder) -> Option<()> {
        if self.is_zero() { Some(()) } else { self.encode(number, message) }
    }
}

impl<T: Item> Field for Option<T> {
    fn read(&mut self, value: Value<'_>) -> Result<(), ProtobufError> {
        match self {
            Some(set) => set.merge(value)?,
            None => *self = Some(T::decode(value)?),
        }
        Ok(())
    }

    fn write(&self, number: u32, message: &mut MessageBuilder) -> Option<()> {
        self.iter().try_for_each(|value| value.encode(number, message))
    }
}

impl<T: Item> Field for Vec<T> {
    fn read(&mut self, value: Value<'_>) -> Result<(), ProtobufError> {
        self.push(T::decode(value)?);
        Ok(())
    }

    fn write(&self, number: u32, message: &mut MessageBuilder) -> Option<()> {
        self.iter().try_for_each(|value| value.encode(number, message))
    }
}

impl Field for BTreeMap<String, String> {
    fn read(&mut self, value: Value<'_>) -> Result<(), ProtobufError> {
        let (mut key, mut content) = (String::new(), String::new());
        for field in value.message()? {
            match field? {
                (1, value) => key.read(value)?,
                (2, value) => content.read(value)?,
                (number, _) => return Err(unknown_field("map entry", number)),
            }
        }
        self.insert(key, content);
        Ok(())
    }

    fn write(&self, number: u32, message: &mut MessageBuilder) -> Option<()> {
        for (key, value) in self {
            let mut entry = MessageBuilder::default();
            entry.bytes(1, key).bytes(2, value);
            message.bytes(number, &entry);
        }
        Some(())
    }
}

/// Upstream counterpart: `ProtoTime`. As in JSON, a fraction of a second is dropped, and Go's zero time is unset.
impl Field for Option<Time> {
    fn read(&mut self, value: Value<'_>) -> Result<(), ProtobufError> {
        *self = scalars::time(value)?.map(Time::new);
        Ok(())
    }

    fn write(&self, number: u32, message: &mut MessageBuilder) -> Option<()> {
        if let Some(time) = self {
            let mut inner = MessageBuilder::default();
            inner.varint(1, time.unix().cast_unsigned()).varint(2, 0);
            message.bytes(number, &inner);
        }
        Some(())
    }
}

impl Field for Dropped {
    fn read(&mut self, _: Value<'_>) -> Result<(), ProtobufError> {
        Ok(())
    }

    fn write(&self, _: u32, _: &mut MessageBuilder) -> Option<()> {
        Some(())
    }
}

macro_rules! texts {
    ($($type:ty),*) => { $(
        impl Item for $type {
            fn decode(value: Value<'_>) -> Result<Self, ProtobufError> {
                value.text().map(Self::from)
            }

            fn encode(&self, number: u32, message: &mut MessageBuilder) -> Option<()> {
                message.bytes(number, self.as_bytes());
                Some(())
            }

            fn is_zero(&self) -> bool {
                self.is_unset()
            }
        }
    )* };
}

texts!(String, Arc<str>);

macro_rules! numbers {
    ($($type:ty = $read:ident as $bits:expr;)*) => { $(
        impl Item for $type {
            fn decode(value: Value<'_>) -> Result<Self, ProtobufError> {
                value.$read()
            }

            fn encode(&self, number: u32, message: &mut MessageBuilder) -> Option<()> {
                let bits: fn($type) -> u64 = $bits;
                message.varint(number, bits(*self));
                Some(())
            }

            fn is_zero(&self) -> bool {
                self.is_unset()
            }
        }
    )* };
}

numbers! {
    bool = bool as u64::from;
    i32 = int32 as |number| i64::from(number).cast_unsigned();
    i64 = int64 as i64::cast_unsigned;
}

impl Item for IntOrString {
    fn decode(value: Value<'_>) -> Result<Self, ProtobufError> {
        scalars::decode_int_or_string(value)
    }

    fn encode(&self, number: u32, message: &mut MessageBuilder) -> Option<()> {
        message.bytes(number, scalars::int_or_string(self));
        Some(())
    }
}

impl Item for PodTemplate {
    fn decode(value: Value<'_>) -> Result<Self, ProtobufError> {
        Self::from_protobuf(value.bytes()?)
    }

    fn merge(&mut self, value: Value<'_>) -> Result<(), ProtobufError> {
        if *self != Self::default() {
            // API servers write a field once.
            return Err(ProtobufError::Value("template".into()));
        }
        *self = Self::decode(value)?;
        Ok(())
    }

    fn encode(&self, number: u32, message: &mut MessageBuilder) -> Option<()> {
        message.bytes(number, self.to_protobuf()?);
        Some(())
    }
}

fn unknown_field(message: &str, number: u32) -> ProtobufError {
    ProtobufError::UnknownField { message: message.into(), number }
}

/// Defines the field numbers of structs. All fields must be listed.
macro_rules! messages {
    ($($name:ident { $($number:literal $field:ident),* $(,)? $(; $($absent:ident),*)? })*) => { $(
        impl $name {
            fn read_fields(&mut self, message: Message<'_>) -> Result<(), ProtobufError> {
                for field in message {
                    match field? {
                        $( ($number, value) => self.$field.read(value)?, )*
                        (number, _) => return Err(unknown_field(stringify!($name), number)),
                    }
                }
                Ok(())
            }

            fn write_fields(&self) -> Option<MessageBuilder> {
                let Self { $($field,)* extra, $($($absent: _,)*)? } = self;
                if !extra.is_empty() {
                    return None;
                }
                let mut message = MessageBuilder::default();
                $( $field.write($number, &mut message)?; )*
                Some(message)
            }
        }

        impl Item for $name {
            fn decode(value: Value<'_>) -> Result<Self, ProtobufError> {
                let mut object = Self::default();
                object.merge(value)?;
                Ok(object)
            }

            fn merge(&mut self, value: Value<'_>) -> Result<(), ProtobufError> {
                self.read_fields(value.message()?)
            }

            fn encode(&self, number: u32, message: &mut MessageBuilder) -> Option<()> {
                message.bytes(number, &self.write_fields()?);
                Some(())
            }
        }
    )* };
}

messages! {
    Deployment { 1 metadata, 2 spec, 3 status; api_version, kind }
    DeploymentSpec {
        1 replicas, 2 selector, 3 template, 4 strategy, 5 min_ready_seconds, 6 revision_history_limit, 7 paused,
        9 progress_deadline_seconds,
    }
    DeploymentStrategy { 1 type_, 2 rolling_update }
    RollingUpdate { 1 max_unavailable, 2 max_surge }
    DeploymentStatus {
        1 observed_generation, 2 replicas, 3 updated_replicas, 4 available_replicas, 5 unavailable_replicas, 6 conditions,
        7 ready_replicas, 8 collision_count, 9 terminating_replicas,
    }
    DeploymentCondition {
        1 type_, 2 status, 4 reason, 5 message, 6 last_update_time, 7 last_transition_time,
    }
    ReplicaSet { 1 metadata, 2 spec, 3 status; api_version, kind }
    ReplicaSetSpec { 1 replicas, 2 selector, 3 template, 4 min_ready_seconds }
    ReplicaSetStatus {
        1 replicas, 2 fully_labeled_replicas, 3 observed_generation, 4 ready_replicas, 5 available_replicas, 6 conditions,
        7 terminating_replicas,
    }
    ReplicaSetCondition { 1 type_, 2 status, 3 last_transition_time, 4 reason, 5 message }
    ObjectMeta {
        1 name, 2 generate_name, 3 namespace, 4 self_link, 5 uid, 6 resource_version, 7 generation, 8 creation_timestamp,
        9 deletion_timestamp, 10 deletion_grace_period_seconds, 11 labels, 12 annotations, 13 owner_references,
        14 finalizers, 17 managed_fields,
    }
    OwnerReference { 1 kind, 3 name, 4 uid, 5 api_version, 6 controller, 7 block_owner_deletion }
    LabelSelector { 1 match_labels, 2 match_expressions }
    LabelSelectorRequirement { 1 key, 2 operator, 3 values }
}

macro_rules! objects {
    ($($name:ident in $module:ident),*) => { $(
        impl $name {
            /// Decodes the object from its protobuf message, without envelope.
            ///
            /// # Errors
            ///
            /// If `message` is malformed, or has a field or a value that this version does not define: decode JSON then,
            /// which keeps it.
            pub fn decode_protobuf(message: &[u8]) -> Result<Self, ProtobufError> {
                let mut object = Self::default();
                object.read_fields(Message::new(message))?;
                $module::API_VERSION.clone_into(&mut object.api_version);
                $module::KIND.clone_into(&mut object.kind);
                Ok(object)
            }

            /// Encodes the object in protobuf, with envelope. Returns `None` if it has a field or a value that this
            /// version does not define: only JSON carries it.
            pub fn encode_protobuf(&self) -> Option<Vec<u8>> {
                Some(envelope($module::API_VERSION, $module::KIND, self.write_fields()?))
            }
        }
    )* };
}

objects!(Deployment in deployment, ReplicaSet in replica_set);

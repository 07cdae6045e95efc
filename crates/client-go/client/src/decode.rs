//! Decoding of objects.

use kcm_api::{Deployment, LosslessDecoder, Pod, PodDecoder, ProtobufError, ReplicaSet, protobuf};
use kcm_informer::Undecodable;
use kcm_meta::JsonDecoder;
use serde::de::DeserializeOwned;

/// Decodes objects of type `K`.
///
/// [`JsonDecoder`] decodes all types that implement serde's `Deserialize`. Objects of a type with
/// another decoder can share equal parts.
pub trait Decode<K>: Send + Sync + 'static {
    /// Decodes an object.
    ///
    /// # Errors
    ///
    /// If `json` is not such an object. The error is logged, so it must not quote the whole object.
    fn decode(&self, json: &str) -> Result<K, serde_json::Error>;

    /// `true` if [`decode_protobuf`](Self::decode_protobuf) is implemented. Clients with
    /// [`ContentType::Protobuf`](crate::ContentType::Protobuf) then request protobuf, and accept JSON nevertheless.
    fn supports_protobuf(&self) -> bool {
        false
    }

    /// Decodes an object from its protobuf message, without envelope.
    ///
    /// # Errors
    ///
    /// If `message` is not such an object. The error is logged, so it must not quote the whole object.
    fn decode_protobuf(&self, message: &[u8]) -> Result<K, ProtobufError> {
        let _ = message;
        Err(ProtobufError::Unsupported)
    }

    /// `true` if only JSON carries all fields of some objects. When [`decode_protobuf`](Self::decode_protobuf) fails, the
    /// client requests JSON from then on.
    fn falls_back_to_json(&self) -> bool {
        false
    }

    /// Encodes an object in protobuf, with envelope. Returns `None` for a type that is written in JSON, and for an object
    /// that only JSON carries.
    fn encode_protobuf(&self, object: &K) -> Option<Vec<u8>> {
        let _ = object;
        None
    }
}

impl<K: DeserializeOwned> Decode<K> for JsonDecoder {
    fn decode(&self, json: &str) -> Result<K, serde_json::Error> {
        // Text takes a sixth less time than bytes.
        serde_json::from_str(json)
    }
}

impl Decode<Pod> for PodDecoder {
    fn decode(&self, json: &str) -> Result<Pod, serde_json::Error> {
        Self::decode(self, json).map_err(|error| error.source)
    }

    fn supports_protobuf(&self) -> bool {
        true
    }

    fn decode_protobuf(&self, message: &[u8]) -> Result<Pod, ProtobufError> {
        Self::decode_protobuf(self, message)
    }
}

macro_rules! lossless {
    ($($type:ty),*) => { $(
        impl Decode<$type> for LosslessDecoder {
            fn decode(&self, json: &str) -> Result<$type, serde_json::Error> {
                serde_json::from_str(json)
            }

            fn supports_protobuf(&self) -> bool {
                true
            }

            fn decode_protobuf(&self, message: &[u8]) -> Result<$type, ProtobufError> {
                <$type>::decode_protobuf(message)
            }

            fn falls_back_to_json(&self) -> bool {
                true
            }

            fn encode_protobuf(&self, object: &$type) -> Option<Vec<u8>> {
                object.encode_protobuf()
            }
        }
    )* };
}

lossless!(Deployment, ReplicaSet);

/// Decodes an object of `kind`. If that fails, returns its name and version as far as they can be read.
pub(crate) fn decode_or_identify<K: 'static>(
    decoder: &dyn Decode<K>,
    kind: &str,
    json: &str,
) -> Result<K, Undecodable> {
    decoder.decode(json).map_err(|error| {
        let (name, resource_version) = kcm_api::object_name(json);
        Undecodable { name, resource_version, error: format!("cannot decode {kind}: {error}") }
    })
}

/// Same as [`decode_or_identify`], for a protobuf message.
pub(crate) fn decode_message_or_identify<K: 'static>(
    decoder: &dyn Decode<K>,
    kind: &str,
    message: &[u8],
) -> Result<K, Undecodable> {
    decoder.decode_protobuf(message).map_err(|error| {
        let (name, resource_version) = protobuf::object_name(message);
        Undecodable { name, resource_version, error: format!("cannot decode {kind}: {error}") }
    })
}

//! Kinds of objects and their decoding.

use std::fmt;

use kcm_api::{Deployment, Lease, Pod, PodDecoder, ReplicaSet, ReplicationController};
use kcm_informer::{Object, Undecodable};
use serde::{Serialize, de::DeserializeOwned};

/// A kind of object of the Kubernetes API.
///
/// [`ApiClient`](crate::ApiClient) can list, watch and write every type that implements it.
pub trait Kind: Object + Sized {
    /// Group and version, such as `apps/v1`.
    const API_VERSION: &'static str;
    /// Kind, such as `Deployment`.
    const KIND: &'static str;
    /// Resource, such as `deployments`.
    const PLURAL: &'static str;

    /// State that is kept between decoded objects. `()` if there is none.
    type Decoder: Default + Send + Sync + 'static;

    /// Decodes an object.
    ///
    /// # Errors
    ///
    /// If `json` is not such an object. The error is logged, so it must not quote the whole object.
    fn decode(decoder: &Self::Decoder, json: &str) -> Result<Self, serde_json::Error>;
}

/// A [`Kind`] whose objects keep all fields, so that they can be written back.
pub trait WritableKind: Kind + Serialize {
    /// `true` if the object contains its `apiVersion` and `kind`. Items of a list do not; the client then adds both
    /// when it writes the object.
    fn is_typed(&self) -> bool;
}

impl Kind for Pod {
    const API_VERSION: &'static str = "v1";
    const KIND: &'static str = "Pod";
    const PLURAL: &'static str = "pods";

    type Decoder = PodDecoder;

    fn decode(decoder: &PodDecoder, json: &str) -> Result<Self, serde_json::Error> {
        decoder.decode(json).map_err(|error| error.source)
    }
}

macro_rules! writable {
    ($type:ty, $module:ident, $plural:literal) => {
        impl Kind for $type {
            const API_VERSION: &'static str = kcm_api::$module::API_VERSION;
            const KIND: &'static str = kcm_api::$module::KIND;
            const PLURAL: &'static str = $plural;

            type Decoder = ();

            fn decode((): &(), json: &str) -> Result<Self, serde_json::Error> {
                from_text(json)
            }
        }

        impl WritableKind for $type {
            fn is_typed(&self) -> bool {
                !self.kind.is_empty() && !self.api_version.is_empty()
            }
        }
    };
}

writable!(ReplicaSet, replica_set, "replicasets");
writable!(ReplicationController, replication_controller, "replicationcontrollers");
writable!(Deployment, deployment, "deployments");
writable!(Lease, lease, "leases");

/// Deserializes text rather than bytes: serde_json takes a sixth less time.
fn from_text<T: DeserializeOwned>(json: &str) -> Result<T, serde_json::Error> {
    serde_json::from_str(json)
}

/// Decodes an object. If that fails, returns its name and version as far as they can be read.
pub(crate) fn decode_or_identify<K: Kind>(decoder: &K::Decoder, json: &str) -> Result<K, Undecodable> {
    K::decode(decoder, json).map_err(|error| undecodable::<K>(json, &error))
}

fn undecodable<K: Kind>(json: &str, error: &dyn fmt::Display) -> Undecodable {
    let (name, resource_version) = kcm_api::object_name(json);
    Undecodable { name, resource_version, error: format!("cannot decode {}: {error}", K::KIND) }
}

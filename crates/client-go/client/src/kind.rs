//! Which types there are, and how they come from the wire.

use std::fmt;

use kcm_api::{Deployment, Lease, Pod, PodDecoder, ReplicaSet, ReplicationController};
use kcm_informer::{Object, Undecodable};
use serde::de::DeserializeOwned;

/// A type of object that an API server has.
///
/// Implement it for a type of your own, and [`ApiClient`](crate::ApiClient) can list, watch and write that.
pub trait Kind: Object + Sized {
    /// Group and version, such as `apps/v1`.
    const API_VERSION: &'static str;
    /// The kind, such as `Deployment`.
    const KIND: &'static str;
    /// The resource, such as `deployments`.
    const PLURAL: &'static str;

    /// What decoding needs to remember from one object to the next. `()` if that is nothing.
    type Decoder: Default + Send + Sync + 'static;

    /// The object that `json` spells.
    ///
    /// # Errors
    ///
    /// What is wrong with it. The text goes into logs, so it must not quote all of the object.
    fn decode(decoder: &Self::Decoder, json: &str) -> Result<Self, serde_json::Error>;
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

impl Kind for ReplicaSet {
    const API_VERSION: &'static str = kcm_api::replica_set::API_VERSION;
    const KIND: &'static str = kcm_api::replica_set::KIND;
    const PLURAL: &'static str = "replicasets";

    type Decoder = ();

    fn decode((): &(), json: &str) -> Result<Self, serde_json::Error> {
        whole(json)
    }
}

impl Kind for ReplicationController {
    const API_VERSION: &'static str = kcm_api::replication_controller::API_VERSION;
    const KIND: &'static str = kcm_api::replication_controller::KIND;
    const PLURAL: &'static str = "replicationcontrollers";

    type Decoder = ();

    fn decode((): &(), json: &str) -> Result<Self, serde_json::Error> {
        whole(json)
    }
}

impl Kind for Deployment {
    const API_VERSION: &'static str = kcm_api::deployment::API_VERSION;
    const KIND: &'static str = kcm_api::deployment::KIND;
    const PLURAL: &'static str = "deployments";

    type Decoder = ();

    fn decode((): &(), json: &str) -> Result<Self, serde_json::Error> {
        whole(json)
    }
}

impl Kind for Lease {
    const API_VERSION: &'static str = kcm_api::lease::API_VERSION;
    const KIND: &'static str = kcm_api::lease::KIND;
    const PLURAL: &'static str = "leases";

    type Decoder = ();

    fn decode((): &(), json: &str) -> Result<Self, serde_json::Error> {
        whole(json)
    }
}

/// From text, not from bytes: serde_json is a sixth faster that way.
fn whole<T: DeserializeOwned>(json: &str) -> Result<T, serde_json::Error> {
    serde_json::from_str(json)
}

/// The object in `json`, or what can be said of it when it is none.
pub(crate) fn decode_or_name<K: Kind>(decoder: &K::Decoder, json: &str) -> Result<K, Undecodable> {
    K::decode(decoder, json).map_err(|error| undecodable::<K>(json, &error))
}

pub(crate) fn undecodable<K: Kind>(json: &str, error: &dyn fmt::Display) -> Undecodable {
    let (name, resource_version) = kcm_api::object_name(json);
    Undecodable { name, resource_version, error: format!("cannot decode {}: {error}", K::KIND) }
}

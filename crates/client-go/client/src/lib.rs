//! Client of the Kubernetes API server.
//!
//! *Upstream counterparts:* `k8s.io/client-go/rest`, and the typed, dynamic and metadata clients.
//!
//! kube-client reads kubeconfig files. This crate adds:
//!
//! * [`ClientFactory`]: the connections that the clients of a process share. It uses HTTP/2 if the server supports it, and
//!   opens further connections when the stream limit is reached. Watches and [leader
//!   election](ClientFactory::for_election) have separate connections. Dead connections are closed after 45 s, a
//!   connection attempt without an answer is overtaken by another after a second, and changed credential files are read
//!   again. A factory can also send requests to a [service in this
//!   process](ClientFactory::in_process).
//! * [`ApiClient`]: the client of a controller, with a name for the user agent, a rate limit, a timeout, and upstream's
//!   rules for retries.
//! * [`Api`]: the objects of one type, with all verbs. It is a source of informers ([`ListWatch`]). With the feature
//!   `kube`, it accepts every type of kube-rs: types of `k8s-openapi`, types that derive `CustomResource`,
//!   `DynamicObject` and `PartialObjectMeta`.
//! * [`ClientFactory::gated`]: clients that write only while their process leads.
//! * `EventClient`: the sink of an event broadcaster, with the feature `events`.
//! * `LeaseClient`: the lock of a leader election, with the feature `leader-election`.
//! * `OwnerClient`: adoption and release of objects, with the feature `owners`.
//!
//! If one object of a list or watch cannot be decoded, it is reported by name, and the others are not affected.
//!
//! ```
//! use std::sync::Arc;
//!
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kcm_client::{ClientFactory, ClientOptions, ListParams, RateLimit, UserAgent};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let agent = UserAgent::new("example-operator", "v1.0.0", "");
//! let options = ClientOptions::new(agent, Arc::new(kcm_clock::RealClock::new()));
//! // For a cluster: `ClientFactory::connect`.
//! let server = kcm_apiserver::ApiServer::new(kcm_apiserver::ApiServerConfig::default());
//! let factory = ClientFactory::in_process(server.service(), options);
//!
//! let client = factory.client("example-controller", RateLimit::DEFAULT);
//! for config_map in client.api::<ConfigMap>().list(&ListParams::labels("app=web")).await?.items {
//!     println!("{:?}", config_map.metadata.name);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Scope
//!
//! Caches, queues, decisions of controllers and command-line flags belong to other crates. Bodies and tokens are never
//! logged.

#![warn(missing_debug_implementations)]

mod agent;
mod api;
mod api_client;
mod authenticator;
mod ca_bundle;
mod causes;
mod decode;
pub mod der;
#[cfg(feature = "events")]
mod event_sink;
mod factory;
mod failure;
mod framing;
#[cfg(feature = "leader-election")]
mod lease_lock;
mod limiter;
mod list;
mod list_watch;
mod metrics;
#[cfg(feature = "owners")]
mod owner_client;
mod permit;
mod request;
mod retry;
mod service_account;
mod throttle;
mod transport;
mod watch;
mod write_gate;

pub use agent::UserAgent;
pub use api::{
    Api, ApplyOptions, DeleteOptions, FieldValidation, ListParams, ObjectName, Page, Patch, PatchBody,
    Preconditions, Propagation, Scale, ScaleSpec, ScaleStatus, WriteOptions,
};
pub use api_client::ApiClient;
pub use ca_bundle::{CaBundle, Validity};
pub use decode::Decode;
#[cfg(feature = "events")]
pub use event_sink::EventClient;
pub use factory::{ClientFactory, ClientOptions, InProcessServer};
pub use kcm_api::{ApiError, ObjectKey, ProtobufError};
pub use kcm_informer::{List, ListOptions, ListSink, ListWatch, Undecodable, WatchEvent, WatchOptions};
pub use kcm_meta::{ApiResource, JsonDecoder, Kind, StrategicMerge};
#[cfg(feature = "leader-election")]
pub use lease_lock::LeaseClient;
pub use limiter::{PriorityLevel, RateLimit, RateLimiter};
pub use metrics::{ClientMetrics, NoClientMetrics, RequestInfo};
#[cfg(feature = "owners")]
pub use owner_client::OwnerClient;
pub use permit::Permit;
pub use request::{ContentType, Idempotency, Request};
pub use transport::{ClientConfigError, ConfigOverrides, ProxyEnvironment, Server};

/// Body of a request to a [service in this process](ClientFactory::in_process).
pub type Body = http_body_util::Full<bytes::Bytes>;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

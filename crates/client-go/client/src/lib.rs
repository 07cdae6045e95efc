//! The way to an API server, for controllers.
//!
//! *Upstream counterpart:* `k8s.io/client-go/rest`, `util/flowcontrol`, and the typed clientset.
//!
//! Transport, TLS and kubeconfig are kube-client's. What a controller manager needs beyond that is here:
//!
//! * A **[`ClientFactory`]** holds the connections: HTTP/2 where the server offers it, as many as its stream limit
//!   requires, watches and [elections](ClientFactory::for_election) apart from the rest, dead ones noticed in 45 s,
//!   credentials re-read when their files change. Or it holds no connection at all but a service in this process.
//! * An **[`ApiClient`]** is one controller's share of it: its name, its rate limit ([`TokenBucket`]), a time-out on
//!   everything but watches, upstream's rule for retries. A request that may have taken effect is repeated only if
//!   its [`Repetition`] allows it, such as a create of an object with a name. Given a [gate](ClientFactory::gated),
//!   it writes only while this process leads, down to the bytes on the socket. It implements the traits that
//!   controllers write through ([`PodControl`](kcm_controller_util::PodControl) and its kin,
//!   [`EventSink`](kcm_events::EventSink), [`LeaseLock`](kcm_leader_election::LeaseLock)) and hands out the sources
//!   of reflectors ([`ListWatch`](kcm_informer::ListWatch)).
//! * A **[`Kind`]** says how a type comes from the wire. One object that cannot be decoded is told by name, and the
//!   rest of the list or stream goes on.
//!
//! *What must not live here:* caches, queues, any decision of a controller, command-line flags. Bodies and tokens
//! are never logged.

mod agent;
mod api_client;
mod ca_bundle;
mod control;
pub mod der;
mod factory;
mod failure;
mod kind;
mod lease;
mod limiter;
mod lines;
mod list;
mod list_watch;
mod metrics;
mod replication_controllers;
mod request;
mod retry;
mod service_account;
mod throttle;
mod transport;
mod watch;
mod write_gate;

pub use agent::UserAgent;
pub use api_client::ApiClient;
pub use ca_bundle::CaBundle;
pub use factory::{ClientFactory, ClientOptions, InProcessServer};
pub use kind::Kind;
pub use limiter::{RateLimit, TokenBucket};
pub use metrics::{Call, ClientMetrics, NoClientMetrics};
pub use replication_controllers::ReplicationControllers;
pub use request::{Repetition, Request};
pub use transport::{ClientConfigError, ProxyEnvironment, Server};

/// The body of a request, for services that [`ClientFactory::in_process`] is to talk to.
pub use kube_client::client::Body;

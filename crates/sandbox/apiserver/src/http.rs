//! HTTP endpoints: paths, media types, status codes, streams.
//!
//! *Upstream counterpart:* `apiserver/pkg/endpoints` and `apiserver/pkg/server`.
//!
//! The module `service` processes a request in upstream's order: path (`route`), query (`query`), accepted media type
//! (`media`), body (`body`), verb (`verbs`, `watch`, `reviews`), response (`response`).
//!
//! *Out of scope:* the effect of a verb on an object, which the registry implements.

mod audit;
mod audit_event;
mod body;
pub(crate) mod documents;
mod executor;
mod extension;
mod fair_queue;
mod fault;
mod freshness;
mod list;
mod media;
mod open_api;
mod open_api_v2;
mod options;
mod protobuf;
mod proxy;
mod query;
mod response;
mod reviews;
mod route;
mod serve;
mod service;
mod ui;
mod user;
mod verbs;
mod view;
mod watch;

pub use audit::{AuditLog, AuditPolicy, AuditPolicyError};
pub use audit_event::{AuditEvent, AuditSink, ObjectReference};
pub use extension::{Extension, ExtensionFuture, ExtensionRequest, ExtensionResponse};
pub use fault::{Fault, FaultError, Faults};
pub use proxy::{PodRequest, PodResponse, PodServer};
pub use response::ApiBody;
pub use serve::{serve, serve_tls};
pub use service::{ApiService, BrokenConnection, DEFAULT_MAX_CONCURRENT_STREAMS};
pub use user::{TokenFileError, Tokens, User};

//! Requests: paths, media types, status codes, streams.
//!
//! *Upstream counterpart:* `apiserver/pkg/endpoints` and `apiserver/pkg/server`.
//!
//! A request goes through `service` in upstream's order: where does it lead (`route`), what
//! does it ask for (`query`), in which form is the answer wanted (`media`), what is in its body (`body`);
//! then a verb (`verbs`, `watching`, `reviews`) and the answer (`answer`).
//!
//! *What must not live here:* what a verb does to an object. That is the registry's.

mod answer;
mod audit;
mod body;
pub(crate) mod documents;
mod fault;
mod freshness;
mod media;
mod open_api_v2;
mod options;
mod query;
mod reviews;
mod route;
mod serve;
mod service;
mod tables;
mod ui;
mod user;
mod verbs;
mod watching;

pub use answer::ApiBody;
pub use audit::{AuditLog, AuditPolicy, AuditPolicyError};
pub use fault::{Fault, FaultError, Faults};
pub use serve::{serve, serve_tls};
pub use service::{
    ApiService, AuditEvent, AuditSink, BrokenConnection, DEFAULT_MAX_CONCURRENT_STREAMS, ObjectReference,
};
pub use user::{TokenFileError, Tokens, User};

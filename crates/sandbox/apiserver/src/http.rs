//! HTTP endpoints: paths, media types, status codes, streams.
//!
//! *Upstream counterpart:* `apiserver/pkg/endpoints` and `apiserver/pkg/server`.
//!
//! The module `service` processes a request in upstream's order: path (`route`), query (`query`), accepted media type
//! (`media`), body (`body`), verb (`verbs`, `watch`, `reviews`), response (`response`).
//!
//! *Out of scope:* the effect of a verb on an object, which the registry implements.

mod admission;
mod audit_event;
mod authorization;
mod body;
mod component_status;
#[doc(hidden)]
pub mod documents;
mod fault;
mod faults;
mod freshness;
mod list;
mod log;
mod media;
mod options;
mod program;
mod protobuf;
mod query;
#[doc(hidden)]
pub mod response;
mod reviews;
mod route;
mod seat;
mod service;
mod user;
mod verbs;
mod view;
mod watch;
mod yaml;

pub use audit_event::{AuditEvent, AuditSink, ObjectReference};
pub use fault::{Fault, FaultError};
pub use faults::{FaultHandle, Faults};
pub use program::{BoxFuture, Connection, Pages, Program, Table, Tables, Users, WriteGate};
pub use response::ApiBody;
pub use service::{ApiService, BrokenConnection};
pub use user::{User, UserExtra};

//! An API server that lives in memory: Kubernetes' API machinery for the objects that Deployments touch.
//!
//! *Upstream counterpart:* `k8s.io/apiserver` (the generic registry, the endpoints, the watch cache) with the
//! strategies of `k8s.io/kubernetes/pkg/registry` for the kinds in [`Resource`].
//!
//! It starts in microseconds, needs nothing installed and no socket. [`ApiServer::new`] makes one; then there
//! are three doors to the same objects:
//!
//! * Rust calls: [`ApiServer::create`], [`get`](ApiServer::get), [`list`](ApiServer::list),
//!   [`update`](ApiServer::update), [`patch`](ApiServer::patch), [`delete`](ApiServer::delete),
//!   [`bind`](ApiServer::bind), [`watch`](ApiServer::watch) and a few more. They are synchronous, apart from
//!   waiting for the next watch event, and what stand-ins for a scheduler, a kubelet or a garbage collector use.
//! * [`ApiServer::service`], a `tower` service of HTTP requests, which `kube_client::Client::new` takes as it is.
//! * [`serve`], which puts that service on a listener for `kubectl` and other processes.
//!
//! [`ApiServer::open`] makes one that keeps its objects in a directory and outlasts the process. [`Faults`] harm
//! requests on purpose, [`AuditLog`] tells of them, [`Tokens`] say who sends them.
//!
//! A request passes through three layers. [`http`] knows paths, media types and status codes. The registry
//! knows what each verb means for each kind: defaults, validation, generations, graceful deletion. The store
//! knows revisions, history and watchers, and nothing of Kubernetes' kinds.
//!
//! *What must not live here:* controllers and stand-ins (nothing here acts on its own accord), and anything of
//! the workspace above the `api` crate, of which it takes no more than quantities.

mod apply;
pub mod defaults;
pub mod http;
pub mod patch;
pub mod protobuf;
mod schema;
pub mod strict;
pub mod table;
pub mod validate;

mod json;
mod object;
mod options;
mod registry;
mod resource;
mod selector;
mod server;
mod status;
mod store;

pub use http::{
    ApiBody, ApiService, AuditEvent, AuditLog, AuditPolicy, AuditPolicyError, AuditSink, BrokenConnection,
    DEFAULT_MAX_CONCURRENT_STREAMS, Fault, FaultError, Faults, ObjectReference, TokenFileError, Tokens, User,
    serve, serve_tls,
};
pub use object::{Object, OwnerReference};
pub use options::{
    DeleteOptions, FieldValidation, ListOptions, PatchType, Preconditions, Propagation, ResourceVersionMatch,
    Subresource, WriteOptions,
};
pub use resource::Resource;
pub use selector::{FieldSelector, LabelSelector, Selection, SelectorError};
pub use server::{ApiServer, Config, LogSource};
pub use status::{ApiStatus, Cause, Details, Reason};
pub use store::{DataError, HistoryLimits, ObjectList, WatchCacheLag, WatchEvent, WatchStart, Watcher};

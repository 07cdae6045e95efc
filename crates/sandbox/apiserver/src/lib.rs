//! Embedded API server: Kubernetes' API machinery for the resources that Deployments depend on.
//!
//! *Upstream counterpart:* `k8s.io/apiserver` (generic registry, endpoints, watch cache) with the strategies of
//! `k8s.io/kubernetes/pkg/registry` for the kinds in [`Resource`], and `k8s.io/apiextensions-apiserver` for custom
//! resources.
//!
//! The server starts in microseconds. It needs no installation and no socket. [`ApiServer::new`] creates a server in
//! memory. The same objects are served in two ways:
//!
//! * Rust methods: [`ApiServer::create`], [`get`](ApiServer::get), [`list`](ApiServer::list),
//!   [`update`](ApiServer::update), [`patch`](ApiServer::patch), [`delete`](ApiServer::delete),
//!   [`bind`](ApiServer::bind), [`watch`](ApiServer::watch) and others. They are synchronous, except for waiting for
//!   the next watch event. The simulated scheduler, kubelet and garbage collector use them.
//! * [`ApiServer::service`], a `tower` service of HTTP requests that `kube_client::Client::new` accepts.
//!
//! The crate `kcm-sandbox-server` adds what programs need: a listener for `kubectl` and other processes, a data
//! directory, tables, OpenAPI documents, tokens, an audit log and a web page.
//!
//! Custom resources are served from the creation of their CustomResourceDefinition on
//! ([`Resource::CUSTOM_RESOURCE_DEFINITIONS`]). [`ApiServer::resource`] returns them:
//!
//! ```
//! use kcm_apiserver::{ApiServer, ApiServerConfig, Resource, WriteOptions};
//! use serde_json::json;
//!
//! let server = ApiServer::new(ApiServerConfig::default());
//! let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
//! let definition = json!({
//!     "metadata": {"name": "websites.example.com"},
//!     "spec": {
//!         "group": "example.com",
//!         "scope": "Namespaced",
//!         "names": {"plural": "websites", "kind": "Website"},
//!         "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
//!     },
//! });
//! let options = WriteOptions::default();
//! server.create(Resource::CUSTOM_RESOURCE_DEFINITIONS, "", definition, &options)?;
//! let websites = server.resource("example.com", "websites").expect("the definition is established");
//! let website = json!({"metadata": {"name": "home"}, "spec": {"host": "example.org"}});
//! let created = server.create(websites, "default", website, &options)?;
//! assert_eq!(created.api_version(), "example.com/v1");
//! # Ok::<(), kcm_apiserver::ApiStatus>(())
//! ```
//!
//! For tests, [`Faults`] inject errors and delays, also while the server serves, and an [`AuditSink`] receives an event per request.
//!
//! A request passes through three layers:
//!
//! 1. [`http`]: paths, media types and status codes.
//! 2. The registry: verbs for each kind, with defaulting, admission, validation, generations and graceful deletion.
//! 3. The store: revisions, history and watchers. It is independent of the kinds.
//!
//! *Out of scope:* controllers, and every crate of the workspace above `api` and `clock`.

#![warn(missing_debug_implementations)]

mod admission;
mod apply;
#[cfg(feature = "cel")]
mod cel;
mod custom;
pub mod defaults;
pub mod http;
// Hidden modules and types are shared with `kcm-sandbox-server`.
#[doc(hidden)]
pub mod containers;
#[doc(hidden)]
pub mod json;
pub mod patch;
pub mod protobuf;
#[doc(hidden)]
pub mod schema;
pub mod strict;
pub mod validate;

mod encoded;
mod field_error;
mod go_regex;
mod json_path;
mod kind;
mod label_selector;
mod object;
mod options;
mod rbac;
mod registry;
mod resource;
mod selectable_field;
mod selector;
mod server;
mod service_account;
mod status;
mod store;
mod stored_kind;
mod strategy;
mod structural_schema;
mod subresource;
mod webhook;

pub use http::{
    ApiBody, ApiService, AuditEvent, AuditSink, BoxFuture, BrokenConnection, Connection, Fault, FaultError,
    FaultHandle, Faults, ObjectReference, Pages, Program, Table, Tables, User, UserExtra, Users, WriteGate,
};
#[doc(hidden)]
pub use json_path::JsonPath;
pub use label_selector::{LabelSelector, SelectorError};
pub use object::{Object, OwnerReference};
pub use options::{
    DeleteOptions, DeletionPropagation, FieldValidation, ListOptions, PatchType, Preconditions,
    ResourceVersionMatch, WriteOptions,
};
pub use registry::{Patch, pod_resources};
pub use resource::Resource;
pub use selector::{FieldSelector, Selection};
pub use server::{AdmissionHook, ApiServer, ApiServerConfig, LogSource};
pub use status::{ApiStatus, StatusCause, StatusDetails, StatusReason};
pub use store::{
    Backup, Disk, HistoryLimits, ObjectList, Row, WatchCacheLag, WatchEvent, WatchStart, Watcher,
};
pub use subresource::Subresource;
pub use webhook::{WebhookClient, WebhookError, WebhookRequest, WebhookResponse};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

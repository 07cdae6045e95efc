//! Parts of the HTTP service that a program adds and a test does not need.

use std::{fmt, pin::Pin, sync::Arc};

use bytes::Bytes;
use http::{Request, Response};
use jiff::Timestamp;
use serde_json::Value;

use super::{response::ApiBody, user::User};
use crate::{ApiStatus, Subresource};

/// Future of type `T`, as service and program exchange it.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Serves `/` and the paths that are no part of the API: below `/ui`, `/debug` and `/openapi`, and the subresources
/// `proxy`, `exec`, `attach` and `portforward`. `None` leaves the request to the API server, which responds with 404 except for
/// `/`.
pub type Pages =
    Arc<dyn Fn(Request<Bytes>) -> Option<BoxFuture<Result<Response<ApiBody>, ApiStatus>>> + Send + Sync>;

/// Connection to a pod that is upgraded to streams. An extension of the request that [`Pages`] receive.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Namespace of the pod.
    pub namespace: String,
    /// Name of the pod.
    pub name: String,
    /// `Exec`, `Attach` or `PortForward`.
    pub subresource: Subresource,
    /// `PodExecOptions`, `PodAttachOptions` or `PodPortForwardOptions`.
    pub options: Value,
}

/// Returns the user of a bearer token.
pub type Users = Arc<dyn Fn(&str) -> Option<User> + Send + Sync>;

/// Table representation of the objects of a kind.
pub trait Table: Send + Sync {
    /// Column definitions.
    fn columns(&self) -> Value;

    /// Cells of an object, one per column. Ages are relative to `now`.
    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value>;
}

/// Returns the table of a kind; of a custom resource with its `additionalPrinterColumns`.
pub type Tables = fn(kind: &str, columns: Option<&Value>) -> Arc<dyn Table>;

/// Waits until a write may be served. The next one is admitted when the returned value is dropped.
///
/// A server inserts it as an extension of a request.
pub type WriteGate = Arc<dyn Fn() -> BoxFuture<Box<dyn Send>> + Send + Sync>;

/// Parts of the service that a program adds. The default has none.
#[derive(Clone, Default)]
pub struct Program {
    /// Users of bearer tokens. `None` serves all requests as an administrator.
    pub users: Option<Users>,
    /// Paths outside of the API.
    pub pages: Option<Pages>,
    /// Tables. `None` serves objects to clients that accept both.
    pub tables: Option<Tables>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Program").finish_non_exhaustive()
    }
}

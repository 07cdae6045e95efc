//! `/debug/controllers/KIND/NAMESPACE/NAME`: one object as its controller sees it, as JSON.
//!
//! *Upstream counterpart:* none. Fields are only added. `docs/operations.md` describes them.
//!
//! A request looks up one key and plans one sync, without writes. One request is served at a time, and lists are limited,
//! so that the port does not compete with the controllers.

mod deployment;
mod replica_set;

use std::{collections::BTreeMap, sync::Arc};

use kcm_api::ObjectKey;
use kcm_runtime::{KeyState, SyncRecord};
use kcm_serving::{Handler, Method, Response, StatusCode, handler};
use kcm_workqueue::{ItemPhase, ItemState};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::adapters::RateLimitTurns;

pub(crate) use deployment::deployment;
pub(crate) use replica_set::replica_set;

/// Path below which the objects are served.
pub(crate) const PREFIX: &str = "/debug/controllers/";

/// Maximum number of recorded last syncs per controller, one per key.
pub(crate) const SYNC_LOG: usize = 1024;

/// Maximum number of elements of a list in a response. The total is in a field next to it.
const MAX_ELEMENTS: usize = 100;

/// Maximum length of an error in characters.
const MAX_ERROR: usize = 2048;

/// Returns the state of an object. `None` if the controller does not have the object.
type Inspect = Box<dyn Fn(&ObjectKey) -> Option<Value> + Send + Sync>;

/// Running controllers with objects that can be inspected. Clones share the controllers.
#[derive(Clone, Default)]
pub struct DebugControllers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    controllers: Mutex<BTreeMap<&'static str, Arc<Inspect>>>,
    /// Held while a request is served.
    busy: Mutex<()>,
}

impl DebugControllers {
    /// Adds the controller of `kind`, such as `deployment`. Replaces the one that was added before.
    pub(crate) fn add(
        &self,
        kind: &'static str,
        inspect: impl Fn(&ObjectKey) -> Option<Value> + Send + Sync + 'static,
    ) {
        self.0.controllers.lock().insert(kind, Arc::new(Box::new(inspect)));
    }

    /// Handler of the paths below [`PREFIX`].
    pub(crate) fn handler(&self) -> Handler {
        let this = self.clone();
        handler(move |request| {
            if !matches!(*request.method, Method::GET | Method::HEAD) {
                return Response::error(StatusCode::METHOD_NOT_ALLOWED, "method not allowed");
            }
            this.respond(request.path.strip_prefix(PREFIX).unwrap_or_default())
        })
    }

    /// Response for the path `KIND/NAMESPACE/NAME`, for programs that embed the controllers.
    pub fn respond(&self, path: &str) -> Response {
        let parts: Vec<&str> = path.split('/').collect();
        let [kind, namespace, name] = parts[..] else {
            let message = format!("expected {PREFIX}KIND/NAMESPACE/NAME");
            return Response::error(StatusCode::NOT_FOUND, message);
        };
        let Some(inspect) = self.0.controllers.lock().get(kind).map(Arc::clone) else {
            let message = format!("no controller of kind {kind:?} runs in this process; it may be a standby");
            return Response::error(StatusCode::SERVICE_UNAVAILABLE, message);
        };
        let Some(_busy) = self.0.busy.try_lock() else {
            return Response::error(StatusCode::TOO_MANY_REQUESTS, "another request is served");
        };
        match inspect(&ObjectKey::new(namespace, name)) {
            Some(state) => Response::json(state.to_string() + "\n"),
            None => {
                let message = format!("{kind} {namespace}/{name} is not in the cache");
                Response::error(StatusCode::NOT_FOUND, message)
            }
        }
    }
}

impl std::fmt::Debug for DebugControllers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.0.controllers.lock().keys()).finish()
    }
}

/// State of a key in the queue.
fn queue(state: &ItemState) -> Value {
    let phase = match state.phase {
        ItemPhase::Absent => "absent",
        ItemPhase::Queued => "queued",
        ItemPhase::Processing => "processing",
        ItemPhase::ProcessingDirty => "processingDirty",
    };
    json!({
        "phase": phase,
        "delaySeconds": state.delay.map(|delay| delay.as_secs_f64()),
        "retries": state.requeues,
    })
}

fn last_sync(record: Option<&SyncRecord>) -> Value {
    record.map_or(Value::Null, |record| {
        json!({
            "ended": record.ended.to_string(),
            "durationSeconds": record.duration.as_secs_f64(),
            "result": record.result.as_str(),
            "error": record.error.as_deref().map(shortened),
        })
    })
}

/// Reason for which nothing happens.
fn blocked(reason: &str, message: impl Into<String>) -> Value {
    json!({ "reason": reason, "message": message.into() })
}

/// Blocks of a key that do not depend on its kind.
fn blocked_key(key: &KeyState) -> Option<Value> {
    let delay = key.queue.delay.filter(|_| key.queue.requeues > 0)?;
    let error = key.last_sync.as_ref().and_then(|last| last.error.as_deref()).unwrap_or("unknown error");
    let (retries, error) = (key.queue.requeues, shortened(error));
    Some(blocked("backOff", format!("retry {retries} in {delay:?}: {error}")))
}

/// Adds to the state of `key` that it waits for the rate limit of its controller, if it does: its status waits, or it is queued
/// or processed while requests wait.
pub(crate) fn rate_limited(state: Option<Value>, key: &ObjectKey, turns: &RateLimitTurns) -> Option<Value> {
    let mut state = state?;
    let waiting = turns.client().waiting_requests();
    let is_waiting = turns.is_waiting(key) || waiting > 0 && state["queue"]["phase"] != "absent";
    if let (true, Some(blocked_on)) = (is_waiting, state["blockedOn"].as_array_mut()) {
        let message = format!(
            "the manager's rate limit, with {waiting} waiting requests (raise --kube-api-qps and --kube-api-burst)"
        );
        blocked_on.insert(0, blocked("rateLimit", message));
    }
    Some(state)
}

fn shortened(error: &str) -> String {
    error.chars().take(MAX_ERROR).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(response: &Response) -> (u16, String) {
        (response.status.as_u16(), String::from_utf8_lossy(&response.body).trim_end().to_owned())
    }

    #[test]
    fn responses() {
        let controllers = DebugControllers::default();
        let (status, message) = body(&controllers.respond("deployment/shop/web"));
        assert_eq!(
            (status, &*message),
            (503, "no controller of kind \"deployment\" runs in this process; it may be a standby")
        );
        controllers.add("deployment", |key| (&*key.name == "web").then(|| json!({ "name": "web" })));
        assert_eq!(body(&controllers.respond("deployment/shop/web")), (200, "{\"name\":\"web\"}".to_owned()));
        assert_eq!(body(&controllers.respond("deployment/shop/api")).0, 404);
        for path in ["", "deployment", "deployment/shop", "deployment/shop/web/"] {
            assert_eq!(body(&controllers.respond(path)).0, 404, "{path}");
        }
        let _busy = controllers.0.busy.lock();
        assert_eq!(body(&controllers.respond("deployment/shop/web")).0, 429);
    }
}

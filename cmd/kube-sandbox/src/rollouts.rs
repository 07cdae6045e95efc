//! Diagnosis and preview of rollouts for the web UI, and the debug endpoint of the controllers.
//!
//! | Path | Response |
//! |---|---|
//! | `GET /ui/why/NAMESPACE/NAME` | diagnosis, as `kubectl rollouts why -o json`, and the controllers' queues |
//! | `POST /ui/preview/NAMESPACE/NAME` | course of a [`WhatIf`]: the text and the SVG of `kubectl rollouts preview` |
//! | `GET /debug/controllers/KIND/NAMESPACE/NAME` | as on the secure port of `kube-controller-manager` |
//!
//! Nothing is written.

use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, StatusCode, header::CONTENT_TYPE};
use kcm_apiserver::{ApiServer, ListOptions, Resource};
use kcm_clock::Clock;
use kcm_controller_manager::DebugControllers;
use kcm_preview::{Change, PreviewError, TimingOptions, preview, render};
use kcm_rollouts::{ControllerState, diagnose};
use kcm_sandbox::rollout_snapshot;
use kcm_sandbox_server::{Extension, ExtensionResponse};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

const WHY: &str = "/ui/why/";
const PREVIEW: &str = "/ui/preview/";
const DEBUG: &str = "/debug/controllers/";

/// Maximum number of ReplicaSets whose queue state is shown.
const MAX_REPLICA_SETS: usize = 3;

/// Change that is previewed.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
enum WhatIf {
    Image { container: Option<String>, image: String },
    Replicas(i32),
    Restart,
    Undo,
}

impl From<WhatIf> for Change {
    fn from(change: WhatIf) -> Self {
        match change {
            WhatIf::Image { container, image } => Self::Image { container, image },
            WhatIf::Replicas(replicas) => Self::Replicas(replicas),
            WhatIf::Restart => Self::Restart,
            WhatIf::Undo => Self::Undo { revision: None },
        }
    }
}

/// Objects and controllers that the paths read.
pub(crate) struct Rollouts {
    server: Arc<ApiServer>,
    clock: Arc<dyn Clock>,
    debug: DebugControllers,
    /// One preview runs at a time: each uses two threads.
    previews: Semaphore,
}

impl Rollouts {
    pub(crate) fn new(server: Arc<ApiServer>, clock: Arc<dyn Clock>, debug: DebugControllers) -> Self {
        Self { server, clock, debug, previews: Semaphore::new(1) }
    }

    /// Serves the paths.
    pub(crate) fn into_extension(self) -> Extension {
        let this = Arc::new(self);
        Arc::new(move |request| {
            let this = Arc::clone(&this);
            Box::pin(async move { this.serve(&request).await })
        })
    }

    async fn serve(&self, request: &Request<Bytes>) -> Option<ExtensionResponse> {
        let (method, path) = (request.method(), request.uri().path());
        let get = *method == Method::GET;
        if let Some(path) = path.strip_prefix(DEBUG).filter(|_| get) {
            let response = self.debug.respond(path);
            return Some(ExtensionResponse { status: response.status, body: response.body });
        }
        if let Some((namespace, name)) =
            path.strip_prefix(WHY).filter(|_| get).and_then(|path| path.split_once('/'))
        {
            return self.why(namespace, name);
        }
        let (namespace, name) =
            path.strip_prefix(PREVIEW).filter(|_| *method == Method::POST)?.split_once('/')?;
        // Other content types could be sent by pages of other origins.
        if request.headers().get(CONTENT_TYPE).is_none_or(|value| value != "application/json") {
            return Some(failure(StatusCode::UNSUPPORTED_MEDIA_TYPE, "expected application/json"));
        }
        Some(match serde_json::from_slice::<WhatIf>(request.body()) {
            Ok(change) => self.preview(namespace, name, change).await,
            Err(error) => failure(StatusCode::BAD_REQUEST, &format!("invalid change: {error}")),
        })
    }

    /// Explains a rollout. `None` if the Deployment does not exist.
    fn why(&self, namespace: &str, name: &str) -> Option<ExtensionResponse> {
        let deployment = self.server.get(Resource::DEPLOYMENTS, namespace, name).ok()?;
        let now = self.clock.now();
        let diagnosis = diagnose(&rollout_snapshot(&self.server, namespace), deployment.value(), now);
        Some(match diagnosis {
            Ok(diagnosis) => {
                let queues = self.queues(namespace, name);
                let queues: Vec<String> = queues.iter().map(|state| state.describe(now)).collect();
                success(&json!({ "diagnosis": diagnosis, "queues": queues }))
            }
            Err(error) => failure(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string()),
        })
    }

    /// State of the Deployment and its ReplicaSets with pods in the queues of the controllers in this process.
    fn queues(&self, namespace: &str, name: &str) -> Vec<ControllerState> {
        let get = |kind: &str, name: &str| -> Option<Value> {
            let response = self.debug.respond(&format!("{kind}/{namespace}/{name}"));
            serde_json::from_slice(&response.body).ok().filter(|_| response.status == StatusCode::OK)
        };
        let Some(deployment) = get("deployment", name) else { return Vec::new() };
        let mut states = vec![ControllerState::parse("deployment", &deployment)];
        let sets = deployment["replicaSets"].as_array().into_iter().flatten();
        let active = sets.filter(|set| set["replicas"].as_i64().unwrap_or(0) > 0);
        for name in active.filter_map(|set| set["name"].as_str()).take(MAX_REPLICA_SETS) {
            states.extend(get("replicaset", name).map(|set| ControllerState::parse("replicaset", &set)));
        }
        states.retain(|state| !state.is_settled());
        states
    }

    async fn preview(&self, namespace: &str, name: &str, change: WhatIf) -> ExtensionResponse {
        let Ok(_permit) = self.previews.try_acquire() else {
            return failure(StatusCode::TOO_MANY_REQUESTS, "another preview is running");
        };
        let snapshot = self.preview_snapshot(namespace, name);
        let run = move || preview(&snapshot, &change.into(), &TimingOptions::default());
        let result = tokio::task::spawn_blocking(run).await.unwrap_or(Err(PreviewError::Panicked));
        match result {
            Ok(preview) => success(&json!({ "text": render::text(&preview), "svg": render::svg(&preview) })),
            Err(error) => failure(StatusCode::UNPROCESSABLE_ENTITY, &error.to_string()),
        }
    }

    fn preview_snapshot(&self, namespace: &str, name: &str) -> kcm_preview::Snapshot {
        let found = rollout_snapshot(&self.server, namespace);
        let deployment = self.server.get(Resource::DEPLOYMENTS, namespace, name).ok();
        let all = self.server.list(Resource::PODS, None, &ListOptions::default());
        let others = all.map(|all| all.items).unwrap_or_default().into_iter();
        let others = others.filter(|pod| pod.namespace() != namespace);
        kcm_preview::Snapshot {
            taken: self.clock.now(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            is_sandbox: true,
            deployment: deployment.map(|deployment| deployment.value().clone()),
            replica_sets: found.replica_sets.seen().to_vec(),
            pods: found.pods.seen().to_vec(),
            other_pods: others.map(|pod| pod.value().clone()).collect(),
            nodes: found.nodes.seen().to_vec(),
            quotas: found.quotas.seen().to_vec(),
            limit_ranges: found.limit_ranges.seen().to_vec(),
            disruption_budgets: found.disruption_budgets.seen().to_vec(),
            autoscalers: found.autoscalers.seen().to_vec(),
            ..kcm_preview::Snapshot::default()
        }
    }
}

fn success(value: &Value) -> ExtensionResponse {
    ExtensionResponse { status: StatusCode::OK, body: Bytes::from(value.to_string()) }
}

fn failure(status: StatusCode, message: &str) -> ExtensionResponse {
    let body = json!({ "kind": "Status", "status": "Failure", "message": message, "code": status.as_u16() });
    ExtensionResponse { status, body: Bytes::from(body.to_string()) }
}

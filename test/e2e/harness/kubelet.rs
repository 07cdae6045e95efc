//! A stand-in for scheduler and kubelets, over HTTP: pods are bound, become ready one after the other, and go.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use kcm_api::ApiError;
use kcm_client::{ApiClient, Request};
use kcm_clock::{Clock, RealClock};
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// How often it looks. Each time one more pod of every Deployment becomes ready.
const ROUND: Duration = Duration::from_millis(100);

/// Looks after pods until it is dropped.
#[derive(Debug)]
pub(super) struct Kubelet {
    task: JoinHandle<()>,
    seen: Arc<Mutex<Seen>>,
}

/// What it has seen of the pods with each label `app`.
#[derive(Debug, Default)]
struct Seen {
    /// All uids there ever were.
    uids: BTreeMap<String, BTreeSet<String>>,
    /// How many the ReplicaSets with the label wanted at once at most.
    most: BTreeMap<String, u64>,
}

impl Kubelet {
    pub(super) fn start(api: ApiClient) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let task = tokio::spawn(run(api, Arc::clone(&seen)));
        Self { task, seen }
    }

    /// The most pods that all ReplicaSets with the label wanted at once.
    pub(super) fn most_wanted(&self, app: &str) -> u64 {
        self.seen.lock().unwrap().most.get(app).copied().unwrap_or_default()
    }

    /// How many pods with the label there ever were.
    pub(super) fn ever(&self, app: &str) -> usize {
        self.seen.lock().unwrap().uids.get(app).map(BTreeSet::len).unwrap_or_default()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(api: ApiClient, seen: Arc<Mutex<Seen>>) {
    loop {
        tokio::time::sleep(ROUND).await;
        // The server may be away; it comes back.
        let Ok(pods) = list(&api, "/api/v1/pods").await else { continue };
        let Ok(replica_sets) = list(&api, "/apis/apps/v1/replicasets").await else { continue };
        seen.lock().unwrap().note(&pods, &replica_sets);
        let mut served = BTreeSet::new();
        for pod in &pods {
            // What is refused, such as to a pod that is gone, is tried again if there is need.
            if let Some(request) = due(pod, &mut served) {
                let _ = api.send(&request).await;
            }
        }
    }
}

async fn list(api: &ApiClient, path: &str) -> Result<Vec<Value>, ApiError> {
    let mut list: Value = serde_json::from_slice(&api.send(&Request::get(path)).await?).unwrap();
    Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

impl Seen {
    fn note(&mut self, pods: &[Value], replica_sets: &[Value]) {
        for pod in pods {
            let uid = pod["metadata"]["uid"].as_str().unwrap();
            self.uids.entry(app(pod).to_owned()).or_default().insert(uid.to_owned());
        }
        let mut wanted: BTreeMap<&str, u64> = BTreeMap::new();
        for replica_set in replica_sets {
            *wanted.entry(app(replica_set)).or_default() += replica_set["spec"]["replicas"].as_u64().unwrap();
        }
        for (app, wanted) in wanted {
            let most = self.most.entry(app.to_owned()).or_default();
            *most = wanted.max(*most);
        }
    }
}

fn app(object: &Value) -> &str {
    object["metadata"]["labels"]["app"].as_str().unwrap_or_default()
}

/// What a pod needs next, if it is its turn.
fn due<'a>(pod: &'a Value, served: &mut BTreeSet<&'a str>) -> Option<Request> {
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str);
    let (name, namespace) = (text("/metadata/name")?, text("/metadata/namespace")?);
    let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
    if text("/metadata/deletionTimestamp").is_some() {
        let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}});
        return Some(Request::delete(path, options.to_string()));
    }
    if text("/spec/nodeName").is_none() {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"kind": "Node", "name": "node-1"},
        });
        return Some(Request::post(format!("{path}/binding"), binding.to_string()));
    }
    if text("/status/phase") == Some("Running") || !served.insert(app(pod)) {
        return None;
    }
    let now = RealClock::new().now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let status = json!({"status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}],
    }});
    Some(Request::strategic_merge_patch(format!("{path}/status"), status.to_string()))
}

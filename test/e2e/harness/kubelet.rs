//! Simulated scheduler and kubelet over HTTP: binds pods, makes them ready one at a time, and deletes terminating pods.

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

/// Interval of polls. At each poll, one more pod of each Deployment becomes ready.
const INTERVAL: Duration = Duration::from_millis(100);

/// Simulated kubelet. Dropping it stops it.
#[derive(Debug)]
pub(super) struct Kubelet {
    task: JoinHandle<()>,
    observed: Arc<Mutex<Observed>>,
}

/// Observed pods and replicas by label `app`.
#[derive(Debug, Default)]
struct Observed {
    /// UIDs of all pods, including deleted ones.
    uids: BTreeMap<String, BTreeSet<String>>,
    /// Maximum of the total replicas of the ReplicaSets.
    max_replicas: BTreeMap<String, u64>,
}

impl Kubelet {
    pub(super) fn start(api: ApiClient) -> Self {
        let observed: Arc<Mutex<Observed>> = Arc::default();
        let task = tokio::spawn(run(api, Arc::clone(&observed)));
        Self { task, observed }
    }

    /// Maximum of the total replicas of the ReplicaSets with the label.
    pub(super) fn max_replicas(&self, app: &str) -> u64 {
        self.observed.lock().unwrap().max_replicas.get(app).copied().unwrap_or_default()
    }

    /// Total number of pods with the label.
    pub(super) fn total_pods(&self, app: &str) -> usize {
        self.observed.lock().unwrap().uids.get(app).map(BTreeSet::len).unwrap_or_default()
    }
}

impl Drop for Kubelet {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(api: ApiClient, observed: Arc<Mutex<Observed>>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        // The API server may be restarting.
        let Ok(pods) = list(&api, "/api/v1/pods").await else { continue };
        let Ok(replica_sets) = list(&api, "/apis/apps/v1/replicasets").await else { continue };
        observed.lock().unwrap().record(&pods, &replica_sets);
        let mut served = BTreeSet::new();
        for pod in &pods {
            // Failed requests are sent again at the next poll, if necessary.
            if let Some(request) = next_request(pod, &mut served) {
                let _ = api.send(&request).await;
            }
        }
    }
}

async fn list(api: &ApiClient, path: &str) -> Result<Vec<Value>, ApiError> {
    let mut list: Value = serde_json::from_slice(&api.send(&Request::get(path)).await?).unwrap();
    Ok(list["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

impl Observed {
    fn record(&mut self, pods: &[Value], replica_sets: &[Value]) {
        for pod in pods {
            let uid = pod["metadata"]["uid"].as_str().unwrap();
            self.uids.entry(app(pod).to_owned()).or_default().insert(uid.to_owned());
        }
        let mut wanted: BTreeMap<&str, u64> = BTreeMap::new();
        for replica_set in replica_sets {
            *wanted.entry(app(replica_set)).or_default() += replica_set["spec"]["replicas"].as_u64().unwrap();
        }
        for (app, wanted) in wanted {
            let most = self.max_replicas.entry(app.to_owned()).or_default();
            *most = wanted.max(*most);
        }
    }
}

fn app(object: &Value) -> &str {
    object["metadata"]["labels"]["app"].as_str().unwrap_or_default()
}

/// Next request for a pod, if any.
fn next_request<'a>(pod: &'a Value, served: &mut BTreeSet<&'a str>) -> Option<Request> {
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

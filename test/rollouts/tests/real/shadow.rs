//! Scheduler and kubelets of a namespace: a sandbox whose pods are copies of the real ones.
//!
//! A pod of kube-apiserver is copied to an embedded API server. The sandbox binds and runs the copy. Its binding, status,
//! events and removal are written to kube-apiserver.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use kcm_api::ApiError;
use kcm_apiserver::{
    ApiServer, ApiServerConfig, DeleteOptions, Patch, Resource, Subresource, WatchEvent, WatchStart,
    WriteOptions,
};
use kcm_client::Request;
use kcm_clock::{Random, SeededRandom};
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig};
use parking_lot::Mutex;
use rollout_scenarios::objects::{NAMESPACE, START, STOP};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::cluster::{Cluster, PodChange};

/// Nodes of each scenario.
pub(crate) const NODES: [&str; 2] = ["sim-node-0", "sim-node-1"];

/// Name of a node of the scenario in kube-apiserver.
pub(crate) fn node_name(node: &str, namespace: &str) -> String {
    format!("{node}-{namespace}")
}

/// Embedded cluster of one namespace. Stops on drop.
pub(crate) struct Shadow {
    server: Arc<ApiServer>,
    _stop: DropGuard,
}

/// Last states of pods that have changed: by name, the pod, and `true` if it was removed.
type Changed = Mutex<BTreeMap<String, (Value, bool)>>;

impl Shadow {
    /// Starts the sandbox and the copying in both directions.
    pub(crate) fn start(
        cluster: &Arc<Cluster>,
        namespace: &str,
        seed: u64,
        pods: mpsc::UnboundedReceiver<PodChange>,
    ) -> Self {
        let clock = Arc::clone(&cluster.clock);
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(seed));
        let server = ApiServer::new(ApiServerConfig {
            clock: Arc::clone(&clock),
            random: Arc::clone(&random),
            ..ApiServerConfig::default()
        });
        let shop = json!({ "metadata": { "name": NAMESPACE } });
        server.create(Resource::NAMESPACES, "", shop, &WriteOptions::default()).unwrap();
        let kubelet = KubeletConfig { pod_ready_delay: START, pod_stop_delay: STOP };
        let config =
            SandboxConfig { server: Arc::clone(&server), clock, random, nodes: NODES.len(), kubelet };
        let sandbox = Sandbox::new(config).unwrap();
        let stop = CancellationToken::new();
        let copies = Copies {
            cluster: Arc::clone(cluster),
            server: Arc::clone(&server),
            namespace: namespace.to_owned(),
            changed: Arc::default(),
            wake: Arc::default(),
        };
        let running = stop.clone();
        tokio::spawn(async move { sandbox.run(running).await });
        let running = stop.clone();
        tokio::spawn(async move { running.run_until_cancelled(copies.run(pods)).await });
        Self { server, _stop: stop.drop_guard() }
    }

    /// Patches the status of the copy of a pod.
    pub(crate) fn patch_pod_status(&self, name: &str, patch: Value) {
        let options = WriteOptions::default();
        // The copy of a pod that was removed a moment ago does not exist.
        let part = Some(Subresource::Status);
        drop(self.server.patch(Resource::PODS, NAMESPACE, name, part, Patch::strategic(patch), &options));
    }

    pub(crate) fn patch_node(&self, name: &str, part: Option<Subresource>, patch: Value) {
        let options = WriteOptions::default();
        self.server.patch(Resource::NODES, "", name, part, Patch::strategic(patch), &options).unwrap();
    }

    pub(crate) fn delete_node(&self, name: &str) {
        self.server.delete(Resource::NODES, "", name, &DeleteOptions::default()).unwrap();
    }
}

/// Copies pods, statuses and events.
struct Copies {
    cluster: Arc<Cluster>,
    server: Arc<ApiServer>,
    namespace: String,
    changed: Arc<Changed>,
    wake: Arc<Notify>,
}

impl Copies {
    async fn run(self, mut real: mpsc::UnboundedReceiver<PodChange>) {
        let mut pods = self.server.watch(Resource::PODS, Some(NAMESPACE), WatchStart::Initial);
        let mut events = self.server.watch(Resource::EVENTS, Some(NAMESPACE), WatchStart::Initial);
        let (event_sender, event_receiver) = mpsc::unbounded_channel();
        let mut copied = HashSet::new();
        let pod_writer = PodWriter {
            cluster: Arc::clone(&self.cluster),
            namespace: self.namespace.clone(),
            written: HashMap::new(),
        };
        let read = async {
            loop {
                tokio::select! {
                    change = real.recv() => match change {
                        Some((type_, pod)) => self.copy_pod(&type_, pod, &mut copied),
                        None => return,
                    },
                    event = pods.next() => if let Ok(event) = event {
                        self.record(&event);
                    },
                    event = events.next() => if let Ok(event) = event {
                        let _ = event_sender.send(event);
                    },
                }
            }
        };
        tokio::join!(
            read,
            pod_writer.run(Arc::clone(&self.changed), Arc::clone(&self.wake)),
            write_events(&self.cluster, &self.namespace, event_receiver),
        );
    }

    /// Copies a change of a real pod to the sandbox.
    fn copy_pod(&self, type_: &str, mut pod: Value, copied: &mut HashSet<String>) {
        let text =
            |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (name, uid) = (text("/metadata/name"), text("/metadata/uid"));
        let grace = pod["metadata"]["deletionGracePeriodSeconds"].as_i64();
        let copy = self.server.get(Resource::PODS, NAMESPACE, &name).ok();
        if type_ == "DELETED" {
            copied.insert(uid.clone());
            if copy.is_some() {
                drop(self.server.delete(Resource::PODS, NAMESPACE, &name, &DeleteOptions::now(&uid)));
            }
            return;
        }
        let is_deleting = pod["metadata"].get("deletionTimestamp").is_some();
        match copy {
            // A finalizer holds the pod, which the kubelet has stopped, or the pod was removed before it was copied.
            None if copied.contains(&uid) || is_deleting => {}
            None => {
                copied.insert(uid);
                let metadata = pod["metadata"].as_object_mut().unwrap();
                metadata.insert("namespace".to_owned(), json!(NAMESPACE));
                metadata.retain(|name, _| {
                    !["ownerReferences", "finalizers", "managedFields"].contains(&name.as_str())
                });
                self.server.restore(Resource::PODS, pod).unwrap();
            }
            Some(copy) if is_deleting && !copy.is_deleting() => {
                let options = DeleteOptions { grace_period_seconds: grace, ..DeleteOptions::with_uid(&uid) };
                drop(self.server.delete(Resource::PODS, NAMESPACE, &name, &options));
            }
            Some(_) => {}
        }
    }

    fn record(&self, event: &WatchEvent) {
        let Some(pod) = event.object() else { return };
        let is_removed = matches!(event, WatchEvent::Deleted(_));
        self.changed.lock().insert(pod.name().to_owned(), (pod.value().clone(), is_removed));
        self.wake.notify_one();
    }
}

/// Writes bindings, statuses and removals of pods.
struct PodWriter {
    cluster: Arc<Cluster>,
    namespace: String,
    /// Status of each bound pod as it was written, by UID.
    written: HashMap<String, Value>,
}

impl PodWriter {
    async fn run(mut self, changed: Arc<Changed>, wake: Arc<Notify>) {
        loop {
            wake.notified().await;
            let changes = std::mem::take(&mut *changed.lock());
            for (name, (pod, is_removed)) in changes {
                if let Err(error) = self.write(&name, &pod, is_removed).await
                    && !error.is_not_found()
                    && !error.is_conflict()
                {
                    crate::print(&format!("NOTE: {}: pod {name}: {error}", self.namespace));
                }
            }
        }
    }

    async fn write(&mut self, name: &str, pod: &Value, is_removed: bool) -> Result<(), ApiError> {
        let path = format!("/api/v1/namespaces/{}/pods/{name}", self.namespace);
        let uid = pod["metadata"]["uid"].as_str().unwrap_or_default();
        if let Some(node) = pod["spec"]["nodeName"].as_str()
            && !self.written.contains_key(uid)
        {
            let node = node_name(node, &self.namespace);
            let binding = json!({
                "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name },
                "target": { "kind": "Node", "name": node },
            });
            self.cluster.send(Request::post(format!("{path}/binding"), binding.to_string())).await?;
            self.written.insert(uid.to_owned(), json!({}));
        }
        let status = &pod["status"];
        let written = self.written.get(uid);
        // A new pod has no conditions.
        let is_reported = status["conditions"].as_array().is_some_and(|conditions| !conditions.is_empty());
        if is_reported && written != Some(status) {
            let old = written.and_then(Value::as_object).into_iter().flatten().map(|(name, _)| name);
            let mut patch = status.clone();
            for field in old.filter(|field| status.get(field.as_str()).is_none()) {
                patch[field] = Value::Null;
            }
            let body = json!({ "metadata": { "uid": uid }, "status": patch }).to_string();
            let mut request = Request::json(http::Method::PATCH, format!("{path}/status"), body);
            request.content_type = "application/merge-patch+json";
            self.cluster.send(request).await?;
            if let Some(written) = self.written.get_mut(uid) {
                written.clone_from(status);
            }
        }
        if is_removed {
            self.written.remove(uid);
            let options = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": uid } });
            self.cluster.send(Request::delete(path, options.to_string())).await?;
        }
        Ok(())
    }
}

/// Writes the events of the sandbox.
async fn write_events(cluster: &Cluster, namespace: &str, mut events: mpsc::UnboundedReceiver<WatchEvent>) {
    let collection = format!("/api/v1/namespaces/{namespace}/events");
    while let Some(event) = events.recv().await {
        let request = match &event {
            WatchEvent::Added(event) => {
                let mut event = event.value().clone();
                let metadata = json!({ "name": event["metadata"]["name"] });
                event["metadata"] = metadata;
                event["involvedObject"]["namespace"] = json!(namespace);
                if let Some(host) = event["source"]["host"].as_str().filter(|host| !host.is_empty()) {
                    event["source"]["host"] = json!(node_name(host, namespace));
                }
                Request::create(&*collection, event.to_string())
            }
            WatchEvent::Modified(event) => {
                let fields = event.value();
                let patch = json!({ "count": fields["count"], "lastTimestamp": fields["lastTimestamp"] });
                Request::strategic_merge_patch(format!("{collection}/{}", event.name()), patch.to_string())
            }
            WatchEvent::Deleted(_) | WatchEvent::InitialEventsEnd(_) => continue,
        };
        if let Err(error) = cluster.send(request).await
            && !error.is_not_found()
            && !error.is_namespace_terminating()
        {
            crate::print(&format!("NOTE: {namespace}: event: {error}"));
        }
    }
}

//! Scenario on kube-apiserver, in real time.

use std::{sync::Arc, time::Duration};

use kcm_api::ApiError;
use kcm_apiserver::Subresource;
use kcm_client::Request;
use rollout_scenarios::{
    Condition, ObjectRef, Running, Scenario, Step, Which,
    objects::{self, NAME, NAMESPACE},
};
use serde_json::{Value, json};

use crate::{
    cluster::{Cluster, Lease},
    shadow::{NODES, Shadow, node_name},
};

/// Longest scenario that is played.
const LONGEST: Duration = Duration::from_secs(15 * 60);

/// Time that the scenario takes.
pub(crate) fn duration(scenario: &Scenario) -> Duration {
    let advances = scenario.steps.iter().map(|step| match step {
        Step::Advance(time) => *time,
        _ => Duration::ZERO,
    });
    scenario.settle + advances.sum::<Duration>()
}

/// Reason for which the scenario is left out.
pub(crate) fn left_out(scenario: &Scenario) -> Option<&'static str> {
    if scenario.steps.iter().any(|step| matches!(step, Step::AsRead(_))) {
        return Some("step as_read: kube-apiserver does not accept the object");
    }
    if scenario.steps.iter().any(|step| matches!(step, Step::ReadQueues)) {
        return Some("step read_queues: upstream's manager does not serve its queues");
    }
    (duration(scenario) > LONGEST).then_some("takes longer than 15 minutes")
}

/// Scenario in its namespace.
pub(crate) struct Play {
    cluster: Arc<Cluster>,
    namespace: String,
    shadow: Shadow,
    lease: Lease,
    hidden: Vec<String>,
}

impl Play {
    /// Creates the namespace, the nodes and the objects.
    pub(crate) async fn start(
        cluster: &Arc<Cluster>,
        number: u64,
        scenario: &Scenario,
    ) -> Result<Self, ApiError> {
        let namespace = format!("{NAMESPACE}-{number:03}");
        let shop = json!({ "metadata": { "name": namespace } });
        cluster.send(Request::create("/api/v1/namespaces", shop.to_string())).await?;
        for node in NODES {
            cluster.create_node(&node_name(node, &namespace)).await?;
        }
        let pods = cluster.subscribe(&namespace);
        let shadow = Shadow::start(cluster, &namespace, number, pods);
        let (cluster, lease, hidden) = (Arc::clone(cluster), Lease::Current, Vec::new());
        let play = Self { cluster, namespace, shadow, lease, hidden };
        for object in &scenario.objects {
            play.create(object).await?;
        }
        let mut manifest = objects::manifest(&scenario.deployment);
        manifest["metadata"]["namespace"] = json!(play.namespace);
        play.create(&manifest).await?;
        Ok(play)
    }

    /// Lets the Deployment settle, makes the steps, and returns the diagnosis in the names of the scenario.
    pub(crate) async fn run(&mut self, scenario: &Scenario) -> Result<Value, String> {
        self.cluster.clock.sleep(scenario.settle).await;
        for (index, step) in scenario.steps.iter().enumerate() {
            self.step(step).await.map_err(|error| format!("step {}: {error}", index + 1))?;
        }
        let text = self.cluster.why(&self.namespace, NAME, &self.hidden, self.lease).await?;
        serde_json::from_str(&self.in_names_of_scenario(&text)).map_err(|error| format!("{error}: {text}"))
    }

    /// Replaces the names of the namespace and of the nodes.
    fn in_names_of_scenario(&self, text: &str) -> String {
        text.replace(&format!("-{}", self.namespace), "").replace(&self.namespace, NAMESPACE)
    }

    /// Ends the simulation of the namespace. The objects stay.
    pub(crate) fn end(self) {
        self.cluster.unsubscribe(&self.namespace);
    }

    /// Statuses and events as text.
    pub(crate) async fn describe(&self) -> String {
        let mut text = String::new();
        for resource in ["deployments", "replicasets", "pods"] {
            let group = if resource == "pods" { "" } else { "apps" };
            for object in self.list(group, resource).await.unwrap_or_default() {
                let metadata = &object["metadata"];
                let end = metadata.get("deletionTimestamp").unwrap_or(&Value::Null);
                let node = &object["spec"]["nodeName"];
                text.push_str(&format!("{} {end} {node} {}\n", metadata["name"], object["status"]));
            }
        }
        for event in self.list("", "events").await.unwrap_or_default() {
            let fields = ["firstTimestamp", "lastTimestamp", "count", "type", "reason", "message"];
            let fields = fields.map(|field| event[field].to_string()).join(" ");
            text.push_str(&format!("{} {fields}\n", event["involvedObject"]["name"]));
        }
        self.in_names_of_scenario(&text)
    }

    async fn create(&self, object: &Value) -> Result<(), ApiError> {
        let mut object = object.clone();
        if object["metadata"]["namespace"] == NAMESPACE {
            object["metadata"]["namespace"] = json!(self.namespace);
        }
        let (version, kind) = (object["apiVersion"].as_str(), object["kind"].as_str());
        let group = version.and_then(|version| version.split_once('/')).map_or("", |(group, _)| group);
        let plural = format!("{}s", kind.unwrap_or_default().to_lowercase());
        let path = collection(group, &plural, &self.namespace);
        let request = Request::create(format!("{path}?fieldManager=kubectl-create"), object.to_string());
        self.cluster.send(request).await.map(drop)
    }

    async fn patch(&self, path: String, patch: &Value) -> Result<(), ApiError> {
        let path = format!("{path}?fieldManager=kubectl-patch");
        self.cluster.send(Request::strategic_merge_patch(path, patch.to_string())).await.map(drop)
    }

    async fn delete(&self, path: String) -> Result<(), ApiError> {
        self.cluster.send(Request::delete(path, "")).await.map(drop)
    }

    async fn list(&self, group: &str, plural: &str) -> Result<Vec<Value>, ApiError> {
        self.cluster.list(&collection(group, plural, &self.namespace)).await
    }

    /// Path of an object.
    async fn path(&self, object: &ObjectRef) -> Result<String, ApiError> {
        let ObjectRef { resource, group, name, namespace } = object;
        let namespace = if namespace == NAMESPACE { &self.namespace } else { namespace };
        let name = match (resource.as_str(), name.as_str()) {
            ("replicasets", "new" | "old") => {
                let sets = self.list("apps", "replicasets").await?;
                objects::replica_set_name(sets, name == "new").unwrap_or_default()
            }
            ("namespaces", NAMESPACE) => self.namespace.clone(),
            ("nodes", name) => node_name(name, &self.namespace),
            (_, name) => name.to_owned(),
        };
        Ok(format!("{}/{name}", collection(group, resource, namespace)))
    }

    fn pod_path(&self, pod: &Value) -> String {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        format!("{}/{name}", collection("", "pods", &self.namespace))
    }

    /// Pods of the Deployment, sorted by name.
    async fn pods(&self, which: Which, count: usize) -> Result<Vec<Value>, ApiError> {
        let path = format!("{}/{NAME}", collection("apps", "deployments", &self.namespace));
        let (deployment, pods) = (self.cluster.get(&path).await?, self.list("", "pods").await?);
        Ok(objects::select_pods(pods, &deployment, which, count))
    }

    /// Patches the statuses of copies, which are written to the pods.
    fn patch_statuses(&self, pods: &[Value], patch: &Value) {
        for name in pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str()) {
            self.shadow.patch_pod_status(name, patch.clone());
        }
    }

    async fn patch_nodes(
        &self,
        names: &[String],
        part: Option<Subresource>,
        patch: &Value,
    ) -> Result<(), ApiError> {
        let suffix = if part.is_some() { "/status" } else { "" };
        for name in names {
            self.shadow.patch_node(name, part, patch.clone());
            let path = format!("/api/v1/nodes/{}{suffix}", node_name(name, &self.namespace));
            self.patch(path, patch).await?;
        }
        Ok(())
    }

    async fn step(&mut self, step: &Step) -> Result<(), ApiError> {
        let now = self.cluster.now();
        match step {
            Step::Advance(time) => self.cluster.clock.sleep(*time).await,
            Step::Change(change) => {
                let path = format!("{}/{NAME}", collection("apps", "deployments", &self.namespace));
                self.patch(path, &objects::patch_of(change)).await?;
            }
            Step::Create(object) => self.create(object).await?,
            Step::Patch(one) => {
                let suffix = if one.status { "/status" } else { "" };
                self.patch(self.path(&one.object).await? + suffix, &one.patch).await?;
            }
            Step::Delete(object) if object.resource == "leases" => self.lease = Lease::Deleted,
            Step::Delete(object) => {
                if object.resource == "nodes" {
                    self.shadow.delete_node(&object.name);
                }
                self.delete(self.path(object).await?).await?;
            }
            Step::DeletePods(deletion) => {
                for pod in self.pods(deletion.which, deletion.count).await? {
                    self.delete(self.pod_path(&pod)).await?;
                }
            }
            Step::PatchPods(one) => {
                for pod in self.pods(one.which, one.count).await? {
                    self.patch(self.pod_path(&pod), &one.patch).await?;
                }
            }
            Step::PodStatus(report) => {
                let pods = self.pods(report.which, report.count).await?;
                self.patch_statuses(&pods, &json!({ "status": report.status }));
            }
            Step::Condition(Condition { which, type_, status }) => {
                let pods = self.pods(*which, usize::MAX).await?;
                self.patch_statuses(&pods, &objects::condition_patch(type_, status, now));
            }
            Step::PodEvent(event) => {
                for pod in self.pods(event.which, usize::MAX).await? {
                    self.create(&objects::warning(event, &pod, now)).await?;
                }
            }
            Step::Controllers(running) => {
                self.cluster.rules.set_running(&self.namespace, *running == Running::Running);
            }
            Step::Lease(Running::Stopped) => {
                self.lease = Lease::RenewedAt(now.timestamp());
            }
            Step::Lease(Running::Running) => self.lease = Lease::Current,
            Step::Refuse(refusal) => self.cluster.rules.refuse(&self.namespace, refusal.clone()),
            Step::Allow(request) => self.cluster.rules.allow(&self.namespace, *request),
            Step::Cordon(names) => {
                self.patch_nodes(names, None, &json!({ "spec": { "unschedulable": true } })).await?;
            }
            Step::Uncordon(names) => {
                self.patch_nodes(names, None, &json!({ "spec": { "unschedulable": null } })).await?;
            }
            Step::LoseNodes(names) => {
                let patch = objects::lost_node_patch(now);
                self.patch_nodes(names, Some(Subresource::Status), &patch).await?;
                // The node lifecycle controller marks the pods.
                let mut pods = self.pods(Which::All, usize::MAX).await?;
                let names: Vec<_> = names.iter().map(|name| node_name(name, &self.namespace)).collect();
                pods.retain(|pod| names.iter().any(|node| pod["spec"]["nodeName"] == **node));
                self.patch_statuses(&pods, &objects::condition_patch("Ready", "False", now));
            }
            Step::AsRead(_) | Step::ReadQueues => {}
            Step::Hide(resources) => self.hidden.extend(resources.iter().cloned()),
        }
        Ok(())
    }
}

/// Path of the objects of a resource, in the namespace unless the resource is cluster-scoped.
fn collection(group: &str, plural: &str, namespace: &str) -> String {
    let root = match group {
        "" => "/api/v1".to_owned(),
        "autoscaling" => "/apis/autoscaling/v2".to_owned(),
        group => format!("/apis/{group}/v1"),
    };
    match plural {
        "nodes" | "namespaces" => format!("{root}/{plural}"),
        plural => format!("{root}/namespaces/{namespace}/{plural}"),
    }
}

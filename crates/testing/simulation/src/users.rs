//! Users, autoscalers and operators: everything that writes to the API server and is not a controller.

use std::{sync::Arc, time::Duration};

use kcm_api::PodTemplate;
use kcm_apiserver::{
    ApiServer, ApiStatus, DeleteOptions, DeletionPropagation, ListOptions, Object, Patch, Resource,
    Subresource, WriteOptions, json::condition,
};
use kcm_clock::Clock;
use serde_json::{Value, json};

use crate::{
    effect::is_of_template,
    judge::replicas,
    scenario::{
        DELETABLE_NAMESPACE, NAMESPACE, Policy, Scenario, Strategy, UserAction, Workload, WorkloadKind,
    },
};

/// Time from the loss of a node until its pods are deleted.
const NODE_GRACE: Duration = Duration::from_secs(5);

/// Name of the quota.
const QUOTA: &str = "quota";

/// Annotation that requests a rollback.
const ROLLBACK: &str = "deprecated.deployment.rollback.to";

/// Value of the label of objects that no selector matches.
const STRAY: &str = "stray";

/// Performs actions.
#[derive(Debug, Clone)]
pub(crate) struct Users {
    server: Arc<ApiServer>,
    clock: Arc<dyn Clock>,
    scenario: Arc<Scenario>,
}

impl Users {
    pub(crate) fn new(server: &Arc<ApiServer>, clock: &Arc<dyn Clock>, scenario: &Arc<Scenario>) -> Self {
        Self { server: Arc::clone(server), clock: Arc::clone(clock), scenario: Arc::clone(scenario) }
    }

    /// Creates namespaces and workloads.
    pub(crate) fn begin(&self) -> Result<(), ApiStatus> {
        for name in [NAMESPACE, DELETABLE_NAMESPACE] {
            let namespace = json!({"metadata": {"name": name}});
            self.server.create(Resource::NAMESPACES, "", namespace, &WriteOptions::default())?;
        }
        for at in 0..self.scenario.workloads.len() {
            self.create(at)?;
        }
        Ok(())
    }

    /// Performs an action. One that is impossible has no effect.
    pub(crate) fn act(&self, action: &UserAction) -> Result<(), ApiStatus> {
        match action {
            UserAction::SetImage { workload, image } => {
                let container = json!({"name": "c", "image": format!("app:{image}")});
                self.patch(*workload, json!({"spec": {"template": {"spec": {"containers": [container]}}}}))
            }
            UserAction::Scale { workload, replicas } => {
                self.patch_part(*workload, Some(Subresource::Scale), json!({"spec": {"replicas": replicas}}))
            }
            UserAction::Pause { workload } => {
                self.patch_deployment(*workload, json!({"spec": {"paused": true}}))
            }
            UserAction::Resume { workload } => {
                self.patch_deployment(*workload, json!({"spec": {"paused": null}}))
            }
            UserAction::SetStrategy { workload, strategy: to } => {
                let mut to = strategy(to);
                // A merge must not leave the parameters of the other type behind.
                if to["type"] == "Recreate" {
                    to["rollingUpdate"] = Value::Null;
                }
                self.patch_deployment(*workload, json!({"spec": {"strategy": to}}))
            }
            UserAction::SetHistoryLimit { workload, limit } => {
                self.patch_deployment(*workload, json!({"spec": {"revisionHistoryLimit": limit}}))
            }
            UserAction::Undo { workload, revision } => self.patch_deployment(
                *workload,
                json!({"metadata": {"annotations": {ROLLBACK: revision.to_string()}}}),
            ),
            UserAction::Collide { workload, image } => self.collide(*workload, *image),
            UserAction::Annotate { workload, value } => self.patch_deployment(
                *workload,
                json!({"metadata": {"annotations": {"note": value.to_string()}}}),
            ),
            UserAction::Delete { workload, policy } => {
                let (resource, namespace, name) = self.address(*workload)?;
                self.delete(resource, namespace, &name, *policy)
            }
            UserAction::Create { workload } => self.create(*workload),
            UserAction::DeletePod { pod, grace } => self.with_pod(*pod, |pod| {
                let options = DeleteOptions {
                    grace_period_seconds: Some((*grace).into()),
                    ..DeleteOptions::with_uid(pod.uid())
                };
                self.server.delete(Resource::PODS, NAMESPACE, pod.name(), &options).map(drop)
            }),
            UserAction::EvictPod { pod } => self.with_pod(*pod, |pod| {
                self.server.evict(NAMESPACE, pod.name(), &DeleteOptions::with_uid(pod.uid()))
            }),
            UserAction::FailPod { pod } => self.with_pod(*pod, |pod| {
                self.report(pod, &json!({"phase": "Failed", "conditions": [self.ready(false)]}))
            }),
            UserAction::UnreadyPod { pod } => {
                self.with_pod(*pod, |pod| self.report(pod, &json!({"conditions": [self.ready(false)]})))
            }
            UserAction::ReleasePod { pod } => self.with_pod(*pod, |pod| self.label_pod(pod, STRAY)),
            UserAction::ReturnPod { pod } => {
                let mut released = self.list(Resource::PODS, Some(NAMESPACE));
                released.retain(|pod| pod.label("app") == Some(STRAY));
                with_one(released, *pod, |pod| {
                    self.label_pod(pod, pod.name().split('-').next().unwrap_or_default())
                })
            }
            UserAction::OrphanPod { pod } => {
                self.with_pod(*pod, |pod| self.merge(pod, json!({"metadata": {"ownerReferences": null}})))
            }
            UserAction::StrayPod { workload } => {
                let (_, namespace, name) = self.address(*workload)?;
                let pod = json!({
                    "metadata": {"generateName": "stray-", "labels": {"app": name}},
                    "spec": {"containers": [{"name": "c", "image": "app:0"}]},
                });
                self.server.create(Resource::PODS, namespace, pod, &WriteOptions::default()).map(drop)
            }
            UserAction::ScaleSet { set, replicas } => self
                .with_set(*set, |set| self.patch_object(set, None, json!({"spec": {"replicas": replicas}}))),
            UserAction::DeleteSet { set, policy } => {
                self.with_set(*set, |set| self.delete(Resource::REPLICA_SETS, NAMESPACE, set.name(), *policy))
            }
            UserAction::ReleaseSet { set } => self.with_set(*set, |set| {
                self.patch_object(set, None, json!({"metadata": {"labels": {"app": STRAY}}}))
            }),
            UserAction::OrphanSet { set } => {
                self.with_set(*set, |set| self.merge(set, json!({"metadata": {"ownerReferences": null}})))
            }
            UserAction::SetQuota { pods } => self.set_quota(*pods),
            UserAction::RemoveQuota => self.remove_quota(),
            UserAction::DeleteNamespace => {
                self.delete(Resource::NAMESPACES, "", DELETABLE_NAMESPACE, Policy::Background)
            }
            UserAction::Cordon { node } => self.cordon(*node, true),
            UserAction::Uncordon { node } => self.cordon(*node, false),
            UserAction::LoseNode { node } => self.lose_node(*node),
        }
    }

    /// Ends what keeps workloads from becoming complete.
    pub(crate) fn end_faults(&self) {
        // What is not there need not be removed.
        let _ = self.remove_quota();
        for node in 0..self.nodes().len() {
            let _ = self.cordon(node, false);
        }
        for at in 0..self.scenario.workloads.len() {
            let _ = self.act(&UserAction::Resume { workload: at });
        }
        if self.scenario.actions.iter().any(|action| matches!(action.event, UserAction::ScaleSet { .. })) {
            self.restore_replica_sets();
        }
        self.restore_pods();
    }

    /// Takes back that users have scaled old ReplicaSets. With the strategy Recreate and another size of the Deployment,
    /// two ReplicaSets that want pods stand still, as upstream: neither scaling nor rolling out is done (US-4.8b).
    fn restore_replica_sets(&self) {
        for set in self.list(Resource::REPLICA_SETS, None) {
            let owner =
                set.owner_references().find(|owner| owner.controller).map(|owner| owner.name.to_owned());
            let owner =
                owner.and_then(|name| self.server.get(Resource::DEPLOYMENTS, set.namespace(), &name).ok());
            let is_old = owner.is_some_and(|owner| !is_of_template(&set, &owner));
            if is_old && replicas(set.value()) > 0 {
                let _ = self.patch_object(&set, None, json!({"spec": {"replicas": 0}}));
            }
        }
    }

    /// Removes the pods that are not ready or are being deleted. After a restore, the simulated kubelets do not repeat what
    /// they have reported.
    pub(crate) fn remove_unready_pods(&self) {
        for pod in self.list(Resource::PODS, None) {
            let is_ready = condition(pod.value(), "Ready").is_some_and(|ready| ready["status"] == "True");
            if !is_ready || pod.is_deleting() {
                let options = DeleteOptions::now(pod.uid());
                let _ = self.server.delete(Resource::PODS, pod.namespace(), pod.name(), &options);
            }
        }
    }

    /// Reports pods as ready that a user has reported as not ready.
    pub(crate) fn restore_pods(&self) {
        for pod in self.list(Resource::PODS, None) {
            let is_running = pod.value()["status"]["phase"] == "Running" && !pod.is_deleting();
            if is_running && condition(pod.value(), "Ready").is_some_and(|ready| ready["status"] == "False") {
                let _ = self.report(&pod, &json!({"conditions": [self.ready(true)]}));
            }
        }
    }

    fn address(&self, workload: usize) -> Result<(Resource, &'static str, String), ApiStatus> {
        let found = self.scenario.workloads.get(workload).ok_or_else(nothing)?;
        Ok((found.kind.resource(), self.scenario.namespace(workload), Workload::name(workload)))
    }

    fn create(&self, at: usize) -> Result<(), ApiStatus> {
        let (resource, namespace, name) = self.address(at)?;
        let workload = self.scenario.workloads.get(at).ok_or_else(nothing)?;
        let mut object = object(workload, &Workload::name(workload.labels_of.unwrap_or(at)));
        object["metadata"]["name"] = json!(name);
        self.server.create(resource, namespace, object, &WriteOptions::default()).map(drop)
    }

    /// Creates a ReplicaSet with the name that the Deployment's ReplicaSet with this image will have.
    fn collide(&self, at: usize, image: u32) -> Result<(), ApiStatus> {
        let (resource, namespace, name) = self.address(at)?;
        let container = json!({"name": "c", "image": format!("app:{image}")});
        let body = json!({"spec": {"template": {"spec": {"containers": [container]}}}});
        let options = WriteOptions { dry_run: true, ..WriteOptions::default() };
        let patched =
            self.server.patch(resource, namespace, &name, None, Patch::strategic(body), &options)?;
        let template = PodTemplate::from_value(&patched.value()["spec"]["template"]);
        let count = patched.value()["status"]["collisionCount"].as_i64();
        let count = count.and_then(|count| count.try_into().ok());
        let hash =
            template.ok().and_then(|template| template.compute_hash(count).ok()).ok_or_else(nothing)?;
        let set = Workload { kind: WorkloadKind::ReplicaSet, replicas: 0, ..Workload::default() };
        let mut set = object(&set, STRAY);
        set["metadata"]["name"] = json!(format!("{name}-{hash}"));
        self.server.create(Resource::REPLICA_SETS, namespace, set, &WriteOptions::default()).map(drop)
    }

    fn patch(&self, workload: usize, body: Value) -> Result<(), ApiStatus> {
        self.patch_part(workload, None, body)
    }

    fn patch_deployment(&self, workload: usize, body: Value) -> Result<(), ApiStatus> {
        match self.address(workload)? {
            (Resource::DEPLOYMENTS, ..) => self.patch(workload, body),
            _ => Err(nothing()),
        }
    }

    fn patch_part(&self, workload: usize, part: Option<Subresource>, body: Value) -> Result<(), ApiStatus> {
        let (resource, namespace, name) = self.address(workload)?;
        // A scale has no strategic merge.
        let patch = if part.is_some() { Patch::merge(body) } else { Patch::strategic(body) };
        let options = WriteOptions::default();
        self.server.patch(resource, namespace, &name, part, patch, &options).map(drop)
    }

    fn patch_object(&self, object: &Object, part: Option<Subresource>, body: Value) -> Result<(), ApiStatus> {
        self.send_patch(object, part, Patch::strategic(body))
    }

    fn merge(&self, object: &Object, body: Value) -> Result<(), ApiStatus> {
        self.send_patch(object, None, Patch::merge(body))
    }

    fn send_patch(&self, object: &Object, part: Option<Subresource>, patch: Patch) -> Result<(), ApiStatus> {
        let (resource, namespace, name) = (object.resource(), object.namespace(), object.name());
        self.server.patch(resource, namespace, name, part, patch, &WriteOptions::default()).map(drop)
    }

    fn report(&self, pod: &Object, status: &Value) -> Result<(), ApiStatus> {
        self.patch_object(pod, Some(Subresource::Status), json!({"status": status}))
    }

    fn ready(&self, is_ready: bool) -> Value {
        let now = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        json!({"type": "Ready", "status": if is_ready { "True" } else { "False" }, "lastTransitionTime": now})
    }

    fn delete(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        policy: Policy,
    ) -> Result<(), ApiStatus> {
        let propagation = match policy {
            Policy::Background => DeletionPropagation::Background,
            Policy::Foreground => DeletionPropagation::Foreground,
            Policy::Orphan => DeletionPropagation::Orphan,
        };
        let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        self.server.delete(resource, namespace, name, &options).map(drop)
    }

    fn list(&self, resource: Resource, namespace: Option<&str>) -> Vec<Arc<Object>> {
        let list = self.server.list(resource, namespace, &ListOptions::default());
        list.map_or_else(|_| Vec::new(), |list| list.items)
    }

    fn with_pod(
        &self,
        at: usize,
        act: impl FnOnce(&Object) -> Result<(), ApiStatus>,
    ) -> Result<(), ApiStatus> {
        with_one(self.list(Resource::PODS, Some(NAMESPACE)), at, act)
    }

    /// Acts on one of the ReplicaSets that controllers have created.
    fn with_set(
        &self,
        at: usize,
        act: impl FnOnce(&Object) -> Result<(), ApiStatus>,
    ) -> Result<(), ApiStatus> {
        let mut sets = self.list(Resource::REPLICA_SETS, Some(NAMESPACE));
        sets.retain(|set| set.name().contains('-'));
        with_one(sets, at, act)
    }

    fn label_pod(&self, pod: &Object, app: &str) -> Result<(), ApiStatus> {
        self.patch_object(pod, None, json!({"metadata": {"labels": {"app": app}}}))
    }

    fn set_quota(&self, pods: u32) -> Result<(), ApiStatus> {
        let _ = self.remove_quota();
        let quota = json!({"metadata": {"name": QUOTA}, "spec": {"hard": {"pods": pods.to_string()}}});
        self.server.create(Resource::RESOURCE_QUOTAS, NAMESPACE, quota, &WriteOptions::default()).map(drop)
    }

    fn remove_quota(&self) -> Result<(), ApiStatus> {
        self.delete(Resource::RESOURCE_QUOTAS, NAMESPACE, QUOTA, Policy::Background)
    }

    fn nodes(&self) -> Vec<Arc<Object>> {
        self.list(Resource::NODES, None)
    }

    fn with_node(
        &self,
        at: usize,
        act: impl FnOnce(&Object) -> Result<(), ApiStatus>,
    ) -> Result<(), ApiStatus> {
        let nodes = self.nodes();
        nodes.get(at.checked_rem(nodes.len()).unwrap_or(0)).map_or_else(|| Err(nothing()), |node| act(node))
    }

    fn cordon(&self, node: usize, is_on: bool) -> Result<(), ApiStatus> {
        let value = if is_on { json!(true) } else { Value::Null };
        self.with_node(node, |node| self.patch_object(node, None, json!({"spec": {"unschedulable": value}})))
    }

    fn pods_on(&self, node: &str) -> Vec<Arc<Object>> {
        let mut pods = self.list(Resource::PODS, None);
        pods.retain(|pod| pod.value()["spec"]["nodeName"] == node);
        pods
    }

    fn lose_node(&self, node: usize) -> Result<(), ApiStatus> {
        // The last one stays.
        if self.nodes().len() < 2 {
            return Err(nothing());
        }
        self.with_node(node, |node| {
            for pod in self.pods_on(node.name()) {
                let _ = self.report(&pod, &json!({"conditions": [self.ready(false)]}));
            }
            self.delete(Resource::NODES, "", node.name(), Policy::Background)?;
            let (users, name) = (self.clone(), node.name().to_owned());
            tokio::spawn(async move {
                users.clock.sleep(NODE_GRACE).await;
                for pod in users.pods_on(&name) {
                    let options = DeleteOptions::now(pod.uid());
                    // It may have gone meanwhile.
                    let _ = users.server.delete(Resource::PODS, pod.namespace(), pod.name(), &options);
                }
            });
            Ok(())
        })
    }
}

/// Acts on the object at a position, oldest first, modulo their number.
fn with_one(
    mut objects: Vec<Arc<Object>>,
    at: usize,
    act: impl FnOnce(&Object) -> Result<(), ApiStatus>,
) -> Result<(), ApiStatus> {
    objects.sort_by_key(|object| created(object));
    let at = at.checked_rem(objects.len()).unwrap_or(0);
    objects.get(at).map_or_else(|| Err(nothing()), |object| act(object))
}

/// Error of an action without a target.
fn nothing() -> ApiStatus {
    ApiStatus::bad_request("there is no such object")
}

fn created(object: &Object) -> (String, String) {
    let time = object.value().pointer("/metadata/creationTimestamp").and_then(Value::as_str);
    (time.unwrap_or_default().to_owned(), object.name().to_owned())
}

fn strategy(strategy: &Strategy) -> Value {
    match strategy {
        Strategy::Recreate => json!({"type": "Recreate"}),
        Strategy::Rolling(surge, unavailable) => {
            let value =
                |text: &String| text.parse::<u32>().map_or_else(|_| json!(text), |number| json!(number));
            json!({
                "type": "RollingUpdate",
                "rollingUpdate": {"maxSurge": value(surge), "maxUnavailable": value(unavailable)},
            })
        }
    }
}

/// The object of a workload, with the name as its label.
fn object(workload: &Workload, name: &str) -> Value {
    let template = json!({
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": [{"name": "c", "image": "app:0"}]},
    });
    let mut spec = json!({
        "replicas": workload.replicas,
        "minReadySeconds": workload.min_ready_seconds,
        "template": template,
    });
    match workload.kind {
        WorkloadKind::ReplicationController => spec["selector"] = json!({"app": name}),
        WorkloadKind::ReplicaSet => spec["selector"] = json!({"matchLabels": {"app": name}}),
        WorkloadKind::Deployment => {
            spec["selector"] = json!({"matchLabels": {"app": name}});
            spec["strategy"] = strategy(&workload.strategy);
            spec["revisionHistoryLimit"] = json!(workload.history_limit);
            let deadline = if workload.no_deadline {
                Some(json!(i32::MAX))
            } else {
                workload.deadline.map(|seconds| json!(seconds))
            };
            if let Some(deadline) = deadline {
                spec["progressDeadlineSeconds"] = deadline;
            }
        }
    }
    json!({"metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
}

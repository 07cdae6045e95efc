//! Deviations from upstream's behaviour under faults: each is shown on this manager, and its absence on upstream's. See
//! `docs/deviations.md`, "The controllers".

use std::{ffi::OsString, time::Duration};

use kcm_apiserver::{FaultHandle, Faults};
use serde_json::{Value, json};

use crate::harness::{Cluster, Manager, becomes_true, until};

const REPLICA_SETS: &str = "/apis/apps/v1/namespaces/default/replicasets";
const PODS: &str = "/api/v1/namespaces/default/pods";

/// Time longer than the back-off of ten refused syncs, and shorter than the time after which expectations expire.
const RETRIES: Duration = Duration::from_secs(15);

/// Defines two tests per function: with this manager, for which the function returns `true`, and with upstream's.
macro_rules! on_both_managers {
    ($($test:ident),+ $(,)?) => {
        mod this_manager {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let faulty = super::FaultyCluster::start(None).await;
                assert!(super::$test(faulty).await);
            })+
        }

        mod unlike_upstreams_manager {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                let Some(program) = crate::harness::upstream_program() else { return };
                let faulty = super::FaultyCluster::start(Some(program)).await;
                assert!(!super::$test(faulty).await);
            })+
        }
    };
}

on_both_managers!(
    creates_no_old_pods_beside_new_ones,
    creates_no_surplus_pod_for_a_late_creation,
    completes_a_recreate_whose_last_old_pod_has_lost_its_owner,
    reports_no_status_of_a_deleted_replica_set,
    retries_a_scale_down_without_an_event,
    waits_for_no_deletion_of_a_pod_that_has_lost_its_owner,
    waits_for_no_creation_of_a_pod_that_was_deleted_between_two_lists,
);

/// A manager on this project's API server.
struct FaultyCluster {
    cluster: Cluster,
    faults: Faults,
    is_upstream: bool,
    _manager: Manager,
}

impl FaultyCluster {
    /// Starts this manager, or the `upstream` program.
    async fn start(upstream: Option<OsString>) -> Self {
        const ALONE: &[&str] = &["--leader-elect=false"];
        let faults = Faults::default();
        let cluster = Cluster::embedded_with(faults.clone()).await;
        let manager = match &upstream {
            Some(program) => cluster.upstream_manager("upstream", program, ALONE).await,
            None => cluster.manager("this", ALONE).await,
        };
        Self { cluster, faults, is_upstream: upstream.is_some(), _manager: manager }
    }

    fn fault(&self, rule: &str) -> FaultHandle {
        self.faults.add(rule.parse().unwrap())
    }

    /// Waits until the manager has completed a later Deployment.
    async fn until_settled(&self, later: &str) {
        self.cluster.deploy(later, 1).await;
        self.cluster.until_rolled_out(later).await;
    }

    /// Waits until `done` returns `true`. For upstream's manager, waits until it has settled, and returns `true` if `done` does within
    /// [`RETRIES`].
    async fn is_completed(&self, condition: &str, done: impl AsyncFnMut() -> bool) -> bool {
        if !self.is_upstream {
            until(condition, done).await;
            return true;
        }
        self.until_settled("later").await;
        becomes_true(RETRIES, done).await
    }

    /// Ends the manager's watches of pods. It cannot watch or list pods again until [`Self::show_pods`].
    async fn hide_pods(&self) -> FaultHandle {
        let hidden = self.fault("* /api/v1/pods 503 agent=kube-controller-manager*");
        until("the pods are watched", async || self.faults.cut_watches("/api/v1/pods") > 0).await;
        hidden
    }

    /// Lets the manager list pods. No watch continues, so events of the time before are lost.
    async fn show_pods(&self, hidden: &FaultHandle) {
        let expired = self.fault("WATCH /api/v1/pods 410 times=1 agent=kube-controller-manager*");
        hidden.remove();
        until("the watch of pods has expired", async || expired.applied() > 0).await;
    }

    /// Creates a ReplicaSet that selects the pods with a value of the label `app`.
    async fn create_replica_set(&self, name: &str, replicas: usize, app: &str) -> Value {
        let labels = json!({"app": app});
        let replica_set = json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": labels},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [{"name": "c", "image": "image:1"}]},
                },
            },
        });
        self.cluster.post(REPLICA_SETS, &replica_set).await.unwrap()
    }

    async fn scale_replica_set(&self, name: &str, replicas: usize) {
        let patch = json!({"spec": {"replicas": replicas}});
        self.cluster.patch(&format!("{REPLICA_SETS}/{name}"), &patch).await;
    }

    /// Waits until the status of a ReplicaSet reports its size as ready.
    async fn until_ready(&self, name: &str) {
        until(&format!("{name} is ready"), async || {
            let replica_set = self.cluster.get(&format!("{REPLICA_SETS}/{name}")).await.unwrap();
            let status = &replica_set["status"];
            status["observedGeneration"] == replica_set["metadata"]["generation"]
                && status["readyReplicas"] == replica_set["spec"]["replicas"]
        })
        .await;
    }

    async fn pods(&self) -> Vec<Value> {
        let mut list = self.cluster.get(PODS).await.unwrap();
        list["items"].as_array_mut().map(std::mem::take).unwrap()
    }

    /// Adds a finalizer to all pods, so that they remain when they are deleted.
    async fn keep_pods(&self) {
        for pod in self.pods().await {
            self.cluster.patch(&path(&pod), &json!({"metadata": {"finalizers": ["example.com/kept"]}})).await;
        }
    }

    /// Waits until a pod is being deleted.
    async fn deleted_pod(&self) -> Value {
        let mut deleted = None;
        until("a pod is deleted", async || {
            deleted = self.pods().await.into_iter().find(is_deleted);
            deleted.is_some()
        })
        .await;
        deleted.unwrap()
    }

    async fn remove_owner(&self, pod: &Value) {
        self.cluster.patch(&path(pod), &json!({"metadata": {"ownerReferences": null}})).await;
    }

    /// Number of pods of `web` with a controller that are not being deleted.
    async fn active_pods(&self) -> usize {
        let pods = self.pods().await;
        let active = |pod: &&Value| {
            !is_deleted(pod)
                && pod["metadata"]["ownerReferences"].is_array()
                && pod["metadata"]["labels"]["app"] == "web"
        };
        pods.iter().filter(active).count()
    }

    /// Status codes and images of the creations of pods.
    fn creations(&mut self) -> Vec<(u16, String)> {
        self.cluster
            .pod_creations()
            .map(|entry| {
                let image = &entry.body.as_ref().unwrap()["spec"]["containers"][0]["image"];
                (entry.code, image.as_str().unwrap().to_owned())
            })
            .collect()
    }
}

fn path(pod: &Value) -> String {
    format!("{PODS}/{}", pod["metadata"]["name"].as_str().unwrap())
}

fn is_deleted(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// A sync of the ReplicaSet controller that has read the former size creates pods.
async fn creates_no_old_pods_beside_new_ones(mut faulty: FaultyCluster) -> bool {
    let slow = faulty.fault("POST /api/v1/namespaces/*/pods delay=2s");
    faulty.cluster.deploy_with("web", 3, &json!({"type": "Recreate"})).await;
    until("the first pod is being created", async || slow.applied() > 0).await;
    faulty.cluster.roll("web", "image:2").await;
    faulty.cluster.until_rolled_out("web").await;
    let mut created = faulty.creations().into_iter().skip_while(|(_, image)| image != "image:2");
    created.all(|(_, image)| image == "image:2")
}

/// The connection of a creation breaks, and the creation is executed after it was repeated.
async fn creates_no_surplus_pod_for_a_late_creation(mut faulty: FaultyCluster) -> bool {
    faulty.fault("POST /api/v1/namespaces/*/pods late:6s times=1");
    faulty.create_replica_set("web", 2, "web").await;
    until("the late creation has been executed", async || faulty.creations().len() > 2).await;
    faulty.creations().iter().filter(|(code, _)| *code == 201).count() == 2
}

/// No event reports the owner with the deletion of the pod.
async fn completes_a_recreate_whose_last_old_pod_has_lost_its_owner(faulty: FaultyCluster) -> bool {
    faulty.cluster.deploy_with("web", 1, &json!({"type": "Recreate"})).await;
    faulty.cluster.until_rolled_out("web").await;
    faulty.keep_pods().await;
    faulty.cluster.roll("web", "image:2").await;
    let pod = faulty.deleted_pod().await;
    faulty.until_settled("settled").await;
    faulty.remove_owner(&pod).await;
    faulty.is_completed("the rollout is complete", async || faulty.cluster.is_rolled_out("web").await).await
}

/// A ReplicaSet is deleted and created again while its status is being written.
async fn reports_no_status_of_a_deleted_replica_set(mut faulty: FaultyCluster) -> bool {
    faulty.create_replica_set("web", 1, "web").await;
    faulty.until_ready("web").await;
    let slow = faulty.fault("PUT /apis/apps/v1/namespaces/*/replicasets/*/status delay=3s");
    faulty.scale_replica_set("web", 2).await;
    until("a status is being written", async || slow.applied() > 0).await;
    let path = format!("{REPLICA_SETS}/web");
    faulty.cluster.delete(&path, &json!({"propagationPolicy": "Background"})).await;
    let new = faulty.create_replica_set("web", 0, "other").await;
    until("the new ReplicaSet has a status", async || {
        let replica_set = faulty.cluster.get(&path).await.unwrap();
        replica_set["status"]["observedGeneration"].is_u64()
    })
    .await;
    let uid = &new["metadata"]["uid"];
    faulty.cluster.written().iter().all(|entry| {
        let body = entry.body.as_ref();
        let is_status =
            &*entry.resource == "replicasets" && &*entry.subresource == "status" && entry.code == 200;
        !is_status
            || body.is_none_or(|body| body["metadata"]["uid"] != *uid || body["status"]["replicas"] == 0)
    })
}

/// Without a surge, no event follows a refused scale-down.
async fn retries_a_scale_down_without_an_event(faulty: FaultyCluster) -> bool {
    let strategy = json!({"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}});
    faulty.cluster.deploy_with("web", 2, &strategy).await;
    faulty.cluster.until_rolled_out("web").await;
    let refused = faulty.fault("PUT /apis/apps/v1/namespaces/*/replicasets/* 500 times=10");
    faulty.cluster.roll("web", "image:2").await;
    until("the scale-down is refused", async || refused.applied() > 0).await;
    faulty.is_completed("the rollout is complete", async || faulty.cluster.is_rolled_out("web").await).await
}

/// A pod loses its owner after the ReplicaSet has deleted it, and no event reports the owner with the deletion.
async fn waits_for_no_deletion_of_a_pod_that_has_lost_its_owner(faulty: FaultyCluster) -> bool {
    faulty.create_replica_set("web", 2, "web").await;
    faulty.until_ready("web").await;
    faulty.keep_pods().await;
    let hidden = faulty.hide_pods().await;
    faulty.scale_replica_set("web", 1).await;
    let pod = faulty.deleted_pod().await;
    faulty.remove_owner(&pod).await;
    faulty.show_pods(&hidden).await;
    faulty.scale_replica_set("web", 3).await;
    faulty.is_completed("there are three pods", async || faulty.active_pods().await == 3).await
}

/// A pod is created and deleted while the watch is interrupted.
async fn waits_for_no_creation_of_a_pod_that_was_deleted_between_two_lists(faulty: FaultyCluster) -> bool {
    faulty.create_replica_set("web", 1, "web").await;
    faulty.until_ready("web").await;
    let first: Vec<String> = faulty.pods().await.iter().map(path).collect();
    let hidden = faulty.hide_pods().await;
    faulty.scale_replica_set("web", 2).await;
    until("a pod is created", async || faulty.active_pods().await == 2).await;
    for pod in faulty.pods().await.iter().map(path).filter(|pod| !first.contains(pod)) {
        faulty.cluster.delete(&pod, &json!({"gracePeriodSeconds": 0})).await;
    }
    faulty.show_pods(&hidden).await;
    faulty.is_completed("there are two pods", async || faulty.active_pods().await == 2).await
}

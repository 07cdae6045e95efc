//! ReplicationControllers, in simulated time.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use kcm_apiserver::{
    ApiServer, DeleteOptions, DeletionPropagation, ListOptions, Object, Patch, Resource, Subresource,
    WriteOptions,
};
use kcm_client::RateLimit;
use kcm_clock::Clock;
use kcm_controller_manager::{ControllerSelection, Controllers, ManagerConfig};
use serde_json::{Value, json};

use crate::test_server::{RunningSandbox, TestServer};

/// Longer than any operation of these tests.
const SETTLE_TIME: Duration = Duration::from_secs(30);

struct Cluster {
    server: Arc<ApiServer>,
    clock: Arc<dyn Clock>,
    _controllers: Controllers,
    _sandbox: RunningSandbox,
}

impl Cluster {
    fn new() -> Self {
        let test = TestServer::new();
        let sandbox = test.run_sandbox(2);
        let wanted = ["replicaset", "replicationcontroller"].map(str::to_owned);
        let config = ManagerConfig {
            controllers: ControllerSelection::new(&wanted).unwrap(),
            rate_limit: RateLimit::UNLIMITED,
            ..ManagerConfig::default()
        };
        let TestServer { server, clock, random } = test;
        let controllers =
            kcm_controller_manager::start_in_process(&config, server.service(), &clock, &random);
        Self { server, clock, _controllers: controllers, _sandbox: sandbox }
    }

    async fn settle(&self) {
        self.clock.sleep(SETTLE_TIME).await;
    }

    fn create(&self, resource: Resource, object: Value) -> Arc<Object> {
        self.server.create(resource, "default", object, &WriteOptions::default()).unwrap()
    }

    fn controller(&self, name: &str) -> Value {
        self.server.get(Resource::REPLICATION_CONTROLLERS, "default", name).unwrap().value().clone()
    }

    fn patch(&self, resource: Resource, name: &str, subresource: Option<Subresource>, patch: Value) {
        let options = WriteOptions::default();
        self.server.patch(resource, "default", name, subresource, Patch::merge(patch), &options).unwrap();
    }

    fn scale(&self, name: &str, replicas: i32) {
        let scale = json!({"spec": {"replicas": replicas}});
        self.patch(Resource::REPLICATION_CONTROLLERS, name, Some(Subresource::Scale), scale);
    }

    fn delete(&self, name: &str, propagation: Option<DeletionPropagation>) {
        let options = DeleteOptions { propagation, ..DeleteOptions::default() };
        self.server.delete(Resource::REPLICATION_CONTROLLERS, "default", name, &options).unwrap();
    }

    fn all(&self, resource: Resource) -> Vec<Arc<Object>> {
        self.server.list(resource, Some("default"), &ListOptions::default()).unwrap().items
    }

    /// Names of the pods with the owner `uid`, or without an owner.
    fn pods_of(&self, uid: Option<&str>) -> BTreeSet<String> {
        let pods = self.all(Resource::PODS);
        let of = |pod: &&Arc<Object>| pod.owner_references().next().map(|owner| owner.uid) == uid;
        pods.iter().filter(of).map(|pod| pod.name().to_owned()).collect()
    }
}

fn template() -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "nginx:1.27"}]},
    })
}

fn controller(replicas: i32) -> Value {
    // The API server defaults the selector.
    json!({"metadata": {"name": "web"}, "spec": {"replicas": replicas, "template": template()}})
}

#[tokio::test(start_paused = true)]
async fn controller_scales_pods_and_reports_status_and_events() {
    let cluster = Cluster::new();
    let created = cluster.create(Resource::REPLICATION_CONTROLLERS, controller(3));
    cluster.settle().await;
    let pods = cluster.pods_of(Some(created.uid()));
    assert_eq!(pods.len(), 3);
    for pod in cluster.all(Resource::PODS) {
        let owner = &pod.value()["metadata"]["ownerReferences"];
        let expected = json!([{
            "apiVersion": "v1", "kind": "ReplicationController", "name": "web", "uid": created.uid(),
            "controller": true, "blockOwnerDeletion": true,
        }]);
        assert_eq!(*owner, expected);
    }
    let status = json!({
        "replicas": 3, "fullyLabeledReplicas": 3, "readyReplicas": 3, "availableReplicas": 3, "observedGeneration": 1,
    });
    assert_eq!(cluster.controller("web")["status"], status);

    let events = cluster.all(Resource::EVENTS);
    let events: Vec<_> =
        events.iter().filter(|event| event.value()["reason"] == "SuccessfulCreate").collect();
    assert_eq!(events.len(), 3);
    for event in events {
        let event = event.value();
        assert_eq!(event["source"]["component"], "replication-controller");
        let about = &event["involvedObject"];
        assert_eq!((&about["kind"], &about["apiVersion"]), (&json!("ReplicationController"), &json!("v1")));
        assert_eq!(about["uid"], created.uid());
    }

    cluster.scale("web", 5);
    cluster.settle().await;
    let more = cluster.pods_of(Some(created.uid()));
    assert!(more.is_superset(&pods), "existing pods are kept");
    assert_eq!(cluster.controller("web")["status"]["availableReplicas"], 5);
    cluster.scale("web", 1);
    cluster.settle().await;
    assert_eq!(cluster.pods_of(Some(created.uid())).len(), 1);
    let status = &cluster.controller("web")["status"];
    assert_eq!((&status["replicas"], &status["observedGeneration"]), (&json!(1), &json!(3)));

    let settled = cluster.server.revision();
    cluster.clock.sleep(Duration::from_secs(600)).await;
    assert_eq!(cluster.server.revision(), settled, "unnecessary writes");

    cluster.delete("web", Some(DeletionPropagation::Background));
    cluster.settle().await;
    assert_eq!(cluster.all(Resource::PODS).len(), 0);
}

#[tokio::test(start_paused = true)]
async fn controller_adopts_and_releases_pods() {
    let cluster = Cluster::new();
    let orphan = |name: &str| {
        let mut pod = template();
        pod["metadata"]["name"] = json!(name);
        pod
    };
    cluster.create(Resource::PODS, orphan("orphan"));
    cluster.settle().await;
    let created = cluster.create(Resource::REPLICATION_CONTROLLERS, controller(2));
    cluster.settle().await;
    let pods = cluster.pods_of(Some(created.uid()));
    assert_eq!(pods.len(), 2);
    assert!(pods.contains("orphan"), "{pods:?}");

    cluster.patch(Resource::PODS, "orphan", None, json!({"metadata": {"labels": {"app": "other"}}}));
    cluster.settle().await;
    assert_eq!(cluster.pods_of(None), ["orphan".to_owned()].into(), "released");
    assert_eq!(cluster.pods_of(Some(created.uid())).len(), 2, "and replaced");

    // The selector of a ReplicationController is mutable. Pods that it no longer matches are released.
    let before = cluster.pods_of(Some(created.uid()));
    let mut other = template();
    other["metadata"]["labels"] = json!({"app": "web", "tier": "front"});
    let spec = json!({"spec": {"selector": {"tier": "front"}, "template": other}});
    cluster.patch(Resource::REPLICATION_CONTROLLERS, "web", None, spec);
    cluster.settle().await;
    let after = cluster.pods_of(Some(created.uid()));
    assert_eq!(after.len(), 2);
    assert!(after.is_disjoint(&before));
    assert!(cluster.pods_of(None).is_superset(&before));

    // Without a propagation policy, the pods are orphaned.
    cluster.delete("web", None);
    cluster.settle().await;
    assert!(cluster.all(Resource::REPLICATION_CONTROLLERS).is_empty());
    assert!(cluster.pods_of(None).is_superset(&after));
}

#[tokio::test(start_paused = true)]
async fn controller_reports_failed_creation_and_recovers() {
    let cluster = Cluster::new();
    let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {"pods": "1"}}});
    cluster.create(Resource::RESOURCE_QUOTAS, quota);
    cluster.create(Resource::REPLICATION_CONTROLLERS, controller(2));
    cluster.settle().await;
    let status = &cluster.controller("web")["status"];
    assert_eq!(status["replicas"], 1);
    let condition = &status["conditions"][0];
    assert_eq!(
        (&condition["type"], &condition["reason"]),
        (&json!("ReplicaFailure"), &json!("FailedCreate"))
    );

    cluster.patch(Resource::RESOURCE_QUOTAS, "few", None, json!({"spec": {"hard": {"pods": "2"}}}));
    cluster.clock.sleep(Duration::from_secs(1100)).await;
    let status = &cluster.controller("web")["status"];
    assert_eq!((&status["replicas"], &status["conditions"]), (&json!(2), &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn controller_and_replica_set_with_the_same_labels_keep_their_pods() {
    let cluster = Cluster::new();
    // The names are equal as well: keys are equal, but queues and expectations are separate.
    let controller = cluster.create(Resource::REPLICATION_CONTROLLERS, controller(2));
    let replica_set = cluster.create(
        Resource::REPLICA_SETS,
        json!({
            "metadata": {"name": "web"},
            "spec": {"replicas": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template()},
        }),
    );
    cluster.settle().await;
    let (theirs, others) =
        (cluster.pods_of(Some(controller.uid())), cluster.pods_of(Some(replica_set.uid())));
    assert_eq!((theirs.len(), others.len(), cluster.all(Resource::PODS).len()), (2, 2, 4));
    let settled = cluster.server.revision();
    cluster.clock.sleep(Duration::from_secs(600)).await;
    assert_eq!(cluster.server.revision(), settled, "the controllers revert each other");

    let scale = json!({"spec": {"replicas": 0}});
    cluster.patch(Resource::REPLICA_SETS, "web", Some(Subresource::Scale), scale);
    cluster.settle().await;
    assert_eq!(cluster.pods_of(Some(controller.uid())), theirs);
    assert_eq!(cluster.pods_of(Some(replica_set.uid())).len(), 0);

    // Pods released by one controller can be adopted by the other, which needs none here.
    cluster.delete("web", Some(DeletionPropagation::Orphan));
    cluster.settle().await;
    assert!(cluster.all(Resource::PODS).is_empty());
    let set = cluster.server.get(Resource::REPLICA_SETS, "default", "web").unwrap();
    assert_eq!(set.value()["status"]["replicas"], 0);
}

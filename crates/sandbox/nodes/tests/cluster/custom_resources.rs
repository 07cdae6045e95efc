//! Garbage collection of custom resources, as owners and as dependents, in simulated time.
#![expect(clippy::needless_pass_by_value, reason = "`json!` makes values")]

use std::{sync::Arc, time::Duration};

use kcm_apiserver::{DeleteOptions, DeletionPropagation, Object, Patch, Resource, WriteOptions};
use serde_json::{Value, json};

use crate::test_server::{RunningSandbox, TestServer};

/// A sandbox with a custom kind.
struct Cluster {
    test: TestServer,
    websites: Resource,
    _sandbox: RunningSandbox,
}

impl Cluster {
    fn start() -> Self {
        let test = TestServer::new();
        let sandbox = test.run_sandbox(0);
        let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let definition = json!({
            "metadata": {"name": "websites.example.com"},
            "spec": {
                "group": "example.com", "scope": "Namespaced", "names": {"plural": "websites", "kind": "Website"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
            },
        });
        let definitions = Resource::CUSTOM_RESOURCE_DEFINITIONS;
        test.server.create(definitions, "", definition, &WriteOptions::default()).unwrap();
        let websites = test.server.resource("example.com", "websites").unwrap();
        Self { test, websites, _sandbox: sandbox }
    }

    fn create(&self, resource: Resource, name: &str, owners: Value) -> Arc<Object> {
        let object = json!({"metadata": {"name": name, "ownerReferences": owners}});
        self.test.server.create(resource, "default", object, &WriteOptions::default()).unwrap()
    }

    fn delete(&self, resource: Resource, name: &str, propagation: DeletionPropagation) {
        let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        self.test.server.delete(resource, "default", name, &options).unwrap();
    }

    fn get(&self, resource: Resource, name: &str) -> Option<Arc<Object>> {
        self.test.server.get(resource, "default", name).ok()
    }

    /// Waits until the cluster is settled, and checks that nothing is written afterwards.
    async fn settle(&self) {
        self.test.clock.sleep(Duration::from_secs(5)).await;
        let revision = self.test.server.revision();
        self.test.clock.sleep(Duration::from_secs(5)).await;
        assert_eq!(self.test.server.revision(), revision, "the cluster is still writing");
    }
}

fn reference(owner: &Object) -> Value {
    json!([{
        "apiVersion": owner.api_version(), "kind": owner.resource().kind(), "name": owner.name(), "uid": owner.uid(),
        "controller": true, "blockOwnerDeletion": true,
    }])
}

#[tokio::test(start_paused = true)]
async fn owner_is_collected_with_its_dependents() {
    for propagation in [DeletionPropagation::Background, DeletionPropagation::Foreground] {
        let cluster = Cluster::start();
        let owner = cluster.create(cluster.websites, "a", json!([]));
        let config = cluster.create(Resource::CONFIG_MAPS, "owned", reference(&owner));
        cluster.create(cluster.websites, "nested", reference(&config));
        cluster.settle().await;
        cluster.delete(cluster.websites, "a", propagation);
        cluster.settle().await;
        assert_eq!(cluster.get(cluster.websites, "a"), None, "{propagation:?}");
        assert_eq!(cluster.get(Resource::CONFIG_MAPS, "owned"), None, "{propagation:?}");
        assert_eq!(cluster.get(cluster.websites, "nested"), None, "{propagation:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn dependents_are_orphaned() {
    let cluster = Cluster::start();
    let owner = cluster.create(cluster.websites, "a", json!([]));
    cluster.create(cluster.websites, "b", reference(&owner));
    cluster.create(Resource::CONFIG_MAPS, "b", reference(&owner));
    cluster.delete(cluster.websites, "a", DeletionPropagation::Orphan);
    cluster.settle().await;
    assert_eq!(cluster.get(cluster.websites, "a"), None);
    for resource in [cluster.websites, Resource::CONFIG_MAPS] {
        assert_eq!(cluster.get(resource, "b").unwrap().owner_references().count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn cycle_of_custom_resources_is_deleted() {
    let cluster = Cluster::start();
    let a = cluster.create(cluster.websites, "a", json!([]));
    let b = cluster.create(cluster.websites, "b", reference(&a));
    let patch = Patch::merge(json!({"metadata": {"ownerReferences": reference(&b)}}));
    let options = WriteOptions::default();
    cluster.test.server.patch(cluster.websites, "default", "a", None, patch, &options).unwrap();
    cluster.delete(cluster.websites, "a", DeletionPropagation::Foreground);
    cluster.settle().await;
    assert_eq!((cluster.get(cluster.websites, "a"), cluster.get(cluster.websites, "b")), (None, None));
}

#[tokio::test(start_paused = true)]
async fn terminating_namespace_loses_its_custom_resources() {
    let cluster = Cluster::start();
    let server = &cluster.test.server;
    let named = |name: &str| json!({"metadata": {"name": name}});
    server.create(Resource::NAMESPACES, "", named("team"), &WriteOptions::default()).unwrap();
    server.create(cluster.websites, "team", named("a"), &WriteOptions::default()).unwrap();
    server.delete(Resource::NAMESPACES, "", "team", &DeleteOptions::default()).unwrap();
    cluster.settle().await;
    assert!(server.get(cluster.websites, "team", "a").unwrap_err().is_not_found());
    assert!(server.get(Resource::NAMESPACES, "", "team").unwrap_err().is_not_found());
}

#[tokio::test(start_paused = true)]
async fn dependents_of_a_deleted_definition_are_collected() {
    let cluster = Cluster::start();
    let owner = cluster.create(cluster.websites, "a", json!([]));
    cluster.create(Resource::CONFIG_MAPS, "owned", reference(&owner));
    let options = DeleteOptions::default();
    let definitions = Resource::CUSTOM_RESOURCE_DEFINITIONS;
    cluster.test.server.delete(definitions, "", "websites.example.com", &options).unwrap();
    cluster.settle().await;
    assert_eq!(cluster.get(Resource::CONFIG_MAPS, "owned"), None);
    assert_eq!(cluster.test.server.resource("example.com", "websites"), None);
}

//! Garbage collection of ownership cycles and of owners in other namespaces, in simulated time.

use std::{sync::Arc, time::Duration};

use kcm_apiserver::{ApiServer, DeleteOptions, DeletionPropagation, Object, Patch, Resource, WriteOptions};
use serde_json::{Value, json};

use crate::test_server::TestServer;

/// Object of a test.
#[derive(Clone, Copy)]
struct Item {
    resource: Resource,
    namespace: &'static str,
    name: &'static str,
}

const fn item(resource: Resource, name: &'static str) -> Item {
    Item { resource, namespace: "default", name }
}

const A: Item = item(Resource::CONFIG_MAPS, "a");
const B: Item = item(Resource::CONFIG_MAPS, "b");
const C: Item = item(Resource::CONFIG_MAPS, "c");

impl Item {
    fn create(self, server: &ApiServer) -> Arc<Object> {
        let mut object = json!({ "metadata": { "name": self.name } });
        if self.resource == Resource::PODS {
            object["spec"] = json!({ "containers": [{ "name": "c", "image": "nginx:1" }] });
        }
        server.create(self.resource, self.namespace, object, &WriteOptions::default()).unwrap()
    }

    fn get(self, server: &ApiServer) -> Option<Arc<Object>> {
        server.get(self.resource, self.namespace, self.name).ok()
    }

    fn patch(self, server: &ApiServer, patch: Value) {
        let options = WriteOptions::default();
        server.patch(self.resource, self.namespace, self.name, None, Patch::merge(patch), &options).unwrap();
    }

    fn delete(self, server: &ApiServer, propagation: DeletionPropagation) {
        let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        server.delete(self.resource, self.namespace, self.name, &options).unwrap();
    }
}

/// Creates `items`; each is owned and blocked by its predecessor, the first by the last.
fn create_cycle(server: &ApiServer, items: &[Item]) {
    let objects: Vec<_> = items.iter().map(|item| item.create(server)).collect();
    for (at, item) in items.iter().enumerate() {
        let owner = &objects[(at + items.len() - 1) % items.len()];
        item.patch(server, json!({ "metadata": { "ownerReferences": [reference(owner)] } }));
    }
}

fn reference(owner: &Object) -> Value {
    json!({
        "apiVersion": owner.resource().api_version(), "kind": owner.resource().kind(),
        "name": owner.name(), "uid": owner.uid(), "controller": true, "blockOwnerDeletion": true,
    })
}

/// Waits until the cluster is settled, and checks that nothing is written afterwards.
async fn settle(test: &TestServer) {
    test.clock.sleep(Duration::from_secs(5)).await;
    let revision = test.server.revision();
    test.clock.sleep(Duration::from_secs(5)).await;
    assert_eq!(test.server.revision(), revision, "the cluster is still writing");
}

/// Upstream's e2e test "should not be blocked by dependency circle", with each propagation policy and several kinds.
#[tokio::test(start_paused = true)]
async fn cycle_is_deleted_with_one_of_its_objects() {
    let secret = item(Resource::SECRETS, "s");
    let account = item(Resource::SERVICE_ACCOUNTS, "x");
    let pod = item(Resource::PODS, "p");
    for items in [&[A, B, C][..], &[A, B], &[A, secret, account, pod], &[pod, A, B]] {
        for propagation in [DeletionPropagation::Foreground, DeletionPropagation::Background] {
            let test = TestServer::new();
            let _sandbox = test.run_sandbox(1);
            create_cycle(&test.server, items);
            settle(&test).await;
            items[0].delete(&test.server, propagation);
            settle(&test).await;
            for item in items {
                assert!(item.get(&test.server).is_none(), "{} of {} items", item.name, items.len());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn orphaning_keeps_the_other_objects_of_a_cycle() {
    let test = TestServer::new();
    let _sandbox = test.run_sandbox(0);
    create_cycle(&test.server, &[A, B, C]);
    A.delete(&test.server, DeletionPropagation::Orphan);
    settle(&test).await;
    assert!(A.get(&test.server).is_none());
    let owners = |item: Item| item.get(&test.server).unwrap().owner_references().count();
    assert_eq!((owners(B), owners(C)), (0, 1));
}

/// As upstream, where these objects also wait for each other.
#[tokio::test(start_paused = true)]
async fn cycle_of_objects_in_foreground_deletion_remains() {
    for items in [&[A][..], &[A, B]] {
        let test = TestServer::new();
        let _sandbox = test.run_sandbox(0);
        create_cycle(&test.server, items);
        for item in items {
            item.delete(&test.server, DeletionPropagation::Foreground);
        }
        settle(&test).await;
        assert!(items.iter().all(|item| item.get(&test.server).is_some()));
        // Removing a reference ends the wait.
        A.patch(&test.server, json!({ "metadata": { "ownerReferences": null } }));
        settle(&test).await;
        assert!(items.iter().all(|item| item.get(&test.server).is_none()));
    }
}

#[tokio::test(start_paused = true)]
async fn dependent_in_another_namespace_does_not_block_its_owner() {
    for waits in [DeletionPropagation::Foreground, DeletionPropagation::Background] {
        let test = TestServer::new();
        let _sandbox = test.run_sandbox(0);
        let server = &test.server;
        let named = json!({ "metadata": { "name": "other" } });
        server.create(Resource::NAMESPACES, "", named, &WriteOptions::default()).unwrap();
        let there = |name| Item { resource: Resource::CONFIG_MAPS, namespace: "other", name };
        let (dependent, shared) = (there("dependent"), there("shared"));
        let (owner, local) = (A.create(server), there("local").create(server));
        for (item, owners) in [
            (dependent, json!([reference(&owner)])),
            (
                shared,
                json!([
                    reference(&owner),
                    { "apiVersion": "v1", "kind": "ConfigMap", "name": "local", "uid": local.uid() },
                ]),
            ),
        ] {
            item.create(server);
            item.patch(server, json!({ "metadata": { "ownerReferences": owners } }));
        }
        // A cycle across both namespaces.
        A.patch(server, json!({ "metadata": { "ownerReferences": [reference(&local)] } }));
        A.delete(server, waits);
        settle(&test).await;
        assert!(A.get(server).is_none() && dependent.get(server).is_none());
        assert_eq!(shared.get(server).unwrap().owner_references().count(), 1);
    }
}

//! Owners that own each other, and owners in other namespaces, in simulated time.

use std::{sync::Arc, time::Duration};

use kcm_apiserver::{ApiServer, DeleteOptions, Object, PatchType, Propagation, Resource, WriteOptions};
use serde_json::{Value, json};

use crate::world::World;

/// An object of a test.
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
        server
            .patch(self.resource, self.namespace, self.name, None, PatchType::Merge, patch, &options)
            .unwrap();
    }

    fn delete(self, server: &ApiServer, propagation: Propagation) {
        let options = DeleteOptions { propagation: Some(propagation), ..DeleteOptions::default() };
        server.delete(self.resource, self.namespace, self.name, &options).unwrap();
    }
}

/// Creates `items`, each of which owns and is blocked by the next, and the last by the first.
fn circle(server: &ApiServer, items: &[Item]) {
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

/// Lets time pass. Then nothing may be written any more.
async fn settle(world: &World) {
    world.clock.sleep(Duration::from_secs(5)).await;
    let revision = world.server.revision();
    world.clock.sleep(Duration::from_secs(5)).await;
    assert_eq!(world.server.revision(), revision, "something is still written");
}

/// "should not be blocked by dependency circle" of upstream's e2e tests, with every policy and with several kinds.
#[tokio::test(start_paused = true)]
async fn circle_is_deleted_with_one_of_its_objects() {
    let secret = item(Resource::SECRETS, "s");
    let account = item(Resource::SERVICE_ACCOUNTS, "x");
    let pod = item(Resource::PODS, "p");
    for items in [&[A, B, C][..], &[A, B], &[A, secret, account, pod], &[pod, A, B]] {
        for propagation in [Propagation::Foreground, Propagation::Background] {
            let world = World::new();
            let _sandbox = world.run_sandbox(1);
            circle(&world.server, items);
            settle(&world).await;
            items[0].delete(&world.server, propagation);
            settle(&world).await;
            for item in items {
                assert!(item.get(&world.server).is_none(), "{} of {} items", item.name, items.len());
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn object_of_a_circle_that_orphans_leaves_the_others() {
    let world = World::new();
    let _sandbox = world.run_sandbox(0);
    circle(&world.server, &[A, B, C]);
    A.delete(&world.server, Propagation::Orphan);
    settle(&world).await;
    assert!(A.get(&world.server).is_none());
    let owners = |item: Item| item.get(&world.server).unwrap().owner_references().count();
    assert_eq!((owners(B), owners(C)), (0, 1));
}

/// As upstream, where each of the two waits for the other, too.
#[tokio::test(start_paused = true)]
async fn circle_whose_objects_all_wait_is_left_alone() {
    for items in [&[A][..], &[A, B]] {
        let world = World::new();
        let _sandbox = world.run_sandbox(0);
        circle(&world.server, items);
        for item in items {
            item.delete(&world.server, Propagation::Foreground);
        }
        settle(&world).await;
        assert!(items.iter().all(|item| item.get(&world.server).is_some()));
        // It ends when a reference goes.
        A.patch(&world.server, json!({ "metadata": { "ownerReferences": null } }));
        settle(&world).await;
        assert!(items.iter().all(|item| item.get(&world.server).is_none()));
    }
}

#[tokio::test(start_paused = true)]
async fn dependent_in_another_namespace_does_not_block_its_owner() {
    for waits in [Propagation::Foreground, Propagation::Background] {
        let world = World::new();
        let _sandbox = world.run_sandbox(0);
        let server = &world.server;
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
        // And a circle through both namespaces.
        A.patch(server, json!({ "metadata": { "ownerReferences": [reference(&local)] } }));
        A.delete(server, waits);
        settle(&world).await;
        assert!(A.get(server).is_none() && dependent.get(server).is_none());
        assert_eq!(shared.get(server).unwrap().owner_references().count(), 1);
    }
}

use kcm_apiserver::{ApiServer, ApiServerConfig, DeleteOptions, ListOptions, Resource, WriteOptions};
use serde_json::json;

use super::*;

/// Hashes of an object with this change, by merge patch.
fn changed(resource: &str, patch: &Value) -> Hashes {
    let mut object = json!({
        "metadata": {
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "generation": 2,
            "annotations": {"deployment.kubernetes.io/desired-replicas": "3", "note": "a"},
            "ownerReferences": [{"uid": "a"}],
        },
        "spec": {"replicas": 0, "template": {"metadata": {"annotations": {"at": "2026-01-01T00:00:00Z"}}}},
        "status": {
            "replicas": 0,
            "observedGeneration": 2,
            "podIP": "10.0.0.1",
            "conditions": [
                {"type": "Ready", "lastTransitionTime": "2026-01-01T00:00:01Z"},
                {"type": "Progressing", "reason": "NewReplicaSetAvailable", "lastUpdateTime": "2026-01-01T00:00:01Z"},
            ],
        },
    });
    merge(&mut object, patch);
    hashes(resource, &object, &HashMap::from([("a".into(), 1), ("b".into(), 1), ("c".into(), 2)]))
}

fn merge(object: &mut Value, patch: &Value) {
    match (object, patch) {
        (Value::Object(object), Value::Object(patch)) => {
            for (name, member) in patch {
                merge(object.entry(name).or_insert(Value::Null), member);
            }
        }
        (object, patch) => *object = patch.clone(),
    }
}

#[test]
fn steps_do_not_depend_on_all_members() {
    let conditions = json!([
        {"type": "Progressing", "reason": "NewReplicaSetAvailable", "lastUpdateTime": "2026-01-01T00:00:05Z"},
        {"type": "Ready", "lastTransitionTime": "2026-01-01T00:00:05Z"},
    ]);
    let desired = |size: &str, replicas: u32| {
        json!({
            "metadata": {"annotations": {DESIRED_REPLICAS: size, MAX_REPLICAS: size}},
            "spec": {"replicas": replicas},
        })
    };
    let before = changed("replicasets", &json!({}));
    // Changes with equal hashes of all members, with equal hashes of those that matter, and with different ones.
    let (same, equal, different) = ((true, true), (false, true), (false, false));
    for (patch, expected) in [
        (json!({"metadata": {"ownerReferences": [{"uid": "b"}]}}), same),
        (json!({"metadata": {"ownerReferences": [{"uid": "c"}]}}), different),
        (json!({"metadata": {"ownerReferences": [{"uid": "unknown"}]}}), different),
        (json!({"status": {"podIP": "10.0.0.2"}}), same),
        (json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:09Z"}}), equal),
        (json!({"metadata": {"generation": 3}, "status": {"observedGeneration": 3}}), equal),
        (json!({"metadata": {"generation": 3}}), different),
        (json!({"metadata": {"generation": 0}, "status": {"observedGeneration": 0}}), different),
        (desired("4", 0), equal),
        (desired("0", 0), different),
        (desired("4", 1), different),
        (json!({"metadata": {"annotations": {"note": "b"}}}), different),
        (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:09Z"}}), different),
        (
            json!({"spec": {"template": {"metadata": {"annotations": {"at": "2026-01-01T00:00:09Z"}}}}}),
            different,
        ),
        (json!({"status": {"conditions": conditions}}), equal),
        (json!({"status": {"conditions": []}}), different),
    ] {
        let Hashes { exact, content, .. } = changed("replicasets", &patch);
        assert_eq!((exact == before.exact, content == before.content), expected, "{patch}");
    }
    assert_ne!(changed("replicasets", &desired("4", 1)), changed("replicasets", &desired("5", 1)));
}

#[test]
fn node_of_a_pod_is_hashed_apart() {
    let other = json!({"spec": {"nodeName": "a"}, "status": {"hostIP": "10.0.0.1"}});
    let (before, after) = (changed("pods", &json!({})), changed("pods", &other));
    assert_ne!(after.exact, before.exact);
    assert_ne!(after.content, before.content);
    assert_eq!(after.without_node, before.without_node);
    let other_kind = |patch| changed("widgets", patch).without_node;
    assert_ne!(other_kind(&other), other_kind(&json!({})));
    let port = |address: &str| json!({"spec": {"containers": [{"ports": [{"hostIP": address}]}]}});
    assert_ne!(
        changed("pods", &port("10.0.0.1")).without_node,
        changed("pods", &port("10.0.0.2")).without_node
    );
}

fn second(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Objects of a resource with their times.
fn objects(resource: &str, all: &[(&str, Times)]) -> Objects {
    let mut objects = Objects::default();
    for (name, times) in all {
        let (version, hashes) = (String::new(), Hashes { exact: 0, content: 7, without_node: 7 });
        let creation = times.creation.filter(|_| resource == "pods");
        let time = creation.map(|at| at.duration_since(second(0)).unsigned_abs());
        let written = written_name(resource, name).to_owned();
        let stored = Some(StoredObject {
            number: 1,
            written,
            version,
            hashes,
            time,
            deletion: None,
            times: times.clone(),
        });
        let id = (Box::from(resource), ObjectKey::new("ns", *name));
        objects.all.insert(id, TracedObject { objects: 1, stored });
    }
    objects
}

/// Hash of pods, each with its creation, and the second since which it is ready.
fn pods(scope: Scope, all: &[(&str, i64, Option<i64>)]) -> u64 {
    let times = |creation: i64, ready: Option<i64>| Times {
        creation: Some(second(creation)),
        ready: ready.map(second),
        ..Times::default()
    };
    let all: Vec<_> = all.iter().map(|(name, creation, ready)| (*name, times(*creation, *ready))).collect();
    objects("pods", &all).hash(scope, Duration::ZERO, second(20))
}

#[test]
fn only_the_order_of_times_of_ready_pods_matters() {
    let at = |all: &[(&str, i64, Option<i64>)]| pods(Scope::Steps, all);
    let before = at(&[("w0-a", 1, Some(3)), ("w0-b", 2, Some(4))]);
    assert_eq!(at(&[("w0-a", 1, Some(5)), ("w0-b", 4, Some(9))]), before);
    assert_eq!(at(&[("w0-c", 1, Some(3)), ("w0-d", 2, Some(4))]), before);
    assert_ne!(at(&[("w0-a", 1, Some(3)), ("w1-b", 2, Some(4))]), before);
    assert_ne!(at(&[("w0-a", 1, Some(4)), ("w0-b", 2, Some(3))]), before);
    assert_ne!(at(&[("w0-a", 1, Some(3)), ("w0-b", 2, Some(3))]), before);
    assert_ne!(at(&[("w0-a", 1, Some(3))]), before);
    assert_ne!(at(&[("w0-a", 1, None), ("w0-b", 2, None)]), at(&[("w0-a", 1, None), ("w0-b", 3, None)]));
}

#[test]
fn names_and_ages_of_pods_do_not_matter_at_the_end() {
    let at = |all: &[(&str, i64, Option<i64>)]| pods(Scope::End, all);
    let before = at(&[("w0-a", 1, Some(3)), ("w0-b", 2, None)]);
    assert_eq!(at(&[("w0-a", 2, None), ("w0-b", 1, Some(3))]), before);
    assert_eq!(at(&[("w0-a", 2, None), ("w0-b", 2, Some(3))]), before);
    assert_ne!(at(&[("w0-a", 3, None), ("w0-b", 1, Some(3))]), before);
}

#[test]
fn order_of_replica_sets_matters_at_the_end() {
    let at = |a: i64, b: i64| {
        let times = |creation| Times { creation: Some(second(creation)), ..Times::default() };
        let all = objects("replicasets", &[("a", times(a)), ("b", times(b))]);
        all.hash(Scope::End, Duration::ZERO, second(20))
    };
    assert_eq!(at(1, 2), at(1, 3));
    assert_ne!(at(1, 2), at(2, 1));
}

#[test]
fn ages_count_from_the_end_and_until_pods_are_available() {
    let at = |ready: i64, progress: i64, end: i64| {
        let pod =
            Times { ready: Some(second(ready)), min_ready: SignedDuration::from_secs(5), ..Times::default() };
        let deployment = Times { progress: Some(second(progress)), ..Times::default() };
        let mut all = objects("pods", &[("w0-a", pod)]);
        all.all.extend(objects("deployments", &[("w0", deployment)]).all);
        all.hash(Scope::End, Duration::from_secs(end.unsigned_abs()), second(end))
    };
    assert_eq!(at(8, 7, 10), at(10, 9, 12));
    assert_ne!(at(8, 7, 10), at(9, 7, 10));
    assert_ne!(at(8, 7, 10), at(8, 8, 10));
    assert_eq!(at(3, 7, 10), at(4, 7, 10), "both are available");
}

#[test]
fn restore_replaces_all_objects() {
    let server = ApiServer::new(ApiServerConfig::default());
    let create = |name: &str| {
        let object = json!({"metadata": {"name": name}});
        server.create(Resource::CONFIG_MAPS, "default", object, &WriteOptions::default()).unwrap();
    };
    let stored = || server.list(Resource::CONFIG_MAPS, None, &ListOptions::default()).unwrap().items;
    let mut objects = Objects::default();
    let mut restored = |all: &[Arc<Object>]| {
        objects.replace(all, Duration::ZERO);
        (objects.hash(Scope::All, Duration::ZERO, second(20)), objects.keys().count())
    };
    create("a");
    create("b");
    let backup = stored();
    let (before, _) = restored(&backup);
    server.delete(Resource::CONFIG_MAPS, "default", "b", &DeleteOptions::default()).unwrap();
    create("c");
    assert_ne!(restored(&stored()).0, before);
    assert_eq!(restored(&backup), (before, 3), "the key of c remains");
}

#[test]
fn deleted_object_with_a_drawn_name_is_forgotten() {
    let (server, options) = (ApiServer::new(ApiServerConfig::default()), WriteOptions::default());
    let mut objects = Objects::default();
    for metadata in [json!({"name": "a"}), json!({"generateName": "b-"})] {
        let object = json!({ "metadata": metadata });
        let object = server.create(Resource::CONFIG_MAPS, "default", object, &options).unwrap();
        objects.changed(&object, false, Duration::ZERO);
        objects.changed(&object, true, Duration::ZERO);
    }
    assert_eq!(objects.keys().map(|key| &*key.name).collect::<Vec<_>>(), ["a"]);
}

#[test]
fn resources_of_two_groups_with_one_name_are_different() {
    let (server, options) = (ApiServer::new(ApiServerConfig::default()), WriteOptions::default());
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
    });
    let definition = json!({
        "metadata": {"name": "configmaps.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "configmaps", "kind": "ConfigMap"},
            "versions": [version],
        },
    });
    server.create(Resource::CUSTOM_RESOURCE_DEFINITIONS, "", definition, &options).unwrap();
    let custom = server.resource("example.com", "configmaps").unwrap();
    let created = [Resource::CONFIG_MAPS, custom].map(|resource| {
        server.create(resource, "default", json!({"metadata": {"name": "a"}}), &options).unwrap()
    });
    let mut objects = Objects::default();
    objects.replace(&created, Duration::ZERO);
    for (object, path) in created.iter().zip(["/api/v1", "/apis/example.com/v1"]) {
        let request = http::Request::put(format!("{path}/namespaces/default/configmaps/a"));
        let (parts, ()) = request.body(()).unwrap().into_parts();
        let version = ObjectVersion::of_update(&parts, object.value().to_string().as_bytes()).unwrap();
        assert!(objects.has(&version), "{path}");
    }
}

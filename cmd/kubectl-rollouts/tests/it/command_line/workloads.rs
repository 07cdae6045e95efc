//! StatefulSets and DaemonSets, and watches.

use serde_json::{Value, json};

use crate::command_line::server::{Change, Content, DEPLOYMENTS, idle, with_objects};

const STATEFUL_SETS: &str = "/apis/apps/v1/namespaces/shop/statefulsets";

/// StatefulSet with a pod, whose controller has counted `updated` pods.
fn stateful_set(updated: i32) -> Value {
    json!({
        "metadata": {
            "name": "db", "namespace": "shop", "uid": "db", "generation": 2, "resourceVersion": updated.to_string(),
            "creationTimestamp": "2026-01-15T00:00:00Z",
        },
        "spec": { "replicas": 1, "updateStrategy": { "type": "RollingUpdate" } },
        "status": {
            "observedGeneration": 2, "replicas": 1, "updatedReplicas": updated, "availableReplicas": 1,
            "currentRevision": "db-1", "updateRevision": "db-2",
        },
    })
}

fn ready_pod(owner: &str, revision: &str) -> Value {
    json!({
        "metadata": {
            "name": format!("{owner}-0"), "namespace": "shop", "uid": "pod", "creationTimestamp": "2026-01-15T00:00:00Z",
            "labels": { "controller-revision-hash": revision },
            "ownerReferences": [{ "kind": "X", "name": owner, "uid": owner, "controller": true }],
        },
        "spec": { "containers": [{ "name": "app", "image": "app:1" }], "nodeName": "n1" },
        "status": {
            "phase": "Running",
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": "2026-01-15T00:00:05Z" }],
            "containerStatuses": [{ "name": "app", "ready": true, "restartCount": 0, "state": { "running": {} } }],
        },
    })
}

#[test]
fn stateful_sets_and_daemon_sets() {
    let agent = json!({
        "metadata": { "name": "agent", "namespace": "shop", "uid": "agent", "generation": 2 },
        "spec": { "updateStrategy": { "type": "OnDelete" } },
        "status": { "observedGeneration": 2, "desiredNumberScheduled": 1, "currentNumberScheduled": 1, "numberAvailable": 1 },
    });
    let content = with_objects(&[], None)
        .object(&format!("{STATEFUL_SETS}/db"), stateful_set(1))
        .list(STATEFUL_SETS, &[stateful_set(1)])
        .object("/apis/apps/v1/namespaces/shop/daemonsets/agent", agent)
        .list("/api/v1/namespaces/shop/pods", &[ready_pod("db", "db-2"), ready_pod("agent", "1")]);
    let server = Content { date: Some("Thu, 15 Jan 2026 00:02:00 GMT"), ..content }.start();
    for line in ["sts/db", "statefulset db", "statefulsets.apps/db --until=complete --timeout=1m"] {
        let (code, text, error) = server.why(line);
        assert!(code == 0 && text.starts_with("statefulset shop/db\nComplete"), "{line}: {text}{error}");
    }
    let (code, text, _) = server.why("ds/agent");
    assert!(code == 3 && text.contains("kubectl -n shop delete pod agent-0\n"), "{text}");
    let (_, document, _) = server.why("daemonset/agent -o json");
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!((&document["resource"], &document["cause"]), (&json!("daemonset"), &json!("on_delete")));
    let (code, _, error) = server.why("sts/dbb");
    let expected = "error: statefulsets.apps \"dbb\" not found in namespace \"shop\": write a similar name (db), or another \
                    namespace with -n\n";
    assert_eq!((code, &*error), (1, expected));
}

#[test]
fn watches_list_once() {
    let before = |mut object: Value| {
        object["status"]["observedGeneration"] = json!(0);
        object["metadata"]["resourceVersion"] = json!("1");
        object
    };
    let after = |mut object: Value| {
        object["metadata"]["resourceVersion"] = json!("2");
        object
    };
    let web = Content::new().deployments(&[before(idle("web"))]);
    let db = with_objects(&[], None)
        .object(&format!("{STATEFUL_SETS}/db"), stateful_set(0))
        .list(STATEFUL_SETS, &[stateful_set(0)])
        .list("/api/v1/namespaces/shop/pods", &[ready_pod("db", "db-2")]);
    let (sets, revisions) = ("replicasets", "controllerrevisions");
    for (line, content, change, listed, unused) in [
        ("web", web.clone(), Change::new(DEPLOYMENTS, after(idle("web"))), sets, revisions),
        ("-l app=web", web, Change::new(DEPLOYMENTS, after(idle("web"))), sets, revisions),
        ("sts/db", db, Change::new(STATEFUL_SETS, stateful_set(1)), revisions, sets),
    ] {
        // The rollout is complete after the change that the watch reports.
        let server = Content { change, ..content }.start();
        let (code, text, error) = server.why(&format!("{line} --until=complete --timeout=1m"));
        assert!(code == 0 && text.contains("omplete"), "{line}: {text}{error}");
        assert!(!server.paths().iter().any(|path| path.contains(unused)), "{line}");
        for resource in [listed, "pods", "events", "resourcequotas"] {
            let is_list = |path: &&String| {
                path.split('?').next().unwrap().ends_with(resource) && !path.contains("watch=true")
            };
            let paths = server.paths();
            let lists: Vec<&String> = paths.iter().filter(is_list).collect();
            assert_eq!(lists.len(), 1, "{line}: {lists:?}");
            // A list of the API server's cache can be older than the last change of the caller.
            assert!(!lists[0].contains("resourceVersion=0"), "{lists:?}");
        }
    }
}

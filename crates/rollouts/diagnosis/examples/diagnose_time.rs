//! Time to diagnose all rollouts of a namespace, without reading the cluster.
//!
//! ```text
//! cargo run --release -p kcm-rollouts --example diagnose_time [DEPLOYMENTS…]
//! ```
#![expect(clippy::disallowed_methods, reason = "an example measures real time")]

use std::time::Instant;

use kcm_clock::Timestamp;
use kcm_rollouts::{DiagnoseError, Index, Known, Snapshot};
use serde_json::{Value, json};

/// Pods of a Deployment.
const PODS: usize = 3;

/// Deployment, ReplicaSet, pods with an event each, autoscaler and disruption budget. The pods cannot pull their image.
fn add(snapshot: &mut Snapshot, number: usize) {
    let (name, set) = (format!("web-{number}"), format!("web-{number}-7c9d8f5b44"));
    let labels = json!({ "part-of": "shop", "app": name });
    let owner = |uid: &str| json!([{ "kind": "X", "name": uid, "uid": uid, "controller": true }]);
    let meta = |name: &str, owner: Value| {
        json!({ "name": name, "uid": name, "namespace": "shop", "generation": 1, "labels": labels,
                "creationTimestamp": "2026-01-15T00:00:00Z", "ownerReferences": owner })
    };
    let spec = json!({
        "replicas": PODS, "selector": { "matchLabels": labels },
        "template": { "metadata": { "labels": labels }, "spec": { "containers": [{ "name": "app", "image": "app:1" }] } },
    });
    let status = json!({ "observedGeneration": 1, "replicas": PODS });
    let list = |list: &mut Known<Vec<Value>>, object: Value| {
        if let Known::Read(list) = list {
            list.push(object);
        }
    };
    let deployment = json!({ "metadata": meta(&name, json!([])), "spec": spec, "status": status });
    list(&mut snapshot.deployments, deployment);
    let replica_set = json!({ "metadata": meta(&set, owner(&name)), "spec": spec, "status": status });
    list(&mut snapshot.replica_sets, replica_set);
    for pod in 0..PODS {
        let pod = format!("{set}-{pod}");
        let event = json!({ "involvedObject": { "uid": pod }, "type": "Warning", "reason": "Failed",
                            "message": "Failed to pull image \"app:1\": not found" });
        list(&mut snapshot.events, event);
        let waiting = json!({ "waiting": { "reason": "ImagePullBackOff" } });
        let pod = json!({
            "metadata": meta(&pod, owner(&set)), "spec": { "nodeName": "n1", "containers": [{ "name": "app", "image": "app:1" }] },
            "status": { "phase": "Pending", "containerStatuses": [{ "name": "app", "restartCount": 0, "state": waiting }] },
        });
        list(&mut snapshot.pods, pod);
    }
    let target = json!({ "scaleTargetRef": { "kind": "Deployment", "name": name } });
    list(&mut snapshot.autoscalers, json!({ "metadata": meta(&name, json!([])), "spec": target }));
    let budget =
        json!({ "metadata": meta(&name, json!([])), "spec": { "selector": { "matchLabels": labels } } });
    list(&mut snapshot.disruption_budgets, budget);
}

fn main() -> Result<(), DiagnoseError> {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|number| number.parse().ok()).collect();
    let numbers = if numbers.is_empty() { vec![500, 1000, 2000, 4000] } else { numbers };
    let now = Timestamp::UNIX_EPOCH;
    for number in numbers {
        let empty = || Known::Read(Vec::new());
        let mut snapshot = Snapshot {
            deployments: empty(),
            replica_sets: empty(),
            pods: empty(),
            events: empty(),
            autoscalers: empty(),
            disruption_budgets: empty(),
            ..Snapshot::default()
        };
        (0..number).for_each(|deployment| add(&mut snapshot, deployment));
        let started = Instant::now();
        let index = Index::new(&snapshot);
        for deployment in snapshot.deployments.seen() {
            index.diagnose(deployment, now)?;
        }
        println!("{number} Deployments: {:.2?}", started.elapsed());
    }
    Ok(())
}

//! Prints the plan for a ReplicaSet, with reasons, without an API server.
//!
//! `cargo run -p kcm-replicaset-controller --example explain_replica_set`

use std::{error::Error, sync::Arc};

use kcm_api::{PodDecoder, ReplicaSet};
use kcm_clock::{Clock, RealClock};
use kcm_replicaset_controller::{DEFAULT_BURST_REPLICAS, View, calculate_status, plan};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let replica_set: ReplicaSet = serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "web-uid", "generation": 2},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}},
        },
    }))?;
    let decoder = PodDecoder::default();
    let mut active = Vec::new();
    for (name, phase, cost) in [("a", "Running", "10"), ("b", "Running", "-10"), ("c", "Pending", "0")] {
        let pod = json!({
            "metadata": {
                "name": name, "namespace": "default", "uid": name, "labels": {"app": "web"},
                "annotations": {"controller.kubernetes.io/pod-deletion-cost": cost},
            },
            "spec": {"nodeName": "node"},
            "status": {"phase": phase},
        });
        active.push(Arc::new(decoder.decode_value(&pod)?));
    }

    let view = View {
        replica_set: Arc::new(replica_set),
        active,
        terminating: Some(0),
        block: None,
        burst_replicas: DEFAULT_BURST_REPLICAS,
        pod_deletion_cost: true,
        related: Vec::new(),
    };
    let now = RealClock::new().now();
    println!("{}", serde_json::to_string_pretty(&plan(&view, now))?);
    let status = calculate_status(&view, None, now);
    println!("status if no request fails: {}", serde_json::to_string(&status)?);
    Ok(())
}

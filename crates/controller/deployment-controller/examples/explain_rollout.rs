//! Prints the plans of a rollout, with a reason for each write, without a cluster.
//!
//! `cargo run -p kcm-deployment-controller --example explain_rollout`

use std::{collections::BTreeSet, error::Error, sync::Arc};

use kcm_api::{Deployment, ReplicaSet, Time};
use kcm_deployment_controller::{View, plan_assuming_success};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn Error>> {
    let now = Time::from_unix(1_800_000_000).timestamp();
    let mut view = View {
        deployment: Arc::new(deployment()?),
        replica_sets: vec![Arc::new(replica_set("web-old", "web:1", 10, 10)?)],
        running: BTreeSet::new(),
        unobserved_scale_downs: BTreeSet::new(),
        terminating_replicas: true,
        coalesce_status_writes: true,
    };
    println!("New image, 10 replicas, maxSurge 3, maxUnavailable 2:\n");
    println!("{}\n", plan_assuming_success(&view, now));

    view.replica_sets = vec![
        Arc::new(replica_set("web-old", "web:1", 8, 8)?),
        Arc::new(replica_set("web-new", "web:2", 5, 1)?),
    ];
    println!("8 old replicas, 5 new replicas of which 1 is available:\n");
    println!("{}\n", plan_assuming_success(&view, now));

    Arc::make_mut(&mut view.deployment).spec.replicas = Some(20);
    println!("Scaled to 20 replicas during the rollout:\n");
    println!("{}", plan_assuming_success(&view, now));
    Ok(())
}

fn template(image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": image}]},
    })
}

fn deployment() -> Result<Deployment, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "default", "uid": "d", "generation": 2},
        "spec": {
            "replicas": 10,
            "selector": {"matchLabels": {"app": "web"}},
            "template": template("web:2"),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
            "progressDeadlineSeconds": 600,
        },
        "status": {"observedGeneration": 1, "replicas": 10, "updatedReplicas": 10, "availableReplicas": 10},
    }))
}

fn replica_set(name: &str, image: &str, size: i32, available: i32) -> Result<ReplicaSet, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": name, "generation": 1,
            "annotations": {
                "deployment.kubernetes.io/revision": if name == "web-old" { "1" } else { "2" },
                "deployment.kubernetes.io/desired-replicas": "10",
                "deployment.kubernetes.io/max-replicas": "13",
            },
        },
        "spec": {"replicas": size, "template": template(image)},
        "status": {
            "replicas": size, "readyReplicas": available, "availableReplicas": available,
            "terminatingReplicas": 0, "observedGeneration": 1,
        },
    }))
}

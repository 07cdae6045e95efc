//! Time to plan a sync of a Deployment with 10 ReplicaSets.
//!
//! `cargo bench -p kcm-deployment-controller`

use std::{collections::BTreeSet, hint::black_box, sync::Arc};

use criterion::{Criterion, criterion_group, criterion_main};
use kcm_api::{Deployment, ReplicaSet, Time};
use kcm_clock::Timestamp;
use kcm_deployment_controller::{Plan, PlanEnd, View, plan, plan_assuming_success};
use serde_json::{Value, json};

/// Returns a template with two containers that have ports, probes and resources.
fn template(image: &str, hash: Option<&str>) -> Value {
    let mut labels = json!({"app": "web", "tier": "front"});
    if let Some(hash) = hash {
        labels["pod-template-hash"] = hash.into();
    }
    let container = |name: &str| {
        json!({
            "name": name, "image": image, "imagePullPolicy": "IfNotPresent",
            "ports": [{"containerPort": 8080, "protocol": "TCP"}],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"memory": "128Mi"}},
            "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 5},
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
        })
    };
    json!({
        "metadata": {"labels": labels},
        "spec": {
            "containers": [container("web"), container("sidecar")], "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "securityContext": {},
            "schedulerName": "default-scheduler",
        },
    })
}

fn replica_set(revision: i64, size: i32) -> ReplicaSet {
    let hash = format!("hash{revision}");
    let object = json!({
        "apiVersion": "apps/v1", "kind": "ReplicaSet",
        "metadata": {
            "name": format!("web-{hash}"), "namespace": "default", "uid": format!("uid-{revision}"),
            "resourceVersion": "10", "generation": 2,
            "creationTimestamp": Time::from_unix(1_700_000_000 + revision * 1000),
            "labels": {"app": "web", "tier": "front", "pod-template-hash": hash},
            "annotations": {
                "deployment.kubernetes.io/desired-replicas": "10", "deployment.kubernetes.io/max-replicas": "13",
                "deployment.kubernetes.io/revision": revision.to_string(),
            },
        },
        "spec": {
            "replicas": size,
            "selector": {"matchLabels": {"app": "web", "pod-template-hash": hash}},
            "template": template(&format!("web:{revision}"), Some(&hash)),
        },
        "status": {
            "replicas": size, "fullyLabeledReplicas": size, "readyReplicas": size, "availableReplicas": size,
            "terminatingReplicas": 0, "observedGeneration": 2,
        },
    });
    serde_json::from_value(object).unwrap_or_default()
}

/// Returns a Deployment whose rollout of `revision` is complete.
fn deployment(revision: i64) -> Deployment {
    let condition = |type_: &str, reason: &str, message: &str| {
        json!({
            "type": type_, "status": "True", "reason": reason, "message": message,
            "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
        })
    };
    let object = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {
            "name": "web", "namespace": "default", "uid": "uid", "resourceVersion": "100", "generation": 12,
            "annotations": {"deployment.kubernetes.io/revision": revision.to_string()},
        },
        "spec": {
            "replicas": 10, "selector": {"matchLabels": {"app": "web"}}, "revisionHistoryLimit": 10,
            "progressDeadlineSeconds": 600, "template": template(&format!("web:{revision}"), None),
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
        },
        "status": {
            "observedGeneration": 12, "replicas": 10, "updatedReplicas": 10, "readyReplicas": 10,
            "availableReplicas": 10, "terminatingReplicas": 0,
            "conditions": [
                condition("Available", "MinimumReplicasAvailable", "Deployment has minimum availability."),
                condition("Progressing", "NewReplicaSetAvailable", "ReplicaSet \"web\" has successfully progressed."),
            ],
        },
    });
    serde_json::from_value(object).unwrap_or_default()
}

/// Returns a view with ten ReplicaSets, of which the last one is active.
fn view(revision: i64) -> View {
    let sets = (1..=10).map(|number| Arc::new(replica_set(number, if number == 10 { 10 } else { 0 })));
    View {
        deployment: Arc::new(deployment(revision)),
        replica_sets: sets.collect(),
        running: BTreeSet::new(),
        unobserved_scale_downs: BTreeSet::new(),
        terminating_replicas: true,
        coalesce_status_writes: true,
    }
}

fn now() -> Timestamp {
    Time::from_unix(1_800_000_000).timestamp()
}

fn check(plan: &Plan, actions: std::ops::RangeInclusive<usize>) {
    assert!(actions.contains(&plan.actions.len()) && matches!(plan.end, PlanEnd::Done(Ok(_))), "{plan}");
}

fn benches(c: &mut Criterion) {
    let settled = view(10);
    check(&plan(&settled, &[], now()), 0..=0);
    c.bench_function("plan/no change", |b| b.iter(|| plan(black_box(&settled), &[], now())));

    let scaled = {
        let mut view = view(10);
        Arc::make_mut(&mut view.deployment).spec.replicas = Some(12);
        view
    };
    check(&plan(&scaled, &[], now()), 2..=2);
    c.bench_function("plan/scaled", |b| b.iter(|| plan(black_box(&scaled), &[], now())));

    // Planned three times.
    let rolled = view(11);
    check(&plan_assuming_success(&rolled, now()), 6..=6);
    c.bench_function("plan/new image, with the results of all writes", |b| {
        b.iter(|| plan_assuming_success(black_box(&rolled), now()));
    });
}

criterion_group!(all, benches);
criterion_main!(all);

//! Warnings, and checks of quotas and nodes.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail in its helpers, too")]

use std::time::Duration;

use kcm_preview::{Change, Effect, End, Preview, Snapshot, TimingOptions, WarningCode, preview};
use serde_json::{Value, json};

use crate::world::{Timing, World, deployment, simulate};

const READY: Duration = Duration::from_secs(40);

/// Settled Deployment with four replicas and a change of its image.
struct Case {
    name: &'static str,
    /// Fields of the spec of the Deployment.
    spec: Value,
    /// Adds objects to the snapshot.
    add: fn(&mut Snapshot),
    /// Expected warning.
    code: WarningCode,
    message: &'static str,
}

fn rolling(surge: &str, unavailable: &str) -> Value {
    let bounds = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
    json!({ "type": "RollingUpdate", "rollingUpdate": bounds })
}

/// Preview of a new image.
fn changed(spec: &Value, add: fn(&mut Snapshot)) -> Preview {
    simulate(async {
        let world = World::new(Timing { ready: READY, stop: Duration::from_secs(5) });
        let mut manifest = deployment(4, "web:1");
        manifest["metadata"]["labels"] = json!({ "app": "web" });
        for (name, value) in spec.as_object().unwrap() {
            manifest["spec"][name] = value.clone();
        }
        world.create(manifest).await;
        let mut snapshot = world.snapshot();
        add(&mut snapshot);
        let change = Change::Image { container: None, image: "web:2".to_owned() };
        let options = TimingOptions { stop_after: Some(Duration::from_secs(5)), ..TimingOptions::default() };
        preview(&snapshot, &change, &options).unwrap()
    })
}

fn check(case: &Case) {
    let Case { name, spec, add, code, message } = case;
    let preview = changed(spec, *add);
    let found = preview.warnings.iter().find(|warning| warning.code == *code);
    let found = found.unwrap_or_else(|| panic!("{name}: {:?}", preview.warnings));
    assert_eq!(found.message, *message, "{name}");
    let without = changed(&json!({ "strategy": rolling("0%", "25%") }), |_| {});
    assert_eq!(without.warnings, [], "a change without risk");
}

fn nothing(_: &mut Snapshot) {}

#[test]
fn both_bounds_are_zero() {
    check(&Case {
        name: "bounds",
        spec: json!({ "strategy": rolling("0%", "24%") }),
        add: nothing,
        code: WarningCode::BoundsZero,
        message: "maxSurge and maxUnavailable are both 0 after rounding; the controller permits 1 unavailable pod",
    });
}

#[test]
fn steps_are_longer_than_the_deadline() {
    let spec = json!({
        "strategy": rolling("25%", "0%"), "minReadySeconds": 40, "progressDeadlineSeconds": 100,
    });
    check(&Case {
        name: "steps",
        spec: spec.clone(),
        add: nothing,
        code: WarningCode::DeadlineShorterThanSteps,
        message: "minReadySeconds (40s) of 4 steps takes 160s, more than progressDeadlineSeconds (100s); each available \
                  pod restarts the deadline",
    });
    check(&Case {
        name: "deadline",
        spec: json!({ "strategy": rolling("25%", "0%"), "progressDeadlineSeconds": 60 }),
        add: nothing,
        code: WarningCode::DeadlineAtRisk,
        message: "up to 40s pass without progress; the progress deadline is 60s",
    });
}

#[test]
fn disruption_budget_blocks_drains() {
    check(&Case {
        name: "in the middle",
        spec: json!({ "strategy": rolling("0%", "25%") }),
        add: |snapshot| {
            snapshot.disruption_budgets = vec![json!({
                "metadata": { "name": "web" },
                "spec": { "minAvailable": 3, "selector": { "matchLabels": { "app": "web" } } },
            })];
        },
        code: WarningCode::DisruptionBudget,
        message: "PodDisruptionBudget web permits no eviction for 160s of the rollout: node drains wait",
    });
    check(&Case {
        name: "always",
        spec: json!({ "strategy": rolling("25%", "0%") }),
        add: |snapshot| {
            snapshot.disruption_budgets = vec![json!({
                "metadata": { "name": "web" },
                "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "web" } } },
            })];
        },
        code: WarningCode::DisruptionBudget,
        message: "PodDisruptionBudget web permits no eviction even before the change",
    });
}

#[test]
fn recreate_leaves_no_pod() {
    check(&Case {
        name: "gap",
        spec: json!({ "strategy": { "type": "Recreate" } }),
        add: nothing,
        code: WarningCode::NoneAvailable,
        message: "no pod is available for 45s",
    });
}

#[test]
fn autoscaler_sets_the_replicas() {
    check(&Case {
        name: "autoscaler",
        spec: json!({}),
        add: |snapshot| {
            snapshot.autoscalers = vec![json!({
                "metadata": { "name": "cpu" },
                "spec": {
                    "scaleTargetRef": { "kind": "Deployment", "name": "web" }, "minReplicas": 2, "maxReplicas": 9,
                },
            })];
        },
        code: WarningCode::Autoscaler,
        message: "HorizontalPodAutoscaler cpu sets replicas between 2 and 9; the preview does not",
    });
}

#[test]
fn paused_deployment_is_not_rolled_out() {
    check(&Case {
        name: "paused",
        spec: json!({}),
        add: |snapshot| snapshot.deployment.as_mut().unwrap()["spec"]["paused"] = json!(true),
        code: WarningCode::Paused,
        message: "the Deployment is paused: the template is not rolled out until it is resumed",
    });
}

#[test]
fn peak_does_not_fit_the_nodes() {
    check(&Case {
        name: "nodes",
        spec: json!({ "strategy": rolling("50%", "0%") }),
        add: |snapshot| {
            for node in &mut snapshot.nodes {
                node["status"]["allocatable"] = json!({ "cpu": "1", "memory": "1Gi", "pods": "1" });
            }
        },
        code: WarningCode::Capacity,
        message: "the peak needs 4 more pods; the nodes have room for 0",
    });
}

fn quota(snapshot: &mut Snapshot, hard: &Value) {
    snapshot.quotas = vec![json!({
        "metadata": { "name": "small", "namespace": snapshot.namespace, "uid": "quota" }, "spec": { "hard": hard },
    })];
}

#[test]
fn peak_exceeds_a_quota() {
    let case = Case {
        name: "pods",
        spec: json!({ "strategy": rolling("25%", "0%") }),
        add: |snapshot| quota(snapshot, &json!({ "pods": "4" })),
        code: WarningCode::Quota,
        message: "ResourceQuota small: the peak needs 5 pods of 4",
    };
    check(&case);
    let preview = changed(&case.spec, case.add);
    assert_eq!(preview.outcome.end, End::Stuck, "{:?}", preview.outcome);
    assert!(!preview.quotas[0].fits);
}

/// Limit ranges set the requests of containers that have none.
#[test]
fn quota_with_the_defaults_of_a_limit_range() {
    let preview = changed(&json!({ "strategy": rolling("25%", "0%") }), |snapshot| {
        quota(snapshot, &json!({ "requests.cpu": "1" }));
        snapshot.limit_ranges = vec![json!({ "spec": { "limits": [
            { "type": "Container", "defaultRequest": { "cpu": "100m" } },
        ] } })];
    });
    assert_eq!(preview.outcome.end, End::Complete, "{:?}", preview.outcome);
    let check = &preview.quotas[0];
    assert!((check.peak - 0.6).abs() < 1e-9 && check.fits, "{check:?}");
}

/// The pods of a class that is not in the snapshot are created.
#[test]
fn priority_class_of_the_template() {
    let spec = &deployment(4, "web:1")["spec"]["template"]["spec"];
    let mut template = spec.clone();
    template["priorityClassName"] = json!("high");
    let preview = simulate(async {
        let world = World::new(Timing { ready: READY, stop: Duration::ZERO });
        world.create(deployment(4, "web:1")).await;
        let mut manifest = deployment(4, "web:1");
        manifest["spec"]["template"]["spec"] = template;
        preview(&world.snapshot(), &Change::Apply(manifest), &TimingOptions::default()).unwrap()
    });
    assert_eq!((preview.effect, preview.outcome.end), (Effect::NewReplicaSet, End::Complete));
}

//! Property of diagnoses over simulated rollouts: a stuck rollout does not move, and a progressing rollout moves.

use std::time::Duration;

use kcm_rollouts::{Diagnosis, State};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{
    template,
    world::{World, deployment, simulate},
};

/// Behaviour of the new pods.
#[derive(Debug, Clone, Copy)]
enum Pods {
    Good,
    NeverReady,
    CrashBeforeReady,
    CrashWhenReady,
    ImageMissing,
}

/// A change and the time at which it is explained.
#[derive(Debug, Clone)]
struct Rollout {
    replicas: i64,
    max_surge: i64,
    max_unavailable: i64,
    recreate: bool,
    min_ready: i64,
    ready_after: u64,
    pods: Pods,
    asked_after: u64,
}

fn rollouts() -> impl Strategy<Value = Rollout> {
    let pods = prop_oneof![
        Just(Pods::Good),
        Just(Pods::NeverReady),
        Just(Pods::CrashBeforeReady),
        Just(Pods::CrashWhenReady),
        Just(Pods::ImageMissing),
    ];
    let bounds = (0_i64..3, 0_i64..3).prop_filter("one bound is not zero", |(a, b)| a + b > 0);
    (1_i64..7, bounds, prop::bool::weighted(0.2), 0_i64..20, 1_u64..40, pods, 1_u64..400).prop_map(
        |(replicas, (max_surge, max_unavailable), recreate, min_ready, ready_after, pods, asked_after)| {
            Rollout {
                replicas,
                max_surge,
                max_unavailable,
                recreate,
                min_ready,
                ready_after,
                pods,
                asked_after,
            }
        },
    )
}

impl Rollout {
    fn manifest(&self) -> Value {
        let mut manifest = deployment(self.replicas, "app:1");
        manifest["spec"]["minReadySeconds"] = self.min_ready.into();
        manifest["spec"]["progressDeadlineSeconds"] = json!(3600);
        manifest["spec"]["strategy"] = if self.recreate {
            json!({ "type": "Recreate" })
        } else {
            let (surge, unavailable) = (self.max_surge, self.max_unavailable);
            let bounds = json!({ "maxSurge": surge, "maxUnavailable": unavailable });
            json!({ "type": "RollingUpdate", "rollingUpdate": bounds })
        };
        manifest
    }

    fn change(&self) -> Value {
        let annotations = match self.pods {
            Pods::Good | Pods::ImageMissing => json!({}),
            Pods::NeverReady => json!({ "kube-sandbox/ready": "never" }),
            Pods::CrashBeforeReady => {
                json!({ "kube-sandbox/ready": "never", "kube-sandbox/crash-after": "3s" })
            }
            Pods::CrashWhenReady => json!({ "kube-sandbox/crash-after": "30s" }),
        };
        let image = if matches!(self.pods, Pods::ImageMissing) { "app:broken" } else { "app:2" };
        template(image, &annotations)
    }
}

/// Sizes and numbers of available pods of the ReplicaSets.
fn position(world: &World) -> Vec<(String, i64, i64)> {
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    let sets = world.list(kcm_apiserver::Resource::REPLICA_SETS);
    let row = |set: &Value| {
        let name = set["metadata"]["name"].to_string();
        (name, number(&set["spec"]["replicas"]), number(&set["status"]["availableReplicas"]))
    };
    sets.iter().map(row).collect()
}

async fn explain(rollout: &Rollout) -> (Diagnosis, bool, Diagnosis) {
    let world = World::new(Duration::from_secs(rollout.ready_after));
    world.create(kcm_apiserver::Resource::DEPLOYMENTS, rollout.manifest());
    world.advance(200).await;
    world.change(rollout.change());
    world.advance(rollout.asked_after).await;
    let (first, before) = (world.diagnose(), position(&world));
    // Pods that crash again and again become available again and again, too.
    let flaps = first.state == State::Stuck && matches!(rollout.pods, Pods::CrashWhenReady);
    let mut moved = false;
    for _ in 0..600 {
        world.advance(1).await;
        let now = position(&world);
        moved |= match flaps {
            true => now.iter().map(|row| row.1).ne(before.iter().map(|row| row.1)),
            false => now != before,
        };
    }
    (first, moved, world.diagnose())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    /// A progressing rollout moves within ten minutes, or its pods have used up the time of their probes by then.
    #[test]
    fn stuck_rollouts_do_not_move_and_progressing_ones_do(rollout in rollouts()) {
        let (first, moved, later) = simulate(explain(&rollout));
        match first.state {
            State::Stuck => prop_assert!(!moved, "moved: {:#?}", first),
            State::Progressing => {
                prop_assert!(moved || later.state == State::Stuck, "did not move: {:#?}", first);
            }
            State::Complete => prop_assert!(!moved || matches!(rollout.pods, Pods::CrashWhenReady), "{:#?}", first),
            State::Paused | State::DeadlineExceeded | State::Unknown => prop_assert!(false, "{:#?}", first),
        }
    }
}

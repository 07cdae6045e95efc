//! Compares previews with the same change made in the embedded cluster.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{collections::BTreeMap, time::Duration};

use kcm_preview::{Change, Effect, End, Preview, TimingOptions, WarningCode, preview};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::world::{Observed, Timing, World, Write, deployment, simulate};

const SECOND: Duration = Duration::from_secs(1);

fn timing(ready: u64, stop: u64) -> Timing {
    Timing { ready: SECOND * u32::try_from(ready).unwrap(), stop: SECOND * u32::try_from(stop).unwrap() }
}

fn options(timing: Timing) -> TimingOptions {
    TimingOptions { ready_after: Some(timing.ready), stop_after: Some(timing.stop), unready: 0 }
}

fn image(image: &str) -> Change {
    Change::Image { container: None, image: image.to_owned() }
}

/// Previews `change`, makes it, and compares both.
async fn compare(world: &World, change: &Change, timing: Timing) -> Result<Preview, String> {
    let snapshot = world.snapshot();
    let preview = preview(&snapshot, change, &options(timing)).map_err(|error| error.to_string())?;
    let observed = world.make(&change.request(&snapshot).map_err(|error| error.to_string())?).await;
    difference(&preview, &observed).map_or(Ok(preview), Err)
}

/// First difference between a preview and the observed course.
///
/// The two controllers run concurrently, so only the order of the writes of each is compared: the writes of all
/// ReplicaSets, and those of the pods of each ReplicaSet. Conflicts, which are retried, are not compared.
fn difference(preview: &Preview, observed: &Observed) -> Option<String> {
    let outcome = &preview.outcome;
    let performed = preview.writes.iter().filter(|group| group.error.is_none());
    let predicted = performed.map(|group| Write {
        seconds: group.seconds,
        verb: group.verb.clone(),
        resource: group.resource.clone(),
        name: group.name.clone(),
        replicas: group.replicas,
        count: group.count,
    });
    let (predicted, made) = (by_controller(predicted), by_controller(observed.writes.iter().cloned()));
    if !predicted.keys().eq(made.keys()) {
        return Some(format!("controllers: preview {:?}, observed {:?}", predicted.keys(), made.keys()));
    }
    for (predicted, made) in predicted.values().zip(made.values()) {
        let is_same = |(a, b): (&Write, &Write)| a.is_same(b) && (a.seconds - b.seconds).abs() <= 1.0;
        if predicted.len() != made.len() || !predicted.iter().zip(made).all(is_same) {
            return Some(format!("writes\n  preview {predicted:#?}\n observed {made:#?}"));
        }
    }
    let numbers =
        (outcome.most_pods.pods, outcome.most_pods_with_terminating.pods, outcome.fewest_available.pods);
    let expected = (observed.most_pods, observed.most_with_terminating, observed.fewest_available);
    (numbers != expected).then(|| format!("peaks: preview {numbers:?}, observed {expected:?}"))
}

/// Sequences of writes, by ReplicaSet for pods. Consecutive creations and deletions are counted together.
fn by_controller(writes: impl Iterator<Item = Write>) -> BTreeMap<String, Vec<Write>> {
    let mut sequences: BTreeMap<String, Vec<Write>> = BTreeMap::new();
    for write in writes {
        let is_pod = write.resource == "pods";
        let key = if is_pod { format!("pods of {}", write.name) } else { write.resource.clone() };
        let sequence = sequences.entry(key).or_default();
        match sequence.last_mut() {
            Some(last) if is_pod && last.verb == write.verb => last.count += write.count,
            _ => sequence.push(write),
        }
    }
    sequences
}

#[test]
fn rolling_update() {
    simulate(async {
        let timing = timing(6, 3);
        let world = World::new(timing);
        world.create(deployment(10, "web:1")).await;
        let change = image("web:2");
        let preview = compare(&world, &change, timing).await.unwrap();
        assert_eq!((preview.effect, preview.outcome.end), (Effect::NewReplicaSet, End::Complete));
        let outcome = &preview.outcome;
        assert_eq!((outcome.most_pods.pods, outcome.fewest_available.pods), (13, 8));
        assert_eq!((outcome.pods_created, outcome.pods_deleted), (10, 10));
        let set = preview.replica_set.unwrap();
        assert_eq!((set.revision, set.previous_revision), (Some(2), None));
        assert!(world.names("replicasets").contains(&set.name), "{set:?}");
        let never = preview.never_ready.unwrap();
        assert_eq!((never.new_pods, never.available), (5, 8));
        assert!((never.deadline_exceeded_seconds.unwrap() - 600.0).abs() < 15.0, "{never:?}");
        let paths: Vec<_> = preview.template_changes.iter().map(|change| &*change.path).collect();
        assert_eq!(paths, ["spec.containers[app].image"]);
    });
}

#[test]
fn undo_reuses_the_old_replica_set() {
    simulate(async {
        let timing = timing(2, 1);
        let world = World::new(timing);
        world.create(deployment(3, "web:1")).await;
        world.change(&image("web:2")).await;
        let preview = compare(&world, &Change::Undo { revision: None }, timing).await.unwrap();
        assert_eq!(preview.effect, Effect::ReusedReplicaSet);
        let set = preview.replica_set.unwrap();
        assert_eq!((set.revision, set.previous_revision), (Some(3), Some(1)));
    });
}

#[test]
fn replicas_only_scale() {
    simulate(async {
        let timing = timing(2, 1);
        let world = World::new(timing);
        world.create(deployment(3, "web:1")).await;
        let preview = compare(&world, &Change::Replicas(7), timing).await.unwrap();
        assert_eq!(preview.effect, Effect::Scale);
        assert_eq!((preview.replicas.before, preview.replicas.after), (3, 7));
        assert_eq!(preview.outcome.pods_created, 4);
        let preview = compare(&world, &Change::Replicas(2), timing).await.unwrap();
        assert_eq!((preview.outcome.pods_deleted, preview.never_ready), (5, None));
    });
}

#[test]
fn equal_template_changes_nothing() {
    simulate(async {
        let timing = timing(2, 1);
        let world = World::new(timing);
        let manifest = deployment(3, "web:1");
        world.create(manifest.clone()).await;
        world.change(&Change::Apply(manifest.clone())).await;
        let mut equal = manifest;
        equal["spec"]["template"]["spec"]["containers"][0]["resources"] = json!({});
        let preview = compare(&world, &Change::Apply(equal), timing).await.unwrap();
        assert_eq!(preview.outcome.pods_created, 0);
        assert_eq!(preview.effect, Effect::Nothing);
    });
}

#[test]
fn recreate_leaves_a_gap() {
    simulate(async {
        let timing = timing(5, 4);
        let world = World::new(timing);
        let mut manifest = deployment(3, "web:1");
        manifest["spec"]["strategy"] = json!({ "type": "Recreate" });
        world.create(manifest).await;
        let preview = compare(&world, &Change::Restart, timing).await.unwrap();
        let warning =
            preview.warnings.iter().find(|warning| warning.code == WarningCode::NoneAvailable).unwrap();
        assert_eq!(warning.message, "no pod is available for 9s");
        assert_eq!(preview.outcome.fewest_available.pods, 0);
    });
}

/// A manager of another version has written a status without a condition that this one adds.
#[test]
fn writes_before_the_change_are_no_part_of_it() {
    simulate(async {
        let timing = timing(6, 3);
        let world = World::new(timing);
        world.create(deployment(3, "web:1")).await;
        let mut snapshot = world.snapshot();
        snapshot.deployment.as_mut().unwrap()["status"]["conditions"] = json!([]);
        let preview = preview(&snapshot, &Change::Restart, &options(timing)).unwrap();
        assert!(preview.outcome.duration_seconds.unwrap() > 17.0, "{:?}", preview.outcome);
        assert_eq!(preview.writes[0].verb, "create");
    });
}

#[test]
fn quota_stops_the_rollout() {
    simulate(async {
        let timing = timing(5, 1);
        let world = World::new(timing);
        let mut manifest = deployment(3, "web:1");
        manifest["spec"]["strategy"]["rollingUpdate"] = json!({ "maxSurge": 1, "maxUnavailable": 0 });
        world.create(manifest).await;
        world.quota(3);
        let snapshot = world.snapshot();
        let preview = preview(&snapshot, &Change::Restart, &options(timing)).unwrap();
        assert_eq!(preview.outcome.end, End::Stuck);
        let message = preview.outcome.message.clone().unwrap();
        assert!(message.contains("exceeded quota: pods"), "{message}");
        let text = kcm_preview::render::text(&preview);
        assert!(text.contains("does not complete: 0 pods created, 0 deleted"), "{text}");
    });
}

/// The ReplicaSet controller retries after its back-off, until the quota has room.
#[test]
fn quota_delays_the_rollout() {
    simulate(async {
        let timing = timing(5, 20);
        let world = World::new(timing);
        let mut manifest = deployment(4, "web:1");
        manifest["spec"]["strategy"]["rollingUpdate"] = json!({ "maxSurge": 2, "maxUnavailable": 1 });
        world.create(manifest).await;
        world.quota(5);
        let preview = compare(&world, &image("web:2"), timing).await.unwrap();
        assert_eq!(preview.outcome.end, End::Complete);
        assert!(preview.outcome.duration_seconds.unwrap() > 40.0, "{:?}", preview.outcome);
    });
}

#[test]
fn create_of_a_new_deployment() {
    simulate(async {
        let timing = timing(5, 1);
        let world = World::new(timing);
        let change = Change::Apply(deployment(4, "web:1"));
        let preview = compare(&world, &change, timing).await.unwrap();
        assert_eq!((preview.effect, preview.outcome.pods_created), (Effect::Create, 4));
    });
}

/// A rollout of `web:2` is half-way when the change is made.
#[test]
fn change_in_the_middle_of_a_rollout() {
    simulate(async {
        let timing = timing(6, 3);
        let world = World::new(timing);
        world.create(deployment(10, "web:1")).await;
        world.begin(&image("web:2"), Duration::from_millis(8_500)).await;
        let preview = compare(&world, &image("web:3"), timing).await.unwrap();
        assert_eq!(preview.effect, Effect::NewReplicaSet);
        let codes: Vec<_> = preview.warnings.iter().map(|warning| warning.code).collect();
        assert!(codes.contains(&WarningCode::RolloutInProgress), "{codes:?}");
        let first = &preview.steps[0];
        assert_eq!(first.replica_sets.len(), 2, "{first:?}");
        // The picture distinguishes both old ReplicaSets.
        let text = kcm_preview::render::text(&preview);
        assert!(text.contains("       ░ older   ▒ old   █ new"), "{text}");
        assert!(text.contains("┤░") && text.contains('▒'), "{text}");
    });
}

/// A change that does not concern the rollout has the course of the rollout.
#[test]
fn rollout_continues_after_a_change_of_nothing() {
    simulate(async {
        let timing = timing(6, 3);
        let world = World::new(timing);
        world.create(deployment(10, "web:1")).await;
        world.begin(&image("web:2"), Duration::from_millis(3_500)).await;
        let preview = compare(&world, &Change::Replicas(10), timing).await.unwrap();
        assert_eq!((preview.effect, preview.outcome.end), (Effect::Nothing, End::Complete));
        assert!(preview.outcome.pods_created > 0, "{:?}", preview.outcome);
        let text = kcm_preview::render::text(&preview);
        assert!(text.contains("complete after "), "{text}");
    });
}

/// Deployment and change of a property.
#[derive(Debug, Clone)]
struct Case {
    replicas: u8,
    strategy: Value,
    min_ready: u8,
    ready: u64,
    stop: u64,
    /// Images that were rolled out before.
    history: u8,
    change: Change,
}

/// Deployments with less than `limit` replicas.
fn cases(limit: u8) -> impl Strategy<Value = Case> {
    let bound =
        || prop_oneof![(0..5_u8).prop_map(|n| json!(n)), (0..100_u8).prop_map(|n| json!(format!("{n}%")))];
    let rolling = (bound(), bound()).prop_filter("both bounds are zero", |(surge, unavailable)| {
        let is_zero = |bound: &Value| *bound == json!(0) || *bound == json!("0%");
        !(is_zero(surge) && is_zero(unavailable))
    });
    let strategy = prop_oneof![
        4 => rolling.prop_map(|(surge, unavailable)| json!({
            "type": "RollingUpdate",
            "rollingUpdate": { "maxSurge": surge, "maxUnavailable": unavailable },
        })),
        1 => Just(json!({ "type": "Recreate" })),
    ];
    (0..limit, strategy, 0..4_u8, 1..20_u64, 0..20_u64, 0..3_u8, changes("web:new", limit)).prop_map(
        |(replicas, strategy, min_ready, ready, stop, history, change)| Case {
            replicas,
            strategy,
            min_ready,
            ready,
            stop,
            history,
            change,
        },
    )
}

fn changes(new: &'static str, limit: u8) -> impl Strategy<Value = Change> {
    prop_oneof![
        3 => Just(image(new)),
        1 => Just(Change::Restart),
        1 => Just(Change::Undo { revision: None }),
        2 => (0..i32::from(limit)).prop_map(Change::Replicas),
        2 => (0..limit).prop_map(|replicas| Change::Apply(deployment(replicas.into(), "web:applied"))),
    ]
}

/// Cluster with the settled Deployment of the case. `None` if the change is not possible.
async fn settled(case: &Case) -> Option<World> {
    let world = World::new(timing(case.ready, case.stop));
    let mut manifest = deployment(case.replicas.into(), "web:0");
    manifest["spec"]["strategy"] = case.strategy.clone();
    manifest["spec"]["minReadySeconds"] = case.min_ready.into();
    world.create(manifest).await;
    for number in 1..=case.history {
        world.change(&image(&format!("web:{number}"))).await;
    }
    let is_possible = case.history > 0 || !matches!(case.change, Change::Undo { .. });
    is_possible.then_some(world)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    /// A preview from a settled cluster predicts the writes of each controller, their times to the second, and the peaks.
    #[test]
    fn preview_is_what_happens(case in cases(14)) {
        let result = simulate(async {
            let Some(world) = settled(&case).await else { return Ok(()) };
            compare(&world, &case.change, timing(case.ready, case.stop)).await.map(drop)
        });
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }

    /// So does a preview from the middle of a rollout, which the change of the case has started. The rate limit of the
    /// controllers does not delay requests for so few pods: a preview cannot read its state.
    #[test]
    fn preview_from_the_middle_of_a_rollout_is_what_happens(
        case in cases(6),
        wait in 0..60_u64,
        change in changes("web:newer", 6),
    ) {
        let result = simulate(async {
            let Some(world) = settled(&case).await else { return Ok(()) };
            // API objects have times in seconds; in the middle of a second, no time is rounded across an event.
            world.begin(&case.change, SECOND * u32::try_from(wait).unwrap() + SECOND / 2).await;
            if case.history == 0 && matches!(change, Change::Undo { .. }) {
                return Ok(());
            }
            compare(&world, &change, timing(case.ready, case.stop)).await.map(drop)
        });
        prop_assert!(result.is_ok(), "{}", result.unwrap_err());
    }
}

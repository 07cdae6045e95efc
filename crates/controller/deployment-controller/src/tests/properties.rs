//! Invariants of rollouts under random changes, and plans of arbitrary views.

use std::{collections::BTreeSet, sync::Arc};

use kcm_api::{
    ApiError, IntOrString, ReplicaSet,
    condition_status::TRUE,
    condition_type::{AVAILABLE, PROGRESSING},
};
use kcm_deployment_util::{
    annotations::{DESIRED_REPLICAS, MAX_REPLICAS, REVISION},
    fenceposts::{max_total_replicas, min_available},
    replica_sets::is_active,
};
use kcm_runtime::Requeue;
use proptest::prelude::*;

use crate::{
    plan::{BlockedOn, PlanEnd, Reason, plan_assuming_success},
    testing::{FakeCluster, START, deployment, replica_set, set_recreate, set_strategy},
    view::View,
};

/// Change between two syncs.
#[derive(Debug, Clone)]
enum Change {
    Image(u8),
    Scale(i32),
    Pause,
    Resume,
    Annotate(u8),
    /// At most so many pods become available.
    Ready(i32),
    /// The next write whose text begins with this fails.
    WriteError(&'static str),
}

fn changes() -> impl Strategy<Value = Vec<Change>> {
    let change = prop_oneof![
        2 => (0_u8..4).prop_map(Change::Image),
        2 => (0_i32..12).prop_map(Change::Scale),
        1 => Just(Change::Pause),
        1 => Just(Change::Resume),
        1 => (0_u8..3).prop_map(Change::Annotate),
        6 => (0_i32..12).prop_map(Change::Ready),
        1 => prop::sample::select(vec!["create", "update replica set", "update status", "delete"])
            .prop_map(Change::WriteError),
    ];
    prop::collection::vec(change, 0..30)
}

/// A `maxSurge` or `maxUnavailable`.
fn fencepost() -> impl Strategy<Value = IntOrString> {
    prop_oneof![
        (0_i32..6).prop_map(IntOrString::Int),
        (0_i32..=120).prop_map(|percent| IntOrString::String(format!("{percent}%"))),
    ]
}

fn total_replicas(cluster: &FakeCluster) -> i32 {
    cluster.sets.values().map(ReplicaSet::replicas).sum()
}

fn available_replicas(cluster: &FakeCluster) -> i32 {
    cluster.sets.values().map(|set| set.status.available_replicas).sum()
}

/// Returns `true` if the last sync scaled the Deployment, which may remove available pods.
fn has_scaled(cluster: &FakeCluster) -> bool {
    cluster.last_actions.iter().any(|planned| {
        matches!(
            planned.reason,
            Some(
                Reason::ProportionalScaling { .. }
                    | Reason::OnlyActiveReplicaSet { .. }
                    | Reason::NewReplicaSetTooLarge { .. }
            )
        )
    })
}

/// Applies `change`, syncs, and checks the bounds of the rolling update.
fn apply(cluster: &mut FakeCluster, change: &Change) -> Result<(), TestCaseError> {
    let mut ready = 0;
    let mut has_write_error = false;
    match change {
        Change::Image(image) => cluster.set_image(&format!("web:{image}")),
        Change::Scale(replicas) => cluster.edit("scale", |d| d.spec.replicas = Some(*replicas)),
        Change::Pause => cluster.edit("pause", |d| d.spec.paused = true),
        Change::Resume => cluster.edit("resume", |d| d.spec.paused = false),
        Change::Annotate(value) => cluster.edit("annotate", |d| {
            d.metadata.annotations.insert("note".to_owned(), value.to_string());
        }),
        Change::Ready(pods) => ready = *pods,
        Change::WriteError(action) => {
            has_write_error = true;
            cluster.write_errors = vec![(action, ApiError::status(500, "InternalError", "internal error"))];
        }
    }
    let (total_before, available_before) = (total_replicas(cluster), available_replicas(cluster));
    let outcome = cluster.sync();
    cluster.write_errors.clear();
    prop_assert!(has_write_error || outcome.is_ok(), "{outcome:?}\n{}", cluster.transcript);
    let rolling = cluster.deployment.spec.strategy.rolling_update.is_some();
    if rolling {
        let max = max_total_replicas(&cluster.deployment).max(total_before);
        prop_assert!(total_replicas(cluster) <= max, "more than {max}:\n{}", cluster.transcript);
    }
    cluster.run_replica_sets(ready);
    if rolling && !has_scaled(cluster) {
        let min = min_available(&cluster.deployment).min(available_before);
        prop_assert!(
            available_replicas(cluster) >= min,
            "fewer than {min} available:\n{}",
            cluster.transcript
        );
    }
    prop_assert_eq!(cluster.conflicts, 0, "conflicting writes:\n{}", cluster.transcript);
    cluster.advance(1);
    Ok(())
}

/// Checks that a rollout completes if all pods become ready, and that nothing is written then.
fn completes(cluster: &mut FakeCluster) -> Result<(), TestCaseError> {
    // Annotations of the only ReplicaSet may be out of date, so that no rollout starts (US-9.9). Scaling to a size that
    // no earlier change uses updates them.
    cluster.edit("resume, and scale to 20", |d| {
        d.spec.paused = false;
        d.spec.replicas = Some(20);
    });
    cluster.settle(100);
    cluster.set_image("web:last");
    cluster.settle(100);
    let desired = cluster.deployment.replicas();
    let outcome = cluster.sync().unwrap();
    prop_assert_eq!((outcome.blocked_on, outcome.requeue()), (BlockedOn::Nothing, Requeue::Done));
    for set in cluster.sets.values() {
        let is_new = set.spec.template.equal_ignore_hash(&cluster.deployment.spec.template);
        prop_assert_eq!(set.replicas(), if is_new { desired } else { 0 });
    }
    let limit = usize::try_from(cluster.deployment.spec.revision_history_limit.unwrap()).unwrap();
    prop_assert!(cluster.sets.len() <= limit + 1, "{} sets", cluster.sets.len());
    let condition = |type_| cluster.deployment.condition(type_).map(|c| (c.status.clone(), c.reason.clone()));
    prop_assert_eq!(condition(AVAILABLE).unwrap().0, TRUE);
    prop_assert_eq!(condition(PROGRESSING).unwrap().1, "NewReplicaSetAvailable");
    let new_rs = cluster.set("web:last");
    prop_assert_eq!(
        &new_rs.metadata.annotations[REVISION],
        &cluster.deployment.metadata.annotations[REVISION]
    );
    cluster.sync().unwrap();
    prop_assert!(cluster.last_actions.is_empty(), "{:?}", cluster.last_actions);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rolling_update_stays_within_bounds_and_completes(
        replicas in 0_i32..12,
        max_surge in fencepost(),
        max_unavailable in fencepost(),
        limit in 0_i32..4,
        changes in changes(),
    ) {
        let mut d = deployment(replicas);
        d.spec.revision_history_limit = Some(limit);
        set_strategy(&mut d, max_surge, max_unavailable);
        let mut cluster = FakeCluster::new(d);
        for change in &changes {
            apply(&mut cluster, change)?;
        }
        completes(&mut cluster)?;
    }

    #[test]
    fn recreate_has_one_active_set_and_completes(replicas in 0_i32..12, changes in changes()) {
        let mut d = deployment(replicas);
        set_recreate(&mut d);
        let mut cluster = FakeCluster::new(d);
        for change in &changes {
            apply(&mut cluster, change)?;
            let active = cluster.sets.values().filter(|set| is_active(set)).count();
            prop_assert!(active <= 1, "{}", cluster.transcript);
        }
        completes(&mut cluster)?;
    }

    #[test]
    fn arbitrary_views_do_not_panic(
        numbers: [i32; 6],
        recreate: bool,
        paused: bool,
        sets in prop::collection::vec(any::<[i32; 5]>(), 0..5),
        annotations in prop::collection::vec(
            prop_oneof![any::<i32>().prop_map(|n| n.to_string()), ".{0,5}"],
            15,
        ),
    ) {
        let [replicas, max_surge, max_unavailable, limit, deadline, min_ready_seconds] = numbers;
        let mut d = deployment(replicas);
        set_strategy(&mut d, IntOrString::Int(max_surge), IntOrString::Int(max_unavailable));
        if recreate {
            set_recreate(&mut d);
        }
        d.spec.paused = paused;
        d.spec.revision_history_limit = Some(limit);
        d.spec.progress_deadline_seconds = Some(deadline);
        d.spec.min_ready_seconds = min_ready_seconds;
        d.status.replicas = max_surge;
        let mut annotations = annotations.into_iter();
        let sets = sets.into_iter().enumerate().map(|(at, [size, pods, ready, available, created])| {
            let image = format!("web:{}", created.rem_euclid(2));
            let mut set = replica_set(&format!("rs-{at}"), &image, created.into(), size, available);
            set.status.replicas = pods;
            set.status.ready_replicas = ready;
            for key in [REVISION, DESIRED_REPLICAS, MAX_REPLICAS] {
                set.metadata.annotations.extend(annotations.next().map(|value| (key.to_owned(), value)));
            }
            Arc::new(set)
        });
        let view = View {
            deployment: Arc::new(d),
            replica_sets: sets.collect(),
            running: BTreeSet::new(),
            unobserved_scale_downs: BTreeSet::new(),
            terminating_replicas: true,
            coalesce_status_writes: true,
        };
        let plan = plan_assuming_success(&view, kcm_api::Time::from_unix(START).timestamp());
        prop_assert!(matches!(plan.end, PlanEnd::Done(_)));
    }
}

/// API server validation rejects a missing `rollingUpdate` block, selector or strategy type.
#[test]
fn empty_objects_do_not_panic() {
    let view = View {
        deployment: Arc::default(),
        replica_sets: vec![Arc::default()],
        running: BTreeSet::new(),
        unobserved_scale_downs: BTreeSet::new(),
        terminating_replicas: true,
        coalesce_status_writes: true,
    };
    let plan = plan_assuming_success(&view, kcm_api::Time::from_unix(START).timestamp());
    assert!(matches!(plan.end, PlanEnd::Done(Err(_))), "{plan}");
    let mut d = deployment(1);
    d.spec.strategy.rolling_update = None;
    let view = View { deployment: Arc::new(d), ..view };
    let plan = plan_assuming_success(&view, kcm_api::Time::from_unix(START).timestamp());
    assert!(matches!(plan.end, PlanEnd::Done(_)), "{plan}");
}

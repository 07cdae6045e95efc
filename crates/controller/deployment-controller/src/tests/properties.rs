//! What holds whatever happens: worlds that change at random, and views that no server would show.

use std::{collections::BTreeSet, sync::Arc};

use kcm_api::{ApiError, IntOrString, ReplicaSet, condition_status::TRUE};
use kcm_deployment_util::{
    annotations::{DESIRED_REPLICAS, MAX_REPLICAS, REVISION},
    conditions::condition_type::{AVAILABLE, PROGRESSING},
    fenceposts::{max_surge, min_available},
};
use proptest::prelude::*;

use crate::{
    End, Requeue, View, WaitsFor, plan_assuming_success,
    testing::{START, World, deployment, replica_set, set_recreate, set_strategy},
};

/// Something that happens between two syncs.
#[derive(Debug, Clone)]
enum Happening {
    Image(u8),
    Scale(i32),
    Pause,
    Resume,
    Annotate(u8),
    /// So many pods become available.
    Ready(i32),
    /// The next write that starts like this is refused.
    Refuse(&'static str),
}

fn happenings() -> impl Strategy<Value = Vec<Happening>> {
    let one = prop_oneof![
        2 => (0_u8..4).prop_map(Happening::Image),
        2 => (0_i32..12).prop_map(Happening::Scale),
        1 => Just(Happening::Pause),
        1 => Just(Happening::Resume),
        1 => (0_u8..3).prop_map(Happening::Annotate),
        6 => (0_i32..12).prop_map(Happening::Ready),
        1 => prop::sample::select(vec!["create", "update replica set", "update status", "delete"])
            .prop_map(Happening::Refuse),
    ];
    prop::collection::vec(one, 0..30)
}

fn bound() -> impl Strategy<Value = IntOrString> {
    prop_oneof![
        (0_i32..6).prop_map(IntOrString::Int),
        (0_i32..=120).prop_map(|percent| IntOrString::String(format!("{percent}%"))),
    ]
}

fn sizes(world: &World) -> i32 {
    world.sets.values().map(ReplicaSet::replicas).sum()
}

fn available(world: &World) -> i32 {
    world.sets.values().map(|set| set.status.available_replicas).sum()
}

/// One thing happens, and a sync follows; no step goes past the bounds of a rolling update.
fn live(world: &mut World, happening: &Happening) -> Result<(), TestCaseError> {
    let mut ready = 0;
    let mut refused = false;
    match happening {
        Happening::Image(image) => world.set_image(&format!("web:{image}")),
        Happening::Scale(replicas) => world.edit("scale", |d| d.spec.replicas = Some(*replicas)),
        Happening::Pause => world.edit("pause", |d| d.spec.paused = true),
        Happening::Resume => world.edit("resume", |d| d.spec.paused = false),
        Happening::Annotate(value) => world.edit("annotate", |d| {
            d.metadata.annotations.insert("note".to_owned(), value.to_string());
        }),
        Happening::Ready(pods) => ready = *pods,
        Happening::Refuse(what) => {
            refused = true;
            world.refusals = vec![(what, ApiError::status(500, "InternalError", "out of order"))];
        }
    }
    let (before, had) = (sizes(world), available(world));
    let told = world.transcript.len();
    let outcome = world.sync();
    world.refusals.clear();
    prop_assert!(refused || outcome.is_ok(), "{outcome:?}\n{}", world.transcript);
    let rolling = world.deployment.spec.strategy.rolling_update.is_some();
    if rolling {
        let most = world.deployment.replicas() + max_surge(&world.deployment);
        prop_assert!(sizes(world) <= most.max(before), "more than {most}:\n{}", world.transcript);
    }
    world.follow(ready);
    // Scaling takes what it must; only a rollout spares what is available.
    let scaled = ["is its share", "no other replica set has pods", "it has more than"]
        .iter()
        .any(|reason| world.transcript[told..].contains(reason));
    if rolling && !scaled {
        let least = min_available(&world.deployment).min(had);
        prop_assert!(available(world) >= least, "fewer than {least} available:\n{}", world.transcript);
    }
    prop_assert_eq!(world.conflicts, 0, "a conflict with ourselves:\n{}", world.transcript);
    world.advance(1);
    Ok(())
}

/// Whatever went before: with all pods ready a rollout comes to its end, and then nothing is written any more.
fn comes_to_rest(world: &mut World) -> Result<(), TestCaseError> {
    // Upstream's scaling leaves its notes on a single ReplicaSet that has the right size already, and takes them for
    // a change of size ever after (US-9.9). A size that none can have mends that.
    world.edit("resume, and scale to 20", |d| {
        d.spec.paused = false;
        d.spec.replicas = Some(20);
    });
    world.settle(100);
    world.set_image("web:last");
    world.settle(100);
    let desired = world.deployment.replicas();
    let outcome = world.sync().unwrap();
    prop_assert_eq!((outcome.waits_for, outcome.requeue()), (WaitsFor::Nothing, Requeue::Never));
    for set in world.sets.values() {
        let new = set.spec.template.equal_ignore_hash(&world.deployment.spec.template);
        prop_assert_eq!(set.replicas(), if new { desired } else { 0 });
    }
    let limit = usize::try_from(world.deployment.spec.revision_history_limit.unwrap()).unwrap();
    prop_assert!(world.sets.len() <= limit + 1, "{} sets", world.sets.len());
    let condition = |type_| world.deployment.condition(type_).map(|c| (c.status.clone(), c.reason.clone()));
    prop_assert_eq!(condition(AVAILABLE).unwrap().0, TRUE);
    prop_assert_eq!(condition(PROGRESSING).unwrap().1, "NewReplicaSetAvailable");
    let newest = world.set("web:last");
    prop_assert_eq!(&newest.metadata.annotations[REVISION], &world.deployment.metadata.annotations[REVISION]);
    let written = world.transcript.len();
    world.sync().unwrap();
    prop_assert!(!world.transcript[written..].contains("- "), "{}", &world.transcript[written..]);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn rolling_update_keeps_its_bounds_and_comes_to_rest(
        replicas in 0_i32..12, surge in bound(), unavailable in bound(), limit in 0_i32..4, story in happenings(),
    ) {
        let mut d = deployment(replicas);
        d.spec.revision_history_limit = Some(limit);
        set_strategy(&mut d, surge, unavailable);
        let mut world = World::new(d);
        for happening in &story {
            live(&mut world, happening)?;
        }
        comes_to_rest(&mut world)?;
    }

    #[test]
    fn recreate_never_mixes_pods_and_comes_to_rest(replicas in 0_i32..12, story in happenings()) {
        let mut d = deployment(replicas);
        set_recreate(&mut d);
        let mut world = World::new(d);
        for happening in &story {
            live(&mut world, happening)?;
            let with_pods = world.sets.values().filter(|set| set.replicas() > 0).count();
            prop_assert!(with_pods <= 1, "{}", world.transcript);
        }
        comes_to_rest(&mut world)?;
    }

    /// No server would show such views; a plan of them still ends, and does not panic.
    #[test]
    fn plan_of_anything_ends(
        numbers: [i32; 6], recreate: bool, paused: bool, sets in prop::collection::vec(any::<[i32; 5]>(), 0..5),
        notes in prop::collection::vec(prop_oneof![any::<i32>().prop_map(|n| n.to_string()), ".{0,5}"], 15),
    ) {
        let [replicas, surge, unavailable, limit, deadline, min_ready_seconds] = numbers;
        let mut d = deployment(replicas);
        set_strategy(&mut d, IntOrString::Int(surge), IntOrString::Int(unavailable));
        if recreate {
            set_recreate(&mut d);
        }
        d.spec.paused = paused;
        d.spec.revision_history_limit = Some(limit);
        d.spec.progress_deadline_seconds = Some(deadline);
        d.spec.min_ready_seconds = min_ready_seconds;
        d.status.replicas = surge;
        let mut notes = notes.into_iter();
        let sets = sets.into_iter().enumerate().map(|(at, [size, actual, ready, available, created])| {
            let image = format!("web:{}", created.rem_euclid(2));
            let mut set = replica_set(&format!("rs-{at}"), &image, created.into(), size, available);
            set.status.replicas = actual;
            set.status.ready_replicas = ready;
            for key in [REVISION, DESIRED_REPLICAS, MAX_REPLICAS] {
                set.metadata.annotations.extend(notes.next().map(|note| (key.to_owned(), note)));
            }
            Arc::new(set)
        });
        let view = View { deployment: Arc::new(d), replica_sets: sets.collect(), running: BTreeSet::new(), terminating_replicas: true };
        let plan = plan_assuming_success(&view, kcm_api::Time::from_unix(START).timestamp());
        prop_assert!(matches!(plan.end, End::Done(_)));
    }
}

/// A missing rollingUpdate block, a missing selector, a strategy without a type: refused by any server, and no
/// reason to panic.
#[test]
fn plan_of_a_deployment_with_nothing_in_it_ends() {
    let view = View {
        deployment: Arc::default(),
        replica_sets: vec![Arc::default()],
        running: BTreeSet::new(),
        terminating_replicas: true,
    };
    let plan = plan_assuming_success(&view, kcm_api::Time::from_unix(START).timestamp());
    assert!(matches!(plan.end, End::Done(Err(_))), "{plan}");
    let mut d = deployment(1);
    d.spec.strategy.rolling_update = None;
    let view = View { deployment: Arc::new(d), ..view };
    let plan = plan_assuming_success(&view, kcm_api::Time::from_unix(START).timestamp());
    assert!(matches!(plan.end, End::Done(_)), "{plan}");
}

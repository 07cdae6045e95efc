//! The stories of `test/stories`, played by our controllers in simulated time and held against what upstream wrote.
#![expect(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests may fail as tests do")]

use std::path::{Path, PathBuf};

use kcm_stories::{
    Counted, Event, InProcess, InProcessConfig, Recording, StepWrites, Story, Write, closest_difference, play,
};
use serde::Serialize;
use serde_json::{Value, json};

/// The version that ours is held against.
const VERSION: &str = "v1.36";

/// The HTTP status of a write that was built on an old version.
const CONFLICT: u16 = 409;

fn test_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../test")
}

async fn record(name: &str, seed: u64) -> Recording {
    let story = Story::read(&test_folder().join(format!("stories/{name}.yaml"))).unwrap();
    let mut cluster = InProcess::new(InProcessConfig::new(seed)).await.unwrap();
    play(&story, &mut cluster.world, "t0x").await.unwrap()
}

/// A recording as people review it: of a status write the status, of an event what it says. What was refused as out of
/// date is left out: it comes and goes with the order in which tasks happen to run.
#[derive(Serialize)]
struct Brief {
    step: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    writes: Vec<Value>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    events: Vec<String>,
}

fn brief(recording: &Recording) -> Vec<Brief> {
    let step = |step: &StepWrites| Brief {
        step: step.step.clone(),
        writes: step.writes.iter().filter(|write| write.what.code != CONFLICT).map(brief_write).collect(),
        events: step.events.iter().map(brief_event).collect(),
    };
    recording.steps.iter().map(step).collect()
}

fn brief_event(Counted { times, what }: &Counted<Event>) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let said = if what.again {
        format!("the last one again, count {}", what.count.unwrap_or_default())
    } else {
        let (kind, reason, on) = (text(&what.kind), text(&what.reason), text(&what.on));
        format!("{kind} {reason} {on}: {}", text(&what.message))
    };
    if *times == 1 { said } else { format!("{times} times: {said}") }
}

fn brief_write(Counted { times, what }: &Counted<Write>) -> Value {
    let Write { write, code, name, body } = what;
    let what = format!("{write} {} {code}", name.as_deref().unwrap_or_default()).replace("  ", " ");
    let what = if *times == 1 { what } else { format!("{times} times: {what}") };
    let body = body.as_ref().map(|body| if write.ends_with("/status") { &body["status"] } else { body });
    json!({ what: body })
}

async fn assert_equals_upstream(name: &str) {
    let ours = record(name, 1).await;
    let runs = Recording::read_runs(
        &test_folder().join(format!("recordings/{VERSION}/stories")),
        name,
        Some(VERSION),
    );
    if let Some(difference) = closest_difference(&runs.unwrap(), &ours) {
        panic!("{name} differs from upstream:\n{difference}");
    }
    insta::with_settings!({ snapshot_path => "../../../test/stories/snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_yaml_snapshot!(name, brief(&ours));
    });
}

macro_rules! stories {
    ($($test:ident: $name:literal,)*) => {
        const STORIES: &[&str] = &[$($name),*];

        $(
            #[tokio::test(start_paused = true)]
            async fn $test() {
                assert_equals_upstream($name).await;
            }
        )*
    };
}

stories! {
    d01_create_and_become_ready_equals_upstream: "d01-create-and-become-ready",
    d02_rolling_update_percentages_equals_upstream: "d02-rolling-update-percentages",
    d03_rolling_update_stuck_then_fixed_equals_upstream: "d03-rolling-update-stuck-then-fixed",
    d05_recreate_equals_upstream: "d05-recreate",
    d06_pause_change_resume_equals_upstream: "d06-pause-change-resume",
    d07_rollback_annotation_equals_upstream: "d07-rollback-annotation",
    d08_history_limit_equals_upstream: "d08-history-limit",
    d09_progress_deadline_equals_upstream: "d09-progress-deadline",
    d10_adopt_orphan_and_release_equals_upstream: "d10-adopt-orphan-and-release",
    d11_hash_collision_equals_upstream: "d11-hash-collision",
    d13_zero_replicas_then_up_equals_upstream: "d13-zero-replicas-then-up",
    d14_annotations_copied_equals_upstream: "d14-annotations-copied",
    d16_min_ready_seconds_change_equals_upstream: "d16-min-ready-seconds-change",
    d17_replica_failure_travels_up_equals_upstream: "d17-replica-failure-travels-up",
    d18_being_deleted_equals_upstream: "d18-being-deleted",
    d20_progress_deadline_off_equals_upstream: "d20-progress-deadline-off",
    d22_match_expressions_and_long_name_equals_upstream: "d22-match-expressions-and-long-name",
    d23_restart_in_the_middle_equals_upstream: "d23-restart-in-the-middle",
    r01_create_scale_ready_equals_upstream: "r01-create-scale-ready",
    r03_release_and_replace_equals_upstream: "r03-release-and-replace",
    r04_pod_deleted_and_pod_failed_equals_upstream: "r04-pod-deleted-and-pod-failed",
    r05_terminating_pod_is_replaced_equals_upstream: "r05-terminating-pod-is-replaced",
    r06_creation_refused_equals_upstream: "r06-creation-refused",
    r07_min_ready_seconds_equals_upstream: "r07-min-ready-seconds",
    r09_two_sets_one_orphan_equals_upstream: "r09-two-sets-one-orphan",
    r10_burst_of_520_equals_upstream: "r10-burst-of-520",
    r11_labels_not_full_equals_upstream: "r11-labels-not-full",
    r12_template_metadata_equals_upstream: "r12-template-metadata",
    r13_deleted_while_adopting_equals_upstream: "r13-deleted-while-adopting",
    r15_wrong_uid_owner_equals_upstream: "r15-wrong-uid-owner",
}

#[test]
fn stories_all_have_a_test() {
    let stories = Story::read_all(&test_folder().join("stories")).unwrap();
    let names: Vec<_> = stories.iter().map(|story| story.name.as_str()).collect();
    assert_eq!(names, STORIES);
}

#[tokio::test(start_paused = true)]
async fn story_told_twice_from_the_same_seed_is_the_same() {
    for name in ["d06-pause-change-resume", "r04-pod-deleted-and-pod-failed"] {
        assert_eq!(record(name, 7).await, record(name, 7).await, "{name}");
    }
}

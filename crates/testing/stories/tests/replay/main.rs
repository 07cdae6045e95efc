//! The stories of `test/stories`, played in simulated time. The writes are compared with recordings of upstream, where they
//! exist, and the invariants are checked.
#![expect(clippy::unwrap_used, clippy::panic, reason = "helper functions of tests may panic")]

/// Tests of the stories. The names contain `_` instead of `-`.
macro_rules! stories {
    ($check:ident as $module:ident: $($story:ident)*) => {
        const STORIES: &[&str] = &[$(stringify!($story)),*];

        mod $module {
            $(
                #[tokio::test(start_paused = true)]
                async fn $story() {
                    super::$check(&stringify!($story).replace('_', "-")).await;
                }
            )*
        }
    };
}

mod cluster;
mod found;
mod lost_creates;

use std::path::{Path, PathBuf};

use kcm_apiserver::Faults;
use kcm_stories::{
    Counted, InProcess, RecordedEvent, Recording, StepWrites, Story, Write, closest_difference,
};
use serde::Serialize;
use serde_json::Value;

/// Version of the recordings.
const VERSION: &str = "v1.36";

/// HTTP status of a write with an outdated resource version.
const CONFLICT: u16 = 409;

fn test_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../test")
}

fn read(name: &str) -> Story {
    Story::read(&test_folder().join(format!("stories/{name}.yaml"))).unwrap()
}

/// Plays a story. Panics if a step fails or an invariant is violated.
async fn play(story: &Story, seed: u64, faults: &Faults) -> (InProcess, Recording) {
    let mut in_process = InProcess::new(seed, story.cluster, faults.clone()).await.unwrap();
    let recording = match kcm_stories::play(story, &mut in_process.cluster, "t0x").await {
        Ok(recording) => recording,
        Err(error) => panic!("{}: {error}\n{}", story.name, lines(in_process.checker.violations())),
    };
    let violations = in_process.checker.violations_except(&story.exempt);
    assert!(violations.is_empty(), "{}: {}", story.name, lines(violations));
    (in_process, recording)
}

fn lines<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join("\n")
}

/// Plays a story. Panics if an exemption is not needed.
async fn play_undisturbed(story: &Story, seed: u64) -> (InProcess, Recording) {
    let (in_process, recording) = play(story, seed, &story.faults()).await;
    let broken = in_process.checker.violations();
    for exemption in &story.exempt {
        let used = broken.iter().any(|violation| violation.invariant == exemption.invariant);
        assert!(used, "{} does not need the exemption from {:?}", story.name, exemption.invariant);
    }
    (in_process, recording)
}

async fn record(name: &str, seed: u64) -> Recording {
    play_undisturbed(&read(name), seed).await.1
}

/// Recording as it is reviewed in snapshots: one line for each write and event, with the statuses that are written. Other bodies
/// are compared with upstream's. Conflicts are left out: their number depends on the scheduling of tasks.
#[derive(Serialize)]
struct Brief {
    step: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    writes: Vec<String>,
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

fn brief_event(Counted { times, what }: &Counted<RecordedEvent>) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let said = if what.again {
        format!("the last one again, count {}", what.count.unwrap_or_default())
    } else {
        let (kind, reason, on) = (text(&what.kind), text(&what.reason), text(&what.on));
        format!("{kind} {reason} {on}: {}", text(&what.message))
    };
    if *times == 1 { said } else { format!("{times} times: {said}") }
}

fn brief_write(Counted { times, what }: &Counted<Write>) -> String {
    let Write { write, code, name, body } = what;
    let what = format!("{write} {} {code}", name.as_deref().unwrap_or_default()).replace("  ", " ");
    let what = if *times == 1 { what } else { format!("{times} times: {what}") };
    match body {
        Some(body) if write.ends_with("/status") => format!("{what}: {}", brief_status(&body["status"])),
        _ => what,
    }
}

fn brief_status(status: &Value) -> String {
    let condition = |condition: &Value| {
        let text = |field: &str| condition[field].as_str().unwrap_or_default();
        format!("{} {} {}", text("type"), text("status"), text("reason"))
    };
    let field = |(name, value): (&String, &Value)| match value {
        Value::Array(conditions) => conditions.iter().map(condition).collect::<Vec<_>>().join(", "),
        value => format!("{name} {value}"),
    };
    status.as_object().unwrap().iter().map(field).collect::<Vec<_>>().join(", ")
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
    insta::with_settings!({ snapshot_path => "../../../../../test/stories/snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_yaml_snapshot!(name, brief(&ours));
    });
}

stories! {
    assert_equals_upstream as equals_upstream:
    d01_create_and_become_ready
    d02_rolling_update_percentages
    d03_rolling_update_stuck_then_fixed
    d05_recreate
    d06_pause_change_resume
    d07_rollback_annotation
    d08_history_limit
    d09_progress_deadline
    d10_adopt_orphan_and_release
    d11_hash_collision
    d13_zero_replicas_then_up
    d14_annotations_copied
    d16_min_ready_seconds_change
    d17_replica_failure_travels_up
    d18_being_deleted
    d20_progress_deadline_off
    d22_match_expressions_and_long_name
    d23_restart_in_the_middle
    r01_create_scale_ready
    r03_release_and_replace
    r04_pod_deleted_and_pod_failed
    r05_terminating_pod_is_replaced
    r06_creation_refused
    r07_min_ready_seconds
    r09_two_sets_one_orphan
    r10_burst_of_520
    r11_labels_not_full
    r12_template_metadata
    r13_deleted_while_adopting
    r15_wrong_uid_owner
}

#[test]
fn all_stories_have_a_test() {
    let stories = Story::read_all(&test_folder().join("stories")).unwrap();
    let names: Vec<_> = stories.iter().map(|story| story.name.replace('-', "_")).collect();
    assert_eq!(names, STORIES);
}

#[tokio::test(start_paused = true)]
async fn runs_of_equal_seeds_are_equal() {
    for name in ["d06-pause-change-resume", "r04-pod-deleted-and-pod-failed"] {
        assert_eq!(record(name, 7).await, record(name, 7).await, "{name}");
    }
}

//! Failures of each kind of write, one kind at a time, in a story that needs all of them.
//!
//! Failures come in a burst, at every other request, and for longer than upstream retries. All steps must succeed, and the
//! final state must be the same as without failures.

use std::path::Path;

use kcm_stories::{InProcess, InProcessConfig, Story, invariants::Invariant, remaining_objects};

use super::lines;

/// Write requests of the controllers.
pub(crate) const WRITES: &[&str] = &[
    "POST **/replicasets",
    "PUT **/replicasets/*",
    "PUT **/replicasets/*/status",
    "PATCH **/replicasets/*",
    "DELETE **/replicasets/*",
    "PUT **/deployments/*",
    "PUT **/deployments/*/status",
    "POST **/pods",
    "PATCH **/pods/*",
    "DELETE **/pods/*",
];

/// Rollouts, scaling, both kinds of rollback, history cleanup, adoption and release of ReplicaSets and pods.
const STEPS: &str = include_str!("failed_writes.yaml");

/// Failures of requests that are not executed.
const REJECTED: &[&str] = &[
    "500 times=2",
    "webhook:403 times=2",
    "webhook:500 times=2",
    "webhook:403 every=2 times=8",
    "500 times=18",
];

/// Failures of requests of which some are executed.
const CUT_OFF: &[&str] =
    &["break times=2", "late:0s times=2", "after:500 times=2", "late:0s every=2 times=8", "break times=18"];

fn story(write: &str, failures: &[&str]) -> Story {
    let fault = |failure: &&str| format!("- '{write} {failure} agent=kube-controller-manager*'\n");
    let faults: String = failures.iter().map(fault).collect();
    let text = format!(
        "story: failed-writes\nabout: One kind of write fails.\n\
         controllers: [deployment-controller, replicaset-controller]\ncluster: {{nodes: 3}}\n\
         faults:\n{faults}steps:{STEPS}"
    );
    Story::parse(&text, Path::new("failed-writes.yaml")).unwrap()
}

/// `true` if the failures explain the violation.
fn is_explained(invariant: Invariant, write: &str, failures: &[&str]) -> bool {
    match invariant {
        // A retry is a write.
        Invariant::Effort => true,
        // A write that was executed is repeated.
        Invariant::IdleWrite => failures == CUT_OFF,
        // After a broken connection, the client repeats a create with a name, and the API server rejects it.
        Invariant::CreatedTwice => write == "POST **/replicasets" && failures == CUT_OFF,
        _ => false,
    }
}

/// Plays the story. Returns the final state and the number of applications of each fault, or the problems.
async fn play(write: &str, failures: &[&str]) -> Result<(Vec<String>, Vec<u64>), String> {
    let story = story(write, failures);
    let config = InProcessConfig::for_story(&story, 1);
    let faults = config.faults.clone();
    let mut in_process = InProcess::new(config).await.unwrap();
    let played = kcm_stories::play(&story, &mut in_process.cluster, "t0x").await;
    let violations = in_process.checker.violations();
    let unexplained = violations.iter().filter(|one| !is_explained(one.invariant, write, failures));
    let mut problems: Vec<String> = unexplained.map(ToString::to_string).collect();
    problems.extend(played.err().map(|error| error.to_string()));
    if !problems.is_empty() {
        return Err(lines(problems));
    }
    Ok((remaining_objects(&in_process.server, "t0x").unwrap(), faults.applied()))
}

async fn assert_same_end(failures: &[&str]) {
    let (expected, _) = play("POST **/pods", &[]).await.unwrap();
    let mut problems = Vec::new();
    for write in WRITES {
        match play(write, failures).await {
            Err(error) => problems.push(format!("{write}: {error}")),
            Ok((_, applied)) if applied[0] == 0 => problems.push(format!("{write}: no request failed")),
            Ok((objects, _)) if objects != expected => {
                problems.push(format!(
                    "{write}: final state is\n{}\nexpected\n{}",
                    lines(objects),
                    lines(&expected)
                ));
            }
            Ok((_, applied)) => println!("{write}: {applied:?}"),
        }
    }
    assert!(problems.is_empty(), "{}", lines(problems));
}

#[tokio::test(start_paused = true)]
async fn rejected_writes_do_not_change_the_final_state() {
    assert_same_end(REJECTED).await;
}

#[tokio::test(start_paused = true)]
async fn interrupted_writes_do_not_change_the_final_state() {
    assert_same_end(CUT_OFF).await;
}

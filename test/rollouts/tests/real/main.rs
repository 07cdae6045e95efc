//! The scenarios on kube-apiserver with upstream's manager, in real time.
//!
//! Requires `KUBEBUILDER_ASSETS`, `KUBE_CONTROLLER_MANAGER`, and `ROLLOUT_SCENARIOS_REAL=all`, because the run takes about
//! 20 minutes. `ROLLOUT_SCENARIO` limits it to the scenarios whose name contains its value, or one of its values
//! separated by `|`. `ROLLOUT_PARALLEL` is the number of scenarios at once. `ROLLOUT_PRINT` prints the objects of
//! scenarios whose verdict is not right. The diagnosis is that of `kubectl-rollouts` beside the test program, or of the
//! program named by `KUBECTL_ROLLOUTS`.
//!
//! Each scenario has a namespace and two nodes. The manager reaches the API server through a proxy, which refuses its
//! requests in single namespaces. Where a scenario stops the controllers, the proxy refuses all their writes in its
//! namespace. Where it stops the Lease, the Lease is outdated during the diagnosis. Scheduler and kubelets are those of the
//! sandbox.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail in its helpers, too")]

mod cluster;
mod play;
mod proxy;
mod shadow;

use std::{cmp::Reverse, collections::BTreeMap, env, io::Write as _, path::Path, sync::Arc, time::Duration};

use rollout_scenarios::{Outcome, Scenario, Verdict, judge, load, table};
use tokio::{
    sync::{Mutex, Semaphore},
    task::JoinSet,
};

use self::{
    cluster::{Cluster, Programs},
    play::{Play, duration, left_out},
};

/// Variable that enables the run.
const ENABLE: &str = "ROLLOUT_SCENARIOS_REAL";
/// Variable that limits the run to some scenarios.
const FILTER: &str = "ROLLOUT_SCENARIO";
/// Variable that prints the objects of scenarios.
const PRINT: &str = "ROLLOUT_PRINT";
/// Number of scenarios at once without `ROLLOUT_PARALLEL`.
const PARALLEL: usize = 120;
/// Time between the starts of two scenarios.
const STAGGER: Duration = Duration::from_millis(300);

/// Writes to stderr directly, because the test harness captures the output of `eprintln!`.
fn print(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn scenarios() -> Vec<Scenario> {
    let scenarios = load(&Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios"));
    let mut scenarios = scenarios.unwrap_or_else(|error| panic!("{error}"));
    if let Ok(parts) = env::var(FILTER) {
        scenarios.retain(|scenario| parts.split('|').any(|part| scenario.name.contains(part)));
    }
    scenarios
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn diagnoses_on_a_real_server() {
    let enabled = env::var_os(ENABLE).map(drop).ok_or_else(|| format!("no {ENABLE}"));
    let programs = match enabled.and_then(|()| Programs::find()) {
        Ok(programs) => programs,
        Err(reason) => return print(&format!("SKIPPED: scenarios with upstream's manager ({reason})")),
    };
    let parallel = env::var("ROLLOUT_PARALLEL").map_or(PARALLEL, |number| number.parse().unwrap());
    let mut omitted: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut played = Vec::new();
    for (number, scenario) in (0..).zip(scenarios()) {
        match left_out(&scenario) {
            Some(reason) => omitted.entry(reason).or_default().push(scenario.name),
            None => played.push((number, scenario)),
        }
    }
    // The longest first, so that the last ones are short.
    played.sort_by_key(|(number, scenario)| (Reverse(duration(scenario)), *number));
    let cluster = Cluster::start(programs).await;
    let (permits, starts) = (Arc::new(Semaphore::new(parallel)), Arc::new(Mutex::new(())));
    let mut runs = JoinSet::new();
    for (number, scenario) in played {
        let (cluster, starts) = (Arc::clone(&cluster), Arc::clone(&starts));
        let permit = Arc::clone(&permits).acquire_owned().await.unwrap();
        runs.spawn(async move {
            let _permit = permit;
            (number, run(&cluster, &starts, number, &scenario).await)
        });
    }
    let (mut outcomes, mut failed) = (Vec::new(), Vec::new());
    while let Some(result) = runs.join_next().await {
        match result.unwrap() {
            (number, Ok(outcome)) => outcomes.push((number, outcome)),
            (_, Err(failure)) => failed.push(failure),
        }
    }
    outcomes.sort_by_key(|(number, _)| *number);
    let outcomes: Vec<Outcome> = outcomes.into_iter().map(|(_, outcome)| outcome).collect();
    print(&summary(&outcomes, &omitted, &failed));
    let wrong = outcomes.iter().filter(|outcome| outcome.verdict == Verdict::Wrong).count();
    assert!(
        wrong == 0 && failed.is_empty(),
        "{wrong} wrong, {} failed: {}",
        failed.len(),
        cluster.manager_log()
    );
}

/// Plays a scenario. Returns an error if it cannot be played.
async fn run(
    cluster: &Arc<Cluster>,
    starts: &Mutex<()>,
    number: u64,
    scenario: &Scenario,
) -> Result<Outcome, String> {
    let failure = |reason: &str| {
        let text = format!("{}: {reason}", scenario.name);
        print(&format!("FAILED {number}: {text}"));
        text
    };
    let start = {
        let _start = starts.lock().await;
        cluster.clock.sleep(STAGGER).await;
        Play::start(cluster, number, scenario).await
    };
    let mut play = start.map_err(|error| failure(&error.to_string()))?;
    let result = play.run(scenario).await;
    let result = match result {
        Ok(diagnosis) => {
            let outcome = judge(&scenario.name, &scenario.truth, &diagnosis);
            print(&format!("{number}: {}: {}", outcome.verdict, outcome.name));
            if outcome.verdict != Verdict::Right {
                print(&format!("{}\n{diagnosis:#}", table(std::slice::from_ref(&outcome))));
                if env::var_os(PRINT).is_some() {
                    print(&play.describe().await);
                }
            }
            Ok(outcome)
        }
        Err(reason) => Err(failure(&reason)),
    };
    play.end();
    result
}

/// Verdicts that are not right, the numbers of all verdicts, and the scenarios that were left out.
fn summary(outcomes: &[Outcome], omitted: &BTreeMap<&str, Vec<String>>, failed: &[String]) -> String {
    let is_listed = |line: &&str| !line.starts_with(&format!("{:<11} |", Verdict::Right)) && !line.is_empty();
    let mut text: String =
        table(outcomes).lines().filter(is_listed).map(|line| format!("{line}\n")).collect();
    for (reason, names) in omitted {
        text.push_str(&format!("left out: {} ({reason}): {}\n", names.len(), names.join("; ")));
    }
    for failure in failed {
        text.push_str(&format!("failed: {failure}\n"));
    }
    text
}

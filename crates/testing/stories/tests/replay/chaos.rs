//! Random stories: operations of users and kubelets, crashes and faults, generated from a seed. The invariants must hold,
//! and all Deployments must be complete at the end.
//!
//! A failing story is shrunk by removing steps, and printed as a story file. `CHAOS_SEED=7 cargo test -p kcm-stories chaos`
//! runs one seed, `CHAOS_SEED=100..300` runs a range.

use std::{fmt::Write as _, path::Path, sync::Arc};

use kcm_apiserver::ApiServer;
use kcm_clock::{Random, SeededRandom};
use kcm_stories::{Entry, InProcess, InProcessConfig, ManagerHandle, Story, remaining_objects};

use super::{crash::Crashes, failed_writes::WRITES, lines};

/// Number of seeds per test run.
const SEEDS: u64 = 6;

/// Number of steps per story.
const STEPS: usize = 40;

/// Generated story; its parts can be removed.
#[derive(Debug, Clone)]
struct Draft {
    seed: u64,
    deployments: [String; 2],
    steps: Vec<String>,
    faults: Vec<String>,
    crashes: Crashes,
}

/// Source of random choices.
struct Choices(SeededRandom);

impl Choices {
    fn below(&self, limit: u64) -> u64 {
        self.0.next_u64() % limit
    }

    fn pick<'a>(&self, of: &[&'a str]) -> &'a str {
        let limit = u64::try_from(of.len()).unwrap();
        of[usize::try_from(self.below(limit)).unwrap()]
    }
}

impl Draft {
    fn new(seed: u64) -> Self {
        let choices = Choices(SeededRandom::new(seed));
        let deployments = ["one", "two"].map(|name| deployment(name, &choices));
        let mut steps: Vec<String> = (0..STEPS).map(|_| step(&choices)).collect();
        if choices.below(8) == 0 {
            let it = choices.pick(&["deployment/one", "deployment/two"]);
            let body = format!("{{metadata: {{annotations: {{{ROLLBACK_TO}: '0'}}}}}}");
            steps.insert(STEPS / 2, format!("- attempt: [{{patch: {{object: {it}, body: {body}}}}}]\n"));
        }
        let mut faults = Vec::new();
        if choices.below(2) == 0 {
            faults.extend((0..=choices.below(4)).map(|_| fault(&choices)));
        }
        let stride = usize::try_from(5 + choices.below(40)).unwrap();
        let crashes = match choices.below(3) {
            0 => Crashes::Never,
            _ => Crashes::Every { first: 1 + stride / 2, stride, last: 2000 },
        };
        Self { seed, deployments, steps, faults, crashes }
    }

    /// Formats the story as a file.
    fn text(&self) -> String {
        let mut text = format!(
            "story: chaos\nabout: 'Seed {}; crashes {:?}.'\ncontrollers: [deployment-controller, replicaset-controller]\n\
             cluster: {{nodes: 3, podReadyDelay: 1}}\n",
            self.seed, self.crashes
        );
        if !self.faults.is_empty() {
            text.push_str("faults:\n");
        }
        for fault in &self.faults {
            writeln!(text, "- '{fault}'").unwrap();
        }
        let fails_after_write =
            self.faults.iter().any(|fault| fault.contains("after:") || fault.contains("late:"));
        let contains = |what: &str| self.steps.iter().any(|step| step.contains(what));
        let deletes_replica_sets = contains("delete: {object: 'replicaset#");
        let repeats_create = self.faults.iter().any(|fault| fault.contains("POST **/replicasets late:"));
        let cleans_up = contains("pause:") && contains("revisionHistoryLimit");
        let exempt = [
            (fails_after_write, FAILS_AFTER_WRITE),
            (repeats_create, REPEATS_CREATE),
            (deletes_replica_sets, DELETES_REPLICA_SETS),
            (cleans_up, CLEANS_UP),
            (contains(ROLLBACK_TO), ROLLS_BACK),
        ]
        .into_iter()
        .filter(|(applies, _)| *applies);
        let exempt: Vec<&str> = exempt.map(|(_, exemption)| exemption).collect();
        if !exempt.is_empty() {
            writeln!(text, "exempt:\n{}", exempt.join("\n")).unwrap();
        }
        text.push_str("steps:\n");
        for step in self.deployments.iter().chain(&self.steps) {
            text.push_str(step);
        }
        text.push_str(END);
        text
    }

    async fn play(&self) -> Result<(), String> {
        let story = Story::parse(&self.text(), Path::new("chaos.yaml")).map_err(|error| error.to_string())?;
        let (hook, _) = self.crashes.hook();
        let mut after_write = vec![hook];
        if std::env::var_os("CHAOS_TRACE").is_some() {
            after_write.push(Arc::new(trace));
        }
        let config = InProcessConfig { after_write, ..InProcessConfig::for_story(&story, self.seed) };
        let mut in_process = InProcess::new(config).await.unwrap();
        let played = kcm_stories::play(&story, &mut in_process.cluster, "t0x").await;
        let mut problems: Vec<String> =
            in_process.checker.violations_except(&story.exempt).iter().map(ToString::to_string).collect();
        problems.extend(played.err().map(|error| error.to_string()));
        if problems.is_empty() { Ok(()) } else { Err(lines(problems)) }
    }

    /// Returns the story with as few steps as possible that still fails.
    async fn shrink(mut self) -> Self {
        let mut size = self.steps.len() / 2;
        while size > 0 {
            let mut at = 0;
            while at < self.steps.len() {
                let mut less = self.clone();
                less.steps.drain(at..(at + size).min(less.steps.len()));
                if less.play().await.is_err() {
                    self = less;
                } else {
                    at += size;
                }
            }
            size /= 2;
        }
        for less in
            [Self { crashes: Crashes::Never, ..self.clone() }, Self { faults: Vec::new(), ..self.clone() }]
        {
            if less.play().await.is_err() {
                return less;
            }
        }
        self
    }
}

/// Prints each write and the resulting objects.
fn trace(write: &Entry, server: &ApiServer, _: &ManagerHandle) {
    if write.resource != "events" {
        let Entry { verb, resource, subresource, name, code, .. } = write;
        println!(
            "{verb} {resource}/{subresource} {name} {code}\n{}\n",
            lines(remaining_objects(server, "t0x").unwrap())
        );
    }
}

fn deployment(name: &str, choices: &Choices) -> String {
    let replicas = 1 + choices.below(8);
    let strategy = choices.pick(&[
        "{rollingUpdate: {maxSurge: 25%, maxUnavailable: 25%}}",
        "{rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}",
        "{rollingUpdate: {maxSurge: 0, maxUnavailable: 2}}",
        "{rollingUpdate: {maxSurge: 100%, maxUnavailable: 50%}}",
        "{type: Recreate}",
    ]);
    let ready_for = choices.pick(&["0", "0", "2"]);
    format!(
        "- create:
    apiVersion: apps/v1
    kind: Deployment
    metadata: {{name: {name}, labels: {{app: {name}}}}}
    spec:
      replicas: {replicas}
      minReadySeconds: {ready_for}
      strategy: {strategy}
      selector: {{matchLabels: {{app: {name}}}}}
      template:
        metadata: {{labels: {{app: {name}}}}}
        spec: {{containers: [{{name: c, image: 'app:0'}}]}}
"
    )
}

fn step(choices: &Choices) -> String {
    let it = choices.pick(&["deployment/one", "deployment/two"]);
    let (pod, set) = (choices.below(30), choices.below(6));
    let small = choices.below(10);
    let step = match choices.below(26) {
        0..=4 => return format!("- setImage: {{object: {it}, image: 'app:{}'}}\n", choices.below(5)),
        5..=8 => return format!("- scale: {{object: {it}, replicas: {small}}}\n"),
        9..=14 => {
            let time = choices.pick(&["0.05", "0.3", "0.8", "1.1", "2.5", "7", "30", "700"]);
            return format!("- wait: {time}\n");
        }
        15 => format!("pause: {it}"),
        16 => format!("resume: {it}"),
        17 => format!("undo: {{object: {it}}}"),
        18 => format!("evict: 'pod#{pod}'"),
        19 => format!("delete: {{object: 'pod#{pod}', gracePeriodSeconds: {}}}", choices.pick(&["0", "30"])),
        20 => format!("podStatus: {{object: 'pod#{pod}', phase: Failed, ready: false}}"),
        21 => format!("podStatus: {{object: 'pod#{pod}', ready: false}}"),
        22 => "restartManager: {}".to_owned(),
        23 => format!("patch: {{object: 'pod#{pod}', body: {{metadata: {{labels: {{app: stray}}}}}}}}"),
        24 => format!("delete: {{object: 'replicaset#{set}'}}"),
        _ => {
            format!("patch: {{object: {it}, body: {{spec: {{revisionHistoryLimit: {}}}}}}}", choices.below(3))
        }
    };
    format!("- attempt: [{{{step}}}]\n")
}

/// Annotation that requests a rollback.
const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

/// Failures of a write: refused by the API server or a webhook, or cut off before or after it is executed.
const FAILURES: &[&str] = &["500", "webhook:403", "webhook:500", "break", "late:0s", "after:500"];

fn fault(choices: &Choices) -> String {
    let what = match choices.below(2) {
        0 => other_fault(choices).to_owned(),
        _ => format!("{} {}", choices.pick(WRITES), choices.pick(FAILURES)),
    };
    let (every, times) = (1 + choices.below(6), 1 + choices.below(8));
    format!("{what} every={every} times={times} agent=kube-controller-manager*")
}

fn other_fault(choices: &Choices) -> &'static str {
    choices.pick(&[
        "POST **/pods 500",
        "POST **/pods after:504",
        "POST **/pods 429 retry-after=1",
        "POST **/replicasets after:500",
        "POST **/replicasets 500",
        "PUT **/replicasets/* 409",
        "PUT **/replicasets/* after:504",
        "PUT **/replicasets/*/status 500",
        "PUT **/replicasets/*/status after:500",
        "PUT **/deployments/*/status 409",
        "PUT **/deployments/*/status after:504",
        "DELETE **/pods/* 500",
        "DELETE **/pods/* after:504",
        "PATCH **/pods/* 500",
        "WATCH ** cut events=20",
        "WATCH ** 410",
        "* ** delay=200ms",
    ])
}

/// Exemption of stories with writes that take effect and are reported as failed.
const FAILS_AFTER_WRITE: &str = "- {invariant: idle-write, reason: 'A write that took effect and was reported as failed is repeated (US-5.8).'}";

/// Exemption of stories in which the connection of a ReplicaSet's create breaks.
const REPEATS_CREATE: &str = "- invariant: created-twice
  reason: 'The client repeats a create with a name after a broken connection, and the API server rejects it.'";

/// Exemption of stories that pause a Deployment with a short history.
const CLEANS_UP: &str = "- invariant: deleted-in-use
  reason: >-
    A paused Deployment with the strategy Recreate and no active ReplicaSet scales the newest old one up, and deletes
    it in the same sync, because the cleanup uses the state from before the sync (US-4.7, US-4.13).
- {invariant: revisions, reason: 'The cleanup can delete all ReplicaSets, and revisions are computed from them (US-4.8).'}";

/// Exemptions of stories with a rollback by annotation.
const ROLLS_BACK: &str = "- invariant: recreate-overlap
  reason: &rollback >-
    A rollback by annotation creates the ReplicaSet of the current template first, with all its pods if the strategy is
    Recreate (US-4.14).
- {invariant: surplus-replicas, reason: *rollback}";

/// Exemption of stories that delete ReplicaSets.
const DELETES_REPLICA_SETS: &str =
    "- {invariant: revisions, reason: 'Revisions are computed from the existing ReplicaSets (US-4.8).'}
- invariant: idle-write
  reason: >-
    A ReplicaSet that is recreated before the status changes is reported again with the same message (US-4.8).";

/// Resumes the Deployments, makes all pods ready, and waits until the Deployments are complete. Reported several times,
/// because a pod that is deleted in the meantime fails the attempt.
const END: &str = "- attempt: [{resume: deployment/one}]
- attempt: [{resume: deployment/two}]
- repeat: {times: 5, steps: [{wait: 20}, {attempt: [{podStatus: {}}]}]}
- until: {object: deployment/one, complete: true, limit: 7200}
- until: {object: deployment/two, complete: true, limit: 7200}
";

/// Parses `CHAOS_SEED`: a seed or a range of seeds.
fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("CHAOS_SEED") else { return 0..SEEDS };
    let number = |text: &str| text.parse::<u64>().unwrap();
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(&text)..number(&text) + 1,
    }
}

#[tokio::test(start_paused = true)]
async fn random_stories_complete_and_hold_all_invariants() {
    for seed in seeds() {
        let draft = Draft::new(seed);
        if let Err(first) = draft.play().await {
            let shrunk = draft.shrink().await;
            let error = shrunk.play().await.unwrap_err();
            panic!("seed {seed} fails:\n{first}\nshrunk story:\n{}\n{error}", shrunk.text());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rollouts_with_random_faults_complete_and_hold_all_invariants() {
    for seed in 0..SEEDS {
        let choices = Choices(SeededRandom::new(seed));
        let rollout = [
            "- until: {object: deployment/one, complete: true, limit: 7200}\n",
            "- setImage: {object: deployment/one, image: 'app:1'}\n",
            "- wait: 1.3\n",
            "- scale: {object: deployment/one, replicas: 9}\n",
            "- setImage: {object: deployment/one, image: 'app:2'}\n",
        ];
        let draft = Draft {
            steps: rollout.map(str::to_owned).to_vec(),
            faults: (0..8).map(|_| fault(&choices)).collect(),
            crashes: Crashes::Never,
            ..Draft::new(seed)
        };
        if let Err(error) = draft.play().await {
            panic!("{error}\n{}", draft.text());
        }
    }
}

#[test]
fn stories_of_equal_seeds_are_equal() {
    assert_eq!(Draft::new(3).text(), Draft::new(3).text());
    assert_ne!(Draft::new(3).text(), Draft::new(4).text());
}

//! Stories that nobody has thought of: what users, kubelets, crashes and faults may do, drawn from a seed. The invariants
//! must hold all along, and in the end everything must be rolled out.
//!
//! A story that fails is told again with fewer and fewer steps for as long as it goes on failing, and what is left is
//! printed as a story's file. `CHAOS_SEED=7 cargo test -p kcm-stories chaos` tells the one of that seed,
//! `CHAOS_SEED=100..300` tells many.

use std::{fmt::Write as _, path::Path, sync::Arc};

use kcm_apiserver::ApiServer;
use kcm_clock::{Random, SeededRandom};
use kcm_stories::{Entry, InProcess, InProcessConfig, ManagerHandle, Story, left};

use super::{crash::Crashes, failed_writes::WRITES, lines};

/// How many seeds are tried in every test run.
const SEEDS: u64 = 6;

/// How many things happen in a story.
const STEPS: usize = 40;

/// A story in pieces that can be left out.
#[derive(Debug, Clone)]
struct Draft {
    seed: u64,
    deployments: [String; 2],
    steps: Vec<String>,
    faults: Vec<String>,
    crashes: Crashes,
}

/// Draws from a seed.
struct Dice(SeededRandom);

impl Dice {
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
        let dice = Dice(SeededRandom::new(seed));
        let deployments = ["one", "two"].map(|name| deployment(name, &dice));
        let mut steps: Vec<String> = (0..STEPS).map(|_| step(&dice)).collect();
        if dice.below(8) == 0 {
            let it = dice.pick(&["deployment/one", "deployment/two"]);
            let body = format!("{{metadata: {{annotations: {{{ROLLBACK_TO}: '0'}}}}}}");
            steps.insert(STEPS / 2, format!("- attempt: [{{patch: {{object: {it}, body: {body}}}}}]\n"));
        }
        let mut faults = Vec::new();
        if dice.below(2) == 0 {
            faults.extend((0..=dice.below(4)).map(|_| fault(&dice)));
        }
        let stride = usize::try_from(5 + dice.below(40)).unwrap();
        let crashes = match dice.below(3) {
            0 => Crashes::Never,
            _ => Crashes::Every { first: 1 + stride / 2, stride, last: 2000 },
        };
        Self { seed, deployments, steps, faults, crashes }
    }

    /// As a story's file.
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
        let lies = self.faults.iter().any(|fault| fault.contains("after:") || fault.contains("late:"));
        let says = |what: &str| self.steps.iter().any(|step| step.contains(what));
        let forgets = says("delete: {object: 'replicaset#");
        let repeats = self.faults.iter().any(|fault| fault.contains("POST **/replicasets late:"));
        let cleans_up = says("pause:") && says("revisionHistoryLimit");
        let exempt = [
            (lies, LIES),
            (repeats, REPEATS),
            (forgets, FORGETS),
            (cleans_up, CLEANS_UP),
            (says(ROLLBACK_TO), ROLLS_BACK),
        ]
        .into_iter()
        .filter(|(is_so, _)| *is_so);
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
        let mut cluster = InProcess::new(config).await.unwrap();
        let played = kcm_stories::play(&story, &mut cluster.world, "t0x").await;
        let mut wrong: Vec<String> =
            cluster.guard.violations_but(&story.exempt).iter().map(ToString::to_string).collect();
        wrong.extend(played.err().map(|error| error.to_string()));
        if wrong.is_empty() { Ok(()) } else { Err(lines(wrong)) }
    }

    /// The same with as little in it as makes it fail.
    async fn shrunk(mut self) -> Self {
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

/// Every write, and what there is after it.
fn trace(write: &Entry, server: &ApiServer, _: &ManagerHandle) {
    if write.resource != "events" {
        let Entry { verb, resource, subresource, name, code, .. } = write;
        println!("{verb} {resource}/{subresource} {name} {code}\n{}\n", lines(left(server, "t0x").unwrap()));
    }
}

fn deployment(name: &str, dice: &Dice) -> String {
    let replicas = 1 + dice.below(8);
    let strategy = dice.pick(&[
        "{rollingUpdate: {maxSurge: 25%, maxUnavailable: 25%}}",
        "{rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}",
        "{rollingUpdate: {maxSurge: 0, maxUnavailable: 2}}",
        "{rollingUpdate: {maxSurge: 100%, maxUnavailable: 50%}}",
        "{type: Recreate}",
    ]);
    let ready_for = dice.pick(&["0", "0", "2"]);
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

fn step(dice: &Dice) -> String {
    let it = dice.pick(&["deployment/one", "deployment/two"]);
    let (pod, set) = (dice.below(30), dice.below(6));
    let small = dice.below(10);
    let step = match dice.below(26) {
        0..=4 => return format!("- setImage: {{object: {it}, image: 'app:{}'}}\n", dice.below(5)),
        5..=8 => return format!("- scale: {{object: {it}, replicas: {small}}}\n"),
        9..=14 => {
            let time = dice.pick(&["0.05", "0.3", "0.8", "1.1", "2.5", "7", "30", "700"]);
            return format!("- wait: {time}\n");
        }
        15 => format!("pause: {it}"),
        16 => format!("resume: {it}"),
        17 => format!("undo: {{object: {it}}}"),
        18 => format!("evict: 'pod#{pod}'"),
        19 => format!("delete: {{object: 'pod#{pod}', gracePeriodSeconds: {}}}", dice.pick(&["0", "30"])),
        20 => format!("podStatus: {{object: 'pod#{pod}', phase: Failed, ready: false}}"),
        21 => format!("podStatus: {{object: 'pod#{pod}', ready: false}}"),
        22 => "restartManager: {}".to_owned(),
        23 => format!("patch: {{object: 'pod#{pod}', body: {{metadata: {{labels: {{app: stray}}}}}}}}"),
        24 => format!("delete: {{object: 'replicaset#{set}'}}"),
        _ => format!("patch: {{object: {it}, body: {{spec: {{revisionHistoryLimit: {}}}}}}}", dice.below(3)),
    };
    format!("- attempt: [{{{step}}}]\n")
}

/// Annotation that requests a rollback.
const ROLLBACK_TO: &str = "deprecated.deployment.rollback.to";

/// Failures of a write: refused by the API server or a webhook, or cut off before or after it is executed.
const FAILURES: &[&str] = &["500", "webhook:403", "webhook:500", "break", "late:0s", "after:500"];

fn fault(dice: &Dice) -> String {
    let what = match dice.below(2) {
        0 => other_fault(dice).to_owned(),
        _ => format!("{} {}", dice.pick(WRITES), dice.pick(FAILURES)),
    };
    let (every, times) = (1 + dice.below(6), 1 + dice.below(8));
    format!("{what} every={every} times={times} agent=kube-controller-manager*")
}

fn other_fault(dice: &Dice) -> &'static str {
    dice.pick(&[
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

/// What goes for every story with a server that says no to what it has done.
const LIES: &str =
    "- {invariant: idle-write, reason: 'What was done and said to have failed is done again (US-5.8).'}";

/// Exemption of stories in which the connection of a ReplicaSet's create breaks.
const REPEATS: &str = "- invariant: created-twice
  reason: 'The client repeats a create with a name after a broken connection, and the API server refuses it.'";

/// What goes for every story in which a Deployment is paused and its history short.
const CLEANS_UP: &str = "- invariant: deleted-in-use
  reason: >-
    A paused Deployment with the strategy Recreate and no active ReplicaSet scales the newest old one up, and deletes
    it in the same sync as one too many: cleaning up goes by how things were before (US-4.7, US-4.13).";

/// Exemptions of stories with a rollback by annotation.
const ROLLS_BACK: &str = "- invariant: recreate-overlap
  reason: &rollback >-
    A rollback by annotation creates the ReplicaSet of the current template first, with all its pods if the strategy is
    Recreate (US-4.14).
- {invariant: surplus-replicas, reason: *rollback}";

/// What goes for every story in which somebody deletes ReplicaSets.
const FORGETS: &str =
    "- {invariant: revisions, reason: 'They follow from the ReplicaSets that there are (US-4.8).'}
- invariant: idle-write
  reason: >-
    A ReplicaSet that is created again before its pods have moved is announced again, in the same words (US-4.8).";

/// What was taken is given back, more than once, for a pod that goes meanwhile ends the attempt; and all must come to
/// rest.
const END: &str = "- attempt: [{resume: deployment/one}]
- attempt: [{resume: deployment/two}]
- repeat: {times: 5, steps: [{wait: 20}, {attempt: [{podStatus: {}}]}]}
- until: {object: deployment/one, complete: true, limit: 7200}
- until: {object: deployment/two, complete: true, limit: 7200}
";

/// `7` is a seed, `100..300` are some.
fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("CHAOS_SEED") else { return 0..SEEDS };
    let number = |text: &str| text.parse::<u64>().unwrap();
    match text.split_once("..") {
        Some((from, to)) => number(from)..number(to),
        None => number(&text)..number(&text) + 1,
    }
}

#[tokio::test(start_paused = true)]
async fn chaos_from_a_seed_breaks_no_invariant_and_comes_to_its_end() {
    for seed in seeds() {
        let draft = Draft::new(seed);
        if let Err(first) = draft.play().await {
            let shrunk = draft.shrunk().await;
            let why = shrunk.play().await.unwrap_err();
            panic!("seed {seed} fails:\n{first}\nas little as this fails, too:\n{}\n{why}", shrunk.text());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rollout_with_faults_from_a_seed_breaks_no_invariant_and_comes_to_its_end() {
    for seed in 0..SEEDS {
        let dice = Dice(SeededRandom::new(seed));
        let rollout = [
            "- until: {object: deployment/one, complete: true, limit: 7200}\n",
            "- setImage: {object: deployment/one, image: 'app:1'}\n",
            "- wait: 1.3\n",
            "- scale: {object: deployment/one, replicas: 9}\n",
            "- setImage: {object: deployment/one, image: 'app:2'}\n",
        ];
        let draft = Draft {
            steps: rollout.map(str::to_owned).to_vec(),
            faults: (0..8).map(|_| fault(&dice)).collect(),
            crashes: Crashes::Never,
            ..Draft::new(seed)
        };
        if let Err(why) = draft.play().await {
            panic!("{why}\n{}", draft.text());
        }
    }
}

#[test]
fn chaos_from_the_same_seed_is_the_same() {
    assert_eq!(Draft::new(3).text(), Draft::new(3).text());
    assert_ne!(Draft::new(3).text(), Draft::new(4).text());
}

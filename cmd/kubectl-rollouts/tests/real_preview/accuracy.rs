//! Drawn changes in real time with upstream's manager, in many namespaces at once.
//!
//! `PREVIEW_CASES` is the number of cases. `PREVIEW_SEEDS` selects some by their numbers, such as `36,102`. The machine needs
//! idle time: load delays the controllers, and so changes the times.

use std::{env, fmt::Write as _, io::Write as _, ops::RangeInclusive, sync::Arc, time::Duration};

use kcm_client::Request;
use kcm_clock::{Clock, RealClock};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::{
    case::Change,
    cluster::{self, Cluster, Manager},
    draw::{Circumstance, DrawnCase},
    kubelet::{ChangeTimes, Namespace, Objects, World},
    measure::{Comparison, End, Extreme, Made, SetNumbers},
    nodes::Timing,
};

/// Cases without `PREVIEW_CASES`. Case 0 takes longer than the time limit, because its ReplicaSet backs off.
const CASES: RangeInclusive<u64> = 1..=12;
/// Number of cases at once.
const PARALLEL: usize = 16;
/// Number of Deployments that are created at once. More would delay the events of the other cases.
const STARTS: usize = 2;
/// Time limit of a rollout.
const TIMEOUT: Duration = Duration::from_secs(240);
/// Time without events after which the controllers have nothing to do.
const QUIET: Duration = Duration::from_millis(1500);
/// Time without events after which an incomplete rollout does not continue.
const QUIET_STUCK: Duration = Duration::from_secs(5);
/// Same, in the middle of a rollout.
const QUIET_MIDWAY: Duration = Duration::from_millis(400);
/// Differences of times that may change the order of events.
const TOLERANCE: Duration = Duration::from_millis(500);
/// Same, if times of objects, which have a resolution of one second, determine the course.
const COARSE_TOLERANCE: Duration = Duration::from_millis(1500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn accuracy() {
    let Some(program) = cluster::upstream_program() else { return };
    let Some(cluster) = Cluster::start(Manager::Upstream(program)).await else { return };
    let seeds: Vec<u64> = match (env::var("PREVIEW_SEEDS"), env::var("PREVIEW_CASES")) {
        (Ok(seeds), _) => seeds.split(',').map(|seed| seed.parse().unwrap()).collect(),
        (_, Ok(cases)) => (0..cases.parse().unwrap()).collect(),
        _ => CASES.collect(),
    };
    let watches = ["pods", "replicasets", "deployments"].map(|resource| cluster.watch(resource));
    let (cluster, world) = (Arc::new(cluster), Arc::new(World::new(watches.into())));
    let permits = Arc::new(Semaphore::new(PARALLEL));
    let starts = Arc::new(Semaphore::new(STARTS));
    let mut runs = JoinSet::new();
    for seed in seeds {
        let (cluster, world) = (Arc::clone(&cluster), Arc::clone(&world));
        let (permits, starts) = (Arc::clone(&permits), Arc::clone(&starts));
        runs.spawn(async move {
            let _permit = permits.acquire().await.unwrap();
            let case = DrawnCase::draw(seed);
            let comparison = Stage::new(&cluster, &world, &case).run(&starts).await;
            (case, comparison)
        });
    }
    let mut results = Vec::new();
    while let Some(result) = runs.join_next().await {
        let (case, comparison) = result.unwrap();
        report_case(&case, &comparison);
        results.push((case, comparison));
    }
    results.sort_by_key(|(case, _)| case.seed);
    let summary = Summary::of(&results);
    print(&summary.text);
    assert!(summary.is_right, "{}", summary.text);
}

/// Writes to stderr directly, because the test harness captures the output of `eprintln!`.
fn print(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn report_case(case: &DrawnCase, comparison: &Comparison) {
    let differences = || comparison.wrong.iter().chain(&comparison.interleaved).chain(&comparison.wrong_time);
    let verdict = if differences().next().is_none() { "equal" } else { "DIFFERS" };
    let differences: Vec<_> = differences().map(String::as_str).collect();
    print(&format!("{case}: {verdict} {} [{}]", differences.join("; "), comparison.times));
}

struct Summary {
    text: String,
    is_right: bool,
}

impl Summary {
    fn of(results: &[(DrawnCase, Comparison)]) -> Self {
        let mut text = String::new();
        for (case, comparison) in results {
            let Comparison { wrong, interleaved, wrong_time, .. } = comparison;
            for (kind, differences) in
                [("WRONG", wrong), ("order", interleaved), ("time", &wrong_time.iter().cloned().collect())]
            {
                for difference in differences {
                    writeln!(text, "{kind:6} {case}: {difference}").unwrap();
                }
            }
        }
        let count = |includes: &dyn Fn(&Comparison) -> bool| {
            results.iter().filter(|(_, comparison)| includes(comparison)).count()
        };
        let cases = results.len();
        let unfinished = count(&|comparison| comparison.is_unfinished);
        let wrong = count(&|comparison| !comparison.wrong.is_empty());
        let interleaved =
            count(&|comparison| comparison.wrong.is_empty() && !comparison.interleaved.is_empty());
        let wrong_times = count(&|comparison| comparison.wrong_time.is_some());
        let in_range = count(&|comparison| comparison.is_in_range);
        write!(
            text,
            "{cases} cases: numbers and final state equal in {}, in another possible order in {interleaved}, wrong in \
             {wrong}, not over in time in {unfinished}; time right in {}, of which {in_range} by their range",
            cases - wrong - interleaved - unfinished,
            cases - wrong_times,
        )
        .unwrap();
        // 95 %, and at least one.
        let is_right = wrong == 0 && wrong_times <= (cases / 20).max(1);
        Self { text, is_right }
    }
}

/// Namespace of a case.
struct Stage<'a> {
    cluster: &'a Cluster,
    case: &'a DrawnCase,
    name: String,
    namespace: Arc<Namespace>,
}

impl<'a> Stage<'a> {
    fn new(cluster: &'a Cluster, world: &World, case: &'a DrawnCase) -> Self {
        let name = format!("case-{}", case.seed);
        Self { cluster, case, namespace: world.namespace(&name), name }
    }

    async fn run(&self, starts: &Semaphore) -> Comparison {
        let (namespace, api) = (Arc::clone(&self.namespace), self.cluster.api().clone());
        let mut kubelet = JoinSet::new();
        kubelet.spawn(async move { namespace.run_kubelet(api).await });
        let start = starts.acquire().await.unwrap();
        self.deploy().await;
        drop(start);
        self.prepare().await;
        let manifest = self.cluster.manifest(&self.case.changed_manifest());
        let mut flags = self.case.case.change.preview_arguments(&manifest);
        if let Circumstance::Failing(pods) = self.case.circumstance {
            flags.push(format!("--unready={pods}"));
        }
        let timing = self.case.case.timing;
        let preview = self.cluster.preview("viewer", &self.name, &flags, timing).await;
        let start = self.namespace.now();
        self.namespace.set(|objects| {
            objects.lag = Duration::ZERO;
            if let Circumstance::Failing(pods) = self.case.circumstance {
                objects.failing = Some((pods, start));
            }
            objects.change = Some(ChangeTimes::default());
        });
        self.cluster.kubectl_in(&self.name, &self.case.case.change.kubectl_arguments(&manifest)).await;
        self.namespace.unfreeze();
        let changed = self.version().await;
        let is_observed = |objects: &Objects, _| version(&objects.deployment) >= changed;
        self.wait_for("event of the change", is_observed).await;
        let observed = self.namespace.now();
        let is_over = |objects: &Objects, now| now > observed + QUIET && self.is_over(objects, now);
        if !self.holds_in_time(is_over).await {
            self.clean_up().await;
            return Comparison::unfinished(&preview, TIMEOUT);
        }
        let (made, newest, lag) = {
            let objects = self.namespace.objects();
            let tolerance = match (self.case.min_ready, self.case.circumstance) {
                (0, Circumstance::None | Circumstance::Quota(_) | Circumstance::Failing(_)) => TOLERANCE,
                _ => COARSE_TOLERANCE,
            };
            (
                made(&objects, start, self.namespace.now(), tolerance),
                objects.newest_replica_set().map(str::to_owned),
                objects.lag,
            )
        };
        // The hash contains the time of the restart.
        let renamed = newest.filter(|_| self.case.case.change == Change::Restart);
        self.clean_up().await;
        let mut comparison = Comparison::of(&preview, &made, renamed.as_deref());
        comparison.times += &format!(", lag {lag:.1?}");
        comparison
    }

    /// Rolls out the former images, and applies the manifest.
    async fn deploy(&self) {
        let Self { cluster, case, namespace, name } = self;
        let path = format!("/apis/apps/v1/namespaces/{name}/deployments");
        cluster.create("/api/v1/namespaces", &json!({ "metadata": { "name": name } })).await;
        namespace.set(|objects| objects.timing = Some(Timing { ready: 0, stop: 0 }));
        cluster.create(&path, &case.first_manifest()).await;
        self.completed().await;
        for number in 1..=case.case.history {
            self.set_image(&format!("app:{number}")).await;
            self.completed().await;
        }
        let manifest = cluster.manifest(&case.manifest(&format!("app:{}", case.case.history)));
        namespace.set(|objects| objects.min_ready = case.min_ready);
        cluster
            .kubectl_in(name, &["apply".to_owned(), "-f".to_owned(), manifest.display().to_string()])
            .await;
        self.completed().await;
        if case.case.change == Change::Resume {
            let patch = json!({ "spec": { "paused": true } });
            self.patch(&patch).await;
            self.set_image("app:paused").await;
            self.wait_for("pause", |objects, now| is_quiet(objects, now, QUIET)).await;
        }
    }

    /// Prepares the circumstances of the change.
    async fn prepare(&self) {
        let Self { case, namespace, .. } = self;
        namespace.set(|objects| objects.timing = Some(case.case.timing));
        match case.circumstance {
            Circumstance::Quota(pods) => self.create_quota(pods).await,
            Circumstance::Midway(after) => self.begin_rollout(Duration::from_millis(after)).await,
            Circumstance::None | Circumstance::Failing(_) => {}
        }
    }

    async fn patch(&self, patch: &Value) {
        let path = format!("/apis/apps/v1/namespaces/{}/deployments/web", self.name);
        self.cluster.api().send(&Request::strategic_merge_patch(path, patch.to_string())).await.unwrap();
    }

    /// Resource version of the Deployment.
    async fn version(&self) -> u64 {
        let path = format!("/apis/apps/v1/namespaces/{}/deployments/web", self.name);
        let deployment = self.cluster.api().send(&Request::get(path)).await.unwrap();
        version(&serde_json::from_slice(&deployment).unwrap())
    }

    async fn set_image(&self, image: &str) {
        let containers = json!([{ "name": "app", "image": image }]);
        self.patch(&json!({ "spec": { "template": { "spec": { "containers": containers } } } })).await;
    }

    async fn create_quota(&self, pods: u64) {
        let path = format!("/api/v1/namespaces/{}/resourcequotas", self.name);
        let quota =
            json!({ "metadata": { "name": "pods" }, "spec": { "hard": { "pods": pods.to_string() } } });
        self.cluster.create(&path, &quota).await;
        let existing = self.case.case.replicas.to_string();
        let clock = RealClock::new();
        let deadline = clock.monotonic() + TIMEOUT;
        loop {
            let quota = self.cluster.api().send(&Request::get(format!("{path}/pods"))).await.unwrap();
            let quota: Value = serde_json::from_slice(&quota).unwrap();
            if quota["status"]["used"]["pods"] == existing {
                return;
            }
            assert!(clock.monotonic() < deadline, "{quota}");
            clock.sleep(Duration::from_millis(100)).await;
        }
    }

    /// Starts a rollout, and stops the nodes in the middle of it.
    async fn begin_rollout(&self, after: Duration) {
        let start = self.namespace.now();
        self.set_image("app:midway").await;
        self.wait_for("middle of the rollout", |objects, now| {
            now > start + after && is_quiet(objects, now, QUIET_MIDWAY) && objects.has_no_waiting_pods(now)
        })
        .await;
        self.namespace.freeze();
    }

    /// Waits until the rollout is complete.
    async fn completed(&self) {
        self.wait_for("completed rollout", |objects, now| {
            objects.is_complete() && objects.is_idle(now) && is_quiet(objects, now, QUIET_MIDWAY)
        })
        .await;
    }

    async fn wait_for(&self, what: &str, holds: impl Fn(&Objects, Duration) -> bool) {
        assert!(self.holds_in_time(holds).await, "{}: no {what}", self.case);
    }

    /// Waits until the condition holds. Returns `false` if it does not hold in time.
    async fn holds_in_time(&self, holds: impl Fn(&Objects, Duration) -> bool) -> bool {
        let deadline = self.namespace.now() + TIMEOUT;
        loop {
            let now = self.namespace.now();
            if holds(&self.namespace.objects(), now) {
                return true;
            }
            if now > deadline {
                return false;
            }
            self.namespace.wait(Duration::from_millis(100)).await;
        }
    }

    fn is_over(&self, objects: &Objects, now: Duration) -> bool {
        if !objects.is_idle(now) {
            return false;
        }
        let is_paused = objects.deployment["spec"]["paused"] == true;
        if objects.is_complete() && !is_paused {
            return is_quiet(objects, now, QUIET);
        }
        // The controller retries after its back-off if the quota permits more pods.
        let retries = match self.case.circumstance {
            Circumstance::Quota(pods) => {
                objects.misses_pods() && objects.count(|pod| pod.removed.is_none()) < pods
            }
            _ => objects.misses_pods(),
        };
        !retries && is_quiet(objects, now, QUIET_STUCK)
    }

    /// Deletes the objects. There is no garbage collector.
    async fn clean_up(&self) {
        let Self { cluster, name, .. } = self;
        let options = json!({ "propagationPolicy": "Background", "gracePeriodSeconds": 0 }).to_string();
        let apps = format!("/apis/apps/v1/namespaces/{name}");
        for path in [
            format!("{apps}/deployments"),
            format!("{apps}/replicasets"),
            format!("/api/v1/namespaces/{name}/pods"),
        ] {
            cluster.api().send(&Request::delete(path, options.clone())).await.unwrap();
        }
    }
}

fn version(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"].as_str().unwrap_or("0").parse().unwrap()
}

fn is_quiet(objects: &Objects, now: Duration, time: Duration) -> bool {
    now > objects.last_event + time
}

/// Course since `start`.
fn made(objects: &Objects, start: Duration, now: Duration, tolerance: Duration) -> Made {
    let [pods, with_terminating, available] = objects.intervals();
    let end = match (objects.is_complete(), objects.deployment["spec"]["paused"] == true) {
        (true, _) => End::Complete,
        (false, true) => End::Paused,
        (false, false) => End::Stuck,
    };
    let number = |number: u64| i64::try_from(number).unwrap();
    let set = |(name, set): (&String, &Value)| {
        let numbers = SetNumbers {
            desired: set["spec"]["replicas"].as_i64().unwrap_or(0),
            pods: number(objects.count(|pod| pod.is_active() && pod.owner == *name)),
            available: number(objects.available(name, now)),
        };
        (numbers.desired > 0 || numbers.pods > 0).then(|| (name.clone(), numbers))
    };
    let times = objects.change.unwrap_or_default();
    let duration = times.started.zip(times.completed);
    Made {
        most_pods: Extreme::largest(&pods, start, tolerance),
        most_with_terminating: Extreme::largest(&with_terminating, start, tolerance),
        fewest_available: Extreme::smallest(&available, start, tolerance),
        created: objects.count(|pod| pod.created > start),
        deleted: objects.count(|pod| pod.deleted.or(pod.removed).is_some_and(|deleted| deleted > start)),
        end,
        duration: duration.map(|(started, completed)| completed.saturating_sub(started).as_secs_f64()),
        sets: objects.replica_sets.iter().filter_map(set).collect(),
    }
}

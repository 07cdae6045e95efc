//! Runs a scenario.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use kcm_apiserver::{ApiServer, ApiServerConfig, Backup, HistoryLimits};
use kcm_clock::{Clock, SimulatedClock};
use kcm_controller_manager::KUBERNETES_VERSION;
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig};
use kcm_simulation::engine::{
    random::random,
    timeline::{Event, first_revision, sleep_until, timeline},
};
pub(crate) use kcm_simulation::{Outcome, SimulationError};
use tokio_util::sync::CancellationToken;

use crate::{
    choices::{Choices, Guide},
    draw::LARGE_WORKLOAD,
    effect::Snapshot,
    explore::Schedule,
    judge::{Judge, Observer, START_MILLISECOND},
    managers::ManagerGroup,
    network::{Network, NetworkSettings},
    outcome::NOT_COMPARED,
    program::ControllerManager,
    scenario::{
        At, FaultEffect, Incident, PodWebhook, RequestFault, Requests, Scenario, UserAction, Workload,
    },
    surprises::{self, StepKind, Surprise},
    users::Users,
    webhooks::admission,
};

/// Time without writes, except of Leases, after which the managers are considered settled. It is longer than a renewal
/// interval, so there is a leader.
const QUIET_PERIOD: Duration = Duration::from_secs(10);

/// Time in which controllers must converge after the last fault. Shorter than the time after which expectations expire,
/// because no progress may depend on that.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(280);

/// [`SETTLE_TIMEOUT`] of scenarios in which writes fail, because retries back off up to 1000 s, or wall clocks step, because
/// they determine when pods become available.
const LONG_SETTLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// [`SETTLE_TIMEOUT`] of scenarios in which names are refused for good. After the longest back-off, a sync can be refused
/// again by chance, several times.
const CHANCE_SETTLE_TIMEOUT: Duration = Duration::from_secs(6 * 60 * 60);

/// Time after which clients have given up requests without a response, and the API server executes no request late.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(61);

/// Time without writes at the end of a run.
const IDLE_CHECK: Duration = Duration::from_secs(60);

/// Seeds that are multiples of this number use an idle check longer than the progress deadline.
const LONG_IDLE_CHECK_INTERVAL: u64 = 16;
const LONG_IDLE_CHECK: Duration = Duration::from_secs(11 * 60);

impl Scenario {
    /// Runs the scenario in simulated time, then without faults, and compares the effects.
    pub fn run(&self) -> Result<Outcome, SimulationError> {
        let mut outcome = self.run_once()?;
        let has_faults = self.has_faults() || !self.surprises.is_empty();
        // A restore takes the actions of users back.
        if has_faults && !self.has_restore() && outcome.has_no_findings() {
            let calm = self.without_faults().run_once()?;
            outcome.compare_effect(&calm.effect);
            outcome.add_without_faults(calm.findings);
        }
        Ok(outcome)
    }

    /// Runs the scenario in simulated time.
    pub fn run_once(&self) -> Result<Outcome, SimulationError> {
        Ok(self.run_guided(None)?.0)
    }
}

impl Scenario {
    /// `true` if the scenario has other faults than surprises.
    pub(crate) fn has_faults(&self) -> bool {
        !(self.incidents.is_empty() && self.faults.is_empty() && self.webhooks.is_empty())
    }
}

impl Schedule for Scenario {
    fn run_guided(&self, guide: Option<Guide>) -> Result<(Outcome, Arc<Choices>), SimulationError> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        let (outcome, choices) = runtime.block_on(simulate(Arc::new(self.clone()), guide))?;
        choices.dispose(runtime);
        Ok((outcome, choices))
    }

    fn with_surprises(&self, surprises: &[Surprise]) -> Self {
        Self { surprises: surprises.to_vec(), ..self.clone() }
    }

    fn compare(&self, outcome: &mut Outcome, calm: &Outcome) {
        if !self.has_restore() {
            outcome.compare_effect(&calm.effect);
        }
    }
}

struct Cluster {
    scenario: Arc<Scenario>,
    clock: Arc<dyn Clock>,
    server: Arc<ApiServer>,
    judge: Arc<Judge>,
    network: Arc<Network>,
    managers_of_cluster: Arc<ManagerGroup>,
    users: Users,
    choices: Arc<Choices>,
}

/// Time after the scenario within which it must converge.
fn settle_timeout(scenario: &Scenario) -> Duration {
    // Pods become available by wall clocks.
    let step = |one: &At<Incident>| match one.event {
        Incident::ClockStep { by, .. } => by.unsigned_abs(),
        _ => 0,
    };
    let steps = Duration::from_millis(scenario.incidents.iter().map(step).sum());
    let is_quota = |one: &At<UserAction>| matches!(one.event, UserAction::SetQuota { .. });
    let is_of_requests =
        |one: &RequestFault| !matches!(one.requests, Requests::Watches | Requests::PodWatches);
    // A rollout of some hundred pods one by one takes its time, too.
    let is_large = scenario.workloads.iter().any(|one| one.replicas > LARGE_WORKLOAD);
    let is_long = is_large
        || !steps.is_zero()
        || !scenario.webhooks.is_empty()
        || scenario.actions.iter().any(is_quota)
        || scenario.faults.iter().any(is_of_requests);
    let is_by_chance = scenario.webhooks.iter().any(|one| matches!(one, PodWebhook::RefuseNames { .. }));
    steps
        + match (is_by_chance, is_long) {
            (true, _) => CHANCE_SETTLE_TIMEOUT,
            (false, true) => LONG_SETTLE_TIMEOUT,
            (false, false) => SETTLE_TIMEOUT,
        }
}

async fn simulate(
    scenario: Arc<Scenario>,
    guide: Option<Guide>,
) -> Result<(Outcome, Arc<Choices>), SimulationError> {
    let start = Timestamp::from_millisecond(START_MILLISECOND).unwrap_or_default();
    let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(start));
    let end = Duration::from_millis(scenario.end);
    let choices = Choices::new(
        &clock,
        &scenario.surprises,
        end,
        scenario.actions.iter().map(|action| Duration::from_millis(action.at)).collect(),
        guide,
        Some(end + settle_timeout(&scenario) + IDLE_CHECK),
    );
    let judge = Judge::new(Arc::clone(&clock), &scenario, &choices);
    let audited = Arc::clone(&judge);
    let server = ApiServer::new(ApiServerConfig {
        clock: Arc::clone(&clock),
        random: random(scenario.seed, 1),
        advertise_version: KUBERNETES_VERSION.to_owned(),
        audit: Some(Arc::new(move |event| audited.audit(event))),
        admission: admission(&scenario.webhooks, &choices),
        first_revision: first_revision(&scenario.incidents),
        managed_fields: false,
        history: HistoryLimits { events: scenario.history, ..HistoryLimits::default() },
        ..ApiServerConfig::default()
    });
    judge.watch(&server);
    let nodes = &scenario.nodes;
    let sandbox = Sandbox::new(SandboxConfig {
        server: Arc::clone(&server),
        clock: Arc::clone(&clock),
        random: random(scenario.seed, 2),
        nodes: nodes.count,
        kubelet: KubeletConfig {
            pod_ready_delay: Duration::from_millis(nodes.ready_delay),
            pod_stop_delay: Duration::from_millis(nodes.stop_delay),
        },
    })?;
    tokio::spawn(async move { sandbox.run(CancellationToken::new()).await });
    let users = Users::new(&server, &clock, &scenario);
    users.begin()?;
    let program = ControllerManager::new(&scenario.managers)
        .map_err(|error| SimulationError::Controllers(error.to_string()))?;
    let restart_after = Duration::from_millis(scenario.managers.restart_after);
    let managers_of_cluster =
        ManagerGroup::new(&clock, program, scenario.managers.count, restart_after, scenario.seed);
    let faults = scenario.faults.iter().cloned().map(RequestFault::erased);
    let settings = NetworkSettings {
        front_ends: scenario.front_ends,
        lags: scenario.incidents.iter().any(|one| matches!(one.event, Incident::Lag { .. })),
        faults: faults.collect(),
    };
    let observer: Arc<dyn Observer> = Arc::clone(&judge) as _;
    let network = Arc::new(Network::new(Arc::clone(&clock), &server, observer, &choices, settings));
    managers_of_cluster.start(&network);
    let cluster = Cluster {
        scenario,
        clock,
        server,
        judge,
        network,
        managers_of_cluster,
        users,
        choices: Arc::clone(&choices),
    };
    let not_created = tokio::select! {
        biased;
        () = cluster.judge.write_limit_reached() => Vec::new(),
        () = choices.rejoined() => Vec::new(),
        not_created = cluster.run() => not_created,
    };
    cluster.judge.catch_up();
    cluster.judge.end();
    let snapshot = Snapshot::take(&cluster.server, &cluster.scenario);
    let mut effect = snapshot.effect();
    effect.extend(not_created.into_iter().map(|at| (Workload::name(at), NOT_COMPARED.into())));
    let has_details = !cluster.scenario.has_faults() && choices.has_only_kills();
    let mut details = snapshot.details();
    effect.extend((0..cluster.scenario.workloads.len()).map(|at| {
        let details = details.remove(&Workload::name(at)).filter(|_| has_details);
        (format!("{} in detail", Workload::name(at)), details.unwrap_or_else(|| NOT_COMPARED.into()))
    }));
    if let Some(failure) = choices.failure() {
        cluster.judge.find("surprise", failure);
    }
    let (findings, writes, log) =
        (cluster.judge.findings(), cluster.judge.writes(), cluster.judge.take_log());
    cluster.managers_of_cluster.release();
    choices.dispose(cluster);
    Ok((Outcome { findings, log, writes, effect, ..Outcome::default() }, choices))
}

impl Cluster {
    /// Runs the scenario to its end. Returns the workloads that could not be created again.
    async fn run(&self) -> Vec<usize> {
        let not_created = self.run_events().await;
        self.end_faults();
        self.choices.wait_for_effects().await;
        self.judge.catch_up();
        self.choices.record_end();
        if self.settle().await {
            self.check_idle().await;
        }
        not_created
    }

    /// Performs the actions and incidents of the scenario. Returns the workloads that could not be created again.
    async fn run_events(&self) -> Vec<usize> {
        let mut not_created = Vec::new();
        let mut backup = None;
        for (at, event) in timeline(&self.scenario.actions, &self.scenario.incidents) {
            sleep_until(&*self.clock, at).await;
            self.judge.catch_up();
            match event {
                Event::Action(action) => {
                    if self.network.choose("user action", StepKind::UserAction).is_some() {
                        self.clock.sleep(surprises::delay()).await;
                        self.judge.catch_up();
                    }
                    let done = self.users.act(action);
                    if let (UserAction::Create { workload }, Err(_)) = (action, &done) {
                        not_created.push(*workload);
                    }
                    self.judge.note(&format!("{action:?}{}", if done.is_ok() { "" } else { ": no effect" }));
                }
                Event::Incident(incident) => {
                    self.judge.note(&format!("{incident:?}"));
                    self.managers_of_cluster.apply_incident(incident);
                    if let (Incident::Restore { .. }, Some(backup)) = (incident, &backup) {
                        self.restore(backup);
                    }
                }
                Event::BackUp => {
                    self.choices.trace_back_up();
                    backup = Some(self.server.back_up());
                }
            }
        }
        self.choices.wait_for_end().await;
        not_created
    }

    fn restore(&self, backup: &Backup) {
        self.server.restore_backup(backup);
        self.judge.restored(&self.server);
        self.users.remove_unready_pods();
    }

    fn end_faults(&self) {
        self.judge.note("all faults end");
        self.choices.end();
        self.network.end_faults();
        self.managers_of_cluster.end_faults();
        self.users.end_faults();
    }

    /// Waits until controllers have done all that there is to do. Returns `false` if they do not get there.
    async fn settle(&self) -> bool {
        let deadline = self.clock.monotonic() + settle_timeout(&self.scenario);
        if self
            .scenario
            .faults
            .iter()
            .any(|fault| matches!(fault.effect, FaultEffect::Silence { .. } | FaultEffect::Late { .. }))
        {
            self.clock.sleep(REQUEST_TIMEOUT).await;
        }
        loop {
            let before = self.judge.writes();
            self.clock.sleep(Duration::from_secs(self.scenario.managers.lease) + QUIET_PERIOD).await;
            self.judge.catch_up();
            if self.judge.has_findings() {
                return false;
            }
            let unfinished = Snapshot::take(&self.server, &self.scenario).unfinished();
            let Some(unfinished) = unfinished
                .or_else(|| (self.judge.writes() > before).then(|| "managers are still writing".to_owned()))
            else {
                return true;
            };
            if self.clock.monotonic() > deadline {
                self.judge.find("converged", unfinished);
                return false;
            }
            self.users.restore_pods();
        }
    }

    /// Holds controllers to writing nothing without need.
    async fn check_idle(&self) {
        let (writes, syncs) = (self.judge.writes(), self.managers_of_cluster.syncs());
        // A rollout of some hundred pods one by one takes its time, too.
        let is_large = self.scenario.workloads.iter().any(|one| one.replicas > LARGE_WORKLOAD);
        let is_long =
            is_large || !self.choices.is_on() && self.scenario.seed.is_multiple_of(LONG_IDLE_CHECK_INTERVAL);
        self.clock.sleep(if is_long { LONG_IDLE_CHECK } else { IDLE_CHECK }).await;
        let (more, synced) =
            (self.judge.writes() - writes, self.managers_of_cluster.syncs().saturating_sub(syncs));
        if more > 0 {
            self.judge.find("silence", format!("{more} writes after everything was done"));
        }
        if synced > 20 {
            self.judge.find("effort", format!("{synced} syncs after everything was done"));
        }
    }
}

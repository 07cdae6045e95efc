//! Runs a scenario of an operator.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use kcm_apiserver::{ApiServer, ApiServerConfig, HistoryLimits};
use kcm_clock::{Clock, SimulatedClock};
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig};
use tokio_util::sync::CancellationToken;

use crate::{
    engine::{
        choices::{Choices, Guide},
        explore::Schedule,
        faults::{Incident, RequestFault},
        managers::ManagerGroup,
        network::{Network, NetworkSettings},
        observer::{Finding, Observer, START_MILLISECOND},
        outcome::{Outcome, SimulationError},
        random::random,
        surprises::{self, StepKind, Surprise},
        timeline::{Event, first_revision, sleep_until, timeline},
    },
    recorder::{Recorder, WriteRule},
    rules,
    scenario::{Scenario, UserAction},
    simulation::Simulation,
    world::World,
};

/// Time without writes after which the operator is considered settled. It is longer than the duration of a Lease, so there is
/// a leader.
const QUIET_PERIOD: Duration = Duration::from_secs(30);

/// Time without writes at the end of a run.
const IDLE_CHECK: Duration = Duration::from_secs(60);

impl<X: Send + Sync + 'static> Simulation<X> {
    /// Runs a scenario in simulated time without faults, then with them, and compares the effects.
    ///
    /// # Errors
    ///
    /// If a rule or a kind does not exist, or the API server refuses an object of the start.
    ///
    /// # Panics
    ///
    /// Within a Tokio runtime.
    pub fn run(&self, scenario: &Scenario) -> Result<Outcome, SimulationError> {
        if !scenario.has_faults() {
            return self.run_once(scenario);
        }
        let calm = self.run_once(&scenario.without_faults())?;
        let (mut outcome, _) = self.run_guided(scenario, None, Some(&calm))?;
        // When a scenario is shrunk, a surprise that does not happen any more leaves the others.
        if outcome.findings.iter().all(|finding| finding.rule == "surprise") {
            self.compare(scenario, &mut outcome, &calm);
            outcome.add_without_faults(calm.findings);
        }
        Ok(outcome)
    }

    /// Runs a scenario in simulated time.
    ///
    /// # Errors
    ///
    /// If a rule or a kind does not exist, or the API server refuses an object of the start.
    ///
    /// # Panics
    ///
    /// Within a Tokio runtime.
    pub fn run_once(&self, scenario: &Scenario) -> Result<Outcome, SimulationError> {
        Ok(self.run_guided(scenario, None, None)?.0)
    }

    /// Runs a scenario twice. Returns the first outcome, and the first request that differs.
    pub(crate) fn run_twice(
        &self,
        scenario: &Scenario,
    ) -> Result<(Outcome, Option<Finding>), SimulationError> {
        let (one, other) = (self.run_once(scenario)?, self.run_once(scenario)?);
        let count = one.requests.len().max(other.requests.len());
        let at = |outcome: &Outcome, number: usize| match outcome.requests.get(number) {
            Some(request) => format!("`{request}`"),
            None => "missing".to_owned(),
        };
        let first = (0..count).find(|number| one.requests.get(*number) != other.requests.get(*number));
        let finding = first.filter(|_| self.applies("deterministic")).map(|number| Finding {
            rule: "deterministic".to_owned(),
            what: format!(
                "request {} of the first run is {}, and that of the second run is {}",
                number + 1,
                at(&one, number),
                at(&other, number)
            ),
        });
        Ok((one, finding))
    }

    pub(crate) fn compare(&self, scenario: &Scenario, outcome: &mut Outcome, calm: &Outcome) {
        if !scenario.has_restore() {
            rules::compare(outcome, calm);
            outcome.findings.retain(|finding| self.applies(&finding.rule));
        }
    }

    /// Runs a scenario. With the outcome without faults, the run waits until its effect is the same.
    fn run_guided(
        &self,
        scenario: &Scenario,
        guide: Option<Guide>,
        calm: Option<&Outcome>,
    ) -> Result<(Outcome, Arc<Choices>), SimulationError> {
        self.check_rules()?;
        // Jitter of kube-rs. It is drawn from the generator of the thread.
        fastrand::seed(scenario.seed);
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
        runtime.block_on(simulate(self, scenario, guide, calm))
    }
}

/// A scenario of a simulation.
pub(crate) struct SimulatedScenario<'a, X> {
    pub(crate) simulation: &'a Simulation<X>,
    pub(crate) scenario: Scenario,
    /// Outcome without faults.
    pub(crate) calm: Arc<Outcome>,
}

impl<X> Clone for SimulatedScenario<'_, X> {
    fn clone(&self) -> Self {
        let Self { simulation, scenario, calm } = self;
        Self { simulation, scenario: scenario.clone(), calm: Arc::clone(calm) }
    }
}

impl<X> fmt::Debug for SimulatedScenario<'_, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.scenario.fmt(f)
    }
}

impl<X: Send + Sync + 'static> Schedule for SimulatedScenario<'_, X> {
    fn run_guided(&self, guide: Option<Guide>) -> Result<(Outcome, Arc<Choices>), SimulationError> {
        self.simulation.run_guided(&self.scenario, guide, Some(&self.calm))
    }

    fn with_surprises(&self, surprises: &[Surprise]) -> Self {
        let scenario = Scenario { surprises: surprises.to_vec(), ..self.scenario.clone() };
        Self { simulation: self.simulation, scenario, calm: Arc::clone(&self.calm) }
    }

    fn compare(&self, outcome: &mut Outcome, calm: &Outcome) {
        self.simulation.compare(&self.scenario, outcome, calm);
    }
}

struct Cluster<'a, X> {
    simulation: &'a Simulation<X>,
    scenario: &'a Scenario,
    /// Outcome without faults.
    calm: Option<&'a Outcome>,
    clock: Arc<dyn Clock>,
    world: World<X>,
    recorder: Arc<Recorder>,
    network: Arc<Network>,
    managers: Arc<ManagerGroup>,
    choices: Arc<Choices>,
}

async fn simulate<X: Send + Sync + 'static>(
    simulation: &Simulation<X>,
    scenario: &Scenario,
    guide: Option<Guide>,
    calm: Option<&Outcome>,
) -> Result<(Outcome, Arc<Choices>), SimulationError> {
    let start = Timestamp::from_millisecond(START_MILLISECOND).unwrap_or_default();
    let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(start));
    let is_explored = guide.is_some();
    let end = Duration::from_millis(scenario.end);
    let choices = Choices::new(&clock, &scenario.surprises, end, Vec::new(), guide, None);
    // The rules need the server, which needs the recorder.
    let world = Arc::new(std::sync::OnceLock::<World<X>>::new());
    let write_rules = simulation.write_rules.iter().map(|(name, rule)| -> WriteRule {
        let (rule, world) = (Arc::clone(rule), Arc::clone(&world));
        (name.clone(), Box::new(move |write| world.get().and_then(|world| rule(write, world))))
    });
    let (disabled, is_calm) = (&simulation.disabled, !scenario.has_faults());
    let recorder = Recorder::new(&clock, &choices, write_rules.collect(), disabled, !is_explored, is_calm);
    let audited = Arc::clone(&recorder);
    let server = ApiServer::new(ApiServerConfig {
        clock: Arc::clone(&clock),
        random: random(scenario.seed, 1),
        audit: Some(Arc::new(move |event| audited.audit(event))),
        first_revision: first_revision(&scenario.incidents),
        managed_fields: false,
        history: HistoryLimits { events: scenario.history, ..HistoryLimits::default() },
        ..ApiServerConfig::default()
    });
    recorder.watch(&server);
    let view = World::new(&server, (simulation.external)());
    // It is set once.
    let _ = world.set(view.clone());
    for object in &simulation.objects {
        UserAction::Create { object: object.clone() }.perform(&server)?;
        recorder.catch_up();
    }
    let sandbox = Sandbox::new(SandboxConfig {
        server: Arc::clone(&server),
        clock: Arc::clone(&clock),
        random: random(scenario.seed, 2),
        nodes: scenario.nodes,
        kubelet: KubeletConfig::default(),
    })?;
    tokio::spawn(async move { sandbox.run(CancellationToken::new()).await });
    for controller in &simulation.status_controllers {
        controller.start(&view, &clock, &recorder);
    }
    let restart_after = Duration::from_millis(scenario.restart_after);
    let program = simulation.program(&view.external);
    let managers = ManagerGroup::new(&clock, program, scenario.managers, restart_after, scenario.seed);
    let settings = NetworkSettings {
        front_ends: scenario.front_ends,
        lags: scenario.incidents.iter().any(|one| matches!(one.event, Incident::Lag { .. })),
        faults: scenario.faults.iter().cloned().map(RequestFault::erased).collect(),
    };
    let observer: Arc<dyn Observer> = Arc::clone(&recorder) as _;
    let network = Arc::new(Network::new(Arc::clone(&clock), &server, observer, &choices, settings));
    managers.start(&network);
    let choices_of_run = Arc::clone(&choices);
    let cluster =
        Cluster { simulation, scenario, calm, clock, world: view, recorder, network, managers, choices };
    tokio::select! {
        biased;
        () = cluster.recorder.request_limit_reached() => {}
        () = choices_of_run.rejoined() => {}
        () = cluster.run() => {}
    }
    cluster.recorder.catch_up();
    if let Some(failure) = choices_of_run.failure() {
        cluster.recorder.find("surprise", &failure);
    }
    let effect = rules::effect(&cluster.world, &simulation.ignored);
    // With faults, an operator may fail to create its kinds.
    let is_clean = !scenario.has_faults() && !cluster.recorder.has_findings();
    if let Some(kind) = cluster.world.unknown_kind().filter(|_| is_clean) {
        return Err(SimulationError::UnknownKind(kind));
    }
    let faults_without_requests = cluster.network.faults_without_requests();
    Ok((Outcome { effect, faults_without_requests, ..cluster.recorder.take() }, choices_of_run))
}

impl<X: Send + Sync + 'static> Cluster<'_, X> {
    /// Runs the scenario to its end.
    async fn run(&self) {
        self.run_events().await;
        self.recorder.note("all faults end");
        self.choices.end();
        self.network.end_faults();
        self.managers.end_faults();
        self.choices.wait_for_effects().await;
        self.recorder.catch_up();
        self.choices.record_end();
        if self.settle().await {
            let writes = self.recorder.writes();
            self.clock.sleep(IDLE_CHECK).await;
            if let Some(first) = self.recorder.write(writes) {
                let more = self.recorder.writes() - writes;
                let what = format!("{more} writes after everything was done, the first one is `{first}`");
                self.recorder.find("silence", &what);
            }
        }
    }

    /// Performs the actions and incidents of the scenario.
    async fn run_events(&self) {
        let (server, mut backup) = (&self.world.server, None);
        for (at, event) in timeline(&self.scenario.actions, &self.scenario.incidents) {
            sleep_until(&*self.clock, at).await;
            self.recorder.catch_up();
            match event {
                Event::Action(action) => {
                    if self.network.choose("user action", StepKind::UserAction).is_some() {
                        self.clock.sleep(surprises::delay()).await;
                        self.recorder.catch_up();
                    }
                    let refused = action.perform(server).err().map(|error| format!(": {error}"));
                    let line = format!("{action}{}", refused.as_deref().unwrap_or_default());
                    self.recorder.note(&line);
                    if refused.is_some() && !self.scenario.has_faults() {
                        self.recorder.find("action", &line);
                    }
                }
                Event::Incident(incident) => {
                    self.recorder.note(&format!("{incident:?}"));
                    self.managers.apply_incident(incident);
                    if let (Incident::Restore { .. }, Some(backup)) = (incident, &backup) {
                        server.restore_backup(backup);
                        self.recorder.restored(server);
                    }
                }
                Event::BackUp => {
                    self.choices.trace_back_up();
                    backup = Some(server.back_up());
                }
            }
        }
        self.choices.wait_for_end().await;
    }

    /// Waits until the operator has converged. Returns `false` if it does not.
    async fn settle(&self) -> bool {
        let deadline = self.clock.monotonic() + self.simulation.converges_within;
        loop {
            let before = self.recorder.writes();
            self.clock.sleep(QUIET_PERIOD).await;
            self.recorder.catch_up();
            if self.recorder.has_findings() {
                return false;
            }
            let is_late = self.clock.monotonic() > deadline;
            let is_writing = self.recorder.writes() > before;
            let writing = (is_writing && (!is_late || self.simulation.applies("converged")))
                .then(|| ("converged", "the operator is still writing".to_owned()));
            let Some((rule, what)) = writing.or_else(|| self.unfinished()) else {
                if is_late || self.has_calm_effect() {
                    return !is_writing;
                }
                continue;
            };
            if is_late {
                self.recorder.find(rule, &what);
                return false;
            }
        }
    }

    /// `true` if no rule for effects is violated. A retry may still be due.
    fn has_calm_effect(&self) -> bool {
        let Some(calm) = self.calm else { return true };
        let effect = rules::effect(&self.world, &self.simulation.ignored);
        let mut outcome = Outcome { effect, ..Outcome::default() };
        self.simulation.compare(self.scenario, &mut outcome, calm);
        outcome.has_no_findings()
    }

    /// Violation of a rule for the end.
    fn unfinished(&self) -> Option<(&str, String)> {
        let ready = rules::unfinished(&self.world.server).filter(|_| self.simulation.applies("converged"));
        let ready = ready.map(|what| ("converged", what));
        let mut own = self.simulation.end_rules.iter();
        ready
            .or_else(|| own.find_map(|(name, rule)| Some((&**name, rules::violation(|| rule(&self.world))?))))
    }
}

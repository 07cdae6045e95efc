//! Simulations of an operator.

use std::{collections::BTreeSet, fmt, sync::Arc, time::Duration};

use kcm_apiserver::Object;
use serde::Serialize;
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{
    RULES, SimulationError,
    engine::{
        managers::{Execution, ManagerProgram},
        network::ProcessConnection,
    },
    process::{ExitResult, ManagerProcess},
    scenario::{Scenario, UserAction},
    status_controller::StatusController,
    world::{World, Write},
};

type Start<X> = dyn Fn(ManagerProcess, Arc<X>) -> Execution + Send + Sync;
type RuleForWrites<X> = dyn Fn(&Write<'_>, &World<X>) -> Option<String> + Send + Sync;
type RuleForEnd<X> = dyn Fn(&World<X>) -> Option<String> + Send + Sync;

/// Simulation of an operator: its controllers, its custom resources, a scenario without faults, and rules.
///
/// `X` is the type of the external systems that the operator writes to, such as a fake of a DNS provider. Each run has its
/// own.
pub struct Simulation<X = ()> {
    pub(crate) external: Arc<dyn Fn() -> X + Send + Sync>,
    pub(crate) start: Arc<Start<X>>,
    pub(crate) objects: Vec<Value>,
    pub(crate) status_controllers: Vec<StatusController>,
    pub(crate) scenario: Scenario,
    pub(crate) disabled: BTreeSet<String>,
    /// Kinds, and JSON pointers of their members that are not compared.
    pub(crate) ignored: Vec<(String, String)>,
    pub(crate) write_rules: Vec<(String, Arc<RuleForWrites<X>>)>,
    pub(crate) end_rules: Vec<(String, Arc<RuleForEnd<X>>)>,
    pub(crate) converges_within: Duration,
    pub(crate) share: usize,
    /// `true` if schedules end at the states of others. `false` with external systems and status controllers: their states are not
    /// compared.
    pub(crate) is_reduced: bool,
}

impl Simulation {
    /// Simulation of an operator without external systems. `start` runs one life of a process, until it exits.
    ///
    /// `start` must create all state of the process, so that a restarted process has none of its predecessor.
    pub fn new<F>(start: impl Fn(ManagerProcess) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output: ExitResult> + Send + 'static,
    {
        Self { is_reduced: true, ..Self::with_external(|| (), move |process, _| start(process)) }
    }
}

impl<X: Send + Sync + 'static> Simulation<X> {
    /// Simulation of an operator with external systems. `external` creates them for each run.
    ///
    /// A call of an external system is no step: no fault comes between two of them, unless `external` produces it. Schedules
    /// with surprises run to their end, because the states of external systems are not compared.
    pub fn with_external<F>(
        external: impl Fn() -> X + Send + Sync + 'static,
        start: impl Fn(ManagerProcess, Arc<X>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output: ExitResult> + Send + 'static,
    {
        let start = Arc::new(start);
        Self {
            external: Arc::new(external),
            start: Arc::new(move |process, external| {
                let start = Arc::clone(&start);
                Box::pin(async move { start(process, external).await.into_result() })
            }),
            objects: Vec::new(),
            status_controllers: Vec::new(),
            scenario: Scenario::default(),
            disabled: BTreeSet::new(),
            ignored: Vec::new(),
            write_rules: Vec::new(),
            end_rules: Vec::new(),
            converges_within: Duration::from_secs(30 * 60),
            share: 1,
            is_reduced: false,
        }
    }

    /// Adds an object that exists from the start, such as a CustomResourceDefinition or a Namespace.
    ///
    /// # Panics
    ///
    /// If the object cannot be serialized.
    #[must_use]
    #[expect(clippy::expect_used, reason = "an invalid definition fails the test")]
    pub fn object(mut self, object: impl Serialize) -> Self {
        self.objects.push(serde_json::to_value(object).expect("the object can be serialized"));
        self
    }

    /// Adds a namespace.
    #[must_use]
    pub fn namespace(self, name: &str) -> Self {
        self.object(serde_json::json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name},
        }))
    }

    /// Sets the status of the objects of a kind, which may have a group, in place of the controller of that kind, such as that of
    /// Jobs. `status` returns the members of the status to set, or `None` to leave it unchanged. It is called `delay` after each
    /// change of an object. A panic of it violates `panic`, and more than 2,000 writes of statuses violate `effort`.
    ///
    /// Schedules with surprises run to their end. The end of a run does not wait for a delay of more than 30 s.
    #[must_use]
    pub fn status_of(
        mut self,
        kind: &str,
        delay: Duration,
        status: impl Fn(&Object) -> Option<Value> + Send + Sync + 'static,
    ) -> Self {
        self.status_controllers.push(StatusController {
            kind: kind.to_owned(),
            delay,
            status: Arc::new(status),
        });
        Self { is_reduced: false, ..self }
    }

    /// Adds an action of a user at a time in seconds. The scenario ends 20 s after the last action.
    #[must_use]
    pub fn at(mut self, second: u64, action: UserAction) -> Self {
        let at = second * 1_000;
        self.scenario.actions.push(crate::At { at, event: action });
        self.scenario.end = self.scenario.end.max(at + 20_000);
        self
    }

    /// Scenario of [`at`](Self::at) and [`processes`](Self::processes). With faults, it is a scenario for [`run`](Self::run) and
    /// [`check_scenario`](Self::check_scenario): `Scenario { faults, ..simulation.scenario().clone() }`.
    pub fn scenario(&self) -> &Scenario {
        &self.scenario
    }

    /// Sets the number of processes of the operator. More than one requires leader election, with timers of Tokio or of
    /// [`ManagerProcess::clock`]. Default: 1.
    #[must_use]
    pub fn processes(mut self, count: usize) -> Self {
        self.scenario.managers = count;
        self
    }

    /// Adds a rule for each write of the operator, which returns a description of a violation, or panics.
    ///
    /// It does not apply to Events, Leases, Nodes, Endpoints, EndpointSlices and CustomResourceDefinitions, to writes that their
    /// sender has given up, to those of a process that has exited, and after a restore of the store.
    #[must_use]
    pub fn write_rule(
        mut self,
        name: &str,
        rule: impl Fn(&Write<'_>, &World<X>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.write_rules.push((name.to_owned(), Arc::new(rule)));
        self
    }

    /// Adds a rule for the end, which returns a description of what is missing, or panics. The run waits for up to
    /// [`converges_within`](Self::converges_within) until nothing is missing, so it must not panic while it holds a lock of
    /// [`std::sync`].
    #[must_use]
    pub fn end_rule(
        mut self,
        name: &str,
        rule: impl Fn(&World<X>) -> Option<String> + Send + Sync + 'static,
    ) -> Self {
        self.end_rules.push((name.to_owned(), Arc::new(rule)));
        self
    }

    /// Removes a [rule](crate::RULES) that does not hold for the operator. A run fails if there is no such rule.
    #[must_use]
    pub fn without_rule(mut self, name: &str) -> Self {
        self.disabled.insert(name.to_owned());
        self
    }

    /// Excludes a field of a kind, which may have a group, from `equal-effect`, such as a counter of attempts. `pointer` is a JSON
    /// pointer: `/status/attempts`.
    ///
    /// # Panics
    ///
    /// If `pointer` does not begin with `/`.
    #[must_use]
    pub fn ignore_field(mut self, kind: &str, pointer: &str) -> Self {
        assert!(
            pointer.starts_with('/'),
            "invalid pointer {pointer:?}: a JSON pointer of a field begins with a slash"
        );
        self.ignored.push((kind.to_owned(), pointer.to_owned()));
        self
    }

    /// Sets the time in which the operator must converge after the last fault. Until then, a run with faults waits for the
    /// effect of the run without faults. The run without faults ends after 30 s without writes. Default: 30 minutes.
    #[must_use]
    pub fn converges_within(self, time: Duration) -> Self {
        Self { converges_within: time, ..self }
    }

    /// Explores an even share of the schedules with the most surprises: one in `share`.
    #[must_use]
    pub fn share(self, share: usize) -> Self {
        Self { share, ..self }
    }

    /// `true` unless the rule was removed.
    pub(crate) fn applies(&self, rule: &str) -> bool {
        !self.disabled.contains(rule)
    }

    /// Checks the names of removed rules.
    pub(crate) fn check_rules(&self) -> Result<(), SimulationError> {
        let is_rule = |name: &String| {
            RULES.contains(&name.as_str())
                || self.write_rules.iter().any(|(own, _)| own == name)
                || self.end_rules.iter().any(|(own, _)| own == name)
        };
        match self.disabled.iter().find(|name| !is_rule(name)) {
            Some(unknown) => Err(SimulationError::UnknownRule(unknown.clone())),
            None => Ok(()),
        }
    }

    /// Program of a run.
    pub(crate) fn program(&self, external: &Arc<X>) -> Arc<dyn ManagerProgram> {
        Arc::new(OperatorProgram { start: Arc::clone(&self.start), external: Arc::clone(external) })
    }
}

impl<X> fmt::Debug for Simulation<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation").field("scenario", &self.scenario).finish_non_exhaustive()
    }
}

struct OperatorProgram<X> {
    start: Arc<Start<X>>,
    external: Arc<X>,
}

impl<X: Send + Sync + 'static> ManagerProgram for OperatorProgram<X> {
    fn run(&self, connection: ProcessConnection, seed: u64, stop: CancellationToken) -> Execution {
        (self.start)(ManagerProcess::new(connection, seed, stop), Arc::clone(&self.external))
    }
}

//! Course of one simulated pod: steps that change the state of its containers, with their events and delays.
//!
//! *Upstream counterpart:* `SyncPod` in `pkg/kubelet/kuberuntime`, `pkg/kubelet/images/image_manager.go` and
//! `pkg/kubelet/prober`.

use std::time::Duration;

use kcm_api::GoDuration;
use kcm_apiserver::Object;
use kcm_clock::{Random, Timestamp, jitter};
use serde_json::Value;

use super::{
    behavior::{Annotations, PodBehavior, When},
    container::{Container, ProbeKind, Role, State},
    status::Failure,
};
use crate::api::{EventDraft, field};

/// First delay before a crashed container is restarted, or an image is pulled again; doubled after each failure.
const INITIAL_BACK_OFF: Duration = Duration::from_secs(10);
/// Maximum of this delay.
const MAX_BACK_OFF: Duration = Duration::from_secs(300);
/// Run after which the back-off of a container is reset: twice [`MAX_BACK_OFF`].
const RESET_BACK_OFF: Duration = Duration::from_secs(600);
/// Interval of the kubelet's pod lifecycle event generator, after which it reacts to an ended container.
const RELIST: Duration = Duration::from_secs(1);
/// Delay between two syncs of a pod whose last sync failed, before jitter.
const SYNC_BACK_OFF: Duration = Duration::from_secs(10);
/// Maximum delay between two syncs of a pod, before jitter.
const RESYNC: Duration = Duration::from_secs(60);
/// Jitter of syncs.
const SYNC_JITTER: f64 = 0.5;
/// First and maximum delay between two attempts to mount a volume; doubled after each attempt.
const MOUNT_BACK_OFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(122));
/// Default run of an init container.
const INIT_RUN: Duration = Duration::from_secs(1);
/// Exit code of a container that the kubelet has killed.
const KILLED: i32 = 137;

/// Step of a pod, due at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    /// Mount volumes, create the sandbox, start containers.
    Start,
    /// Start the containers that may start now.
    Next,
    /// Step of a container in this run.
    Step {
        container: usize,
        run: u32,
        step: Step,
    },
    ExceedDeadline,
    Evict,
    Stop,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    PullDone(Duration),
    PullBackOff,
    Pull,
    Create,
    Exit,
    /// Wait for the restart until this time.
    BackOff(Timestamp),
    Restart,
    Probe(ProbeKind),
    /// End of a container whose probe has failed.
    Kill,
    LoseReadiness,
}

/// Results of a step.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) events: Vec<EventDraft>,
    pub(super) timers: Vec<(Duration, Work)>,
    /// `true` if the status of the pod has changed.
    pub(super) changed: bool,
}

/// Environment of a step.
#[derive(Clone, Copy)]
pub(super) struct Context<'a> {
    pub(super) now: Timestamp,
    pub(super) random: &'a dyn Random,
    /// Default time from deletion to removal.
    pub(super) stop_delay: Duration,
}

impl Context<'_> {
    fn sync(&self, delay: Duration) -> Duration {
        jitter(self.random, delay, SYNC_JITTER)
    }
}

#[derive(Debug)]
pub(super) struct PodState {
    pub(super) address: u32,
    pub(super) annotations: Annotations,
    /// Init containers first.
    pub(super) containers: Vec<Container>,
    pub(super) has_sandbox: bool,
    pub(super) failure: Option<Failure>,
    pub(super) stopping: bool,
    pub(super) stopped: bool,
    /// End of the pod's active deadline for which a timer exists, in seconds since 1970.
    pub(super) deadline: Option<i64>,
    /// Text that names the pod in messages of the kubelet.
    full_name: String,
    grace: Duration,
    bound: Timestamp,
    mounts: u32,
    /// Time that the first pull takes, if the behavior does not say it.
    pub(super) first_pull: Option<Duration>,
}

impl PodState {
    pub(super) fn new(pod: &Object, address: u32, missing_tags: &[String], now: Timestamp) -> Self {
        let value = pod.value();
        let annotations = Annotations::of(pod, field(value, "/spec/nodeName"));
        let list = |path: &str| value.pointer(path).and_then(Value::as_array).into_iter().flatten();
        let behavior =
            |spec: &Value| annotations.container(field(spec, "/name"), field(spec, "/image"), missing_tags);
        let init = list("/spec/initContainers").map(|spec| {
            let role = if spec["restartPolicy"] == "Always" { Role::Sidecar } else { Role::Init };
            Container::new(role, spec, behavior(spec))
        });
        let apps = list("/spec/containers").map(|spec| Container::new(Role::App, spec, behavior(spec)));
        let containers = init.chain(apps).collect();
        let grace =
            value.pointer("/spec/terminationGracePeriodSeconds").and_then(Value::as_u64).unwrap_or(30);
        Self {
            address,
            containers,
            has_sandbox: false,
            failure: None,
            stopping: false,
            stopped: false,
            deadline: None,
            full_name: format!("{}_{}({})", pod.name(), pod.namespace(), pod.uid()),
            grace: Duration::from_secs(grace),
            bound: now,
            mounts: 0,
            first_pull: None,
            annotations,
        }
    }

    /// `true` if the pod reports each state of a kubelet.
    pub(super) const fn is_detailed(&self) -> bool {
        self.annotations.behavior.is_some()
    }

    /// Time from deletion to removal. `None` if the pod is never removed.
    pub(super) fn stop_delay(&self, default: Duration) -> Option<Duration> {
        match self.annotations.behavior.as_ref().and_then(|behavior| behavior.stop) {
            Some(When::Never) => None,
            Some(When::After(delay)) => Some(delay),
            None => Some(self.annotations.stop_delay.unwrap_or(default)),
        }
    }

    /// First step of a pod that is not running yet. Its containers start `ready_delay` after binding.
    pub(super) fn begin(&mut self, ready_delay: Duration, outcome: &mut Outcome) {
        let Some(behavior) = &self.annotations.behavior else {
            outcome.timers.push((ready_delay, Work::Start));
            return;
        };
        outcome.changed = true;
        if let Some(evict) = &behavior.evict {
            outcome.timers.push((evict.after.unwrap_or(Duration::ZERO), Work::Evict));
        }
        let start = if behavior.delays_start() { RELIST } else { ready_delay.min(RELIST) };
        self.first_pull = Some(ready_delay.saturating_sub(start));
        outcome.timers.push((start, Work::Start));
    }

    /// Does a step.
    pub(super) fn handle(&mut self, work: Work, context: Context<'_>, outcome: &mut Outcome) {
        match work {
            Work::Start => self.start(context, outcome),
            Work::Next => self.start_containers(context, outcome),
            Work::Step { container, run, step } => {
                if self.containers.get(container).is_some_and(|one| one.run == run) {
                    self.step(container, step, context, outcome);
                }
            }
            Work::ExceedDeadline => {
                let message = "Pod was active on the node longer than the specified deadline";
                self.fail("DeadlineExceeded", message.to_owned(), false, context, outcome);
            }
            Work::Evict => {
                if let Some(evict) = self.annotations.behavior.as_ref().and_then(|one| one.evict.clone()) {
                    self.fail("Evicted", evict.message, true, context, outcome);
                }
            }
            Work::Stop => self.stop(context, outcome),
        }
    }

    /// Terminates the containers of a deleted pod.
    fn stop(&mut self, context: Context<'_>, outcome: &mut Outcome) {
        let overdue = self.stop_delay(context.stop_delay).is_none_or(|delay| delay >= self.grace);
        for container in &mut self.containers {
            container.terminate(if overdue { KILLED } else { 0 }, None, None, context.now);
        }
        self.stopped = true;
        outcome.changed = true;
    }

    /// Ends the pod with the phase `Failed`.
    fn fail(
        &mut self,
        reason: &str,
        message: String,
        disrupted: bool,
        context: Context<'_>,
        outcome: &mut Outcome,
    ) {
        for container in &mut self.containers {
            container.terminate(KILLED, None, None, context.now);
            container.ready = false;
        }
        outcome.events.push(EventDraft::warning(reason, message.clone()));
        self.failure = Some(Failure { reason: reason.to_owned(), message, disrupted, rejected: false });
        outcome.changed = true;
    }

    fn start(&mut self, context: Context<'_>, outcome: &mut Outcome) {
        let recovered = |behavior: &PodBehavior| {
            let age = Duration::try_from(context.now.duration_since(self.bound)).unwrap_or_default();
            behavior.recovers.is_some_and(|after| age >= after)
        };
        let behavior = self.annotations.behavior.as_ref().filter(|behavior| !recovered(behavior)).cloned();
        let Some(PodBehavior { mount, attach, sandbox, network, reject, .. }) = behavior else {
            self.has_sandbox = true;
            outcome.changed = true;
            return self.start_containers(context, outcome);
        };
        if let Some(reject) = reject {
            outcome.events.push(EventDraft::warning(&reject.reason, reject.message.clone()));
            let (reason, message) = (reject.reason, format!("Pod was rejected: {}", reject.message));
            self.failure = Some(Failure { reason, message, disrupted: false, rejected: true });
            outcome.changed = true;
            return;
        }
        let mounting = attach.map(EventDraft::attach);
        if let Some(event) =
            mounting.or_else(|| mount.map(|message| EventDraft::warning("FailedMount", message)))
        {
            outcome.events.push(event);
            let (first, limit) = MOUNT_BACK_OFF;
            let delay = first.saturating_mul(2_u32.saturating_pow(self.mounts)).min(limit);
            self.mounts += 1;
            outcome.timers.push((delay, Work::Start));
        } else if let Some(message) = network {
            let text = format!("network is not ready: container runtime network not ready: {message}");
            outcome.events.push(EventDraft::warning("NetworkNotReady", text));
            outcome.timers.push((context.sync(RELIST), Work::Start));
        } else if let Some(message) = sandbox {
            let text = format!("Failed to create pod sandbox: {message}");
            outcome.events.push(EventDraft::warning("FailedCreatePodSandBox", text));
            outcome.timers.push((context.sync(SYNC_BACK_OFF), Work::Start));
        } else {
            self.has_sandbox = true;
            outcome.changed |= !self.is_detailed();
            self.start_containers(context, outcome);
        }
    }

    /// Starts the next init container, or the containers once the init containers have succeeded and the sidecars have
    /// started.
    fn start_containers(&mut self, context: Context<'_>, outcome: &mut Outcome) {
        for index in 0..self.containers.len() {
            let Some(container) = self.containers.get_mut(index) else { return };
            let is_app = container.role == Role::App;
            if !std::mem::replace(&mut container.launched, true) {
                self.pull(index, context, outcome);
            }
            let waits = self.containers.get(index).is_some_and(|one| !one.initialized);
            if !is_app && waits {
                return;
            }
        }
    }

    fn step(&mut self, index: usize, step: Step, context: Context<'_>, outcome: &mut Outcome) {
        let Some(container) = self.containers.get_mut(index) else { return };
        match step {
            Step::Pull => self.pull(index, context, outcome),
            Step::PullDone(takes) => {
                let time = format!("{takes:?} ({takes:?} including waiting)");
                let image = &container.image;
                let text =
                    format!("Successfully pulled image {image:?} in {time}. Image size: 31457280 bytes.");
                outcome.events.push(EventDraft::normal("Pulled", text).of_container(container));
                self.create(index, context, outcome);
            }
            Step::PullBackOff => {
                let error = container.behavior.pull.error.clone().unwrap_or_default();
                let text = format!("Back-off pulling image {:?}", container.image);
                outcome.events.push(EventDraft::normal("BackOff", text.clone()).of_container(container));
                let failed = EventDraft::warning("Failed", "Error: ImagePullBackOff".to_owned());
                outcome.events.push(failed.of_container(container));
                container.waits("ImagePullBackOff", format!("{text}: ErrImagePull: {error}"));
                let delay = context.sync(back_off(container.pulls.saturating_sub(1)));
                self.later(index, delay, Step::Pull, outcome);
                outcome.changed = true;
            }
            Step::Create => {
                let text = format!("Container image {:?} already present on machine", container.image);
                outcome.events.push(EventDraft::normal("Pulled", text).of_container(container));
                self.create(index, context, outcome);
            }
            Step::Exit => {
                let behavior = container.behavior.clone();
                let code = behavior.exit_code.unwrap_or(i32::from(container.role != Role::Init));
                self.exit(
                    index,
                    code,
                    behavior.reason.as_deref(),
                    behavior.message.as_deref(),
                    context,
                    outcome,
                );
            }
            Step::Kill => self.exit(index, KILLED, None, None, context, outcome),
            Step::BackOff(until) => self.wait_for_restart(index, until, context, outcome),
            Step::Restart => {
                container.archive();
                if self.is_detailed() {
                    self.step(index, Step::Create, context, outcome);
                } else {
                    self.create(index, context, outcome);
                }
            }
            Step::Probe(kind) => self.probe(index, kind, context, outcome),
            Step::LoseReadiness => {
                container.ready = false;
                outcome.changed = true;
            }
        }
    }

    fn later(&self, index: usize, delay: Duration, step: Step, outcome: &mut Outcome) {
        let run = self.containers.get(index).map_or(0, |one| one.run);
        outcome.timers.push((delay, Work::Step { container: index, run, step }));
    }

    fn pull(&mut self, index: usize, context: Context<'_>, outcome: &mut Outcome) {
        let detailed = self.is_detailed();
        let first_pull = self.first_pull.take();
        let Some(container) = self.containers.get_mut(index) else { return };
        let pull = container.behavior.pull.clone();
        let pulling = EventDraft::normal("Pulling", format!("Pulling image {:?}", container.image));
        if let Some(error) = pull.error.filter(|_| pull.failures.is_none_or(|limit| container.pulls < limit))
        {
            let first = container.pulls == 0;
            container.pulls += 1;
            outcome.changed = true;
            let text = format!("Failed to pull image {:?}: {error}", container.image);
            let failed = EventDraft::warning("Failed", text).of_container(container);
            if !detailed {
                let message = format!("Back-off pulling image {:?}: ErrImagePull: {error}", container.image);
                container.waits("ImagePullBackOff", message);
                outcome.events.push(failed);
                return;
            }
            let result =
                EventDraft::warning("Failed", "Error: ErrImagePull".to_owned()).of_container(container);
            outcome.events.extend([pulling.of_container(container), failed, result]);
            container.waits("ErrImagePull", error);
            let delay = if first { RELIST } else { context.sync(SYNC_BACK_OFF) };
            return self.later(index, delay, Step::PullBackOff, outcome);
        }
        let takes = pull.takes.or(first_pull).filter(|takes| detailed && !takes.is_zero());
        match takes {
            Some(takes) => {
                outcome.events.push(pulling.of_container(container));
                self.later(index, takes, Step::PullDone(takes), outcome);
            }
            None if detailed => self.step(index, Step::Create, context, outcome),
            None => self.create(index, context, outcome),
        }
    }

    /// Creates and starts a container with an image.
    fn create(&mut self, index: usize, context: Context<'_>, outcome: &mut Outcome) {
        let detailed = self.is_detailed();
        let Some(container) = self.containers.get_mut(index) else { return };
        outcome.changed = true;
        let config = container.behavior.config.clone().map(|message| ("CreateContainerConfigError", message));
        let error = || container.behavior.create.clone().map(|message| ("CreateContainerError", message));
        if let Some((reason, message)) = config.or_else(error) {
            let event = EventDraft::warning("Failed", format!("Error: {message}")).of_container(container);
            outcome.events.push(event);
            container.waits(reason, message);
            return self.later(index, context.sync(SYNC_BACK_OFF), Step::Create, outcome);
        }
        if detailed {
            container.restarts += i32::from(container.run > 0);
            let created = EventDraft::normal("Created", "Container created".to_owned());
            let started = EventDraft::normal("Started", "Container started".to_owned());
            outcome.events.extend([created.of_container(container), started.of_container(container)]);
        }
        container.run += 1;
        container.state = State::Running { since: context.now };
        for probe in container.probes.iter_mut().flatten() {
            probe.streak = 0;
        }
        let ends = container.behavior.crashes.is_none_or(|limit| container.run <= limit);
        let run = match container.role {
            Role::App => container.behavior.runs.or(self.annotations.crash_after),
            Role::Sidecar => container.behavior.runs,
            Role::Init if detailed => Some(container.behavior.runs.filter(|_| ends).unwrap_or(INIT_RUN)),
            Role::Init => Some(Duration::ZERO),
        };
        let run = run.filter(|_| ends || container.role == Role::Init);
        if container.role == Role::Init && !ends {
            container.behavior.exit_code = Some(0);
        }
        let init = container.role == Role::Init;
        let startup = container.probes.first().and_then(Option::as_ref).filter(|_| detailed && !init);
        match startup.map(|probe| probe.initial_delay.max(RELIST)) {
            Some(delay) => self.later(index, delay, Step::Probe(ProbeKind::Startup), outcome),
            None if init => {}
            None => self.started(index, run.is_some(), context, outcome),
        }
        if let Some(run) = run {
            if init && run.is_zero() {
                self.step(index, Step::Exit, context, outcome);
            } else {
                self.later(index, run, Step::Exit, outcome);
            }
        }
    }

    /// A container has started, and its startup probe has succeeded.
    fn started(&mut self, index: usize, ends: bool, context: Context<'_>, outcome: &mut Outcome) {
        let detailed = self.is_detailed();
        let (never, unready) = (self.annotations.never_ready, self.annotations.unready_after);
        let Some(container) = self.containers.get_mut(index) else { return };
        let (is_app, was_initialized) = (container.role == Role::App, container.initialized);
        container.started = true;
        container.initialized = true;
        outcome.changed = true;
        let [_, readiness, liveness] = &container.probes;
        let delay = |probe: &super::container::Probe| probe.initial_delay.max(RELIST);
        let readiness = readiness.as_ref().filter(|_| detailed).map(delay);
        let fails = container.behavior.liveness.fails_after.is_some();
        let liveness = liveness.as_ref().filter(|_| detailed && fails).map(delay);
        container.ready = readiness.is_none() && !(never && is_app);
        let loses = unready.filter(|_| is_app && !never && !ends);
        for (kind, delay) in [(ProbeKind::Readiness, readiness), (ProbeKind::Liveness, liveness)] {
            if let Some(delay) = delay {
                self.later(index, delay, Step::Probe(kind), outcome);
            }
        }
        if let Some(delay) = loses {
            self.later(index, delay, Step::LoseReadiness, outcome);
        }
        if !is_app && !was_initialized && detailed {
            self.start_containers(context, outcome);
        }
    }

    fn exit(
        &mut self,
        index: usize,
        code: i32,
        reason: Option<&str>,
        message: Option<&str>,
        context: Context<'_>,
        outcome: &mut Outcome,
    ) {
        let detailed = self.is_detailed();
        let Some(container) = self.containers.get_mut(index) else { return };
        let State::Running { since } = container.state else { return };
        outcome.changed = true;
        container.terminate(code, reason, message, context.now);
        if container.role == Role::Init && code == 0 {
            if detailed {
                outcome.timers.push((RELIST, Work::Next));
            }
            return;
        }
        let ran = Duration::try_from(context.now.duration_since(since)).unwrap_or_default();
        if ran > RESET_BACK_OFF {
            container.crashes = 0;
        }
        let crashes = container.crashes;
        container.crashes += 1;
        if !detailed {
            container.restarts += 1;
            container.archive();
            let delay = back_off(crashes);
            self.report_back_off(index, delay, outcome);
            return self.later(index, delay, Step::Restart, outcome);
        }
        // The first restart is immediate.
        let Some(doublings) = crashes.checked_sub(1) else {
            return self.later(index, RELIST, Step::Restart, outcome);
        };
        let until = context.now.saturating_add(back_off(doublings)).unwrap_or(context.now);
        self.later(index, RELIST * 2, Step::BackOff(until), outcome);
    }

    /// Reports that a container is not restarted before `until`, and syncs again.
    fn wait_for_restart(
        &mut self,
        index: usize,
        until: Timestamp,
        context: Context<'_>,
        outcome: &mut Outcome,
    ) {
        let Some(container) = self.containers.get_mut(index) else { return };
        container.archive();
        let delay = back_off(container.crashes.saturating_sub(2));
        self.report_back_off(index, delay, outcome);
        let left = Duration::try_from(until.duration_since(context.now)).unwrap_or_default();
        if left > RESYNC {
            self.later(index, context.sync(RESYNC).min(left), Step::BackOff(until), outcome);
        } else {
            self.later(index, context.sync(left), Step::Restart, outcome);
        }
    }

    fn report_back_off(&mut self, index: usize, delay: Duration, outcome: &mut Outcome) {
        let (pod, full_name) = (self.full_name.split('(').next().unwrap_or_default(), &self.full_name);
        let Some(container) = self.containers.get_mut(index) else { return };
        let name = &container.name;
        let text = format!("Back-off restarting failed container {name} in pod {pod}");
        outcome.events.push(EventDraft::warning("BackOff", text).of_container(container));
        let delay = GoDuration::parse(&format!("{}s", delay.as_secs())).unwrap_or_default();
        let message = format!("back-off {delay} restarting failed container={name} pod={full_name}");
        container.waits("CrashLoopBackOff", message);
        outcome.changed = true;
    }

    fn probe(&mut self, index: usize, kind: ProbeKind, context: Context<'_>, outcome: &mut Outcome) {
        let Some(container) = self.containers.get_mut(index) else { return };
        let State::Running { since } = container.state else { return };
        let age = Duration::try_from(context.now.duration_since(since)).unwrap_or_default();
        let behavior = &container.behavior;
        let reached = |when: Option<When>| match when {
            None => true,
            Some(When::Never) => false,
            Some(When::After(delay)) => age >= delay,
        };
        let succeeds = match kind {
            ProbeKind::Startup => reached(behavior.startup),
            ProbeKind::Readiness => {
                reached(behavior.ready) && behavior.unready_after.is_none_or(|end| age < end)
            }
            ProbeKind::Liveness => behavior.liveness.fails_after.is_none_or(|end| age < end),
        };
        let changes = behavior.unready_after.is_some_and(|end| age < end) || kind == ProbeKind::Liveness;
        let Some(probe) = container.probes.get_mut(kind as usize).and_then(Option::as_mut) else { return };
        probe.streak = if succeeds { probe.streak.max(0) + 1 } else { probe.streak.min(0) - 1 };
        let passed = probe.streak >= i64::from(probe.success_threshold);
        let failed = -probe.streak >= i64::from(probe.failure_threshold);
        let (period, failure) = (probe.period, probe.failure.clone());
        if !succeeds {
            let text = format!("{} probe failed: {failure}", kind.name());
            outcome.events.push(EventDraft::warning("Unhealthy", text).of_container(container));
        }
        match kind {
            ProbeKind::Readiness => {
                let ready = passed || (container.ready && !failed);
                outcome.changed |= std::mem::replace(&mut container.ready, ready) != ready;
                if !passed || changes {
                    self.later(index, period, Step::Probe(kind), outcome);
                }
            }
            ProbeKind::Startup if passed => {
                let ends = container.behavior.runs.is_some();
                self.started(index, ends, context, outcome);
            }
            ProbeKind::Startup | ProbeKind::Liveness if failed => {
                let name = &container.name;
                let kind = kind.name().to_lowercase();
                let text = format!("Container {name} failed {kind} probe, will be restarted");
                outcome.events.push(EventDraft::normal("Killing", text).of_container(container));
                let delay = self.stop_delay(context.stop_delay).unwrap_or(self.grace).min(self.grace);
                self.later(index, delay, Step::Kill, outcome);
            }
            ProbeKind::Startup | ProbeKind::Liveness => {
                self.later(index, period, Step::Probe(kind), outcome);
            }
        }
    }
}

fn back_off(doublings: u32) -> Duration {
    INITIAL_BACK_OFF.saturating_mul(2_u32.saturating_pow(doublings.min(8))).min(MAX_BACK_OFF)
}

//! Choice points of a run: steps at which something else than the default may happen.
//!
//! A choice point is named by its step, such as `m0 create pods`, and by its number among the steps of that name. A
//! [`Surprise`] replaces the default of one choice point. A run is a function of the scenario and its surprises.
//!
//! [`Choices`] also computes a fingerprint at each choice point, which identifies the steps so far except for the order of
//! independent ones (see `docs/simulation.md`).

use std::{
    collections::BTreeMap,
    fmt,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use kcm_apiserver::WatchEvent;
use kcm_clock::Clock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{explore::Report, faults::FaultEffect, host::Process};

/// Duration of every surprise that has one, in milliseconds. It is longer than the start and the end of a pod.
const LONG: u64 = 4_000;

/// Delay within which everything happens that is due at the same instant, in milliseconds.
const BRIEF: u64 = 1;

/// Resolution of the times that fingerprints contain. It is longer than [`BRIEF`].
const RESOLUTION: Duration = Duration::from_millis(100);

/// Outcome of a step that is not the default.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Alternative {
    /// The request is not executed, and its connection breaks.
    LoseRequest,
    /// The request is executed, and its connection breaks.
    LoseAnswer,
    /// The API server refuses the request with 500.
    Refuse,
    /// The connection breaks at once, and the request is executed later.
    Late,
    /// The request is executed later. The sender waits.
    DelayRequest,
    /// The request is executed, and its response arrives later.
    DelayAnswer,
    /// The process is killed, and the request is not executed.
    KillBefore,
    /// The process is killed, and the request is executed.
    KillAfter,
    /// The process is stopped before it sends the request, and continued.
    Stop,
    /// The host of the process is disconnected before it sends the request.
    Cut,
    /// The watch delivers the event, and those after it, later.
    Hold,
    /// The watch delivers the event after everything else that happens at the same instant.
    HoldBriefly,
    /// The watch ends before the event.
    CloseWatch,
    /// The watch ends with 410 before the event, after a time without events.
    ExpireWatch,
    /// The pod becomes ready later.
    SlowStart,
    /// The pod takes longer to stop.
    SlowStop,
    /// The user acts, or the timer expires, later.
    Later,
}

/// An alternative at a choice point.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Surprise {
    /// Name of the step.
    pub step: String,
    /// Number of the step among those of its name, from 1.
    pub nth: u32,
    /// Outcome in place of the default.
    pub becomes: Alternative,
}

/// A kind of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StepKind {
    Write,
    Read,
    Lease,
    WatchEvent,
    PodCreation,
    UserAction,
    Timer,
}

impl StepKind {
    /// Outcomes other than the default. A process that is killed before a write is the process that is killed after its
    /// previous write.
    pub fn alternatives(self) -> &'static [Alternative] {
        use Alternative::{
            CloseWatch, Cut, DelayAnswer, DelayRequest, ExpireWatch, Hold, HoldBriefly, KillAfter,
            KillBefore, Late, Later, LoseAnswer, LoseRequest, Refuse, SlowStart, SlowStop, Stop,
        };
        match self {
            Self::Write => {
                &[LoseRequest, LoseAnswer, Refuse, Late, DelayRequest, DelayAnswer, KillAfter, Stop, Cut]
            }
            Self::Read => &[LoseRequest, Refuse, DelayAnswer, KillBefore],
            Self::Lease => &[LoseAnswer, Late, KillAfter, Stop, Cut],
            Self::WatchEvent => &[Hold, HoldBriefly, CloseWatch, ExpireWatch],
            Self::PodCreation => &[SlowStart, SlowStop],
            Self::UserAction | Self::Timer => &[Later],
        }
    }
}

impl Alternative {
    /// Fault of the request or the watch with this outcome. `None` for pods and users.
    pub fn effect(self) -> Option<FaultEffect> {
        Some(match self {
            Self::LoseRequest => FaultEffect::LoseRequest,
            Self::LoseAnswer => FaultEffect::LoseAnswer,
            Self::Refuse => FaultEffect::Refuse { code: 500, retry_after: None },
            Self::Late => FaultEffect::Late { time: LONG },
            Self::DelayRequest => FaultEffect::DelayRequest { time: LONG },
            Self::DelayAnswer => FaultEffect::DelayAnswer { time: LONG },
            Self::KillBefore => FaultEffect::Crash { executed: false },
            Self::KillAfter => FaultEffect::Crash { executed: true },
            Self::Stop => FaultEffect::Stop { time: LONG },
            Self::Cut => FaultEffect::Cut { time: LONG },
            Self::Hold => FaultEffect::DelayWatch { time: LONG },
            Self::HoldBriefly => FaultEffect::DelayWatch { time: BRIEF },
            Self::CloseWatch => FaultEffect::CutWatch { chunks: 0, torn: false },
            Self::ExpireWatch => FaultEffect::ExpireWatch { chunks: 0, time: LONG },
            Self::SlowStart | Self::SlowStop | Self::Later => return None,
        })
    }

    /// Duration of the alternative itself, in milliseconds.
    fn duration(self) -> u64 {
        if self == Self::HoldBriefly { BRIEF } else { LONG }
    }
}

/// Delay of slow pods, late users and late timers.
pub fn delay() -> Duration {
    Duration::from_millis(LONG)
}

/// A choice point of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChoicePoint {
    pub step: Arc<str>,
    pub nth: u32,
    pub kind: StepKind,
    pub fingerprint: u64,
}

/// Run that the explored run extends by its last surprise.
#[derive(Default)]
pub struct Guide {
    /// Choice points of that run. Empty if there is none.
    pub parent: Arc<[ChoicePoint]>,
    /// `true` if the run ends as soon as it has the fingerprint of its parent again.
    pub reduce: bool,
    /// Children of the run, which are run at its choice points.
    pub children: Option<Box<dyn Children>>,
}

/// Runs the children of a schedule at its choice points, each in a copy of the process.
pub trait Children: Send {
    /// Runs the children with a surprise at the choice point of index `at`. Returns in the process and in each copy. Exits at
    /// the last choice point.
    fn run(&mut self, at: usize, point: &ChoicePoint) -> Next;

    /// Returns the result of a schedule that was run to its end, and exits. A schedule that cannot have children has no
    /// `points`.
    fn end(&mut self, report: Report, points: Vec<ChoicePoint>) -> !;
}

/// Continuation of a process after the children at a choice point.
#[derive(Debug)]
pub enum Next {
    /// The default.
    Continue,
    /// In a copy: the surprise, and then a run to the end, which is compared with the choice points of the parent.
    Run(Alternative, Arc<[ChoicePoint]>),
    /// In a copy: the surprise, and then the children.
    Extend(Alternative),
}

/// Decides and records the choices of one run.
pub struct Choices {
    clock: Arc<dyn Clock>,
    is_on: bool,
    is_recorded: bool,
    state: Mutex<State>,
    rejoined: Notify,
}

#[derive(Default)]
struct State {
    /// `None` if choice points are not recorded.
    guide: Option<Guide>,
    /// Surprises that have not happened.
    left: Vec<Surprise>,
    /// Surprises that have happened.
    chosen: Vec<Surprise>,
    counts: BTreeMap<Arc<str>, u32>,
    points: Vec<ChoicePoint>,
    /// Time at which the effects of the last surprise end.
    effects_end: Duration,
    /// `true` if a user has acted while surprises had effects.
    has_overlap: bool,
    is_over: bool,
    is_rejoined: bool,
    diverged: Option<String>,
    trace: Trace,
}

/// Hashes of the sequences of dependent steps, and of all of them.
#[derive(Debug, Default)]
struct Trace {
    sequences: BTreeMap<String, u64>,
    total: u64,
}

impl Trace {
    /// Appends a step to a sequence.
    fn push(&mut self, sequence: &str, step: impl Hash) {
        let old = self.sequences.get(sequence).copied().unwrap_or_default();
        let new = hash((old, step));
        if old != 0 {
            self.total ^= hash((sequence, old));
        }
        self.total ^= hash((sequence, new));
        match self.sequences.get_mut(sequence) {
            Some(slot) => *slot = new,
            None => {
                self.sequences.insert(sequence.to_owned(), new);
            }
        }
    }
}

fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Choices {
    pub fn new(clock: &Arc<dyn Clock>, surprises: &[Surprise], guide: Option<Guide>) -> Arc<Self> {
        let is_recorded = guide.is_some();
        let state = State { left: surprises.to_vec(), guide, ..State::default() };
        Arc::new(Self {
            clock: Arc::clone(clock),
            is_on: is_recorded || !surprises.is_empty(),
            is_recorded,
            state: Mutex::new(state),
            rejoined: Notify::new(),
        })
    }

    /// `true` if the scenario has surprises or is explored.
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns the surprise at the next step of this name, if there is one.
    pub fn choose(&self, step: &str, kind: StepKind) -> Option<Alternative> {
        if !self.is_on {
            return None;
        }
        let now = self.clock.monotonic();
        let mut state = self.state.lock();
        if state.is_over {
            return None;
        }
        let step = state.counts.get_key_value(step).map_or_else(|| step.into(), |(step, _)| Arc::clone(step));
        let count = state.counts.entry(Arc::clone(&step)).or_default();
        *count += 1;
        let nth = *count;
        state.has_overlap |= kind == StepKind::UserAction && now < state.effects_end;
        if state.record(ChoicePoint { step: Arc::clone(&step), nth, kind, fingerprint: 0 }, now) {
            self.rejoined.notify_one();
        }
        let at = state.left.iter().position(|one| *one.step == *step && one.nth == nth);
        let becomes = match at {
            Some(at) => state.left.remove(at).becomes,
            None => state.run_children()?,
        };
        let end = now + Duration::from_millis(becomes.duration());
        state.effects_end = state.effects_end.max(end);
        state.chosen.push(Surprise { step: step.to_string(), nth, becomes });
        Some(becomes)
    }

    /// Waits until the run has done the same steps as its parent, and no effect of its last surprise is left.
    pub async fn rejoined(&self) {
        self.rejoined.notified().await;
    }

    /// Adds a request of a process, or a response to it, to the trace.
    pub fn trace_request(&self, process: &Process, what: impl Hash) {
        if self.is_recorded {
            self.state.lock().trace.push(&format!("{process:?}"), what);
        }
    }

    /// Adds events that a process receives to the trace.
    pub fn trace_received(&self, process: &Process, path: &str, events: usize) {
        if self.is_recorded {
            let mut state = self.state.lock();
            let sequence = format!("{process:?} {path}");
            for _ in 0..events {
                state.trace.push(&sequence, ());
            }
        }
    }

    /// Adds a change of the store to the trace.
    pub fn trace_change(&self, event: &WatchEvent) {
        if !self.is_recorded {
            return;
        }
        let Some(object) = event.object() else { return };
        let resource = object.resource().plural();
        if matches!(resource, "events" | "leases") {
            return;
        }
        let value = object.value();
        let mut hasher = DefaultHasher::new();
        (object.namespace(), object.name(), matches!(event, WatchEvent::Deleted(_))).hash(&mut hasher);
        object.is_deleting().hash(&mut hasher);
        for member in ["labels", "annotations", "ownerReferences"] {
            value["metadata"][member].hash(&mut hasher);
        }
        (&value["spec"], &value["status"]).hash(&mut hasher);
        self.state.lock().trace.push(resource, hasher.finish());
    }

    /// Ends all choices.
    pub fn end(&self) {
        self.state.lock().is_over = true;
    }

    /// Time at which the effects of all surprises end.
    pub fn effects_end(&self) -> Duration {
        self.state.lock().effects_end
    }

    /// `true` if a user has acted while surprises had effects.
    pub fn has_overlap(&self) -> bool {
        self.state.lock().has_overlap
    }

    /// A surprise that did not happen, or the first step that differs from the parent.
    pub fn failure(&self) -> Option<String> {
        let state = self.state.lock();
        if let Some(step) = &state.diverged {
            return Some(format!("the run before its last surprise differs from its parent at {step}"));
        }
        let left = state.left.first()?;
        Some(format!("there is no step {} #{}", left.step, left.nth))
    }

    /// `true` if the run was ended because it did the same steps as its parent.
    pub fn is_rejoined(&self) -> bool {
        self.state.lock().is_rejoined
    }

    /// Surprises that have happened.
    pub fn chosen(&self) -> Vec<Surprise> {
        self.state.lock().chosen.clone()
    }

    /// Drops a value, unless the process is a copy, which exits soon.
    pub fn dispose<T>(&self, value: T) {
        if self.state.lock().guide.as_ref().is_some_and(|guide| guide.children.is_some()) {
            std::mem::forget(value);
        }
    }

    /// Children of the run.
    pub(super) fn take_children(&self) -> Option<Box<dyn Children>> {
        self.state.lock().guide.as_mut()?.children.take()
    }

    /// Choice points of the run.
    pub fn take_points(&self) -> Vec<ChoicePoint> {
        std::mem::take(&mut self.state.lock().points)
    }
}

impl State {
    /// Records a choice point. Returns `true` if the run has done the same steps as its parent, and no effect of its last
    /// surprise is left.
    fn record(&mut self, mut point: ChoicePoint, now: Duration) -> bool {
        let Some(guide) = &self.guide else { return false };
        point.fingerprint = hash((self.trace.total, now.as_millis() / RESOLUTION.as_millis()));
        let mut is_rejoined = false;
        if let Some(of_parent) = guide.parent.get(self.points.len()) {
            let is_same = *of_parent == point;
            let is_prefix = !self.left.is_empty();
            if is_prefix && !is_same && self.diverged.is_none() {
                self.diverged = Some(format!("{} #{}", of_parent.step, of_parent.nth));
            }
            is_rejoined = guide.reduce && !is_prefix && is_same && now > self.effects_end + RESOLUTION;
        }
        self.is_rejoined |= is_rejoined;
        self.points.push(point);
        is_rejoined
    }

    /// Runs the schedules that have a surprise at the choice point recorded last, each in a copy of the process. Returns the
    /// surprise in a copy.
    fn run_children(&mut self) -> Option<Alternative> {
        let guide = self.guide.as_mut()?;
        let point = self.points.last()?;
        match guide.children.as_mut()?.run(self.points.len() - 1, point) {
            Next::Continue => None,
            Next::Run(becomes, of_parent) => {
                guide.parent = of_parent;
                Some(becomes)
            }
            Next::Extend(becomes) => Some(becomes),
        }
    }
}

impl fmt::Debug for Guide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guide").field("reduce", &self.reduce).finish_non_exhaustive()
    }
}

impl fmt::Debug for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Choices").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_independent_steps_does_not_change_the_trace() {
        let trace = |steps: &[(&str, u32)]| {
            let mut trace = Trace::default();
            steps.iter().for_each(|(sequence, step)| trace.push(sequence, step));
            trace.total
        };
        assert_eq!(trace(&[("a", 1), ("b", 1), ("a", 2)]), trace(&[("b", 1), ("a", 1), ("a", 2)]));
        assert_ne!(trace(&[("a", 1), ("a", 2)]), trace(&[("a", 2), ("a", 1)]));
        assert_ne!(trace(&[("a", 1)]), trace(&[("b", 1)]));
    }
}

//! Choice points of a run: steps at which something else than the default may happen.
//!
//! A choice point is named by its step, such as `m0 create pods`, and by its number among the steps of that name. A
//! [`Surprise`] replaces the default of one choice point. A run is a function of the scenario and its surprises.
//!
//! [`Choices`] also records a fingerprint at each choice point. Two runs with the same fingerprint continue alike (see
//! `docs/simulation.md`).

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use kcm_apiserver::{ApiServer, ListOptions, WatchEvent};
use kcm_clock::Clock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use super::{
    explore::Report,
    fingerprint::{RESOLUTION, RunState, hash},
    host::Process,
    known::{KnownStates, RunStateId},
    objects::ObjectVersion,
    surprises::{Alternative, BRIEF, Effect, StepKind, Surprise, delay},
};

/// Bit of [`RunStateId::excuses`]: a surprise does not kill a process, or a user acts in the 4 s after one that does. Without it,
/// more is compared at the end.
const HAS_NOT_ONLY_KILLS: u32 = 127;

/// A choice point of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChoicePoint {
    pub step: Arc<str>,
    pub nth: u32,
    pub kind: StepKind,
    /// State of the run.
    pub state: RunStateId,
}

impl ChoicePoint {
    /// Returns `true` if something else than the default can happen.
    pub fn has_alternatives(&self) -> bool {
        !self.kind.alternatives().is_empty()
    }
}

/// Other schedules that an explored run depends on.
#[derive(Default)]
pub struct Guide {
    /// Choice points of the schedule without the last surprise. Empty if there is none.
    pub parent: Arc<[ChoicePoint]>,
    /// States of other schedules, at which the run ends after its last surprise.
    pub known: KnownStates,
    /// Children of the run, which are run at its choice points.
    pub children: Option<Box<dyn Children>>,
}

/// Runs the children of a schedule at its choice points, each in a copy of the process.
pub trait Children: Send {
    /// Runs the children with a surprise at the choice point of index `at`. Returns in the process and in each copy. Exits after
    /// the last choice point with alternatives.
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
    /// In a copy: the surprise, and then a run to the end, or to a state of another schedule.
    Run(Alternative, KnownStates),
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
    /// Surprises that have happened, with their effects.
    effects: Vec<Effect>,
    /// Time at which the scenario ends, if no surprise has an effect then.
    end: Duration,
    /// Times at which users act, in ascending order.
    user_actions: Vec<Duration>,
    counts: BTreeMap<Arc<str>, u32>,
    points: Vec<ChoicePoint>,
    /// Number of actions of users that have begun.
    actions: usize,
    /// Number of choice points up to the last surprise.
    until_surprise: usize,
    /// `true` if a user acts in the 4 s after a process is killed.
    acts_after_kill: bool,
    /// Reasons for which rules do not apply, as bits.
    excuses: u128,
    /// Fingerprint of the last choice point, and the number of its repetitions.
    repeated: u64,
    repetitions: u32,
    is_over: bool,
    is_rejoined: bool,
    diverged: Option<String>,
    run: RunState,
}

impl Choices {
    /// Choices of a scenario that ends at `end`, in which users act at `user_actions`. `settles_within` is the longest time that a
    /// run continues after a choice point. `None` if other controllers than those of the manager run, of which is not known what
    /// their steps depend on.
    pub fn new(
        clock: &Arc<dyn Clock>,
        surprises: &[Surprise],
        end: Duration,
        mut user_actions: Vec<Duration>,
        guide: Option<Guide>,
        settles_within: Option<Duration>,
    ) -> Arc<Self> {
        user_actions.sort_unstable();
        let is_recorded = guide.is_some();
        let run = RunState::new(settles_within);
        let state = State { left: surprises.to_vec(), end, user_actions, guide, run, ..State::default() };
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
        if self.is_recorded {
            state.run.advance(now, self.clock.now());
        }
        let step = state.counts.get_key_value(step).map_or_else(|| step.into(), |(step, _)| Arc::clone(step));
        let count = state.counts.entry(Arc::clone(&step)).or_default();
        *count += 1;
        let nth = *count;
        if kind == StepKind::UserAction {
            state.actions += 1;
        }
        if state.record(&step, nth, kind, now) {
            self.rejoined.notify_one();
        }
        let is_here = |one: &Surprise| {
            *one.step == *step && one.nth == nth && kind.alternatives().contains(&one.becomes)
        };
        let at = state.left.iter().position(is_here);
        let becomes = match at {
            Some(at) => state.left.remove(at).becomes,
            None => state.run_children()?,
        };
        let next_action = state.user_actions.get(state.actions);
        state.acts_after_kill |= becomes.is_kill() && next_action.is_some_and(|at| *at < now + delay());
        let surprise = Surprise { step: step.to_string(), nth, becomes };
        state.effects.push(Effect::new(surprise, kind, now));
        state.until_surprise = state.points.len();
        Some(becomes)
    }

    /// Waits until the run has a state of another schedule.
    pub async fn rejoined(&self) {
        self.rejoined.notified().await;
    }

    /// Adds the start of a process to the state of the run.
    pub fn trace_start(&self, process: &Arc<Process>) {
        self.trace(|run| run.started(process));
    }

    /// Adds a request of a process to the state of the run.
    pub fn trace_request(&self, process: &Process, kind: StepKind, step: &str, path: &str) {
        self.trace(|run| run.requested(process, kind, step, path));
    }

    /// Adds a response to a process, or the end of its connection, to the state of the run.
    pub fn trace_response(&self, process: &Process, kind: StepKind, result: &str) {
        self.trace(|run| run.responded(process, kind, result));
    }

    /// Adds events that a process receives to the state of the run.
    pub fn trace_received(&self, process: &Process, path: &str, events: usize) {
        self.trace(|run| run.received(process, path, events));
    }

    /// Adds a change of the store to the state of the run.
    pub fn trace_change(&self, event: &WatchEvent) {
        self.trace(|run| run.changed(event));
    }

    /// Replaces the contents of the store in the state of the run, after a restore.
    pub fn trace_restore(&self, server: &ApiServer) {
        let objects = |resource| server.list(resource, None, &ListOptions::default()).ok();
        self.trace(|run| {
            let lists = server.resources().into_iter().filter_map(objects);
            run.restored(&lists.flat_map(|list| list.items).collect::<Vec<_>>());
        });
    }

    /// Adds the contents of a backup to the state of the run.
    pub fn trace_back_up(&self) {
        self.trace(RunState::backed_up);
    }

    /// Adds a reason for which violations of rules are not reported from now on.
    pub fn excuse(&self, reason: &str) {
        if self.is_recorded {
            // Three bits for each, so that few reasons rarely have all bits of another one.
            let bit = |number| 1 << (hash((reason, number)) % u64::from(HAS_NOT_ONLY_KILLS));
            self.state.lock().excuses |= bit(0) | bit(1) | bit(2);
        }
    }

    /// Index of the surprise that happened last.
    pub(super) fn last_surprise(&self) -> usize {
        self.state.lock().effects.len().saturating_sub(1)
    }

    /// Begins the effect of the surprise of this index, if it waits for its request to be sent. A request that is executed later fails
    /// if the object has another version than `precondition`.
    pub(super) fn begin_effect(&self, surprise: usize, precondition: Option<ObjectVersion>) {
        let now = self.clock.monotonic();
        let state = &mut *self.state.lock();
        if let Some(effect) = state.effects.get_mut(surprise).filter(|effect| effect.is_pending) {
            effect.begin(now);
            effect.precondition = precondition.filter(|version| state.run.may_have(version));
        }
    }

    fn trace(&self, step: impl FnOnce(&mut RunState)) {
        if self.is_recorded {
            let run = &mut self.state.lock().run;
            run.advance(self.clock.monotonic(), self.clock.now());
            step(run);
        }
    }

    /// Ends all choices.
    pub fn end(&self) {
        self.state.lock().is_over = true;
    }

    /// `true` after [`end`](Self::end).
    pub fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// Waits until the state of the run contains the effects of all surprises.
    pub async fn wait_for_effects(&self) {
        if self.is_on {
            self.clock.sleep(RESOLUTION + Duration::from_millis(BRIEF)).await;
        }
    }

    /// Records the end of the scenario as the last choice point, after all changes of the store. To be called after
    /// [`end`](Self::end) and [`wait_for_effects`](Self::wait_for_effects).
    pub fn record_end(&self) {
        if self.is_recorded && self.state.lock().record_end(self.clock.monotonic(), self.clock.now()) {
            self.rejoined.notify_one();
        }
    }

    /// Waits until the scenario ends: not before the effects of all surprises, those at the steps meanwhile among them.
    pub async fn wait_for_end(&self) {
        loop {
            let left = self.state.lock().scenario_end().saturating_sub(self.clock.monotonic());
            if left.is_zero() {
                return;
            }
            self.clock.sleep(left).await;
        }
    }

    /// `true` if all surprises have killed a process, and no user acts in the 4 s after them.
    pub fn has_only_kills(&self) -> bool {
        self.state.lock().has_only_kills()
    }

    /// A surprise that did not happen, or the first step that differs from the parent.
    pub fn failure(&self) -> Option<String> {
        let state = self.state.lock();
        if let Some(step) = &state.diverged {
            return Some(format!("the run before its last surprise differs from its parent at {step}"));
        }
        let left = state.left.first()?;
        Some(format!("there is no step {} #{} that becomes {:?}", left.step, left.nth, left.becomes))
    }

    /// `true` if the run was ended because it had a state of another schedule.
    pub fn is_rejoined(&self) -> bool {
        self.state.lock().is_rejoined
    }

    /// States of the run after its last surprise.
    pub fn states(&self) -> Vec<RunStateId> {
        let state = self.state.lock();
        state.points.iter().skip(state.until_surprise).map(|point| point.state).collect()
    }

    /// Surprises that have happened.
    pub fn chosen(&self) -> Vec<Surprise> {
        self.state.lock().chosen().cloned().collect()
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
    /// Returns the state of the run at the next step, and counts its repetitions.
    fn run_state(&mut self, step: &str, now: Duration) -> RunStateId {
        for effect in &mut self.effects {
            // The object never has this version again, so a request that is not executed yet will fail.
            if effect.precondition.take_if(|version| !self.run.may_have(version)).is_some() {
                effect.hidden_until = effect.hidden_until.min(now);
            }
        }
        let hidden = self.effects.iter().any(|effect| effect.is_hidden(now));
        let hidden = hidden.then(|| self.chosen().collect::<Vec<_>>());
        let end = self.scenario_end();
        let fingerprint = hash((self.run.fingerprint(), step, self.actions, end, hidden));
        // A step can be repeated without a change of the state.
        self.repetitions = if self.repeated == fingerprint { self.repetitions + 1 } else { 0 };
        self.repeated = fingerprint;
        self.with_excuses(hash((fingerprint, self.repetitions)))
    }

    /// Surprises that have happened.
    fn chosen(&self) -> impl Iterator<Item = &Surprise> {
        self.effects.iter().map(|effect| &effect.surprise)
    }

    /// Time at which the scenario ends, as far as surprises have happened.
    fn scenario_end(&self) -> Duration {
        self.effects.iter().map(|effect| effect.scenario_until).fold(self.end, Duration::max)
    }

    fn with_excuses(&self, fingerprint: u64) -> RunStateId {
        let compares_less = u128::from(!self.has_only_kills()) << HAS_NOT_ONLY_KILLS;
        RunStateId { fingerprint, excuses: self.excuses | compares_less }
    }

    /// Records a choice point. Returns `true` if the run ends at the state of another schedule.
    fn record(&mut self, step: &Arc<str>, nth: u32, kind: StepKind, now: Duration) -> bool {
        if self.guide.is_none() {
            return false;
        }
        let state = self.run_state(step, now);
        self.record_point(ChoicePoint { step: Arc::clone(step), nth, kind, state })
    }

    /// Records the end of the scenario. Returns `true` if the run ends at the state of another schedule.
    fn record_end(&mut self, now: Duration, wall: Timestamp) -> bool {
        self.run.advance(now, wall);
        let kind = StepKind::End;
        // A request that waited for the network until the end is under way.
        let hidden = (now <= self.scenario_end()).then(|| self.chosen().collect::<Vec<_>>());
        let state = self.with_excuses(hash((kind, self.run.end_fingerprint(), hidden)));
        self.record_point(ChoicePoint { step: "end of the scenario".into(), nth: 1, kind, state })
    }

    fn record_point(&mut self, point: ChoicePoint) -> bool {
        let Some(guide) = &self.guide else { return false };
        let is_prefix = !self.left.is_empty();
        if let Some(of_parent) = guide.parent.get(self.points.len())
            && is_prefix
            && (&of_parent.step, of_parent.nth, of_parent.kind) != (&point.step, point.nth, point.kind)
            && self.diverged.is_none()
        {
            self.diverged = Some(format!("{} #{}", of_parent.step, of_parent.nth));
        }
        // What comes at this choice point and after it belongs to the other schedule.
        let is_known = guide.known.contains(point.state);
        self.is_rejoined |= !is_prefix && is_known;
        if !self.is_rejoined {
            self.points.push(point);
        }
        self.is_rejoined
    }

    fn has_only_kills(&self) -> bool {
        !self.acts_after_kill && self.chosen().all(|one| one.becomes.is_kill())
    }

    /// Runs the schedules that have a surprise at the choice point recorded last, each in a copy of the process. Returns the
    /// surprise in a copy.
    fn run_children(&mut self) -> Option<Alternative> {
        let guide = self.guide.as_mut()?;
        let point = self.points.last()?;
        match guide.children.as_mut()?.run(self.points.len() - 1, point) {
            Next::Continue => None,
            Next::Run(becomes, known) => {
                guide.known = known;
                Some(becomes)
            }
            Next::Extend(becomes) => Some(becomes),
        }
    }
}

impl fmt::Debug for Guide {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guide").finish_non_exhaustive()
    }
}

impl fmt::Debug for Choices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Choices").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

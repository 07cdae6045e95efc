//! States at which schedules end, because another schedule continues alike.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

/// State of a run at a choice point.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunStateId {
    /// Hash of all that the next steps depend on.
    pub fingerprint: u64,
    /// Reasons for which violations of rules are not reported from now on, three bits each.
    pub excuses: u128,
}

/// Number of a schedule: 0 without surprises, then those with one surprise, and then all others.
type Rank = u32;

/// [`Rank`] of schedules with several surprises.
const LAST: Rank = Rank::MAX;

/// States of other schedules, at which a schedule ends.
///
/// A schedule ends at the states of schedules of lower rank that have no excuse which it has not itself. Both continue alike, and
/// the children after the state are those of the other schedule. By default, all schedules run to their end.
#[derive(Debug, Clone, Default)]
pub struct KnownStates {
    is_reduced: bool,
    first: Arc<FirstSchedules>,
    /// States of siblings that were run before. Each of them counts as rank 0.
    siblings: FirstSchedules,
    own: Rank,
}

/// Lowest rank of each state.
#[derive(Debug, Clone, Default)]
struct FirstSchedules {
    ranks: HashMap<RunStateId, Rank>,
    excuses: BTreeSet<u128>,
}

/// States of the schedules with one surprise, by part.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Survey(BTreeMap<usize, Vec<RunStateId>>);

impl Survey {
    /// Adds the states of a schedule with one surprise after it.
    pub fn add(&mut self, part: usize, states: Vec<RunStateId>) {
        self.0.insert(part, states);
    }
}

impl RunStateId {
    /// The same state with each of `excuses` that contain no other than its own.
    fn at_most(self, excuses: &BTreeSet<u128>) -> impl Iterator<Item = Self> {
        let weaker = excuses.iter().filter(move |excuses| **excuses & !self.excuses == 0);
        weaker.map(move |excuses| Self { excuses: *excuses, ..self })
    }
}

fn rank(part: usize) -> Rank {
    Rank::try_from(part).map_or(LAST, |part| part.saturating_add(1))
}

impl KnownStates {
    /// States of the schedule without surprises, and of those with one surprise.
    pub fn new(root: impl Iterator<Item = RunStateId>, survey: &Survey) -> Self {
        let mut first = FirstSchedules::default();
        first.add(0, root);
        for (part, states) in &survey.0 {
            let own = rank(*part);
            // After that, it would end.
            let own_states: Vec<_> =
                states.iter().copied().take_while(|state| !first.contains(*state, own)).collect();
            first.add(own, own_states);
        }
        Self { is_reduced: true, first: Arc::new(first), ..Self::default() }
    }

    /// Changes to the states at which a child ends. `number` is its number among all children.
    pub fn begin_child(&mut self, number: usize) {
        self.own = if self.own == 0 { rank(number) } else { LAST };
    }

    /// Adds the states of a schedule, at which the children that are run after it end. No effect without reduction.
    pub fn add(&mut self, states: &[RunStateId]) {
        if self.is_reduced {
            self.siblings.add(0, states.iter().copied());
        }
    }

    /// Removes the states that were added.
    pub fn clear(&mut self) {
        self.siblings = FirstSchedules::default();
    }

    /// Returns `true` if schedules end at the states of others.
    pub fn is_reduced(&self) -> bool {
        self.is_reduced
    }

    /// Returns `true` if the schedule ends at this state.
    pub fn contains(&self, state: RunStateId) -> bool {
        self.first.contains(state, self.own) || self.siblings.contains(state, self.own)
    }
}

impl FirstSchedules {
    fn add(&mut self, rank: Rank, states: impl IntoIterator<Item = RunStateId>) {
        for state in states {
            self.ranks.entry(state).or_insert(rank);
            self.excuses.insert(state.excuses);
        }
    }

    /// Returns `true` if a schedule of lower rank has the state.
    fn contains(&self, state: RunStateId, own: Rank) -> bool {
        let has = |state| self.ranks.get(&state).is_some_and(|rank| *rank < own);
        state.at_most(&self.excuses).any(has)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states(fingerprints: &[u64]) -> Vec<RunStateId> {
        fingerprints.iter().map(|fingerprint| state(*fingerprint, 0)).collect()
    }

    fn state(fingerprint: u64, excuses: u128) -> RunStateId {
        RunStateId { fingerprint, excuses }
    }

    fn child(parent: &KnownStates, number: usize) -> KnownStates {
        let mut known = parent.clone();
        known.begin_child(number);
        known
    }

    #[test]
    fn schedule_ends_at_states_of_lower_rank() {
        let mut survey = Survey::default();
        survey.add(4, states(&[10, 11]));
        survey.add(2, states(&[11, 12]));
        let root = KnownStates::new(states(&[9]).into_iter(), &survey);
        let ends = |part| [9, 10, 11, 12].map(|one| child(&root, part).contains(state(one, 0)));
        assert_eq!(ends(1), [true, false, false, false]);
        assert_eq!(ends(2), [true, false, false, false]);
        assert_eq!(ends(3), [true, false, true, true]);
        assert_eq!(ends(5), [true; 4]);
    }

    #[test]
    fn schedule_has_no_states_after_that_at_which_it_ends() {
        let mut survey = Survey::default();
        survey.add(3, states(&[10]));
        survey.add(7, states(&[9, 10, 11]));
        let root = KnownStates::new([].into_iter(), &survey);
        assert!(child(&root, 8).contains(state(9, 0)));
        assert!(!child(&root, 8).contains(state(11, 0)));
    }

    #[test]
    fn schedule_with_more_excuses_does_not_stand_for_one_with_less() {
        let mut survey = Survey::default();
        survey.add(0, vec![state(1, 0b01)]);
        let root = KnownStates::new([state(2, 0)].into_iter(), &survey);
        let contains = |fingerprint, excuses| child(&root, 5).contains(state(fingerprint, excuses));
        assert!(contains(1, 0b01) && contains(1, 0b11));
        assert!(!contains(1, 0) && !contains(1, 0b10));
        assert!(contains(2, 0) && contains(2, 0b01));
    }

    #[test]
    fn schedules_with_several_surprises_end_at_states_of_those_before() {
        let mut parent = child(&KnownStates::new([].into_iter(), &Survey::default()), 9);
        assert!(!child(&parent, 0).contains(state(2, 0)));
        parent.add(&states(&[2]));
        assert!(child(&parent, 1).contains(state(2, 0)));
        assert!(child(&parent, 1).contains(state(2, 1)));
        parent.clear();
        assert!(!child(&parent, 1).contains(state(2, 0)));
    }
}

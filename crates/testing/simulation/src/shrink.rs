//! Makes a scenario that fails as small as it can be.

use crate::{
    choices::Surprise,
    scenario::{ManagerSettings, Scenario},
    simulate::SimulationError,
};

/// Runs after which shrinking ends.
const MAX_RUNS: usize = 400;

/// Largest change of the numbers of surprises, in sum, with which a smaller scenario is tried. What is left out changes the
/// number of steps before a surprise.
const MAX_SHIFT: u32 = 3;

impl Scenario {
    /// The same scenario with as little in it as violates one of `rules`.
    pub fn shrunk(self, rules: &[&str]) -> Result<Self, SimulationError> {
        self.shrunk_while(|scenario| {
            Ok(scenario.run()?.rules().iter().any(|rule| rules.contains(rule)))
        })
    }

    fn shrunk_while(
        self,
        fails: impl Fn(&Self) -> Result<bool, SimulationError>,
    ) -> Result<Self, SimulationError> {
        let mut shrinker = Shrinker { best: self, fails, left: MAX_RUNS };
        while shrinker.round()? {}
        Ok(shrinker.best)
    }
}

struct Shrinker<F> {
    best: Scenario,
    fails: F,
    left: usize,
}

impl<F: Fn(&Scenario) -> Result<bool, SimulationError>> Shrinker<F> {
    /// Tries everything once. Returns `true` if something could be left out.
    fn round(&mut self) -> Result<bool, SimulationError> {
        let mut is_smaller = false;
        is_smaller |= self.drop_each(
            |scenario| scenario.incidents.len(),
            |scenario, at| {
                scenario.incidents.remove(at);
            },
        )?;
        is_smaller |= self.drop_each(
            |scenario| scenario.faults.len(),
            |scenario, at| {
                scenario.faults.remove(at);
            },
        )?;
        is_smaller |= self.drop_each(
            |scenario| scenario.surprises.len(),
            |scenario, at| {
                scenario.surprises.remove(at);
            },
        )?;
        is_smaller |= self.drop_each(
            |scenario| scenario.webhooks.len(),
            |scenario, at| {
                scenario.webhooks.remove(at);
            },
        )?;
        is_smaller |= self.drop_each(
            |scenario| scenario.actions.len(),
            |scenario, at| {
                scenario.actions.remove(at);
            },
        )?;
        // Positions of the others must not change, so only the last can go.
        is_smaller |=
            self.adopt(|scenario| scenario.workloads.len() > 1 && scenario.workloads.pop().is_some())?;
        is_smaller |= self.adopt(|scenario| {
            let ManagerSettings { count, .. } = &mut scenario.managers;
            *count > 1 && {
                *count -= 1;
                true
            }
        })?;
        is_smaller |= self.adopt(|scenario| {
            let is_many = scenario.managers.workers > 1;
            scenario.managers.workers = 1;
            is_many
        })?;
        is_smaller |= self.adopt(|scenario| {
            let is_short = scenario.history < 100_000;
            scenario.history = 100_000;
            is_short
        })?;
        is_smaller |= self.drop_each(
            |scenario| scenario.workloads.len(),
            |scenario, at| {
                if let Some(workload) = scenario.workloads.get_mut(at) {
                    workload.replicas = workload.replicas.div_ceil(2);
                }
            },
        )?;
        Ok(is_smaller)
    }

    fn drop_each(
        &mut self,
        len: impl Fn(&Scenario) -> usize,
        drop: impl Fn(&mut Scenario, usize),
    ) -> Result<bool, SimulationError> {
        let mut is_smaller = false;
        for at in (0..len(&self.best)).rev() {
            is_smaller |= self.adopt(|scenario| {
                let before = scenario.clone();
                if at < len(scenario) {
                    drop(scenario, at);
                }
                *scenario != before
            })?;
        }
        Ok(is_smaller)
    }

    /// Adopts a change if the scenario still fails, with the same or with other numbers of its surprises. `change` returns
    /// `false` if there is nothing to change.
    fn adopt(&mut self, change: impl Fn(&mut Scenario) -> bool) -> Result<bool, SimulationError> {
        let mut smaller = self.best.clone();
        if !change(&mut smaller) {
            return Ok(false);
        }
        for surprises in shifted(&smaller.surprises) {
            if self.left == 0 {
                return Ok(false);
            }
            self.left -= 1;
            let candidate = Scenario { surprises, ..smaller.clone() };
            if (self.fails)(&candidate)? {
                self.best = candidate;
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// The surprises with their own and with other numbers, smallest change first.
fn shifted(surprises: &[Surprise]) -> Vec<Vec<Surprise>> {
    let mut all = vec![(0, Vec::new())];
    for surprise in surprises {
        let numbers = surprise.nth.saturating_sub(MAX_SHIFT).max(1)..=surprise.nth + MAX_SHIFT;
        let extended = |(shift, before): &(u32, Vec<Surprise>)| {
            let (shift, before) = (*shift, before.clone());
            numbers.clone().map(move |nth| {
                let mut surprises = before.clone();
                surprises.push(Surprise { nth, ..surprise.clone() });
                (shift + nth.abs_diff(surprise.nth), surprises)
            })
        };
        all = all.iter().flat_map(extended).filter(|(shift, _)| *shift <= MAX_SHIFT).collect();
    }
    all.sort_by_key(|(shift, _)| *shift);
    all.into_iter().map(|(_, surprises)| surprises).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The third creation of a pod, in the second rollout, is refused.
    const SCENARIO: &str = "
end: 6000
workloads:
- {replicas: 1}
actions:
- {at: 2000, event: {setImage: {workload: 0, image: 1}}}
- {at: 4000, event: {setImage: {workload: 0, image: 2}}}
surprises:
- {step: m0 create pods, nth: 3, becomes: refuse}
";

    #[test]
    fn surprise_is_found_after_steps_before_it_are_left_out() {
        let scenario: Scenario = serde_saphyr::from_str(SCENARIO).unwrap();
        // A surprise without a step is a finding.
        let fails = |scenario: &Scenario| {
            let is_in_rollout = scenario.surprises.iter().any(|one| one.nth > 1);
            Ok(is_in_rollout && scenario.run_once()?.has_no_findings())
        };
        let small = scenario.shrunk_while(fails).unwrap();
        assert_eq!(small.actions.len(), 1);
        assert_eq!(small.surprises.iter().map(|one| one.nth).collect::<Vec<_>>(), [2]);
    }
}

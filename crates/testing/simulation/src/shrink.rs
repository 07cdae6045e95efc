//! Makes a scenario that fails as small as it can be.

use crate::{
    scenario::{ManagerSettings, Scenario},
    simulate::SimulationError,
};

/// Runs after which shrinking ends.
const MAX_RUNS: usize = 400;

impl Scenario {
    /// The same scenario with as little in it as violates one of `rules`.
    pub fn shrunk(self, rules: &[&str]) -> Result<Self, SimulationError> {
        let mut shrinker = Shrinker { best: self, rules, left: MAX_RUNS };
        while shrinker.round()? {}
        Ok(shrinker.best)
    }
}

struct Shrinker<'a> {
    best: Scenario,
    rules: &'a [&'a str],
    left: usize,
}

impl Shrinker<'_> {
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

    /// Adopts a change if the scenario still fails. `change` returns `false` if there is nothing to change.
    fn adopt(&mut self, change: impl Fn(&mut Scenario) -> bool) -> Result<bool, SimulationError> {
        let mut smaller = self.best.clone();
        if self.left == 0 || !change(&mut smaller) {
            return Ok(false);
        }
        self.left -= 1;
        let outcome = smaller.run()?;
        let fails = outcome.rules().iter().any(|rule| self.rules.contains(rule));
        if fails {
            self.best = smaller;
        }
        Ok(fails)
    }
}

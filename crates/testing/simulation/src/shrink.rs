//! Makes a scenario that fails as small as it can be.

use kcm_simulation::{
    engine::shrink::{Reduction, shrink},
    removal,
};

use crate::{scenario::Scenario, simulate::SimulationError};

/// Events that the API server keeps in a scenario without expired watches.
const LONG_HISTORY: usize = 100_000;

impl Scenario {
    /// The same scenario with as little in it as violates one of `rules`.
    pub fn shrunk(self, rules: &[&str]) -> Result<Self, SimulationError> {
        shrink(
            self,
            REDUCTIONS,
            |scenario| &mut scenario.surprises,
            |scenario| {
                let outcome = scenario.run()?;
                Ok(outcome.rules().iter().any(|rule| rules.contains(rule)))
            },
        )
    }
}

const REDUCTIONS: &[Reduction<Scenario>] = &[
    removal!(incidents),
    removal!(faults),
    removal!(surprises),
    removal!(webhooks),
    removal!(actions),
    // Positions of the others must not change, so only the last can go.
    Reduction {
        len: |scenario| usize::from(scenario.workloads.len() > 1),
        reduce: |scenario, _| drop(scenario.workloads.pop()),
    },
    Reduction {
        len: |scenario| usize::from(scenario.managers.count > 1),
        reduce: |scenario, _| scenario.managers.count -= 1,
    },
    Reduction { len: |_| 1, reduce: |scenario, _| scenario.managers.workers = 1 },
    Reduction { len: |_| 1, reduce: |scenario, _| scenario.history = scenario.history.max(LONG_HISTORY) },
    Reduction {
        len: |scenario| scenario.workloads.len(),
        reduce: |scenario, at| {
            if let Some(workload) = scenario.workloads.get_mut(at) {
                workload.replicas = workload.replicas.div_ceil(2);
            }
        },
    },
];

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
        let fails = |scenario: &Scenario| -> Result<bool, SimulationError> {
            let is_in_rollout = scenario.surprises.iter().any(|one| one.nth > 1);
            Ok(is_in_rollout && scenario.run_once()?.has_no_findings())
        };
        let small = shrink(scenario, REDUCTIONS, |scenario| &mut scenario.surprises, fails).unwrap();
        assert_eq!(small.actions.len(), 1);
        assert_eq!(small.surprises.iter().map(|one| one.nth).collect::<Vec<_>>(), [2]);
    }
}

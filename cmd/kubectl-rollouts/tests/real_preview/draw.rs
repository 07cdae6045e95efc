//! Drawn cases of the real-time suite.

use std::fmt;

use kcm_clock::{Random, SeededRandom};
use serde_json::{Value, json};

use crate::{
    case::{Case, Change},
    nodes::Timing,
};

/// Number of never-ready pods that stands for all new pods.
const ALL: u64 = 99;

/// Case with its circumstances.
#[derive(Debug)]
pub(crate) struct DrawnCase {
    pub(crate) seed: u64,
    pub(crate) case: Case,
    pub(crate) circumstance: Circumstance,
    pub(crate) min_ready: u64,
}

/// Circumstance of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Circumstance {
    /// The Deployment is complete, and nothing hinders the rollout.
    None,
    /// A quota permits this number of pods.
    Quota(u64),
    /// This number of new pods never becomes ready.
    Failing(u64),
    /// The change is made in the middle of a rollout, this number of milliseconds after its start.
    Midway(u64),
}

impl DrawnCase {
    /// One case in six has a quota, one has failing pods, and one is in the middle of a rollout. One in three has
    /// `minReadySeconds`.
    pub(crate) fn draw(seed: u64) -> Self {
        let random = SeededRandom::new(seed ^ 0xacc0_0000);
        let below = |bound: u64| random.next_u64() % bound;
        let mut case = Case::draw(seed);
        case.replicas = 1 + below(8);
        case.timing = Timing { ready: 2 + below(6), stop: 1 + below(5) };
        let circumstance = match seed % 6 {
            0 => Circumstance::Quota(case.replicas + below(2)),
            1 => Circumstance::Failing(if below(2) == 0 { 1 } else { ALL }),
            2 => Circumstance::Midway(below(3) * case.timing.ready * 1000 + 500 + below(1000)),
            _ => Circumstance::None,
        };
        match circumstance {
            Circumstance::Midway(_) if below(4) == 0 => case.change = Change::Pause,
            Circumstance::None if below(8) == 0 => case.change = Change::Resume,
            _ => {}
        }
        let min_ready = if below(3) == 0 { below(5) } else { 0 };
        Self { seed, case, circumstance, min_ready }
    }

    /// Manifest with this image.
    pub(crate) fn manifest(&self, image: &str) -> Value {
        self.with_min_ready(self.case.manifest(image))
    }

    /// Manifest for [`Change::Apply`].
    pub(crate) fn changed_manifest(&self) -> Value {
        self.with_min_ready(self.case.changed_manifest())
    }

    /// Manifest for the rollouts before the change, with which they take little time.
    pub(crate) fn first_manifest(&self) -> Value {
        let mut manifest = self.case.manifest("app:0");
        let bounds = json!({ "maxSurge": "100%", "maxUnavailable": "100%" });
        manifest["spec"]["strategy"] = json!({ "type": "RollingUpdate", "rollingUpdate": bounds });
        manifest
    }

    fn with_min_ready(&self, mut manifest: Value) -> Value {
        manifest["spec"]["minReadySeconds"] = self.min_ready.into();
        manifest
    }
}

impl fmt::Display for DrawnCase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seed, case, circumstance, min_ready } = self;
        let Timing { ready, stop } = case.timing;
        let bounds = &case.strategy["rollingUpdate"];
        let strategy = match bounds.is_null() {
            true => "Recreate".to_owned(),
            false => format!("surge {}, unavailable {}", bounds["maxSurge"], bounds["maxUnavailable"]),
        };
        write!(
            formatter,
            "{seed:3} {:?} of {} pods, {strategy}, ready {ready}s+{min_ready}s, stop {stop}s, {circumstance:?}",
            case.change, case.replicas,
        )
    }
}

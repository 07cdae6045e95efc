//! Draws faults from seeds.

use crate::{
    engine::{
        faults::{At, FaultEffect, Incident, RequestFault, RequestPattern},
        random::ScenarioRandom,
    },
    scenario::{LONG_HISTORY, Scenario},
};

impl Scenario {
    /// The scenario with the faults of a seed. Some seeds also delay actions of users. Their order stays.
    #[must_use]
    pub fn with_seed(&self, seed: u64) -> Self {
        let random = ScenarioRandom::new(seed);
        let mut scenario = Self { seed, ..self.clone() };
        if random.once_in(2) {
            let mut delay = 0;
            for action in &mut scenario.actions {
                delay += random.below(4_000);
                action.at += delay;
            }
            scenario.end += delay;
        }
        let end = scenario.end;
        scenario.history =
            random.pick(&[LONG_HISTORY, LONG_HISTORY, LONG_HISTORY, 5]).unwrap_or(LONG_HISTORY);
        scenario.restart_after = random.between(100, 5_000);
        // The process may read from a server with a current cache, and then from the one with a lag: its cache goes back in
        // time.
        if random.once_in(2) {
            scenario.front_ends = 2;
            let lag = random.pick(&[2_000, 10_000, 20_000]).unwrap_or(2_000);
            let event = Incident::Lag { front_end: random.index(2), lag };
            scenario.incidents.push(At { at: random.below(end / 3), event });
        }
        for _ in 0..random.below(4) {
            let event = incident(&random, scenario.managers);
            scenario.incidents.push(At { at: random.below(end), event });
        }
        for _ in 0..random.below(3) {
            scenario.faults.push(fault(&random, end));
        }
        scenario.incidents.sort_by_key(|incident| incident.at);
        scenario
    }
}

fn incident(random: &ScenarioRandom, managers: usize) -> Incident {
    let manager = random.index(managers);
    match random.below(6) {
        0..=2 => Incident::Kill { manager },
        3 => Incident::Terminate { manager },
        4 => Incident::Stop { manager, time: random.between(100, 30_000) },
        _ => Incident::Cut { manager, time: random.between(100, 30_000) },
    }
}

fn fault(random: &ScenarioRandom, end: u64) -> RequestFault {
    let is_watch = random.once_in(3);
    let effect = if is_watch {
        match random.below(5) {
            0 => FaultEffect::CutWatch { chunks: random.small(0, 6), torn: random.once_in(2) },
            1..=2 => FaultEffect::ExpireWatch { chunks: random.small(0, 6), time: random.between(1, 10_000) },
            3 => FaultEffect::NoBookmarks,
            _ => FaultEffect::DelayWatch { time: random.between(20, 6_000) },
        }
    } else {
        match random.below(10) {
            0 => FaultEffect::DelayRequest { time: random.between(10, 8_000) },
            1 => FaultEffect::DelayResponse { time: random.between(10, 8_000) },
            2 => FaultEffect::LoseRequest,
            3..=4 => FaultEffect::LoseResponse,
            5 => FaultEffect::Late { time: random.between(10, 3_000) },
            6..=7 => FaultEffect::Kill { executed: random.once_in(2) },
            _ => {
                let code = random.pick(&[409, 429, 500, 503]).unwrap_or(500);
                FaultEffect::Refuse { code, retry_after: (code == 429).then_some(1) }
            }
        }
    };
    let verbs = ["*", "create", "update", "patch", "delete", "get", "list"];
    let verb = if is_watch { "watch" } else { random.pick(&verbs).unwrap_or("*") };
    let effect = match effect {
        // Conflicts are those of updates. The API server also responds to a creation with 409, if the object exists.
        FaultEffect::Refuse { code: 409, retry_after } if !matches!(verb, "update" | "patch") => {
            FaultEffect::Refuse { code: 500, retry_after }
        }
        effect => effect,
    };
    let from = random.below(end);
    RequestFault {
        requests: RequestPattern(format!("{verb} *")),
        effect,
        per_mille: random.pick(&[100, 300, 500]).unwrap_or(100),
        from,
        until: (from + random.between(1_000, 20_000)).min(end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts_are_drawn_for_updates() {
        let faults = (0..5_000).flat_map(|seed| Scenario::default().with_seed(seed).faults);
        let is_conflict =
            |fault: &RequestFault| matches!(fault.effect, FaultEffect::Refuse { code: 409, .. });
        let mut requests: Vec<_> = faults.filter(is_conflict).map(|fault| fault.requests.0).collect();
        requests.sort();
        requests.dedup();
        assert_eq!(requests, ["patch *", "update *"]);
    }
}

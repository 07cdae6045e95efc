//! Draws scenarios from seeds.

use kcm_clock::{Random, SeededRandom};

use crate::scenario::{
    Action, At, Fault, Harm, Incident, Managers, Nodes, Policy, Requests, Scenario, Strategy, Workload,
    WorkloadKind,
};

/// Numbers drawn from a seed.
#[derive(Debug)]
pub(crate) struct Dice(SeededRandom);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SeededRandom::new(seed))
    }

    /// A number in `0..limit`; 0 if `limit` is 0.
    pub(crate) fn below(&self, limit: u64) -> u64 {
        self.0.next_u64().checked_rem(limit).unwrap_or(0)
    }

    /// A number in `from..=to`.
    pub(crate) fn between(&self, from: u64, to: u64) -> u64 {
        from + self.below(to.saturating_sub(from) + 1)
    }

    /// `true` once in `times`.
    pub(crate) fn once_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// One of several values.
    pub(crate) fn pick<T: Copy>(&self, of: &[T]) -> Option<T> {
        of.get(self.index(of.len())).copied()
    }

    /// An index below `limit`.
    pub(crate) fn index(&self, limit: usize) -> usize {
        usize::try_from(self.below(limit as u64)).unwrap_or(0)
    }

    fn small(&self, from: u32, to: u32) -> u32 {
        u32::try_from(self.between(from.into(), to.into())).unwrap_or(from)
    }
}

/// Number of faults in a scenario.
///
/// Rules are strict where little is uncertain, so many scenarios have few kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Weather {
    /// Nothing goes wrong.
    Fair,
    /// One kind of fault.
    Single,
    /// Everything at once.
    Storm,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn draw(seed: u64) -> Self {
        let dice = Dice::new(seed);
        let weather = match dice.below(10) {
            0..=1 => Weather::Fair,
            2..=5 => Weather::Single,
            _ => Weather::Storm,
        };
        let workloads = workloads(&dice);
        let large = workloads.iter().any(|workload| workload.replicas > LARGE);
        let end = if large { dice.between(15_000, 40_000) } else { dice.between(10_000, 70_000) };
        let count = match dice.below(8) {
            0 => 1,
            1..=5 => 2,
            _ => 3,
        };
        let managers = Managers {
            count,
            workers: dice.pick(&[1, 1, 2, 5]).unwrap_or(1),
            qps: dice.pick(&[20, 100, 1000, 1000]).unwrap_or(20),
            lease: dice.pick(&[15, 15, 30]).unwrap_or(15),
            restart_after: dice.between(100, 5_000),
            terminating_replicas: !dice.once_in(4),
        };
        let nodes = Nodes {
            count: dice.index(4) + 1,
            ready_delay: dice.between(20, 2_500),
            stop_delay: dice.between(20, 2_500),
        };
        let mut actions: Vec<At<Action>> = Vec::new();
        let number = dice.between(1, if large { 6 } else { 14 });
        for _ in 0..number {
            // Some events come close together.
            let at = match actions.last() {
                Some(last) if dice.once_in(3) => last.at + dice.below(400),
                _ => dice.below(end),
            };
            actions.push(At { at, event: action(&dice, &workloads, large) });
        }
        let sequels: Vec<_> = actions.iter().filter_map(|action| sequel(&dice, action)).collect();
        actions.extend(sequels);
        actions.sort_by_key(|action| action.at);
        let front_ends = dice.pick(&[1, 1, 2, 3]).unwrap_or(1);
        let mut incidents = Vec::new();
        let mut faults = Vec::new();
        match weather {
            Weather::Fair => {}
            Weather::Single if dice.once_in(2) => {
                for _ in 0..dice.between(1, 3) {
                    incidents.push(At { at: dice.below(end), event: incident(&dice, count, front_ends) });
                }
            }
            Weather::Single => faults.push(fault(&dice, end)),
            Weather::Storm => {
                for _ in 0..dice.between(0, 4) {
                    incidents.push(At { at: dice.below(end), event: incident(&dice, count, front_ends) });
                }
                faults.extend((0..dice.between(1, 5)).map(|_| fault(&dice, end)));
            }
        }
        incidents.sort_by_key(|incident| incident.at);
        let short = if large { 3_000 } else { 60 };
        let history = dice.pick(&[short, short * 4, 100_000]).unwrap_or(100_000);
        Self { seed, end, managers, front_ends, history, nodes, workloads, actions, incidents, faults }
    }
}

/// Replicas from which a workload is a large one, which has its scenario to itself.
const LARGE: u32 = 20;

fn workloads(dice: &Dice) -> Vec<Workload> {
    let one = |kind, replicas| Workload {
        kind,
        doomed: false,
        replicas,
        strategy: strategy(dice),
        min_ready_seconds: dice.pick(&[0, 0, 0, 2]).unwrap_or(0),
        history_limit: dice.pick(&[10, 10, 2, 0]).unwrap_or(10),
        no_deadline: dice.once_in(2),
    };
    if dice.once_in(60) {
        let replicas = if dice.once_in(4) { dice.small(100, 300) } else { dice.small(LARGE + 1, 100) };
        return vec![one(kind(dice), replicas)];
    }
    let number = dice.pick(&[1, 1, 1, 2, 2, 3]).unwrap_or(1);
    let mut all: Vec<Workload> = (0..number).map(|_| one(kind(dice), dice.small(1, 7))).collect();
    if dice.once_in(10) {
        all.push(Workload { doomed: true, ..one(WorkloadKind::Deployment, dice.small(1, 4)) });
    }
    all
}

fn kind(dice: &Dice) -> WorkloadKind {
    match dice.below(10) {
        0..=6 => WorkloadKind::Deployment,
        7..=8 => WorkloadKind::ReplicaSet,
        _ => WorkloadKind::ReplicationController,
    }
}

fn strategy(dice: &Dice) -> Strategy {
    let rolling =
        |surge: &str, unavailable: &str| Strategy::Rolling(surge.to_owned(), unavailable.to_owned());
    match dice.below(7) {
        0..=1 => rolling("25%", "25%"),
        2 => rolling("1", "0"),
        3 => rolling("0", "1"),
        4 => rolling("0", "50%"),
        5 => rolling("100%", "0"),
        _ => Strategy::Recreate,
    }
}

fn action(dice: &Dice, workloads: &[Workload], large: bool) -> Action {
    let workload = dice.index(workloads.len());
    let (pod, set, node) = (dice.index(64), dice.index(8), dice.index(4));
    let policy =
        dice.pick(&[Policy::Background, Policy::Foreground, Policy::Orphan]).unwrap_or(Policy::Orphan);
    match dice.below(60) {
        0..=13 => Action::SetImage { workload, image: dice.small(0, 4) },
        14..=23 => {
            let most = if large { 60 } else { 9 };
            Action::Scale { workload, replicas: dice.small(0, most) }
        }
        24 => Action::Pause { workload },
        25..=26 => Action::Resume { workload },
        27..=28 => Action::SetStrategy { workload, strategy: strategy(dice) },
        29 => Action::SetHistoryLimit { workload, limit: dice.small(0, 3) },
        30..=31 => Action::Annotate { workload, value: dice.small(0, 3) },
        32..=33 => Action::Delete { workload, policy },
        34..=36 => Action::Create { workload },
        37..=40 => Action::DeletePod { pod, grace: dice.pick(&[0, 30]).unwrap_or(0) },
        41 => Action::EvictPod { pod },
        42..=43 => Action::FailPod { pod },
        44 => Action::UnreadyPod { pod },
        45 => Action::ReleasePod { pod },
        46 => Action::OrphanPod { pod },
        47 => Action::StrayPod { workload },
        48..=49 => Action::ScaleSet { set, replicas: dice.small(0, 6) },
        50 => Action::DeleteSet { set, policy },
        51 => Action::ReleaseSet { set },
        52 => Action::OrphanSet { set },
        53..=54 => Action::SetQuota { pods: dice.small(0, 8) },
        55 => Action::RemoveQuota,
        56 if workloads.iter().any(|workload| workload.doomed) => Action::DeleteNamespace,
        57 => Action::Cordon { node },
        58 => Action::Uncordon { node },
        59 => Action::LoseNode { node },
        _ => Action::Scale { workload, replicas: dice.small(0, 9) },
    }
}

/// An action that is rarely drawn at the right time by itself.
fn sequel(dice: &Dice, action: &At<Action>) -> Option<At<Action>> {
    let (event, within) = match action.event {
        // A stray pod that an owner on its way out could adopt.
        Action::Delete { workload, policy: Policy::Foreground } => (Action::StrayPod { workload }, 1_500),
        Action::ReleasePod { pod } => (Action::ReturnPod { pod }, 6_000),
        Action::Pause { workload } => (Action::SetImage { workload, image: dice.small(0, 4) }, 3_000),
        _ => return None,
    };
    dice.once_in(2).then(|| At { at: action.at + dice.below(within), event })
}

fn incident(dice: &Dice, managers: usize, front_ends: usize) -> Incident {
    let manager = dice.index(managers);
    match dice.below(12) {
        0..=2 => Incident::Kill { manager },
        3 => Incident::Terminate { manager },
        4..=5 => Incident::Stop { manager, time: dice.between(500, 40_000) },
        6..=7 => Incident::Cut { manager, time: dice.between(500, 40_000) },
        8 => {
            let step = i64::try_from(dice.between(1, 1_200_000)).unwrap_or(1);
            Incident::ClockStep { manager, by: if dice.once_in(2) { step } else { -step } }
        }
        _ => Incident::Lag { front_end: dice.index(front_ends), lag: dice.between(10, 5_000) },
    }
}

fn fault(dice: &Dice, end: u64) -> Fault {
    let writes = [
        Requests::All,
        Requests::CreatePods,
        Requests::CreatePods,
        Requests::CreatePods,
        Requests::CreatePods,
        Requests::DeletePods,
        Requests::PatchPods,
        Requests::CreateReplicaSets,
        Requests::UpdateReplicaSets,
        Requests::UpdateReplicaSets,
        Requests::UpdateReplicaSets,
        Requests::DeleteReplicaSets,
        Requests::ReplicaSetStatus,
        Requests::UpdateDeployments,
        Requests::DeploymentStatus,
        Requests::Lease,
        Requests::Lists,
    ];
    let is_watch = dice.once_in(4);
    let (requests, harm) = if is_watch {
        let harm = match dice.below(5) {
            0 => Harm::CutWatch { chunks: dice.small(0, 6), torn: true },
            1 => Harm::CutWatch { chunks: dice.small(0, 6), torn: false },
            2 => Harm::ExpireWatch { time: dice.between(1, dice.pick(&[2, 10_000]).unwrap_or(2)) },
            3 => Harm::NoBookmarks,
            _ => Harm::DelayWatch { time: dice.between(20, 6_000) },
        };
        (dice.pick(&[Requests::Watches, Requests::PodWatches]).unwrap_or(Requests::Watches), harm)
    } else {
        let code = dice.pick(&[409, 429, 500, 503, 504]).unwrap_or(500);
        let harm = match dice.below(19) {
            0..=1 => Harm::DelayRequest { time: dice.between(10, 8_000) },
            2..=3 => Harm::DelayAnswer { time: dice.between(10, 8_000) },
            4 => Harm::LoseRequest,
            5..=6 => Harm::LoseAnswer,
            7..=8 => Harm::Late { time: dice.between(100, dice.pick(&[6_000, 60_000]).unwrap_or(6_000)) },
            9 => Harm::Silence { executed: dice.once_in(2) },
            10..=11 => {
                let retry_after = (code == 429 || dice.once_in(3)).then(|| dice.small(1, 3));
                Harm::Refuse { code, retry_after }
            }
            12..=13 => Harm::Webhook { code: 403 },
            14..=15 => Harm::Webhook { code: 500 },
            16 => Harm::Crash { executed: dice.once_in(2) },
            _ => Harm::Stop { time: dice.pick(&[500, 5_000, 25_000, 60_000]).unwrap_or(500) },
        };
        (dice.pick(&writes).unwrap_or(Requests::All), harm)
    };
    let rare = matches!(harm, Harm::Crash { .. } | Harm::Stop { .. } | Harm::Silence { .. });
    let per_mille = match harm {
        _ if rare => dice.small(5, 100),
        // A webhook that refuses mostly refuses all.
        Harm::Webhook { .. } => dice.pick(&[500, 1000, 1000]).unwrap_or(1000),
        _ => dice.pick(&[50, 200, 500, 1000]).unwrap_or(50),
    };
    let from = if dice.once_in(2) { 0 } else { dice.below(end) };
    let until = if per_mille == 1000 { from + dice.between(500, 40_000) } else { end };
    Fault { requests, harm, per_mille, from, until: until.min(end) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scenario_of_a_seed_is_always_the_same() {
        assert_eq!(Scenario::draw(3), Scenario::draw(3));
        assert_ne!(Scenario::draw(3), Scenario::draw(4));
    }

    #[test]
    fn scenario_written_and_read_is_the_same() {
        for seed in 0..200 {
            let scenario = Scenario::draw(seed);
            let read: Scenario = serde_saphyr::from_str(&scenario.to_text()).unwrap();
            assert_eq!(read, scenario, "seed {seed}");
        }
    }

    #[test]
    fn every_kind_of_fault_and_incident_is_drawn() {
        let all: Vec<Scenario> = (0..3_000).map(Scenario::draw).collect();
        let text = format!("{all:?}");
        for word in [
            "Kill",
            "Terminate",
            "ClockStep",
            "Cut {",
            "Stop {",
            "Lag {",
            "CutWatch",
            "ExpireWatch",
            "NoBookmarks",
            "Late {",
            "Silence",
            "Webhook",
            "Crash",
            "LoseAnswer",
            "SetQuota",
            "DeleteNamespace",
            "LoseNode",
            "ReplicationController",
            "Foreground",
            "ReturnPod",
        ] {
            assert!(text.contains(word), "{word} is never drawn");
        }
        assert!(all.iter().any(|one| one.workloads.iter().any(|workload| workload.replicas > 200)));
    }
}

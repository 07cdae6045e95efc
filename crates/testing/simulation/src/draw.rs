//! Draws scenarios from seeds.

use kcm_simulation::engine::random::ScenarioRandom;

use crate::scenario::{
    At, FaultEffect, Incident, ManagerSettings, Nodes, PodWebhook, Policy, RequestFault, Requests, Scenario,
    Strategy, UserAction, Workload, WorkloadKind,
};

/// Number of faults in a scenario.
///
/// Rules are strict where little is uncertain, so many scenarios have few kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FaultLevel {
    /// No fault.
    None,
    /// One kind of fault.
    Single,
    /// Several kinds at once.
    Many,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn draw(seed: u64) -> Self {
        let random = ScenarioRandom::new(seed);
        let fault_level = match random.below(10) {
            0..=1 => FaultLevel::None,
            2..=5 => FaultLevel::Single,
            _ => FaultLevel::Many,
        };
        let workloads = workloads(&random);
        let large = workloads.iter().any(|workload| workload.replicas > LARGE_WORKLOAD);
        let end = if large { random.between(15_000, 40_000) } else { random.between(10_000, 70_000) };
        let count = match random.below(8) {
            0 => 1,
            1..=5 => 2,
            _ => 3,
        };
        let managers = ManagerSettings {
            count,
            workers: random.pick(&[1, 1, 2, 5]).unwrap_or(1),
            qps: random.pick(&[20, 100, 1000, 1000]).unwrap_or(20),
            lease: random.pick(&[15, 15, 30]).unwrap_or(15),
            restart_after: random.between(100, 5_000),
            terminating_replicas: !random.once_in(4),
        };
        let nodes = Nodes {
            count: random.index(4) + 1,
            ready_delay: random.between(20, 2_500),
            stop_delay: random.between(20, 2_500),
        };
        let mut actions: Vec<At<UserAction>> = Vec::new();
        let number = random.between(1, if large { 6 } else { 14 });
        for _ in 0..number {
            // Some events come close together.
            let at = match actions.last() {
                Some(last) if random.once_in(3) => last.at + random.below(400),
                _ => random.below(end),
            };
            actions.push(At { at, event: action(&random, &workloads, large) });
        }
        let sequels: Vec<_> = actions.iter().filter_map(|action| follow_up(&random, action)).collect();
        actions.extend(sequels);
        let front_ends = random.pick(&[1, 1, 2, 3]).unwrap_or(1);
        let mut incidents = Vec::new();
        let mut faults = Vec::new();
        match fault_level {
            FaultLevel::None => {}
            FaultLevel::Single if random.once_in(2) => {
                for _ in 0..random.between(1, 3) {
                    incidents.push(At { at: random.below(end), event: incident(&random, count, front_ends) });
                }
            }
            FaultLevel::Single => faults.push(fault(&random, end)),
            FaultLevel::Many => {
                for _ in 0..random.between(0, 4) {
                    incidents.push(At { at: random.below(end), event: incident(&random, count, front_ends) });
                }
                faults.extend((0..random.between(1, 5)).map(|_| fault(&random, end)));
            }
        }
        let lags: Vec<_> =
            incidents.iter().filter_map(|incident| lag_at_takeover(&random, incident, front_ends)).collect();
        incidents.extend(lags);
        actions.extend(
            incidents.iter().filter_map(|incident| change_at_takeover(&random, incident, &workloads)),
        );
        actions.extend(faults.iter().filter_map(|fault| unreported(&random, fault)));
        actions.extend(faults.iter().filter_map(|fault| refused_rollout(&random, fault, &workloads)));
        actions.extend(faults.iter().flat_map(|fault| unobserved_recreate(&random, fault, &workloads)));
        // Drawn apart, so that the rest of a seed is the same as without them.
        let apart = ScenarioRandom::new(seed.wrapping_mul(APART));
        let webhooks = webhooks(&apart, large);
        faults.extend(webhooks.iter().filter_map(|webhook| late_pods(&apart, *webhook, end)));
        incidents.extend(restore(&apart, end));
        actions.sort_by_key(|action| action.at);
        incidents.sort_by_key(|incident| incident.at);
        let short = if large { 3_000 } else { 60 };
        let history = random.pick(&[short, short * 4, 100_000]).unwrap_or(100_000);
        Self {
            seed,
            end,
            managers,
            front_ends,
            history,
            nodes,
            workloads,
            actions,
            incidents,
            faults,
            webhooks,
            surprises: Vec::new(),
        }
    }
}

/// Factor of the seed for what is drawn apart.
const APART: u64 = 0x9E37_79B9_7F4A_7C15;

/// Replicas above which a workload is large. A large workload is the only one of its scenario.
pub(crate) const LARGE_WORKLOAD: u32 = 20;

fn workloads(random: &ScenarioRandom) -> Vec<Workload> {
    let one = |kind, replicas| Workload {
        kind,
        doomed: false,
        replicas,
        strategy: strategy(random),
        min_ready_seconds: random.pick(&[0, 0, 0, 2]).unwrap_or(0),
        history_limit: random.pick(&[10, 10, 2, 0]).unwrap_or(10),
        no_deadline: random.once_in(2),
        ..Workload::default()
    };
    if random.once_in(60) {
        let replicas =
            if random.once_in(4) { random.small(100, 300) } else { random.small(LARGE_WORKLOAD + 1, 100) };
        return vec![one(kind(random), replicas)];
    }
    let number = random.pick(&[1, 1, 1, 2, 2, 3]).unwrap_or(1);
    let mut all: Vec<Workload> = (0..number).map(|_| one(kind(random), random.small(1, 7))).collect();
    if random.once_in(10) {
        all.push(Workload { doomed: true, ..one(WorkloadKind::Deployment, random.small(1, 4)) });
    }
    all
}

fn kind(random: &ScenarioRandom) -> WorkloadKind {
    match random.below(10) {
        0..=6 => WorkloadKind::Deployment,
        7..=8 => WorkloadKind::ReplicaSet,
        _ => WorkloadKind::ReplicationController,
    }
}

fn strategy(random: &ScenarioRandom) -> Strategy {
    let rolling =
        |surge: &str, unavailable: &str| Strategy::Rolling(surge.to_owned(), unavailable.to_owned());
    match random.below(7) {
        0..=1 => rolling("25%", "25%"),
        2 => rolling("1", "0"),
        3 => rolling("0", "1"),
        4 => rolling("0", "50%"),
        5 => rolling("100%", "0"),
        _ => Strategy::Recreate,
    }
}

fn action(random: &ScenarioRandom, workloads: &[Workload], large: bool) -> UserAction {
    let workload = random.index(workloads.len());
    let (pod, set, node) = (random.index(64), random.index(8), random.index(4));
    let policy =
        random.pick(&[Policy::Background, Policy::Foreground, Policy::Orphan]).unwrap_or(Policy::Orphan);
    match random.below(60) {
        0..=13 => UserAction::SetImage { workload, image: random.small(0, 4) },
        14..=23 => {
            let most = if large { 60 } else { 9 };
            UserAction::Scale { workload, replicas: random.small(0, most) }
        }
        24 => UserAction::Pause { workload },
        25..=26 => UserAction::Resume { workload },
        27..=28 => UserAction::SetStrategy { workload, strategy: strategy(random) },
        29 => UserAction::SetHistoryLimit { workload, limit: random.small(0, 3) },
        30..=31 => UserAction::Annotate { workload, value: random.small(0, 3) },
        32..=33 => UserAction::Delete { workload, policy },
        34..=36 => UserAction::Create { workload },
        37..=40 => UserAction::DeletePod { pod, grace: random.pick(&[0, 30]).unwrap_or(0) },
        41 => UserAction::EvictPod { pod },
        42..=43 => UserAction::FailPod { pod },
        44 => UserAction::UnreadyPod { pod },
        45 => UserAction::ReleasePod { pod },
        46 => UserAction::OrphanPod { pod },
        47 => UserAction::StrayPod { workload },
        48..=49 => UserAction::ScaleSet { set, replicas: random.small(0, 6) },
        50 => UserAction::DeleteSet { set, policy },
        51 => UserAction::ReleaseSet { set },
        52 => UserAction::OrphanSet { set },
        53..=54 => UserAction::SetQuota { pods: random.small(0, 8) },
        55 => UserAction::RemoveQuota,
        56 if workloads.iter().any(|workload| workload.doomed) => UserAction::DeleteNamespace,
        57 => UserAction::Cordon { node },
        58 => UserAction::Uncordon { node },
        59 => UserAction::LoseNode { node },
        _ => UserAction::Scale { workload, replicas: random.small(0, 9) },
    }
}

/// An action that is rarely drawn at the right time by itself.
fn follow_up(random: &ScenarioRandom, action: &At<UserAction>) -> Option<At<UserAction>> {
    let (event, within) = match action.event {
        // A stray pod that an owner that is being deleted could adopt.
        UserAction::Delete { workload, policy: Policy::Foreground } => {
            (UserAction::StrayPod { workload }, 1_500)
        }
        UserAction::ReleasePod { pod } => (UserAction::ReturnPod { pod }, 6_000),
        UserAction::Pause { workload } => {
            (UserAction::SetImage { workload, image: random.small(0, 4) }, 3_000)
        }
        _ => return None,
    };
    random.once_in(2).then(|| At { at: action.at + random.below(within), event })
}

/// The deletion of a pod that no watch reports.
fn unreported(random: &ScenarioRandom, fault: &RequestFault) -> Option<At<UserAction>> {
    let is_silent = matches!(fault.effect, FaultEffect::ExpireWatch { .. });
    let at = is_silent.then(|| random.between(fault.from, fault.until))?;
    Some(At { at, event: UserAction::DeletePod { pod: random.index(64), grace: 0 } })
}

/// Old caches of the standby at a takeover, which follows a SIGTERM at once.
fn lag_at_takeover(
    random: &ScenarioRandom,
    incident: &At<Incident>,
    front_ends: usize,
) -> Option<At<Incident>> {
    let is_takeover = matches!(incident.event, Incident::Terminate { .. });
    let at = (is_takeover && random.once_in(2)).then(|| incident.at.saturating_sub(random.below(3_000)))?;
    let lag = random.between(500, 5_000);
    Some(At { at, event: Incident::Lag { front_end: random.index(front_ends), lag } })
}

/// A change that the manager carries out right before it is terminated.
fn change_at_takeover(
    random: &ScenarioRandom,
    incident: &At<Incident>,
    workloads: &[Workload],
) -> Option<At<UserAction>> {
    let is_takeover = matches!(incident.event, Incident::Terminate { .. });
    let at = (is_takeover && random.once_in(2)).then(|| incident.at.saturating_sub(random.below(500)))?;
    let event = UserAction::Scale { workload: random.index(workloads.len()), replicas: random.small(1, 9) };
    Some(At { at, event })
}

/// A rollout whose first writes are refused.
fn refused_rollout(
    random: &ScenarioRandom,
    fault: &RequestFault,
    workloads: &[Workload],
) -> Option<At<UserAction>> {
    let is_refusal = matches!(fault.effect, FaultEffect::Refuse { .. } | FaultEffect::Webhook { .. });
    let applies = is_refusal && fault.requests == Requests::UpdateReplicaSets;
    let latest = fault.until.min(fault.from + 2_000);
    let at = (applies && random.once_in(2)).then(|| random.between(fault.from, latest))?;
    let event = UserAction::SetImage { workload: random.index(workloads.len()), image: random.small(0, 4) };
    Some(At { at, event })
}

/// A Recreate that begins before the ReplicaSet controller has observed the former rollout.
fn unobserved_recreate(
    random: &ScenarioRandom,
    fault: &RequestFault,
    workloads: &[Workload],
) -> Vec<At<UserAction>> {
    let FaultEffect::DelayWatch { time } = fault.effect else { return Vec::new() };
    if random.once_in(2) {
        return Vec::new();
    }
    let at = (fault.from + random.below(4 * time)).min(fault.until);
    let (workload, image) = (random.index(workloads.len()), random.small(1, 4));
    let strategy = UserAction::SetStrategy { workload, strategy: Strategy::Recreate };
    [strategy, UserAction::SetImage { workload, image }].map(|event| At { at, event }).into()
}

fn incident(random: &ScenarioRandom, managers: usize, front_ends: usize) -> Incident {
    let manager = random.index(managers);
    match random.below(13) {
        0..=2 => Incident::Kill { manager },
        3 | 12 => Incident::Terminate { manager },
        4..=5 => Incident::Stop { manager, time: random.between(500, 40_000) },
        6..=7 => Incident::Cut { manager, time: random.between(500, 40_000) },
        8 => {
            let step = i64::try_from(random.between(1, 1_200_000)).unwrap_or(1);
            Incident::ClockStep { manager, by: if random.once_in(2) { step } else { -step } }
        }
        _ => Incident::Lag { front_end: random.index(front_ends), lag: random.between(10, 5_000) },
    }
}

fn webhooks(random: &ScenarioRandom, large: bool) -> Vec<PodWebhook> {
    let per_mille = random.pick(&[100, 260, 400]).unwrap_or(100);
    let webhook = match random.below(32) {
        // Each refusal doubles the delay of the next sync.
        0..=1 => PodWebhook::RefuseNames { per_mille: if large { 20 } else { per_mille } },
        2 => PodWebhook::RefuseKnownNames,
        3 => PodWebhook::StripOwners { per_mille: random.pick(&[300, 1000]).unwrap_or(1000) },
        _ => return Vec::new(),
    };
    vec![webhook]
}

/// A cache that contains created pods later than the ReplicaSets that report them.
fn late_pods(random: &ScenarioRandom, webhook: PodWebhook, end: u64) -> Option<RequestFault> {
    let applies = matches!(webhook, PodWebhook::StripOwners { .. });
    let effect = FaultEffect::DelayWatch { time: random.between(200, 3_000) };
    (applies && random.once_in(2)).then_some(RequestFault {
        requests: Requests::PodWatches,
        effect,
        per_mille: 1000,
        from: 0,
        until: end,
    })
}

fn restore(random: &ScenarioRandom, end: u64) -> Option<At<Incident>> {
    let at = random.once_in(16).then(|| random.between(end / 4, end))?;
    // If the backup contains the last renewal of the Lease, the leader continues.
    let oldest = random.pick(&[1_000, 1_000, at]).unwrap_or(at);
    Some(At { at, event: Incident::Restore { age: random.between(0, oldest) } })
}

fn fault(random: &ScenarioRandom, end: u64) -> RequestFault {
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
    let is_watch = random.once_in(4);
    let (requests, effect) = if is_watch {
        let effect = match random.below(5) {
            0 => FaultEffect::CutWatch { chunks: random.small(0, 6), torn: true },
            1 => FaultEffect::CutWatch { chunks: random.small(0, 6), torn: false },
            2 => FaultEffect::ExpireWatch {
                chunks: random.small(0, 12),
                time: random.between(1, random.pick(&[2, 10_000]).unwrap_or(2)),
            },
            3 => FaultEffect::NoBookmarks,
            _ => FaultEffect::DelayWatch { time: random.between(20, 6_000) },
        };
        (random.pick(&[Requests::Watches, Requests::PodWatches]).unwrap_or(Requests::Watches), effect)
    } else {
        let code = random.pick(&[409, 429, 500, 503, 504]).unwrap_or(500);
        let effect = match random.below(19) {
            0..=1 => FaultEffect::DelayRequest { time: random.between(10, 8_000) },
            2..=3 => FaultEffect::DelayResponse { time: random.between(10, 8_000) },
            4 => FaultEffect::LoseRequest,
            5..=6 => FaultEffect::LoseResponse,
            7..=8 => FaultEffect::Late {
                time: random.between(100, random.pick(&[6_000, 60_000]).unwrap_or(6_000)),
            },
            9 => FaultEffect::Silence { executed: random.once_in(2) },
            10..=11 => {
                let retry_after = (code == 429 || random.once_in(3)).then(|| random.small(1, 3));
                FaultEffect::Refuse { code, retry_after }
            }
            12..=13 => FaultEffect::Webhook { code: 403 },
            14..=15 => FaultEffect::Webhook { code: 500 },
            16 => FaultEffect::Kill { executed: random.once_in(2) },
            _ => FaultEffect::Stop { time: random.pick(&[500, 5_000, 25_000, 60_000]).unwrap_or(500) },
        };
        (random.pick(&writes).unwrap_or(Requests::All), effect)
    };
    let rare =
        matches!(effect, FaultEffect::Kill { .. } | FaultEffect::Stop { .. } | FaultEffect::Silence { .. });
    let per_mille = match effect {
        _ if rare => random.small(5, 100),
        // A webhook that refuses mostly refuses all.
        FaultEffect::Webhook { .. } => random.pick(&[500, 1000, 1000]).unwrap_or(1000),
        _ => random.pick(&[50, 200, 500, 1000]).unwrap_or(50),
    };
    let from = if random.once_in(2) { 0 } else { random.below(end) };
    let until = if per_mille == 1000 { from + random.between(500, 40_000) } else { end };
    RequestFault { requests, effect, per_mille, from, until: until.min(end) }
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
            "Kill { manager",
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
            "Kill { executed",
            "LoseResponse",
            "SetQuota",
            "DeleteNamespace",
            "LoseNode",
            "ReplicationController",
            "Foreground",
            "ReturnPod",
            "Restore {",
            "RefuseNames",
            "RefuseKnownNames",
            "StripOwners",
        ] {
            assert!(text.contains(word), "{word} is never drawn");
        }
        assert!(all.iter().any(|one| one.workloads.iter().any(|workload| workload.replicas > 200)));
    }
}

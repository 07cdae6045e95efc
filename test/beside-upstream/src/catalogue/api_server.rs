//! Faults of the API server and etcd.

use std::time::Duration;

use super::{Bounds, Effect, Fault, Lasts, Rule};
use crate::proxy::http::Http;

/// Pause of the bursts of errors.
const PAUSE: Duration = Duration::from_millis(500);

const NONE: Fault = Fault {
    name: "",
    what: "",
    effect: Effect::Restart,
    lasts: Lasts::Seconds(10),
    reached: "responses",
    bounds: Bounds::UNHARMED,
    rule: None,
};

const fn refuse(code: u16, retry_after: Option<u32>, pause: Duration) -> Effect {
    Effect::Http(Http::Refuse { code, retry_after, bursts: (Duration::from_secs(1), pause) })
}

/// The faults.
pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "api-server-restarted",
        what: "kube-apiserver is killed and started again",
        effect: Effect::Restart,
        lasts: Lasts::Seconds(0),
        reached: "restarts",
        bounds: Bounds::RESTARTED,
        ..NONE
    },
    Fault {
        name: "429-retry-after",
        what: "429 with `Retry-After: 1` to all requests for 8 s",
        effect: refuse(429, Some(1), Duration::ZERO),
        lasts: Lasts::Seconds(8),
        ..NONE
    },
    Fault {
        name: "429",
        what: "429 without Retry-After to all requests for 8 s",
        effect: refuse(429, None, Duration::ZERO),
        lasts: Lasts::Seconds(8),
        ..NONE
    },
    Fault {
        name: "500-bursts",
        what: "500 in bursts of 1 s with pauses of 0.5 s, for 10 s",
        effect: refuse(500, None, PAUSE),
        ..NONE
    },
    Fault {
        name: "503-bursts",
        what: "503 in bursts of 1 s with pauses of 0.5 s, for 10 s",
        effect: refuse(503, None, PAUSE),
        ..NONE
    },
    Fault {
        name: "etcd-stopped",
        what: "SIGSTOP to etcd for 30 s",
        effect: Effect::EtcdStopped,
        lasts: Lasts::Seconds(30),
        reached: "signals",
        bounds: Bounds { exits: 2, ..Bounds::RESTARTED },
        ..NONE
    },
    Fault {
        name: "compaction",
        what: "all connections are closed, no dial is answered, etcd is compacted and kube-apiserver restarted, so that no \
               watch can continue",
        effect: Effect::Compaction,
        lasts: Lasts::Seconds(0),
        reached: "compactions",
        bounds: Bounds::RESTARTED,
        ..NONE
    },
    Fault {
        name: "etcd-restored",
        what: "etcd and kube-apiserver are started with the data of 5 s ago",
        effect: Effect::Restore,
        lasts: Lasts::Seconds(0),
        reached: "restored stores",
        bounds: Bounds { excess: 100, ..Bounds::RESTARTED },
        rule: Some(Rule {
            adr: "adr/0012-leader-election.md",
            text: "a leader exits after a restore of etcd, so that the next one reads all objects",
            costs: &["Below minimum", "Exits", "Without a leader"],
        }),
    },
    Fault {
        name: "no-watch-list",
        what: "`--feature-gates=WatchList=false`",
        effect: Effect::ServerFlags(&["--feature-gates=WatchList=false"]),
        lasts: Lasts::Throughout,
        reached: "lists",
        ..NONE
    },
    Fault {
        name: "watch-behind",
        what: "the events of all watches arrive 3 s late",
        effect: Effect::Http(Http::DelayEvents(Duration::from_secs(3))),
        lasts: Lasts::Throughout,
        reached: "watches",
        ..NONE
    },
    Fault {
        name: "two-seats",
        what: "the requests of the manager have a priority level with two seats",
        effect: Effect::TwoSeats,
        lasts: Lasts::Throughout,
        reached: "requests of the priority level",
        ..NONE
    },
    Fault {
        name: "requests-of-65s",
        what: "the responses to requests that arrive in 5 s are sent 65 s later",
        effect: Effect::Http(Http::DelayResponses(Duration::from_secs(65))),
        lasts: Lasts::Seconds(5),
        reached: "responses",
        bounds: Bounds { convergence: 80.0, exits: 1, without_leader: 80.0, ..Bounds::RESTARTED },
        ..NONE
    },
];

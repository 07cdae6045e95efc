//! Faults of the network, between the manager and the API server.

use std::time::Duration;

use super::{Bounds, Effect, Fault, Lasts, Rule};
use crate::proxy::{http::Http, tcp::Tcp};

/// A renewal that starts before the fault does not count longer than the fault (ADR 0012).
const RENEWAL: Option<Rule> = Some(Rule {
    adr: "adr/0012-leader-election.md",
    text: "the deadline of a renewal counts from its start",
    costs: &["Without a leader", "Convergence", "Exits"],
});

const NONE: Fault = Fault {
    name: "",
    what: "",
    effect: Effect::Tcp(Tcp::Pass),
    lasts: Lasts::Seconds(10),
    reached: "connections",
    bounds: Bounds::UNHARMED,
    rule: None,
};

/// The faults.
pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "dials-unanswered-3s",
        what: "all connections are closed, and those of the next 3 s are accepted and never answered",
        effect: Effect::Tcp(Tcp::Swallow),
        lasts: Lasts::Seconds(3),
        reached: "closed and unanswered connections",
        ..NONE
    },
    Fault {
        name: "dials-unanswered-10s",
        what: "all connections are closed, and those of the next 10 s are accepted and never answered",
        effect: Effect::Tcp(Tcp::Swallow),
        lasts: Lasts::Seconds(10),
        reached: "closed and unanswered connections",
        bounds: Bounds::RESTARTED,
        rule: RENEWAL,
    },
    Fault {
        name: "dials-unanswered-60s",
        what: "all connections are closed, and those of the next 60 s are accepted and never answered",
        effect: Effect::Tcp(Tcp::Swallow),
        lasts: Lasts::Seconds(60),
        reached: "closed and unanswered connections",
        bounds: Bounds { without_leader: 80.0, exits: 3, ..Bounds::RESTARTED },
        rule: None,
    },
    Fault {
        name: "syn-dropped-10s",
        what: "all connections are closed, and the SYN of new ones is dropped for 10 s",
        effect: Effect::Tcp(Tcp::NoDials),
        reached: "closed connections and unanswered dials",
        bounds: Bounds::RESTARTED,
        rule: RENEWAL,
        ..NONE
    },
    Fault {
        name: "connection-reset",
        what: "each connection is reset at the first bytes of the client, for 5 s",
        effect: Effect::Tcp(Tcp::Reset),
        lasts: Lasts::Seconds(5),
        reached: "reset connections",
        ..NONE
    },
    Fault {
        name: "half-open",
        what: "nothing is forwarded on the existing connections any more; new ones work",
        effect: Effect::Tcp(Tcp::HalfOpen),
        lasts: Lasts::Seconds(60),
        bounds: Bounds { convergence: 0.0, ..Bounds::UNHARMED },
        ..NONE
    },
    Fault {
        name: "dead-address",
        what: "the first of two addresses of the name answers no dial for 20 s, and all connections are closed",
        effect: Effect::DeadAddress,
        lasts: Lasts::Seconds(20),
        ..NONE
    },
    Fault {
        name: "cut-in-body",
        what: "each connection is closed after 16 KiB from the server, for 10 s",
        effect: Effect::Tcp(Tcp::Cut(16 * 1024)),
        ..NONE
    },
    Fault {
        name: "throttle-5k",
        what: "5 KB/s on each connection for 20 s",
        effect: Effect::Tcp(Tcp::Throttle(5_000)),
        lasts: Lasts::Seconds(20),
        ..NONE
    },
    Fault {
        name: "latency-500ms",
        what: "each answer arrives 500 ms late, for 20 s",
        effect: Effect::Tcp(Tcp::Delay(Duration::from_millis(500))),
        lasts: Lasts::Seconds(20),
        ..NONE
    },
    Fault {
        name: "reads-nothing",
        what: "the server reads nothing from its connections for 10 s",
        effect: Effect::Tcp(Tcp::NoReads),
        bounds: Bounds::RESTARTED,
        rule: RENEWAL,
        ..NONE
    },
    Fault {
        name: "go-away",
        what: "GOAWAY after each request, for 10 s",
        effect: Effect::Http(Http::GoAway),
        reached: "requests",
        ..NONE
    },
    Fault {
        name: "one-stream",
        what: "SETTINGS_MAX_CONCURRENT_STREAMS of 1",
        effect: Effect::Http(Http::MaxStreams(1)),
        lasts: Lasts::Throughout,
        ..NONE
    },
    Fault {
        name: "http1-only",
        what: "the API server offers HTTP/1.1 only",
        effect: Effect::Http(Http::Http1),
        lasts: Lasts::Throughout,
        ..NONE
    },
    Fault {
        name: "certificate-replaced",
        what: "the API server has another certificate of the same CA, and all connections are closed",
        effect: Effect::Certificate,
        lasts: Lasts::Seconds(0),
        reached: "closed connections",
        ..NONE
    },
    Fault {
        name: "ca-replaced",
        what: "the API server and the CA file have another CA, and all connections are closed",
        effect: Effect::Authority,
        lasts: Lasts::Seconds(0),
        reached: "closed connections",
        ..NONE
    },
    Fault {
        name: "token-expired",
        what: "401 to all requests for 10 s",
        effect: Effect::Http(Http::Refuse {
            code: 401,
            retry_after: None,
            bursts: (Duration::from_secs(1), Duration::ZERO),
        }),
        reached: "responses",
        bounds: Bounds::RESTARTED,
        rule: RENEWAL,
        ..NONE
    },
    Fault {
        name: "exec-plugin-hangs",
        what: "the exec plugin, whose tokens are valid for 5 s, does not return for 20 s",
        effect: Effect::ExecPlugin { seconds: 5 },
        lasts: Lasts::Seconds(20),
        reached: "calls of the plugin",
        bounds: Bounds::RESTARTED,
        ..NONE
    },
    Fault {
        name: "dns-fails",
        what: "the DNS server does not answer for 60 s, and all connections are closed",
        effect: Effect::Dns,
        lasts: Lasts::Seconds(60),
        reached: "unanswered queries",
        bounds: Bounds { without_leader: 80.0, exits: 3, ..Bounds::RESTARTED },
        ..NONE
    },
    Fault {
        name: "proxy-restarted",
        what: "all connections are closed, and new ones are refused for 2 s",
        effect: Effect::Tcp(Tcp::Refuse),
        lasts: Lasts::Seconds(2),
        reached: "closed connections",
        ..NONE
    },
];

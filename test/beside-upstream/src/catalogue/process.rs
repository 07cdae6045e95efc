//! Faults of the manager's process.

use super::{Bounds, Effect, Fault, Lasts, Rule};

const NONE: Fault = Fault {
    name: "",
    what: "",
    effect: Effect::Stop,
    lasts: Lasts::Throughout,
    reached: "signals",
    bounds: Bounds::UNHARMED,
    rule: None,
};

/// The faults.
pub(super) const FAULTS: &[Fault] = &[
    Fault {
        name: "sigstop-5s",
        what: "SIGSTOP for 5 s",
        effect: Effect::Stop,
        lasts: Lasts::Seconds(5),
        ..NONE
    },
    Fault {
        name: "sigstop-30s",
        what: "SIGSTOP for 30 s",
        effect: Effect::Stop,
        lasts: Lasts::Seconds(30),
        bounds: Bounds::RESTARTED,
        rule: Some(Rule {
            adr: "adr/0012-leader-election.md",
            text: "the term of a leader ends with its Lease, which is not released after that",
            costs: &["Without a leader", "Convergence", "Exits"],
        }),
        ..NONE
    },
    Fault {
        name: "cpu-5-percent",
        what: "a CPU quota of 5% for 30 s",
        effect: Effect::CpuQuota(5),
        lasts: Lasts::Seconds(30),
        reached: "throttled periods",
        ..NONE
    },
    Fault {
        name: "memory-64",
        what: "a memory limit of 64 MiB",
        effect: Effect::Memory(64),
        reached: "groups with used memory",
        ..NONE
    },
    Fault {
        name: "memory-128",
        what: "a memory limit of 128 MiB",
        effect: Effect::Memory(128),
        reached: "groups with used memory",
        ..NONE
    },
    Fault {
        name: "descriptors-64",
        what: "a limit of 64 file descriptors",
        effect: Effect::Descriptors(64),
        reached: "limits of a process",
        ..NONE
    },
    Fault {
        name: "certificate-directory",
        what: "`--cert-dir` cannot be created",
        effect: Effect::CertificateDirectory,
        reached: "log lines",
        ..NONE
    },
    Fault {
        name: "sigterm",
        what: "SIGTERM, and a restart",
        effect: Effect::Terminate,
        lasts: Lasts::Seconds(0),
        bounds: Bounds::RESTARTED,
        ..NONE
    },
    Fault {
        name: "sigkill",
        what: "SIGKILL, and a restart",
        effect: Effect::Kill,
        lasts: Lasts::Seconds(0),
        bounds: Bounds::RESTARTED,
        ..NONE
    },
    Fault {
        name: "leader-partitioned",
        what: "two managers, the connections of the leader forward nothing for 30 s",
        effect: Effect::Partition,
        lasts: Lasts::Seconds(30),
        reached: "connections",
        bounds: Bounds { exits: 2, ..Bounds::RESTARTED },
        ..NONE
    },
];

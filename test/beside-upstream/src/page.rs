//! The page with the results.

use std::fmt::Write as _;

use crate::{
    catalogue::{CATALOGUE, Effect, Fault},
    measure::{Measurement, Who},
    probe,
    run::CONVERGENCE,
    verdict::{Comparison, QUANTITIES, Quantity, exceeded, median, values},
};

/// Introduction of the page.
const INTRODUCTION: &str = "\
# Faults, beside upstream's manager

Written by `cargo xtask beside-upstream`. Do not edit.

The command runs upstream's kube-controller-manager and this manager through each fault of the catalogue in
`test/beside-upstream/src/catalogue`, on the same etcd and kube-apiserver, with the same flags and the same workload: a
rollout of 100 pods with a surge and an unavailability of 25%, ten new Deployments with three pods each, and a change of a
Deployment with the strategy `Recreate`. The fault starts when ten pods of the rollout are updated. A client of the secure
port starts with the rollout. Beyond the comparison, this manager must then answer each probe within 1 s, renew the Lease at
most 2 s late, and use no more than the 256 MiB of the manifests.

| Column | Meaning |
|---|---|
| Without a leader | Seconds in which no running process held a valid Lease, from the start of the fault to convergence. |
| Convergence | Seconds from the end of the fault until all Deployments are complete; negative before the end. A fault that lasts for the whole run counts from the start of the rollout. |
| Excess pods | Pods created beyond those that the rollout needs. |
| Below minimum | Pod-seconds below the 75 available pods of the rollout. |
| Requests | Requests of the manager that reached the API server, from the start of the rollout to convergence. |
| Peak memory | Largest resident memory of a process. |
| Slowest probe | Slowest answer to `GET /healthz`, sent once a second on a new connection while the client runs. A failure counts as 10 s. |
| Failed probes | Probes that failed, or took more than 1 s. |
| Longest renewal | Longest time between two renewals of the Lease while the client runs. The retry period is 2 s. |
| Rollout | Seconds from the start of the rollout, which starts with the client, to convergence. |
| Exits | Exits of the process. It is restarted as the kubelet does: the first time at once, then after 10, 20, … s. |
";

/// Returns the page.
pub(crate) fn page(measurements: &[Measurement]) -> String {
    let mut text = INTRODUCTION.to_owned();
    let rounds = measurements.iter().map(|run| run.round).max().unwrap_or_default();
    let has_upstream = measurements.iter().any(|run| run.manager == Who::Upstream);
    let _ = write!(
        text,
        "\n## Noise\n\nEach value is the median of {rounds} round{}. ",
        if rounds == 1 { "" } else { "s" }
    );
    text.push_str("A difference is noise unless it exceeds all of\n\n");
    text.push_str("* the spread, largest minus smallest, of the rounds of either manager,\n");
    for quantity in QUANTITIES.iter().chain(&probe::QUANTITIES) {
        let Quantity { name, unit, floor, share, .. } = quantity;
        let _ = writeln!(text, "* *{name}*: {floor} {unit} and {:.0}% of upstream's value,", share * 100.0);
    }
    text.push_str(
        "\nA row counts only if the fault was seen to reach both managers; the column *Reached* contains the counters. ",
    );
    let _ =
        writeln!(text, "`>` marks a run that had not converged {} s after the fault.", CONVERGENCE.as_secs());
    if !has_upstream {
        text.push_str(
            "\n**Upstream's binary was not given (`KUBE_CONTROLLER_MANAGER`).** This manager alone was run against the \
             bounds of the catalogue.\n",
        );
    }
    for group in CATALOGUE {
        let _ = write!(text, "\n## {}\n\n| Fault | Manager | Reached |", group.name);
        let quantities = || group.faults.iter().take(1).flat_map(quantities);
        for Quantity { name, unit, .. } in quantities() {
            let unit = if unit.is_empty() { String::new() } else { format!(", {unit}") };
            let _ = write!(text, " {name}{unit} |");
        }
        text.push_str(" Verdict |\n|---|---|--:|");
        text.push_str(&"--:|".repeat(quantities().count()));
        text.push_str("---|\n");
        for fault in group.faults {
            let runs: Vec<_> = measurements.iter().filter(|run| run.fault == fault.name).collect();
            row(&mut text, fault, &runs);
        }
        let _ = writeln!(text);
        for fault in group.faults {
            let _ = writeln!(text, "* `{}`: {}. Counter: {}.", fault.name, fault.what, fault.reached);
        }
    }
    text
}

/// Quantities of the runs of a fault.
fn quantities(fault: &Fault) -> impl Iterator<Item = &'static Quantity> {
    let has_client = matches!(fault.effect, Effect::Client(_));
    QUANTITIES.iter().chain(probe::QUANTITIES.iter().filter(move |_| has_client))
}

/// Rows of a fault, one per manager.
fn row(text: &mut String, fault: &Fault, runs: &[&Measurement]) {
    if runs.is_empty() {
        let _ = writeln!(
            text,
            "| `{}` | – | – |{} not run |",
            fault.name,
            " – |".repeat(quantities(fault).count())
        );
        return;
    }
    for who in [Who::Upstream, Who::Ours] {
        let own: Vec<_> = runs.iter().copied().filter(|run| run.manager == who).collect();
        if own.is_empty() {
            continue;
        }
        let name = if who == Who::Upstream { "upstream" } else { "this" };
        let reached = own.iter().map(|run| run.reached).min().unwrap_or_default();
        let _ = write!(text, "| `{}` | {name} | {reached} |", fault.name);
        for quantity in quantities(fault) {
            let value = median(&values(runs, who, quantity)).unwrap_or_default();
            let late = quantity.name == "Convergence" && own.iter().any(|run| !run.converged);
            let _ = write!(text, " {}{} |", if late { ">" } else { "" }, number(value));
        }
        let verdict = if who == Who::Ours { verdict(fault, runs) } else { String::new() };
        let _ = writeln!(text, " {verdict} |");
    }
}

/// Verdict on a fault.
pub(crate) fn verdict(fault: &Fault, runs: &[&Measurement]) -> String {
    if runs.iter().any(|run| run.reached == 0) {
        return "does not count: the fault was not seen to reach the manager".to_owned();
    }
    if runs.iter().all(|run| run.manager == Who::Ours) {
        let exceeded: Vec<_> = runs.iter().flat_map(|run| exceeded(run, &fault.bounds)).collect();
        return if exceeded.is_empty() {
            "within the bounds".to_owned()
        } else {
            format!("**exceeds the bounds**: {}", exceeded.join(", "))
        };
    }
    let (mut worse, mut better) = (Vec::new(), Vec::new());
    for quantity in quantities(fault) {
        let (ours, theirs) = (values(runs, Who::Ours, quantity), values(runs, Who::Upstream, quantity));
        let by = |difference| {
            format!("{} by {} {}", quantity.name.to_lowercase(), number(difference), quantity.unit)
        };
        match quantity.compare(&ours, &theirs) {
            Comparison::Worse(difference) => worse.push(by(difference).trim().to_owned()),
            Comparison::Better(difference) => better.push(by(difference).trim().to_owned()),
            Comparison::Equal => {}
        }
    }
    let own = runs.iter().filter(|run| run.manager == Who::Ours);
    let mut over: Vec<_> = own.flat_map(|run| probe::exceeded(run)).collect();
    over.sort_unstable();
    over.dedup();
    worse.extend(over.into_iter().map(str::to_owned));
    let mut parts = Vec::new();
    if !worse.is_empty() {
        let rule = fault.rule.as_ref().map(|rule| format!(" (rule: [{}]({}))", rule.text, rule.adr));
        let mark = if rule.is_some() { "worse" } else { "**worse**" };
        parts.push(format!("{mark}: {}{}", worse.join(", "), rule.unwrap_or_default()));
    }
    if !better.is_empty() {
        parts.push(format!("better: {}", better.join(", ")));
    }
    if parts.is_empty() { "equal".to_owned() } else { parts.join("; ") }
}

/// `true` if the API server of the task can produce the fault.
pub(crate) fn is_possible(effect: Effect, is_embedded: bool) -> bool {
    !is_embedded || effect.is_embedded()
}

/// Number with at most one decimal.
fn number(value: f64) -> String {
    let rounded = (value * 10.0).round() / 10.0;
    // No negative zero.
    let rounded = if rounded == 0.0 { 0.0 } else { rounded };
    if rounded.fract() == 0.0 { format!("{rounded:.0}") } else { format!("{rounded:.1}") }
}

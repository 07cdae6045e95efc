//! The page with the results.

use std::fmt::Write as _;

use crate::{
    catalogue::{CATALOGUE, Effect, Fault},
    measure::{Measurement, Who},
    probe,
    run::CONVERGENCE,
    verdict::{Comparison, QUANTITIES, Quantity, SLOWEST, converged, exceeded, median, stalled, values},
};

/// Introduction of the page.
const INTRODUCTION: &str = include_str!("introduction.txt");

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
    let _ = writeln!(
        text,
        "A run that has not converged {} s after the fault counts with that time, and the column *Convergence* contains the \
         number of rounds that have. If fewer rounds of this manager than of upstream's have converged, this manager is worse, \
         whatever the noise.",
        CONVERGENCE.as_secs()
    );
    let (seconds, share) = SLOWEST;
    let _ = writeln!(
        text,
        "\nThe slowest rounds are compared, too: this manager is worse if its slowest round converges more than {seconds} s and \
         {:.0}% later than upstream's slowest. A rule of this manager explains only the quantities that it costs.",
        share * 100.0
    );
    text.push_str(
        "\nIf upstream's manager has not converged in a round, and this one has in all, excess pods and requests are not \
         compared, because upstream's has done less.\n",
    );
    if !has_upstream {
        text.push_str(
            "\n**Upstream's binary was not given (`KUBE_CONTROLLER_MANAGER`).** This manager alone was run against the \
             bounds of the catalogue.\n",
        );
    }
    for group in &*CATALOGUE {
        let _ = write!(text, "\n## {}\n\n| Fault | Manager | Reached |", group.name);
        let quantities = || group.faults.iter().take(1).flat_map(quantities);
        for Quantity { name, unit, .. } in quantities() {
            let unit = if unit.is_empty() { String::new() } else { format!(", {unit}") };
            let _ = write!(text, " {name}{unit} |");
        }
        text.push_str(" Verdict |\n|---|---|--:|");
        text.push_str(&"--:|".repeat(quantities().count()));
        text.push_str("---|\n");
        for fault in &group.faults {
            let runs: Vec<_> = measurements.iter().filter(|run| run.fault == fault.name).collect();
            row(&mut text, fault, &runs);
        }
        let _ = writeln!(text);
        for fault in &group.faults {
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
            let (rounds, converged) = converged(runs, who);
            let note = if quantity.name == "Convergence" && converged < rounds {
                format!(" ({converged} of {rounds} converged)")
            } else {
                String::new()
            };
            let _ = write!(text, " {}{note} |", number(value));
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
    let (mut worse, mut better, mut omitted) = (Vec::new(), Vec::new(), Vec::new());
    // `true` if a quantity is worse that no rule costs.
    let mut is_bold = false;
    let ((our_rounds, ours_converged), (rounds, theirs_converged)) =
        (converged(runs, Who::Ours), converged(runs, Who::Upstream));
    let upstream_is_unfinished = ours_converged == our_rounds && theirs_converged < rounds;
    for quantity in quantities(fault) {
        if quantity.grows_with_work && upstream_is_unfinished {
            omitted.push(quantity.name.to_lowercase());
            continue;
        }
        let is_excused =
            fault.rule.as_ref().is_some_and(|rule| rule.costs.iter().any(|cost| cost == quantity.name));
        let mut worsen = |text: String| {
            worse.push(text);
            is_bold |= !is_excused;
        };
        if quantity.name == "Convergence" && ours_converged * rounds < theirs_converged * our_rounds {
            worsen(format!("convergence in {ours_converged} of {our_rounds} rounds"));
            continue;
        }
        let (ours, theirs) = (values(runs, Who::Ours, quantity), values(runs, Who::Upstream, quantity));
        let by = |difference| {
            format!("{} by {} {}", quantity.name.to_lowercase(), number(difference), quantity.unit)
        };
        match quantity.compare(&ours, &theirs) {
            Comparison::Worse(difference) => worsen(by(difference).trim().to_owned()),
            Comparison::Better(difference) => better.push(by(difference).trim().to_owned()),
            Comparison::Equal => {
                let slowest = if quantity.name == "Convergence" { stalled(&ours, &theirs) } else { None };
                if let Some(difference) = slowest {
                    worsen(format!("convergence of the slowest round by {} s", number(difference)));
                }
            }
        }
    }
    let own = runs.iter().filter(|run| run.manager == Who::Ours);
    let mut over: Vec<_> = own.flat_map(|run| probe::exceeded(run)).collect();
    over.sort_unstable();
    over.dedup();
    is_bold |= !over.is_empty();
    worse.extend(over.into_iter().map(str::to_owned));
    let mut parts = Vec::new();
    if !worse.is_empty() {
        let rule = fault.rule.as_ref().map(|rule| format!(" (rule: [{}]({}))", rule.text, rule.adr));
        let mark = if is_bold { "**worse**" } else { "worse" };
        parts.push(format!("{mark}: {}{}", worse.join(", "), rule.unwrap_or_default()));
    }
    if !better.is_empty() {
        parts.push(format!("better: {}", better.join(", ")));
    }
    if parts.is_empty() {
        parts.push("equal".to_owned());
    }
    if !omitted.is_empty() {
        parts.push(format!("not compared: {}", omitted.join(", ")));
    }
    parts.join("; ")
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A run that converged 5 s after the fault, or not within the limit.
    fn run(manager: Who, round: usize, converged: bool) -> Measurement {
        Measurement {
            fault: "503-bursts".to_owned(),
            manager,
            round,
            reached: 1,
            without_leader: 0.0,
            terms: 0,
            convergence: if converged { 5.0 } else { 150.0 },
            converged,
            excess: 0,
            below_minimum: 0.0,
            requests: 500,
            memory: 20.0,
            exits: Vec::new(),
            lives: true,
            under_client: None,
        }
    }

    fn fault(name: &str) -> &'static Fault {
        crate::catalogue::find(name).unwrap()
    }

    fn runs(ours: [bool; 3], theirs: [bool; 3]) -> Vec<Measurement> {
        let of =
            |who, all: [bool; 3]| (1..).zip(all).map(move |(round, converged)| run(who, round, converged));
        of(Who::Ours, ours).chain(of(Who::Upstream, theirs)).collect()
    }

    fn verdict_on(runs: &[Measurement]) -> String {
        verdict(fault("503-bursts"), &runs.iter().collect::<Vec<_>>())
    }

    #[test]
    fn round_without_convergence_is_worse() {
        let all = [true; 3];
        let one_missing = [true, false, true];
        assert_eq!(verdict_on(&runs(all, all)), "equal");
        let worse = runs(one_missing, all);
        assert_eq!(verdict_on(&worse), "**worse**: convergence in 2 of 3 rounds");
        assert!(page(&worse).contains("| 5 (2 of 3 converged) |"));
        assert_eq!(verdict_on(&runs(one_missing, one_missing)), "equal");
        assert_eq!(verdict_on(&runs(all, one_missing)), "equal; not compared: excess pods, requests");
    }

    #[test]
    fn availability_is_compared_with_an_unfinished_upstream() {
        let mut runs = runs([true; 3], [false; 3]);
        for ours in runs.iter_mut().filter(|run| run.manager == Who::Ours) {
            (ours.below_minimum, ours.requests, ours.excess) = (80.0, 900, 50);
        }
        assert_eq!(
            verdict_on(&runs),
            "**worse**: below minimum by 80 pod·s; better: convergence by 145 s; not compared: excess pods, requests"
        );
    }
}

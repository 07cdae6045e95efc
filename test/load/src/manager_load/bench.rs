//! Runs workloads, and prints their costs.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use kcm_clock::Clock;

use super::{
    manager::ManagerProgram,
    server::{LoadServer, Requests, ServerProgram},
    workload::{Scaled, Script},
};
use crate::{
    error::TaskError,
    measure::{Measure, table},
};

const MIB: f64 = 1024.0 * 1024.0;
/// Flags of the default rate limit (US-1.5).
const DEFAULT_LIMIT: [&str; 2] = ["--kube-api-qps=20", "--kube-api-burst=30"];
/// Rows of the table of requests start with this.
const REQUESTS: &str = "requests: ";

/// Cost of a workload.
#[derive(Debug, Clone)]
struct Cost {
    wall: Duration,
    manager: Duration,
    server: Duration,
    at_rest: u64,
    peak: u64,
    requests: Requests,
    /// Median and maximum of the times of the Deployments. `None` for one Deployment, and without a rate limit.
    deployments: Option<(Duration, Duration)>,
}

/// Runs workloads with managers on a server.
pub(super) struct Bench<'a> {
    pub(super) server: &'a ServerProgram,
    pub(super) managers: &'a [ManagerProgram],
    pub(super) clock: &'a Arc<dyn Clock>,
    pub(super) rounds: usize,
}

impl Bench<'_> {
    /// Runs a workload and prints its table. Returns the CPU time of the first manager per object.
    pub(super) async fn run(&self, scaled: Scaled) -> Result<Option<f64>, TaskError> {
        let mut rounds: Vec<Vec<Cost>> = self.managers.iter().map(|_| Vec::new()).collect();
        for round in 1..=self.rounds {
            for (manager, costs) in self.managers.iter().zip(&mut rounds) {
                eprintln!("{scaled}: {}, round {round}", manager.name);
                costs.push(self.measure(scaled, manager).await?);
            }
        }
        let medians: Vec<Cost> = rounds.iter().map(|rounds| median(rounds)).collect();
        let mut names: Vec<&String> = medians.iter().flat_map(|cost| cost.requests.keys()).collect();
        names.sort();
        names.dedup();
        let columns: Vec<_> = medians.iter().map(|cost| measures(cost, scaled, &names)).collect();
        let of_ours = columns.first().map_or(&[][..], Vec::as_slice);
        let text = table(["This manager", "Upstream's"], of_ours, columns.get(1).map(Vec::as_slice));
        println!("\n## {scaled}\n\n{text}");
        let each = |cost: &Cost| Some(cost.manager.as_secs_f64() * 1e6 / scaled.units()?.0 as f64);
        Ok(medians.first().and_then(each))
    }

    /// Runs a workload once with a new server.
    async fn measure(&self, scaled: Scaled, manager: &ManagerProgram) -> Result<Cost, TaskError> {
        let server = LoadServer::start(self.server, scaled.workload.nodes, self.clock).await?;
        let mut flags = vec!["--leader-elect=false"];
        if scaled.workload.limited {
            // The last value counts.
            flags.extend(DEFAULT_LIMIT);
        }
        let manager = manager.start(&server.kubeconfig, &flags)?;
        let clock = &**self.clock;
        manager.idle(clock).await?;
        let (at_rest, _) = manager.resident()?;
        let script = Script { api: &server.api, clock: self.clock, scaled };
        script.set_up().await?;
        if scaled.workload.limited {
            // The last events are written later.
            server.quiet(clock).await?;
        }
        let of_manager = manager.idle(clock).await?;
        let (of_server, requests, start) =
            (server.processor_time()?, server.requests().await?, clock.monotonic());
        let times = script.run().await?;
        let wall = clock.monotonic().saturating_sub(start);
        if scaled.workload.limited {
            server.quiet(clock).await?;
        }
        let cost = Cost {
            wall,
            manager: manager.idle(clock).await?.saturating_sub(of_manager),
            server: server.processor_time()?.saturating_sub(of_server),
            at_rest,
            peak: manager.resident()?.1,
            requests: difference(server.requests().await?, &requests),
            deployments: of_deployments(&times).filter(|_| scaled.workload.limited),
        };
        manager.end().await?;
        Ok(cost)
    }
}

/// Returns the median and the maximum of sorted times. `None` for less than two.
fn of_deployments(times: &[Duration]) -> Option<(Duration, Duration)> {
    let (median, max) = (times.get(times.len() / 2)?, times.last()?);
    (times.len() > 1).then_some((*median, *max))
}

/// Rows of the table.
fn measures(cost: &Cost, scaled: Scaled, requests: &[&String]) -> Vec<Measure> {
    let mut measures = vec![
        Measure::new("wall", "s", cost.wall.as_secs_f64()),
        Measure::new("CPU of the manager", "s", cost.manager.as_secs_f64()),
    ];
    if let Some((count, unit)) = scaled.units() {
        let each = cost.manager.as_secs_f64() * 1e6 / count as f64;
        measures.push(Measure::new(format!("CPU of the manager per {unit}"), "µs", each));
    }
    if let Some((median, max)) = cost.deployments {
        measures.push(Measure::new("time of a Deployment, median", "s", median.as_secs_f64()));
        measures.push(Measure::new("time of a Deployment, maximum", "s", max.as_secs_f64()));
    }
    measures.extend([
        Measure::new("CPU of the API server", "s", cost.server.as_secs_f64()),
        Measure::new("memory at the start", "MiB", cost.at_rest as f64 / MIB),
        Measure::new("peak memory", "MiB", cost.peak as f64 / MIB),
    ]);
    let sum = cost.requests.values().sum::<usize>();
    measures.push(Measure::new("requests", "", sum as f64));
    measures.extend(requests.iter().map(|kind| {
        let count = cost.requests.get(*kind).copied().unwrap_or_default();
        Measure::new(format!("{REQUESTS}{kind}"), "", count as f64)
    }));
    measures
}

fn difference(mut after: Requests, before: &Requests) -> Requests {
    for (kind, count) in &mut after {
        *count -= before.get(kind).copied().unwrap_or_default().min(*count);
    }
    after.retain(|_, count| *count > 0);
    after
}

/// Median of each quantity.
fn median(rounds: &[Cost]) -> Cost {
    fn of<T: Ord + Copy + Default>(rounds: &[Cost], quantity: impl Fn(&Cost) -> T) -> T {
        let mut values: Vec<T> = rounds.iter().map(quantity).collect();
        values.sort_unstable();
        values.get(values.len() / 2).copied().unwrap_or_default()
    }
    let kinds = rounds.iter().flat_map(|cost| cost.requests.keys());
    let count = |kind: &String| of(rounds, |cost| cost.requests.get(kind).copied().unwrap_or_default());
    Cost {
        wall: of(rounds, |cost| cost.wall),
        manager: of(rounds, |cost| cost.manager),
        server: of(rounds, |cost| cost.server),
        at_rest: of(rounds, |cost| cost.at_rest),
        peak: of(rounds, |cost| cost.peak),
        deployments: of(rounds, |cost| cost.deployments),
        requests: kinds.map(|kind| (kind.clone(), count(kind))).collect::<BTreeMap<_, _>>(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cost(milliseconds: u64, creates: usize) -> Cost {
        let time = Duration::from_millis(milliseconds);
        Cost {
            wall: time,
            manager: time,
            server: time,
            at_rest: 1,
            peak: 2,
            deployments: None,
            requests: Requests::from([("POST pods 201".to_owned(), creates)]),
        }
    }

    #[test]
    fn median_of_rounds() {
        let median = median(&[cost(30, 5), cost(10, 7), cost(20, 6)]);
        assert_eq!((median.wall, median.requests["POST pods 201"]), (Duration::from_millis(20), 6));
    }

    #[test]
    fn times_of_deployments() {
        let times = [1, 2, 9].map(Duration::from_secs);
        assert_eq!(of_deployments(&times), Some((times[1], times[2])));
        assert_eq!(of_deployments(&times[..1]), None);
        assert_eq!(of_deployments(&[]), None);
    }

    #[test]
    fn requests_before_the_workload_are_not_counted() {
        let all = cost(0, 7).requests;
        assert_eq!(difference(all.clone(), &cost(0, 5).requests), cost(0, 2).requests);
        assert_eq!(difference(all.clone(), &all), Requests::new());
    }
}

//! Benchmark of the manager, and of upstream's manager for comparison.
//!
//! Both run on the same API server with the same flags and are measured from outside, by their writes and by the process
//! statistics of the operating system. There are three kinds of measurements. The API server is the sandbox, or kube-apiserver with etcd.
//!
//! *Workloads* (`--workloads`): time, CPU time of manager and API server, peak memory and writes of a change of many
//! objects. `--scale` multiplies the number of objects.
//!
//! *A large cluster* (`--large`): see the module `large`.
//!
//! *Single events*:
//!
//! | | measurement | method |
//! |---|---|---|
//! | start | time from `exec` to the first write | creation of the ReplicaSet of a waiting Deployment |
//! | memory | resident memory, current and maximum | after the manager has become idle |
//! | irrelevant event | CPU time per event that no controller handles | repeated patches of a pod without an owner |
//! | empty event | CPU time per event with a sync that writes nothing | repeated patches of a pod of a settled ReplicaSet |
//! | pod | CPU time per pod from creation to availability | creation of a Deployment |
//! | takeover | time from the end of the leader to the first write of the standby, after SIGTERM also with many pods | as for start |

mod bench;
mod large;
mod load_cluster;
mod manager;
mod server;
mod steady;
mod workload;

use std::{env, path::PathBuf, sync::Arc};

use kcm_clock::{Clock, RealClock};

use crate::{
    error::TaskError,
    measure::{Measure, program, table},
};
use bench::Bench;
use load_cluster::{LoadCluster, PODS_EACH};
use manager::ManagerProgram;
use server::{LoadServer, ServerProgram};
use steady::{steady, takeover, takeover_time};
use workload::{Scaled, WORKLOADS, Workload};

/// Default numbers of pods.
const PODS: [usize; 2] = [10_000, 50_000];
/// Maximum number of pods; bounds the memory of a run.
const MAX_PODS: usize = 100_000;
/// Maximum scale; bounds the memory of a run.
const MAX_SCALE: usize = 10;

/// Flags of the task.
#[derive(Debug)]
pub struct Task {
    pods: Vec<usize>,
    manager: Option<PathBuf>,
    sandbox: Option<PathBuf>,
    takeover: bool,
    workloads: Vec<&'static Workload>,
    scales: Vec<usize>,
    rounds: usize,
    /// Number of Deployments of the large cluster.
    large: Option<usize>,
    kube_apiserver: bool,
}

impl Task {
    /// Parses the arguments of `manager-load`. Returns `None` if they are invalid.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let mut task = Self {
            pods: PODS.to_vec(),
            manager: None,
            sandbox: None,
            takeover: true,
            workloads: Vec::new(),
            scales: vec![1],
            rounds: 1,
            large: None,
            kube_apiserver: false,
        };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--pods" => task.pods = numbers(words.next()?, PODS_EACH, MAX_PODS)?,
                "--manager" => task.manager = Some((*words.next()?).into()),
                "--sandbox" => task.sandbox = Some((*words.next()?).into()),
                "--no-takeover" => task.takeover = false,
                "--workloads" => task.workloads = workloads(words.next()?)?,
                "--scale" => task.scales = numbers(words.next()?, 1, MAX_SCALE)?,
                "--rounds" => task.rounds = words.next()?.parse().ok().filter(|rounds| *rounds > 0)?,
                "--large" => task.large = Some(*numbers(words.next()?, large::MIN, large::MAX)?.first()?),
                "--kube-apiserver" => task.kube_apiserver = true,
                _ => return None,
            }
        }
        Some(task)
    }

    /// Runs the benchmark and prints the tables.
    pub fn run(&self) -> Result<(), TaskError> {
        program::runtime()?.block_on(async {
            let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
            let program = program::release("kube-controller-manager", self.manager.as_deref())?;
            let mut managers = vec![ManagerProgram { name: "this manager", program }];
            let theirs = env::var_os("KUBE_CONTROLLER_MANAGER").map(PathBuf::from);
            managers.extend(theirs.map(|program| ManagerProgram { name: "upstream's manager", program }));
            if let Some(deployments) = self.large {
                self.measure_large(&clock, &managers, deployments).await?;
            } else if self.workloads.is_empty() {
                self.measure_events(&clock, &managers).await?;
            } else {
                self.measure_workloads(&clock, &managers).await?;
            }
            if managers.len() == 1 {
                println!("\nSKIPPED: upstream's manager (KUBE_CONTROLLER_MANAGER is not set)");
            }
            Ok(())
        })
    }

    async fn measure_workloads(
        &self,
        clock: &Arc<dyn Clock>,
        managers: &[ManagerProgram],
    ) -> Result<(), TaskError> {
        let server = self.server()?;
        println!("API server: {server}");
        let bench = Bench { server: &server, managers, clock, rounds: self.rounds };
        let mut growth = String::new();
        for workload in &self.workloads {
            let mut costs = Vec::new();
            for scale in &self.scales {
                let scaled = Scaled { workload, scale: *scale };
                if let (Some(cost), Some((count, unit))) = (bench.run(scaled).await?, scaled.units()) {
                    let ratio = cost / costs.first().copied().unwrap_or(cost);
                    costs.push(cost);
                    growth.push_str(&format!(
                        "| {} | {scale}× | {count} {unit}s | {cost:.0} µs | {ratio:.2} |\n",
                        workload.name
                    ));
                }
            }
        }
        if self.scales.len() > 1 {
            println!("\n## Growth\n");
            println!(
                "| Workload | Scale | Objects | CPU of this manager per object | Ratio |\n|---|--:|--:|--:|--:|"
            );
            print!("{growth}");
        }
        Ok(())
    }

    async fn measure_events(
        &self,
        clock: &Arc<dyn Clock>,
        managers: &[ManagerProgram],
    ) -> Result<(), TaskError> {
        let mut columns: Vec<Vec<Measure>> = managers.iter().map(|_| Vec::new()).collect();
        let [ours, ..] = managers else { return Ok(()) };
        for pods in std::iter::once(&0).chain(&self.pods) {
            eprintln!("{pods} pods: creating");
            let mut cluster = self.cluster(clock).await?;
            cluster.fill(*pods, ours).await?;
            for (manager, column) in managers.iter().zip(&mut columns) {
                eprintln!("{pods} pods: {}", manager.name);
                column.append(&mut steady(&mut cluster, manager, *pods).await?);
            }
            if self.takeover && *pods > 0 {
                for (manager, column) in managers.iter().zip(&mut columns) {
                    eprintln!("{pods} pods: takeover: {}", manager.name);
                    let duration = takeover_time(&mut cluster, manager, false).await?;
                    let name = format!("takeover after SIGTERM, {pods} pods");
                    column.push(Measure::new(name, "ms", duration.as_secs_f64() * 1e3));
                }
            }
        }
        if self.takeover {
            let mut cluster = self.cluster(clock).await?;
            for (manager, column) in managers.iter().zip(&mut columns) {
                eprintln!("takeover: {}", manager.name);
                column.append(&mut takeover(&mut cluster, manager).await?);
            }
        }
        print_columns(&columns);
        Ok(())
    }

    async fn measure_large(
        &self,
        clock: &Arc<dyn Clock>,
        managers: &[ManagerProgram],
        deployments: usize,
    ) -> Result<(), TaskError> {
        let [ours, ..] = managers else { return Ok(()) };
        let mut cluster = self.cluster(clock).await?;
        large::fill(&cluster, ours, deployments).await?;
        let mut columns = Vec::new();
        for (turn, manager) in managers.iter().enumerate() {
            columns.push(large::measure(&mut cluster, manager, turn).await?);
        }
        print_columns(&columns);
        Ok(())
    }

    fn server(&self) -> Result<ServerProgram, TaskError> {
        Ok(if self.kube_apiserver {
            ServerProgram::Kubebuilder(env::var_os("KUBEBUILDER_ASSETS").ok_or(TaskError::NoServer)?.into())
        } else {
            ServerProgram::Sandbox(program::release("kube-sandbox", self.sandbox.as_deref())?)
        })
    }

    async fn cluster(&self, clock: &Arc<dyn Clock>) -> Result<LoadCluster, TaskError> {
        let server = LoadServer::start(&self.server()?, true, clock).await?;
        LoadCluster::new(server, Arc::clone(clock)).await
    }
}

/// Prints the measurements of this manager, and of upstream's if there are any.
fn print_columns(columns: &[Vec<Measure>]) {
    let ours = columns.first().map_or(&[][..], Vec::as_slice);
    print!("{}", table(["This manager", "Upstream's"], ours, columns.get(1).map(Vec::as_slice)));
}

/// Parses a comma-separated list of numbers within bounds.
fn numbers(list: &str, min: usize, max: usize) -> Option<Vec<usize>> {
    list.split(',').map(|number| number.parse().ok().filter(|number| (min..=max).contains(number))).collect()
}

/// Parses a comma-separated list of workloads, or `all`.
fn workloads(list: &str) -> Option<Vec<&'static Workload>> {
    match list {
        "all" => Some(WORKLOADS.iter().collect()),
        list => list.split(',').map(|name| WORKLOADS.iter().find(|workload| workload.name == name)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_rejects_numbers_out_of_bounds() {
        assert_eq!(Task::parse(&["--pods", "500,2000"]).unwrap().pods, [500, 2000]);
        assert_eq!(Task::parse(&[]).unwrap().pods, PODS);
        assert!(Task::parse(&["--pods", "99"]).is_none());
        assert!(Task::parse(&["--pods", "500,100001"]).is_none());
        assert!(Task::parse(&["--pods"]).is_none());
        assert!(!Task::parse(&["--no-takeover"]).unwrap().takeover);
    }

    #[test]
    fn parse_workloads() {
        let task =
            Task::parse(&["--workloads", "burst5000,idle", "--scale", "1,10", "--rounds", "3"]).unwrap();
        assert_eq!(task.workloads, [&WORKLOADS[0], &WORKLOADS[6]]);
        assert_eq!((task.scales, task.rounds), (vec![1, 10], 3));
        assert_eq!(Task::parse(&["--workloads", "all"]).unwrap().workloads.len(), WORKLOADS.len());
        assert!(Task::parse(&["--workloads", "burst"]).is_none());
        assert!(Task::parse(&["--scale", "11"]).is_none());
        assert!(Task::parse(&["--rounds", "0"]).is_none());
    }
}

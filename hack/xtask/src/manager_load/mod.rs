//! Benchmark of the manager, and of upstream's manager for comparison.
//!
//! Both run on the sandbox with the same flags and are measured from outside, by their writes and by the process
//! statistics of the operating system.
//!
//! | | measurement | method |
//! |---|---|---|
//! | start | time from `exec` to the first write | creation of the ReplicaSet of a waiting Deployment |
//! | memory | resident memory, current and maximum | after the manager has become idle |
//! | irrelevant event | CPU time per event that no controller handles | repeated patches of a pod without an owner |
//! | empty event | CPU time per event with a sync that writes nothing | repeated patches of a pod of a settled ReplicaSet |
//! | pod | CPU time per pod from creation to availability | creation of a Deployment |
//! | takeover | time from the end of the leader to the first write of the standby, after SIGTERM also with many pods | as for start |

mod error;
mod load_cluster;
mod manager;

use std::{env, path::PathBuf, sync::Arc, time::Duration};

use kcm_client::Server;
use kcm_clock::{Clock, RealClock};

use crate::measure::{
    Measure,
    program::{self, failed},
    table,
};
pub use error::TaskError;
use load_cluster::{LoadCluster, PODS_EACH};
use manager::ManagerProgram;

/// Default numbers of pods.
const PODS: [usize; 2] = [10_000, 50_000];
/// Maximum number of pods; bounds the memory of a run.
const MAX_PODS: usize = 100_000;
/// Number of events per measurement. Large enough that other work of the manager is negligible.
const EVENTS: usize = 5_000;
/// Number of pods created per measurement.
const CREATED: usize = 1_000;
/// Flags of the task.
#[derive(Debug)]
pub struct Task {
    pods: Vec<usize>,
    manager: Option<PathBuf>,
    sandbox: Option<PathBuf>,
    takeover: bool,
}

impl Task {
    /// Parses the arguments of `manager-load`. Returns `None` if they are invalid.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let mut task = Self { pods: PODS.to_vec(), manager: None, sandbox: None, takeover: true };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--pods" => {
                    let each = words
                        .next()?
                        .split(',')
                        .map(|pods| pods.parse().ok().filter(|pods| (PODS_EACH..=MAX_PODS).contains(pods)));
                    task.pods = each.collect::<Option<_>>()?;
                }
                "--manager" => task.manager = Some((*words.next()?).into()),
                "--sandbox" => task.sandbox = Some((*words.next()?).into()),
                "--no-takeover" => task.takeover = false,
                _ => return None,
            }
        }
        Some(task)
    }

    /// Runs the benchmark and prints the table.
    ///
    /// # Errors
    ///
    /// Returns an error if a program does not start, exits, or is too slow.
    pub fn run(&self) -> Result<(), TaskError> {
        program::runtime()?.block_on(self.measure())
    }

    async fn measure(&self) -> Result<(), TaskError> {
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let manager = program::release("kube-controller-manager", self.manager.as_deref())?;
        let ours = ManagerProgram { name: "this manager", program: manager };
        let theirs = env::var_os("KUBE_CONTROLLER_MANAGER")
            .map(|program| ManagerProgram { name: "upstream's manager", program: program.into() });
        let programs: Vec<_> = [Some(&ours), theirs.as_ref()].into_iter().flatten().collect();
        let mut columns: Vec<Vec<Measure>> = programs.iter().map(|_| Vec::new()).collect();

        for pods in std::iter::once(&0).chain(&self.pods) {
            eprintln!("{pods} pods: creating");
            let mut cluster = self.cluster(&clock).await?;
            cluster.fill(*pods, &ours).await?;
            for (manager, column) in programs.iter().zip(&mut columns) {
                eprintln!("{pods} pods: {}", manager.name);
                column.append(&mut steady(&mut cluster, manager, *pods).await?);
            }
            if self.takeover && *pods > 0 {
                for (manager, column) in programs.iter().zip(&mut columns) {
                    eprintln!("{pods} pods: takeover: {}", manager.name);
                    let duration = takeover_time(&mut cluster, manager, false).await?;
                    let name = format!("takeover after SIGTERM, {pods} pods");
                    column.push(Measure::new(name, "ms", duration.as_secs_f64() * 1e3));
                }
            }
        }
        if self.takeover {
            let mut cluster = self.cluster(&clock).await?;
            for (manager, column) in programs.iter().zip(&mut columns) {
                eprintln!("takeover: {}", manager.name);
                column.append(&mut takeover(&mut cluster, manager).await?);
            }
        }
        let mut columns = columns.into_iter();
        let (ours, theirs) = (columns.next().unwrap_or_default(), columns.next());
        print!("{}", table(["This manager", "Upstream's"], &ours, theirs.as_deref()));
        if theirs.is_none() {
            println!("\nupstream's manager not measured: KUBE_CONTROLLER_MANAGER is not set");
        }
        Ok(())
    }

    async fn cluster(&self, clock: &Arc<dyn Clock>) -> Result<LoadCluster, TaskError> {
        let sandbox = program::release("kube-sandbox", self.sandbox.as_deref())?;
        let folder = tempfile::tempdir().map_err(failed("temporary directory"))?;
        let arguments = ["--nodes=10", "--pod-ready-delay=0ms", "--pod-stop-delay=0ms"];
        let (child, address) = program::sandbox(&sandbox, folder.path(), &arguments).await?;
        let clients = program::connect(Server::Master(address), clock).await?;
        LoadCluster::new(child, folder, clients, Arc::clone(clock)).await
    }
}

/// Measures one manager without a standby.
async fn steady(
    cluster: &mut LoadCluster,
    manager: &ManagerProgram,
    pods: usize,
) -> Result<Vec<Measure>, TaskError> {
    const MIB: f64 = 1024.0 * 1024.0;
    let with = match pods {
        0 => "0 pods".to_owned(),
        pods => format!("{pods} pods"),
    };
    let probe = cluster.probe().await?;
    let manager = cluster.start(manager, &["--leader-elect=false"])?;
    let start = probe.seen().await?;
    let busy = manager.idle(cluster.clock()).await?;
    let (now, most) = manager.resident()?;
    let mut measures = vec![
        Measure::new(format!("start to first write, {with}"), "ms", start.as_secs_f64() * 1e3),
        Measure::new(format!("CPU time until idle, {with}"), "ms", busy.as_secs_f64() * 1e3),
        Measure::new(format!("memory, {with}"), "MiB", now as f64 / MIB),
        Measure::new(format!("maximum memory, {with}"), "MiB", most as f64 / MIB),
    ];
    if pods > 0 {
        let each = |time: Duration, count: usize| time.as_secs_f64() * 1e6 / count as f64;
        let before = manager.processor_time()?;
        cluster.patch_unowned_pod(EVENTS).await?;
        let irrelevant = manager.idle(cluster.clock()).await?.saturating_sub(before);
        let before = manager.processor_time()?;
        cluster.patch_owned_pod(EVENTS).await?;
        let empty = manager.idle(cluster.clock()).await?.saturating_sub(before);
        let before = manager.processor_time()?;
        let start = cluster.now();
        cluster.grow(CREATED).await?;
        let took = cluster.now().saturating_sub(start);
        let created = manager.idle(cluster.clock()).await?.saturating_sub(before);
        measures.extend([
            Measure::new(
                format!("CPU time per irrelevant pod event, {with}"),
                "µs",
                each(irrelevant, EVENTS),
            ),
            Measure::new(format!("CPU time per empty pod event, {with}"), "µs", each(empty, EVENTS)),
            Measure::new(format!("CPU time per pod created, {with}"), "µs", each(created, CREATED)),
            Measure::new(
                format!("{CREATED} pods created and available, {with}"),
                "ms",
                took.as_secs_f64() * 1e3,
            ),
        ]);
        cluster.shrink().await?;
    }
    manager.end().await?;
    Ok(measures)
}

/// Measures takeovers from a leader to a standby.
async fn takeover(cluster: &mut LoadCluster, manager: &ManagerProgram) -> Result<Vec<Measure>, TaskError> {
    let mut measures = Vec::new();
    for (signal, kill) in [("SIGTERM", false), ("SIGKILL", true)] {
        let duration = takeover_time(cluster, manager, kill).await?;
        measures.push(Measure::new(format!("takeover after {signal}"), "ms", duration.as_secs_f64() * 1e3));
    }
    Ok(measures)
}

/// Returns the time from the end of the leader to the first write of the standby.
async fn takeover_time(
    cluster: &mut LoadCluster,
    manager: &ManagerProgram,
    kill: bool,
) -> Result<Duration, TaskError> {
    let probe = cluster.probe().await?;
    let leader = cluster.start(manager, &["--leader-elect=true"])?;
    probe.seen().await?;
    let standby = cluster.start(manager, &["--leader-elect=true"])?;
    standby.idle(cluster.clock()).await?;
    let start = cluster.now();
    if kill {
        leader.end().await?;
    } else {
        leader.terminate()?;
    }
    // Created after the end of the leader, which would otherwise handle it.
    let probe = cluster.probe().await?.from(start);
    let duration = probe.seen().await?;
    standby.end().await?;
    // The next leader must not find a lease that is held.
    cluster.delete_lease().await?;
    Ok(duration)
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
}

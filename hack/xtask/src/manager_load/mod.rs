//! How much the manager costs, beside upstream's where that is given.
//!
//! Both run on the sandbox, which serves both alike, with the same arguments. What is measured is seen from outside:
//! what the manager writes, and what the system says of its process.
//!
//! | | what | how |
//! |---|---|---|
//! | start | from `exec` to the first write | a Deployment waits that no manager has seen; its ReplicaSet tells |
//! | memory | resident, and at most so far | when the manager has been idle for a while |
//! | irrelevant event | processor time of one | a pod that belongs to nobody is patched many times |
//! | empty event | likewise, of one that wakes a controller for nothing | a settled ReplicaSet's pod is patched |
//! | pod | processor time of one, from being wanted to being counted as available | a Deployment is created |
//! | takeover | from the leader's end to the standby's first write; on SIGTERM also with each number of pods | as for start |

mod cluster;
mod subject;

use std::{env, path::PathBuf, sync::Arc, time::Duration};

use kcm_api::ApiError;
use kcm_client::Server;
use kcm_clock::{Clock, RealClock};
use kcm_informer::ListWatchError;
use thiserror::Error;

use crate::measure::{
    Measure, ProgramError,
    program::{self, failed},
    table,
};
use cluster::Cluster;
use subject::Subject;

/// As the issue asks.
const PODS: [usize; 2] = [10_000, 50_000];
/// So that a run needs less memory than a laptop has.
const MOST_PODS: usize = 100_000;
/// How many pods each Deployment has.
const PODS_EACH: usize = 100;
/// How many events of one kind are measured. At that many, what else a manager does is little.
const EVENTS: usize = 5_000;
/// How many pods are created.
const CREATED: usize = 1_000;
/// Nothing may take longer.
const PATIENCE: Duration = Duration::from_secs(300);

/// What to measure.
#[derive(Debug)]
pub struct Task {
    pods: Vec<usize>,
    manager: Option<PathBuf>,
    sandbox: Option<PathBuf>,
    takeover: bool,
}

/// Why there are no numbers.
#[derive(Debug, Error)]
pub enum TaskError {
    /// The programs cannot be run or looked at.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A server refused a request.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A list or watch request failed.
    #[error(transparent)]
    ListWatch(#[from] ListWatchError),
    /// An answer is not JSON.
    #[error("an answer is not JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// Nothing came of it in time.
    #[error("{0} took too long")]
    Late(String),
    /// A manager ended while it was measured.
    #[error("{0} has ended by itself: {1}")]
    Ended(&'static str, String),
}

impl Task {
    /// What the words after `manager-load` mean; `None` if that is nothing.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let mut task = Self { pods: PODS.to_vec(), manager: None, sandbox: None, takeover: true };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--pods" => {
                    let each = words
                        .next()?
                        .split(',')
                        .map(|pods| pods.parse().ok().filter(|pods| (PODS_EACH..=MOST_PODS).contains(pods)));
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

    /// Measures and prints the table.
    ///
    /// # Errors
    ///
    /// When a program does not start, ends, or is too slow to be measured.
    pub fn run(&self) -> Result<(), TaskError> {
        program::runtime()?.block_on(self.measure())
    }

    async fn measure(&self) -> Result<(), TaskError> {
        let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
        let manager = program::release("kube-controller-manager", self.manager.as_deref())?;
        let ours = Subject { name: "this manager", program: manager };
        let theirs = env::var_os("KUBE_CONTROLLER_MANAGER")
            .map(|program| Subject { name: "upstream's manager", program: program.into() });
        let subjects: Vec<_> = [Some(&ours), theirs.as_ref()].into_iter().flatten().collect();
        let mut columns: Vec<Vec<Measure>> = subjects.iter().map(|_| Vec::new()).collect();

        for pods in std::iter::once(&0).chain(&self.pods) {
            eprintln!("{pods} pods: filling");
            let mut cluster = self.cluster(&clock).await?;
            cluster.fill(*pods, &ours).await?;
            for (subject, column) in subjects.iter().zip(&mut columns) {
                eprintln!("{pods} pods: {}", subject.name);
                column.append(&mut steady(&mut cluster, subject, *pods).await?);
            }
            if self.takeover && *pods > 0 {
                for (subject, column) in subjects.iter().zip(&mut columns) {
                    eprintln!("{pods} pods: takeover: {}", subject.name);
                    let gap = gap(&mut cluster, subject, false).await?;
                    let name = format!("takeover when the leader is asked to (SIGTERM), {pods} pods");
                    column.push(Measure::new(name, "ms", gap.as_secs_f64() * 1e3));
                }
            }
        }
        if self.takeover {
            let mut cluster = self.cluster(&clock).await?;
            for (subject, column) in subjects.iter().zip(&mut columns) {
                eprintln!("takeover: {}", subject.name);
                column.append(&mut takeover(&mut cluster, subject).await?);
            }
        }
        let mut columns = columns.into_iter();
        let (ours, theirs) = (columns.next().unwrap_or_default(), columns.next());
        print!("{}", table(["This manager", "Upstream's"], &ours, theirs.as_deref()));
        if theirs.is_none() {
            println!("\nupstream's manager is not measured: KUBE_CONTROLLER_MANAGER is not set");
        }
        Ok(())
    }

    async fn cluster(&self, clock: &Arc<dyn Clock>) -> Result<Cluster, TaskError> {
        let sandbox = program::release("kube-sandbox", self.sandbox.as_deref())?;
        let folder = tempfile::tempdir().map_err(failed("a temporary folder"))?;
        let arguments = ["--nodes=10", "--pod-ready-delay=0ms", "--pod-stop-delay=0ms"];
        let (child, address) = program::sandbox(&sandbox, folder.path(), &arguments).await?;
        let clients = program::connect(Server::Master(address), clock).await?;
        Cluster::new(child, folder, clients, Arc::clone(clock)).await
    }
}

/// One manager alone, with so many pods.
async fn steady(cluster: &mut Cluster, subject: &Subject, pods: usize) -> Result<Vec<Measure>, TaskError> {
    const MIB: f64 = 1024.0 * 1024.0;
    let with = match pods {
        0 => "nothing to do".to_owned(),
        pods => format!("{pods} pods"),
    };
    let probe = cluster.probe().await?;
    let manager = cluster.start(subject, &["--leader-elect=false"])?;
    let start = probe.seen().await?;
    let busy = manager.idle(cluster).await?;
    let (now, most) = manager.resident()?;
    let mut measures = vec![
        Measure::new(format!("start to first write, {with}"), "ms", start.as_secs_f64() * 1e3),
        Measure::new(format!("processor time until idle, {with}"), "ms", busy.as_secs_f64() * 1e3),
        Measure::new(format!("memory, {with}"), "MiB", now as f64 / MIB),
        Measure::new(format!("memory at most, {with}"), "MiB", most as f64 / MIB),
    ];
    if pods > 0 {
        let each = |time: Duration, count: usize| time.as_secs_f64() * 1e6 / count as f64;
        let before = manager.processor_time()?;
        cluster.touch_stray(EVENTS).await?;
        let irrelevant = manager.idle(cluster).await?.saturating_sub(before);
        let before = manager.processor_time()?;
        cluster.touch_owned(EVENTS).await?;
        let empty = manager.idle(cluster).await?.saturating_sub(before);
        let before = manager.processor_time()?;
        let start = cluster.now();
        cluster.grow(CREATED).await?;
        let took = cluster.now().saturating_sub(start);
        let created = manager.idle(cluster).await?.saturating_sub(before);
        measures.extend([
            Measure::new(
                format!("processor time per irrelevant pod event, {with}"),
                "µs",
                each(irrelevant, EVENTS),
            ),
            Measure::new(format!("processor time per empty pod event, {with}"), "µs", each(empty, EVENTS)),
            Measure::new(format!("processor time per pod created, {with}"), "µs", each(created, CREATED)),
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

/// A leader and a standby; the leader ends in one way or another.
async fn takeover(cluster: &mut Cluster, subject: &Subject) -> Result<Vec<Measure>, TaskError> {
    let mut measures = Vec::new();
    for (how, kill) in [("asked to (SIGTERM)", false), ("killed (SIGKILL)", true)] {
        let gap = gap(cluster, subject, kill).await?;
        measures.push(Measure::new(
            format!("takeover when the leader is {how}"),
            "ms",
            gap.as_secs_f64() * 1e3,
        ));
    }
    Ok(measures)
}

/// Time from the leader's end to the standby's first write.
async fn gap(cluster: &mut Cluster, subject: &Subject, kill: bool) -> Result<Duration, TaskError> {
    let probe = cluster.probe().await?;
    let leader = cluster.start(subject, &["--leader-elect=true"])?;
    probe.seen().await?;
    let standby = cluster.start(subject, &["--leader-elect=true"])?;
    standby.idle(cluster).await?;
    let start = cluster.now();
    if kill {
        leader.end().await?;
    } else {
        leader.terminate()?;
    }
    // After the leader's end, or it would still see to it.
    let probe = cluster.probe().await?.from(start);
    let gap = probe.seen().await?;
    standby.end().await?;
    // What the next round's leader finds must not be a lease that somebody held.
    cluster.forget_lease().await?;
    Ok(gap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_numbers_out_of_bounds_mean_nothing() {
        assert_eq!(Task::parse(&["--pods", "500,2000"]).unwrap().pods, [500, 2000]);
        assert_eq!(Task::parse(&[]).unwrap().pods, PODS);
        assert!(Task::parse(&["--pods", "99"]).is_none());
        assert!(Task::parse(&["--pods", "500,100001"]).is_none());
        assert!(Task::parse(&["--pods"]).is_none());
        assert!(!Task::parse(&["--no-takeover"]).unwrap().takeover);
    }
}

//! Size of a large cluster.

use std::time::Duration;

use super::{Cluster, Manager, Programs, number, print_header, run};
use crate::error::TaskError;

/// Time without work after which the manager is idle.
const IDLE: Duration = Duration::from_secs(3);
/// CPU time in [`IDLE`] below which the manager is idle.
const IDLE_CPU_TIME: Duration = Duration::from_millis(20);

/// Flags of the task.
#[derive(Debug)]
pub struct Task {
    deployments: usize,
    revisions: usize,
    pods: usize,
    programs: Programs,
}

impl Task {
    /// Parses the arguments of `manager-size`. Returns `None` if they are invalid.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let mut task = Self { deployments: 5_000, revisions: 10, pods: 30, programs: Programs::default() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--deployments" => task.deployments = number(words.next(), 100_000)?,
                "--revisions" => task.revisions = number(words.next(), 11)?,
                "--pods-each" => task.pods = number(words.next(), 10_000)?,
                flag => task.programs.parse(flag, &mut words)?,
            }
        }
        Some(task)
    }

    /// Creates the cluster, and prints what its manager needs.
    pub fn run(&self) -> Result<(), TaskError> {
        run(&self.programs, async |cluster| self.measure(&cluster).await)
    }

    async fn measure(&self, cluster: &Cluster) -> Result<(), TaskError> {
        print_header();
        let manager = cluster.manager()?;
        idle(cluster, &manager).await?;
        manager.print("no Deployments")?;
        for n in 0..self.deployments {
            cluster.create(&name(n), 0).await?;
        }
        cluster.settled().await?;
        for revision in 1..self.revisions {
            for n in 0..self.deployments {
                cluster.roll(&name(n), revision).await?;
            }
            cluster.settled().await?;
        }
        idle(cluster, &manager).await?;
        manager
            .print(&format!("{} Deployments with {} ReplicaSets each", self.deployments, self.revisions))?;
        for n in 0..self.deployments {
            cluster.scale(&name(n), self.pods).await?;
        }
        cluster.settled().await?;
        idle(cluster, &manager).await?;
        let pods = self.deployments * self.pods;
        manager.print(&format!("and {pods} pods, after their creation"))?;
        drop(manager);

        let start = cluster.clock.monotonic();
        let manager = cluster.manager()?;
        idle(cluster, &manager).await?;
        let time = cluster.clock.monotonic().saturating_sub(start + IDLE);
        manager.print("after a start with all of them")?;
        println!(
            "\nFrom the start until idle: {:.1} s, CPU time {:.1} s",
            time.as_secs_f64(),
            manager.processor_time()?.as_secs_f64()
        );
        Ok(())
    }
}

fn name(n: usize) -> String {
    format!("web-{n:05}")
}

/// Waits until the manager is idle.
async fn idle(cluster: &Cluster, manager: &Manager) -> Result<(), TaskError> {
    loop {
        let before = manager.processor_time()?;
        cluster.pause(IDLE).await;
        if manager.processor_time()?.saturating_sub(before) < IDLE_CPU_TIME {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_rejects_numbers_out_of_bounds() {
        let task = Task::parse(&["--deployments", "5", "--revisions", "3", "--pods-each", "7"]).unwrap();
        assert_eq!((task.deployments, task.revisions, task.pods), (5, 3, 7));
        // The history limit is ten old ReplicaSets.
        for words in [&["--revisions", "12"][..], &["--deployments", "0"], &["--pods-each"], &["--other"]] {
            assert!(Task::parse(words).is_none(), "{words:?}");
        }
    }
}

//! Soak: the same rollouts many times.

use std::time::Duration;

use super::{Cluster, Programs, number, print_header, run};
use crate::error::TaskError;

const NAME: &str = "web";
/// Time without pods before the last measurement.
const REST: Duration = Duration::from_secs(60);
/// Time after which memory that a burst does not need has been returned.
const PAUSE: Duration = Duration::from_secs(5);

/// Flags of the task.
#[derive(Debug)]
pub struct Task {
    cycles: usize,
    pods: usize,
    programs: Programs,
}

impl Task {
    /// Parses the arguments of `manager-soak`. Returns `None` if they are invalid.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let mut task = Self { cycles: 100, pods: 2_000, programs: Programs::default() };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match *word {
                "--cycles" => task.cycles = number(words.next(), 100_000)?,
                "--pods" => task.pods = number(words.next(), 100_000)?,
                flag => task.programs.parse(flag, &mut words)?,
            }
        }
        Some(task)
    }

    /// Runs the rollouts and prints the resident memory.
    pub fn run(&self) -> Result<(), TaskError> {
        run(&self.programs, async |cluster| self.measure(&cluster).await)
    }

    async fn measure(&self, cluster: &Cluster) -> Result<(), TaskError> {
        let manager = cluster.manager()?;
        cluster.create(NAME, 0).await?;
        cluster.settled().await?;
        cluster.pause(PAUSE).await;
        print_header();
        let start = manager.print("start, no pods")?;
        for cycle in 1..=self.cycles {
            cluster.scale(NAME, self.pods).await?;
            cluster.settled().await?;
            if cycle == 1 {
                let (_, most) = manager.resident()?;
                cluster.pause(PAUSE).await;
                let kept = manager.print(&format!("{} pods, settled", self.pods))?;
                println!("| maximum of the burst / settled | {:.2} | |", most / kept);
            }
            cluster.roll(NAME, cycle).await?;
            cluster.settled().await?;
            cluster.scale(NAME, 0).await?;
            cluster.settled().await?;
            if cycle % self.cycles.div_ceil(10) == 0 {
                manager.print(&format!("after {cycle} cycles"))?;
            }
        }
        cluster.pause(REST).await;
        let end = manager.print(&format!("{} s after the last pod", REST.as_secs()))?;
        println!("| growth since the start | {:.1} | |", end - start);
        println!("\nCPU time of the manager: {:.1} s", manager.processor_time()?.as_secs_f64());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_rejects_numbers_out_of_bounds() {
        let task = Task::parse(&["--cycles", "5", "--pods", "100", "--manager", "program"]).unwrap();
        assert_eq!((task.cycles, task.pods), (5, 100));
        assert!(task.programs.manager.is_some() && task.programs.sandbox.is_none());
        for words in
            [&["--cycles", "0"][..], &["--pods", "100001"], &["--pods"], &["--manager"], &["--other"]]
        {
            assert!(Task::parse(words).is_none(), "{words:?}");
        }
    }
}

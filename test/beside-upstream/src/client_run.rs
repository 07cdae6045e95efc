//! A run with a client of the secure port.

use std::{env, fs, io, path::Path, time::Duration};

use kcm_clock::Clock as _;
use kcm_stories::external::Program;
use tokio::task::JoinSet;

use crate::{
    catalogue::Lasts,
    clients::{Counts, HostileClient},
    cluster::MANAGER,
    error::{SuiteError, failed},
    measure::Measurement,
    probe::{Probe, longest_gap},
    run::{CONVERGENCE, POLL_INTERVAL, Run, SETTLED, SETUP},
    workload::Workload,
};

/// Sub-command of the suite's program that runs a client.
const COMMAND: &str = "beside-upstream-client";
/// Duration of a client that is a task, in seconds.
const TASK_SECONDS: u64 = 10;
/// Time after which a client that has not ended is killed.
const ENDS: Duration = Duration::from_secs(10);

impl Run<'_> {
    /// Starts the client and then the rollout. Probes the secure port until the client has ended.
    pub(crate) async fn measure_client(
        &mut self,
        workload: &Workload<'_>,
    ) -> Result<Measurement, SuiteError> {
        let Lasts::Seconds(seconds) = self.scene.fault.lasts else { return Err(self.late("the client")) };
        let seconds = if self.plan.until_reached { TASK_SECONDS } else { seconds };
        let address = self.scene.secure.ok_or_else(|| self.late("the secure port"))?;
        let probe = Probe::start(address, self.scene.cluster.clock.clone())?;
        let (address, token) = (address.to_string(), format!("{MANAGER}token"));
        let words = [self.scene.fault.name.as_str(), &address, &token, &seconds.to_string()];
        let mut client = if self.plan.until_reached {
            let client = HostileClient::parse(&words).ok_or_else(|| self.late("the client"))?;
            RunningClient::task(client)
        } else {
            RunningClient::process(&words, &self.plan.log.with_extension("client.log"))?
        };
        let started = self.now();
        while client.counts().handshakes == 0 {
            if !client.is_running() || self.now() > started + SETUP {
                return Err(self.late("the first connection of the client"));
            }
            self.scene.cluster.clock.sleep(POLL_INTERVAL).await;
        }

        let begin = self.now();
        workload.roll().await?;
        workload.add().await?;
        let is_met = |observed: &crate::observer::Observed| observed.met_at.is_some();
        // The time of the client counts from its start.
        let until = begin + Duration::from_secs(seconds) + ENDS;
        while client.is_running() && self.now() < until {
            self.count();
            self.scene.cluster.clock.sleep(POLL_INTERVAL).await;
        }
        let counts = client.counts();
        drop(client);
        let end = self.now();
        let mut under = probe.measured();
        drop(probe);
        let converged = self.until(CONVERGENCE, is_met).await;
        let last = self.observer.with(|observed| observed.met_at).unwrap_or_else(|| end + CONVERGENCE);
        let renewals = self.observer.with(|observed| observed.renewals.clone());
        under.renewal = longest_gap(&renewals, begin, end).as_secs_f64();
        under.rollout = last.saturating_sub(begin).as_secs_f64();
        self.scene.events = counts.handshakes;
        under.client = counts;
        self.scene.cluster.clock.sleep(SETTLED).await;
        self.count();
        let measurement = self.result(begin, end, last, converged).await?;
        Ok(Measurement { under_client: Some(under), ..measurement })
    }
}

/// Running client. Dropping it ends it.
enum RunningClient {
    /// Process of the suite's program.
    Process(Box<Program>),
    /// Task of the suite, for programs that do not have the sub-command.
    Task { task: JoinSet<Result<(), SuiteError>>, counts: Box<dyn Fn() -> Counts + Send> },
}

impl RunningClient {
    fn process(words: &[&str], log: &Path) -> Result<Self, SuiteError> {
        let _ = fs::remove_file(log);
        let program = env::current_exe().map_err(failed("current program"))?;
        let words: Vec<_> = [COMMAND].iter().chain(words).map(|word| (*word).to_owned()).collect();
        let program = Program::run("the client", program.as_os_str(), &words, log)?;
        Ok(Self::Process(Box::new(program)))
    }

    fn task(client: HostileClient) -> Self {
        let counts = Box::new(client.counts());
        let mut task = JoinSet::new();
        task.spawn(client.run(io::sink()));
        Self::Task { task, counts }
    }

    fn is_running(&mut self) -> bool {
        match self {
            Self::Process(program) => program.check_running().is_ok(),
            Self::Task { task, .. } => task.try_join_next().is_none() && !task.is_empty(),
        }
    }

    /// Counts so far. A process prints them.
    fn counts(&self) -> Counts {
        match self {
            Self::Process(program) => {
                let log = program.log();
                let mut counts = log.lines().rev().filter_map(|line| serde_json::from_str(line).ok());
                counts.next().unwrap_or_default()
            }
            Self::Task { counts, .. } => counts(),
        }
    }
}

//! Managers under measurement.

use std::{
    path::{Path, PathBuf},
    process::{self, Stdio},
    time::Duration,
};

use kcm_clock::Clock;
use tokio::process::{Child, Command};

use crate::{
    error::TaskError,
    measure::{
        process::{processor_time, reset_peak, resident},
        program::failed,
    },
};

/// Timeout of a measurement.
pub(super) const TIMEOUT: Duration = Duration::from_secs(300);
/// Interval of idle checks, and idle time after which a manager counts as idle.
const POLL_INTERVAL: Duration = Duration::from_millis(250);
const IDLE: Duration = Duration::from_secs(2);
/// CPU time per interval below which a manager counts as idle. Lease renewals and timers stay below it.
const IDLE_CPU_TIME: Duration = Duration::from_millis(5);

/// Program of a manager.
#[derive(Debug)]
pub(super) struct ManagerProgram {
    pub(super) name: &'static str,
    pub(super) program: PathBuf,
}

/// Running manager. Killed on drop.
pub(super) struct RunningManager {
    name: &'static str,
    child: Child,
    id: u32,
}

impl ManagerProgram {
    /// Starts the manager with flags that both managers support. Client-side rate limits are not reached.
    pub(super) fn start(&self, kubeconfig: &Path, more: &[&str]) -> Result<RunningManager, TaskError> {
        let child = Command::new(&self.program)
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .args([
                "--controllers=deployment-controller,replicaset-controller",
                "--secure-port=0",
                "--kube-api-qps=100000",
                "--kube-api-burst=100000",
            ])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed(self.program.display().to_string()))?;
        let id = child.id().ok_or_else(|| TaskError::Exited(self.name, "immediately".to_owned()))?;
        Ok(RunningManager { name: self.name, child, id })
    }
}

impl RunningManager {
    /// Waits until the manager is idle. Returns its total CPU time.
    pub(super) async fn idle(&self, clock: &dyn Clock) -> Result<Duration, TaskError> {
        let deadline = clock.monotonic() + TIMEOUT;
        let (mut last, mut since) = (self.processor_time()?, clock.monotonic());
        loop {
            clock.sleep(POLL_INTERVAL).await;
            let (spent, now) = (self.processor_time()?, clock.monotonic());
            if spent.saturating_sub(last) > IDLE_CPU_TIME {
                (last, since) = (spent, now);
            } else if now.saturating_sub(since) >= IDLE {
                return Ok(spent);
            }
            if now > deadline {
                return Err(TaskError::Late(format!("idle state of {}", self.name)));
            }
        }
    }

    pub(super) fn processor_time(&self) -> Result<Duration, TaskError> {
        Ok(processor_time(self.id)?)
    }

    pub(super) fn resident(&self) -> Result<(u64, u64), TaskError> {
        Ok(resident(self.id)?)
    }

    /// Sets the maximum of the memory to its current value.
    pub(super) fn reset_peak(&self) -> Result<(), TaskError> {
        Ok(reset_peak(self.id)?)
    }

    /// Kills the manager.
    pub(super) async fn end(mut self) -> Result<(), TaskError> {
        if let Some(status) = self.child.try_wait().map_err(failed(self.name))? {
            return Err(TaskError::Exited(self.name, status.to_string()));
        }
        Ok(self.child.kill().await.map_err(failed(self.name))?)
    }

    /// Sends SIGTERM. The process is reaped by a task.
    pub(super) fn terminate(self) -> Result<(), TaskError> {
        let Self { mut child, id, .. } = self;
        // The standard library and tokio support only SIGKILL.
        process::Command::new("kill").args(["-TERM", &id.to_string()]).status().map_err(failed("kill"))?;
        tokio::spawn(async move { child.wait().await });
        Ok(())
    }
}

//! A manager that is measured.

use std::{
    path::{Path, PathBuf},
    process::{self, Stdio},
    time::Duration,
};

use tokio::process::{Child, Command};

use super::{PATIENCE, TaskError, cluster::Cluster};
use crate::measure::{
    process::{processor_time, resident},
    program::failed,
};

/// How often an idle manager is looked at, and for how long it must have done nothing.
const LOOK: Duration = Duration::from_millis(250);
const IDLE: Duration = Duration::from_secs(2);
/// A renewal of the lease, and a look at the clock, are nothing.
const NEXT_TO_NOTHING: Duration = Duration::from_millis(5);

/// A manager's program.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) name: &'static str,
    pub(super) program: PathBuf,
}

/// A manager that runs. It is killed when dropped.
pub(super) struct Running {
    name: &'static str,
    child: Child,
    id: u32,
}

impl Subject {
    /// Starts it with what both managers understand. Rates are such that no client waits for itself.
    pub(super) fn start(&self, kubeconfig: &Path, more: &[&str]) -> Result<Running, TaskError> {
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
        let id = child.id().ok_or_else(|| TaskError::Ended(self.name, "at once".to_owned()))?;
        Ok(Running { name: self.name, child, id })
    }
}

impl Running {
    /// Waits until it has done nothing for a while, and gives the processor time that it has taken in all.
    pub(super) async fn idle(&self, cluster: &Cluster) -> Result<Duration, TaskError> {
        let deadline = cluster.now() + PATIENCE;
        let (mut last, mut since) = (self.processor_time()?, cluster.now());
        loop {
            cluster.pause(LOOK).await;
            let (spent, now) = (self.processor_time()?, cluster.now());
            if spent.saturating_sub(last) > NEXT_TO_NOTHING {
                (last, since) = (spent, now);
            } else if now.saturating_sub(since) >= IDLE {
                return Ok(spent);
            }
            if now > deadline {
                return Err(TaskError::Late(format!("coming to rest of {}", self.name)));
            }
        }
    }

    pub(super) fn processor_time(&self) -> Result<Duration, TaskError> {
        Ok(processor_time(self.id)?)
    }

    pub(super) fn resident(&self) -> Result<(u64, u64), TaskError> {
        Ok(resident(self.id)?)
    }

    /// Kills it.
    pub(super) async fn end(mut self) -> Result<(), TaskError> {
        if let Some(status) = self.child.try_wait().map_err(failed(self.name))? {
            return Err(TaskError::Ended(self.name, status.to_string()));
        }
        Ok(self.child.kill().await.map_err(failed(self.name))?)
    }

    /// Asks it to end. The process is reaped when the runtime gets to it.
    pub(super) fn terminate(self) -> Result<(), TaskError> {
        let Self { mut child, id, .. } = self;
        // The standard library and tokio can only kill.
        process::Command::new("kill").args(["-TERM", &id.to_string()]).status().map_err(failed("kill"))?;
        tokio::spawn(async move { child.wait().await });
        Ok(())
    }
}

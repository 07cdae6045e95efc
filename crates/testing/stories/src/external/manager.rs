//! A controller manager as a process.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use kcm_clock::Clock;

use super::{
    commands::{fill, free_port, text},
    files::Files,
    program::Program,
    readiness::POLL_INTERVAL,
};
use crate::{
    cluster::{Activity, ClusterError, ManagerUnderTest},
    write_log::WriteLog,
};

/// Runs a shell command as the manager of each story.
#[derive(Debug)]
pub(super) struct ExternalManager {
    command: String,
    files: Files,
    clock: Arc<dyn Clock>,
    /// Timeout for start and stop.
    timeout: Duration,
    running: Option<Program>,
}

impl ExternalManager {
    pub(super) fn new(command: String, files: Files, clock: Arc<dyn Clock>, timeout: Duration) -> Self {
        Self { command, files, clock, timeout, running: None }
    }
}

/// Resources that these controllers watch before they act.
fn watched(controllers: &[String]) -> BTreeSet<String> {
    let of = |controller: &String| match controller.as_str() {
        "deployment-controller" => &["deployments", "replicasets", "pods"][..],
        "replicaset-controller" => &["replicasets", "pods"][..],
        _ => &[],
    };
    controllers.iter().flat_map(of).map(|&resource| resource.to_owned()).collect()
}

#[async_trait]
impl ManagerUnderTest for ExternalManager {
    async fn start(&mut self, controllers: &[String], log: &mut WriteLog) -> Result<(), ClusterError> {
        let values = [
            ("kubeconfig", text(&self.files.kubeconfig("manager"))),
            ("controllers", controllers.join(",")),
            ("dir", text(self.files.folder())),
            ("port", free_port()?.to_string()),
        ];
        let values = values.each_ref().map(|(name, value)| (*name, value.as_str()));
        let command = fill(&self.command, &values);
        let mut program = Program::shell("manager", &command, &self.files.log("manager"))?;
        // The audit log shows when the manager is ready, so it needs no serving port.
        let mut missing = watched(controllers);
        let deadline = self.clock.monotonic().saturating_add(self.timeout);
        while !missing.is_empty() {
            let soon = self.clock.monotonic().saturating_add(POLL_INTERVAL);
            if let Some(entry) = log.next_before(soon.min(deadline)).await {
                if entry.verb == "watch" {
                    missing.remove(&entry.resource);
                }
                continue;
            }
            program.check_running()?;
            if self.clock.monotonic() >= deadline {
                let (seconds, log) = (self.timeout.as_secs(), program.log_tail());
                let missing: Vec<_> = missing.iter().map(String::as_str).collect();
                let reason = format!("no watch of {}", missing.join(", "));
                return Err(ClusterError::NotReady { program: "manager", seconds, reason, log });
            }
        }
        self.running = Some(program);
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), ClusterError> {
        match self.running.take() {
            Some(program) => program.stop(self.timeout).await,
            None => Ok(()),
        }
    }

    fn activity(&self) -> Activity {
        self.running.as_ref().map_or_else(Activity::default, Program::activity)
    }
}

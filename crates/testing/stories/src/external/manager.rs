//! A manager that is a program.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use async_trait::async_trait;
use kcm_clock::Clock;

use super::{ASK_EVERY, files::Files, fill, free_port, program::Program, text};
use crate::{
    trail::Trail,
    world::{Activity, Manager, WorldError},
};

/// Runs a command for each story.
#[derive(Debug)]
pub(super) struct ExternalManager {
    command: String,
    files: Files,
    clock: Arc<dyn Clock>,
    /// How long it may take to start, and to stop.
    patience: Duration,
    running: Option<Program>,
}

impl ExternalManager {
    pub(super) fn new(command: String, files: Files, clock: Arc<dyn Clock>, patience: Duration) -> Self {
        Self { command, files, clock, patience, running: None }
    }
}

/// What a manager with these controllers must watch before it can do anything.
fn watched(controllers: &[String]) -> BTreeSet<String> {
    let of = |controller: &String| match controller.as_str() {
        "deployment-controller" => &["deployments", "replicasets", "pods"][..],
        "replicaset-controller" => &["replicasets", "pods"][..],
        _ => &[],
    };
    controllers.iter().flat_map(of).map(|&resource| resource.to_owned()).collect()
}

#[async_trait]
impl Manager for ExternalManager {
    async fn start(&mut self, controllers: &[String], trail: &mut Trail) -> Result<(), WorldError> {
        let values = [
            ("kubeconfig", text(&self.files.kubeconfig("manager"))),
            ("controllers", controllers.join(",")),
            ("dir", text(self.files.folder())),
            ("port", free_port()?.to_string()),
        ];
        let values = values.each_ref().map(|(name, value)| (*name, value.as_str()));
        let command = fill(&self.command, &values);
        let mut program = Program::shell("the manager", &command, &self.files.log("manager"))?;
        // That it watches is known from the server, so a manager needs no port of its own to be asked at.
        let mut missing = watched(controllers);
        let deadline = self.clock.monotonic().saturating_add(self.patience);
        while !missing.is_empty() {
            let soon = self.clock.monotonic().saturating_add(ASK_EVERY);
            if let Some(entry) = trail.next_before(soon.min(deadline)).await {
                if entry.verb == "watch" {
                    missing.remove(&entry.resource);
                }
                continue;
            }
            program.must_run()?;
            if self.clock.monotonic() >= deadline {
                let (seconds, said) = (self.patience.as_secs(), program.last_words());
                let missing: Vec<_> = missing.iter().map(String::as_str).collect();
                let lacks = format!("it does not watch {}", missing.join(", "));
                return Err(WorldError::NotReady { program: "the manager", seconds, lacks, said });
            }
        }
        self.running = Some(program);
        Ok(())
    }

    async fn stop(&mut self) -> Result<(), WorldError> {
        match self.running.take() {
            Some(program) => program.stop(self.patience).await,
            None => Ok(()),
        }
    }

    fn activity(&self) -> Activity {
        self.running.as_ref().map_or_else(Activity::default, Program::activity)
    }
}

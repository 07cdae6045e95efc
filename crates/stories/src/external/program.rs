//! A program under our care.

use std::{
    ffi::OsStr,
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
    process::{Command as StdCommand, Stdio},
    time::Duration,
};

use tokio::process::{Child, Command};

use crate::world::WorldError;

/// As much of a log as helps.
const LAST_LINES: usize = 15;

/// A running program, with all that it starts. It is killed when dropped.
#[derive(Debug)]
pub(super) struct Program {
    name: &'static str,
    log: PathBuf,
    child: Child,
    /// Its process group, which is its own.
    group: Option<u32>,
}

impl Program {
    /// Runs a command line of the shell.
    pub(super) fn shell(name: &'static str, command: &str, log: &Path) -> Result<Self, WorldError> {
        Self::run(name, OsStr::new("sh"), &["-c".to_owned(), command.to_owned()], log)
    }

    /// Runs a program. What it says goes to the end of `log`.
    pub(super) fn run(
        name: &'static str,
        program: &OsStr,
        arguments: &[String],
        log: &Path,
    ) -> Result<Self, WorldError> {
        let spawn = |source: io::Error| WorldError::Spawn { program: program.display().to_string(), source };
        let open = |source| WorldError::File { file: log.display().to_string(), source };
        let out = OpenOptions::new().create(true).append(true).open(log).map_err(open)?;
        let err = out.try_clone().map_err(open)?;
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(out)
            .stderr(err)
            .process_group(0)
            .spawn()
            .map_err(spawn)?;
        let group = child.id();
        Ok(Self { name, log: log.to_owned(), child, group })
    }

    /// Fails if it has ended.
    pub(super) fn must_run(&mut self) -> Result<(), WorldError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.ended(&status.to_string())),
            Err(error) => Err(self.ended(&error.to_string())),
        }
    }

    fn ended(&self, status: &str) -> WorldError {
        WorldError::Ended { program: self.name, status: status.to_owned(), said: self.last_words() }
    }

    /// The end of its log.
    pub(super) fn last_words(&self) -> String {
        let log = fs::read(&self.log).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }

    /// Asks it to end, and kills it if it does not in time.
    pub(super) async fn stop(mut self, patience: Duration) -> Result<(), WorldError> {
        self.must_run()?;
        self.signal("TERM");
        if tokio::time::timeout(patience, self.child.wait()).await.is_err() {
            return Err(WorldError::NotReady {
                program: "the end of a program",
                seconds: patience.as_secs(),
                said: self.last_words(),
            });
        }
        Ok(())
    }

    fn signal(&self, signal: &str) {
        let Some(group) = self.group else { return };
        // A program that is gone already needs no signal.
        let _ = StdCommand::new("kill")
            .args([&format!("-{signal}"), "--", &format!("-{group}")])
            .stderr(Stdio::null())
            .status();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.signal("KILL");
    }
}

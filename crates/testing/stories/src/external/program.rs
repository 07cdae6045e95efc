//! A program under our care.

use std::{
    ffi::OsStr,
    fs::{self, OpenOptions},
    io,
    path::{Path, PathBuf},
    process::{Command as StdCommand, ExitStatus, Stdio},
    sync::OnceLock,
    time::Duration,
};

use tokio::process::{Child, Command};

use super::activity;
use crate::world::{Activity, WorldError};

/// As much of a log as helps.
const LAST_LINES: usize = 15;

/// A running program, with all that it starts. It is killed when dropped.
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    log: PathBuf,
    child: Child,
    /// Its process group, which is its own.
    group: Option<u32>,
    /// What is in the group, once somebody wanted to know.
    processes: OnceLock<Vec<u32>>,
}

/// What a program can be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// To end in its own way.
    Terminate,
    /// To end at once.
    Kill,
    /// To stand still.
    Stop,
    /// To go on.
    Continue,
}

impl Program {
    /// Runs a command line of the shell.
    ///
    /// # Errors
    ///
    /// When there is no shell, or the log cannot be written.
    pub fn shell(name: &'static str, command: &str, log: &Path) -> Result<Self, WorldError> {
        Self::run(name, OsStr::new("sh"), &["-c".to_owned(), command.to_owned()], log)
    }

    /// Runs a program, which is called `name` in errors. What it says goes to the end of `log`.
    ///
    /// # Errors
    ///
    /// When it cannot be started, or the log cannot be written.
    pub fn run(
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
        Ok(Self { name, log: log.to_owned(), child, group, processes: OnceLock::new() })
    }

    /// Fails if it has ended.
    ///
    /// # Errors
    ///
    /// When it has: how, and the end of its log.
    pub fn must_run(&mut self) -> Result<(), WorldError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.ended(&status.to_string())),
            Err(error) => Err(self.ended(&error.to_string())),
        }
    }

    fn ended(&self, status: &str) -> WorldError {
        WorldError::Ended { program: self.name, status: status.to_owned(), said: self.last_words() }
    }

    /// All that it has said, and what its log had before.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }

    /// What it is at.
    pub(super) fn activity(&self) -> Activity {
        let processes = || self.group.map(activity::processes).unwrap_or_default();
        activity::activity_of(self.processes.get_or_init(processes))
    }

    /// Asks it to end, and waits until it has.
    ///
    /// # Errors
    ///
    /// When it has ended before, or does not in time.
    pub async fn stop(mut self, patience: Duration) -> Result<(), WorldError> {
        self.must_run()?;
        self.signal(Signal::Terminate);
        self.end(patience).await.map(drop)
    }

    /// Ends it at once, and waits until it is gone.
    ///
    /// # Errors
    ///
    /// When the operating system does not tell that it is.
    pub async fn kill(mut self, patience: Duration) -> Result<(), WorldError> {
        self.signal(Signal::Kill);
        self.end(patience).await.map(drop)
    }

    /// Waits until it ends.
    ///
    /// # Errors
    ///
    /// When it does not in time.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn end(&mut self, patience: Duration) -> Result<ExitStatus, WorldError> {
        match tokio::time::timeout(patience, self.child.wait()).await {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(error)) => Err(self.ended(&error.to_string())),
            Err(_) => Err(WorldError::NotReady {
                program: self.name,
                seconds: patience.as_secs(),
                lacks: "it should have ended".to_owned(),
                said: self.last_words(),
            }),
        }
    }

    /// Sends a signal to it and to all that it has started.
    pub fn signal(&self, signal: Signal) {
        let Some(group) = self.group else { return };
        let signal = match signal {
            Signal::Terminate => "-TERM",
            Signal::Kill => "-KILL",
            Signal::Stop => "-STOP",
            Signal::Continue => "-CONT",
        };
        // A program that is gone already needs no signal.
        let _ =
            StdCommand::new("kill").args([signal, "--", &format!("-{group}")]).stderr(Stdio::null()).status();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.signal(Signal::Kill);
    }
}

//! A child process with its process group.

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
use crate::cluster::{Activity, ClusterError};

/// Number of log lines in error messages.
const LAST_LINES: usize = 15;

/// Running process with all its children. Killed on drop.
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    log: PathBuf,
    child: Child,
    /// Process group.
    group: Option<u32>,
    /// Processes of the group, read on first use.
    processes: OnceLock<Vec<u32>>,
}

/// Signal to a process group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM.
    Terminate,
    /// SIGKILL.
    Kill,
    /// SIGSTOP.
    Stop,
    /// SIGCONT.
    Continue,
}

impl Program {
    /// Runs a shell command.
    pub fn shell(name: &'static str, command: &str, log: &Path) -> Result<Self, ClusterError> {
        Self::run(name, OsStr::new("sh"), &["-c".to_owned(), command.to_owned()], log)
    }

    /// Runs a program. `name` identifies it in errors; stdout and stderr are appended to `log`.
    pub fn run(
        name: &'static str,
        program: &OsStr,
        arguments: &[String],
        log: &Path,
    ) -> Result<Self, ClusterError> {
        let spawn =
            |source: io::Error| ClusterError::Spawn { program: program.display().to_string(), source };
        let open = |source| ClusterError::File { file: log.display().to_string(), source };
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

    /// Process ID.
    pub fn id(&self) -> Option<u32> {
        self.group
    }

    /// Checks that the process is running.
    ///
    /// # Errors
    ///
    /// Returns an error with exit status and end of the log if the process has exited.
    pub fn check_running(&mut self) -> Result<(), ClusterError> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.ended(&status.to_string())),
            Err(error) => Err(self.ended(&error.to_string())),
        }
    }

    fn ended(&self, status: &str) -> ClusterError {
        ClusterError::Exited { program: self.name, status: status.to_owned(), log: self.log_tail() }
    }

    /// Content of the log.
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// Last lines of the log.
    pub fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
    }

    /// Activity of the process group.
    pub(super) fn activity(&self) -> Activity {
        let processes = || self.group.map(activity::processes).unwrap_or_default();
        activity::activity_of(self.processes.get_or_init(processes))
    }

    /// Sends SIGTERM and waits until the process has exited.
    pub async fn stop(mut self, timeout: Duration) -> Result<(), ClusterError> {
        self.check_running()?;
        self.signal(Signal::Terminate);
        self.end(timeout).await.map(drop)
    }

    /// Sends SIGKILL and waits until the process has exited.
    pub async fn kill(mut self, timeout: Duration) -> Result<(), ClusterError> {
        self.signal(Signal::Kill);
        self.end(timeout).await.map(drop)
    }

    /// Waits until the process exits.
    ///
    /// # Cancel safety
    ///
    /// Cancel safe.
    pub async fn end(&mut self, timeout: Duration) -> Result<ExitStatus, ClusterError> {
        match tokio::time::timeout(timeout, self.child.wait()).await {
            Ok(Ok(status)) => Ok(status),
            Ok(Err(error)) => Err(self.ended(&error.to_string())),
            Err(_) => Err(ClusterError::NotReady {
                program: self.name,
                seconds: timeout.as_secs(),
                reason: "still running".to_owned(),
                log: self.log_tail(),
            }),
        }
    }

    /// Sends a signal to the process group.
    pub fn signal(&self, signal: Signal) {
        let Some(group) = self.group else { return };
        let signal = match signal {
            Signal::Terminate => "-TERM",
            Signal::Kill => "-KILL",
            Signal::Stop => "-STOP",
            Signal::Continue => "-CONT",
        };
        // Fails if the processes have exited.
        let _ =
            StdCommand::new("kill").args([signal, "--", &format!("-{group}")]).stderr(Stdio::null()).status();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.signal(Signal::Kill);
    }
}

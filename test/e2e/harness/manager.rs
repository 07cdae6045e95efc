//! Processes of managers.

use std::{env, ffi::OsString, path::Path, sync::Once, thread};

use kcm_stories::external::{Program, Signal};

use super::{TIMEOUT, skipped, until};

/// Running manager. Dropping it kills it, and prints the end of its log if the test fails.
#[derive(Debug)]
pub(crate) struct Manager {
    name: String,
    program: Program,
}

/// Path of upstream's program. Without it, reports once that tests are skipped.
pub(crate) fn upstream_program() -> Option<OsString> {
    static REPORTED: Once = Once::new();
    let program = env::var_os("KUBE_CONTROLLER_MANAGER");
    if program.is_none() {
        REPORTED.call_once(|| skipped("tests with upstream's manager (no KUBE_CONTROLLER_MANAGER)"));
    }
    program
}

impl Manager {
    /// Starts a manager and waits until it has parsed its flags.
    pub(super) async fn start(name: &str, program: &OsString, flags: &[String], folder: &Path) -> Self {
        let log = folder.join(format!("{name}.log"));
        let program = Program::run("the manager", program, flags, &log).unwrap();
        let mut manager = Self { name: name.to_owned(), program };
        until(&format!("{name} has started"), async || {
            manager.program.check_running().unwrap();
            manager.log().contains("Starting")
        })
        .await;
        manager
    }

    pub(crate) fn log(&self) -> String {
        self.program.log()
    }

    /// Waits until the log contains `text`.
    pub(crate) async fn until_logged(&self, text: &str) {
        until(&format!("{} logs {text:?}", self.name), async || self.log().contains(text)).await;
    }

    /// Waits until the process exits with an error, and asserts that the end of the log contains `text`.
    pub(crate) async fn until_failed(mut self, text: &str) {
        let code = self.program.end(TIMEOUT).await.unwrap().code();
        let log = self.program.log_tail();
        assert!(code == Some(1) && log.contains(text), "{code:?}: {log}");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.program.signal(signal);
    }

    /// Waits until the process exits. Returns its exit code, `None` after a signal.
    pub(crate) async fn end(mut self) -> Option<i32> {
        self.program.end(TIMEOUT).await.unwrap().code()
    }

    /// Sends SIGTERM and waits until the process exits.
    pub(crate) async fn terminate(self) -> Option<i32> {
        self.signal(Signal::Terminate);
        self.end().await
    }

    /// Kills the process.
    pub(crate) async fn kill(self) {
        self.signal(Signal::Kill);
        assert_eq!(self.end().await, None);
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- end of the log of {}:\n{}", self.name, self.program.log_tail());
        }
    }
}

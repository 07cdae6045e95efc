//! Managers: ours, and upstream's.

use std::{env, ffi::OsString, path::Path, sync::Once, thread};

use kcm_stories::external::{Program, Signal};

use super::{PATIENCE, skipped, until};

/// A running manager. It is killed when dropped, and its last words are shown when a test fails.
#[derive(Debug)]
pub(crate) struct Manager {
    name: String,
    program: Program,
}

/// Upstream's program. Says, once, that tests are skipped where there is none.
pub(crate) fn theirs() -> Option<OsString> {
    static SAID: Once = Once::new();
    let program = env::var_os("KUBE_CONTROLLER_MANAGER");
    if program.is_none() {
        SAID.call_once(|| skipped("the tests beside upstream's manager (no KUBE_CONTROLLER_MANAGER)"));
    }
    program
}

impl Manager {
    /// Starts one; answers when it has begun, with flags that it takes.
    pub(super) async fn start(name: &str, program: &OsString, flags: &[String], folder: &Path) -> Self {
        let log = folder.join(format!("{name}.log"));
        let program = Program::run("the manager", program, flags, &log).unwrap();
        let mut manager = Self { name: name.to_owned(), program };
        until(&format!("{name} has begun"), async || {
            manager.program.check_running().unwrap();
            manager.log().contains("Starting")
        })
        .await;
        manager
    }

    pub(crate) fn log(&self) -> String {
        self.program.log()
    }

    /// Waits until it has said `text`.
    pub(crate) async fn until_it_says(&self, text: &str) {
        until(&format!("{} says {text:?}", self.name), async || self.log().contains(text)).await;
    }

    /// Waits until it has ended by itself, with an error and with `text` among its last words.
    pub(crate) async fn until_it_ends_with(mut self, text: &str) {
        let code = self.program.end(PATIENCE).await.unwrap().code();
        let said = self.program.log_tail();
        assert!(code == Some(1) && said.contains(text), "{code:?}: {said}");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.program.signal(signal);
    }

    /// Waits until it has ended; gives its exit code, none if a signal ended it.
    pub(crate) async fn end(mut self) -> Option<i32> {
        self.program.end(PATIENCE).await.unwrap().code()
    }

    /// Asks it to end, and waits until it has.
    pub(crate) async fn terminate(self) -> Option<i32> {
        self.signal(Signal::Terminate);
        self.end().await
    }

    /// Ends it without asking.
    pub(crate) async fn kill(self) {
        self.signal(Signal::Kill);
        assert_eq!(self.end().await, None);
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("--- the last words of {}:\n{}", self.name, self.program.log_tail());
        }
    }
}

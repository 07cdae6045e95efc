//! `kubectl rollouts`: a plugin of `kubectl` that explains rollouts. It sends no writes.

mod complete;
mod connection;
mod flags;
mod name;
mod preview;
mod reader;
mod server_time;
mod why;

use std::{ffi::OsString, process::ExitCode, sync::Arc};

use connection::Connection;
use flags::{Flags, Task};
use kcm_client::ClientConfigError;
use kcm_clock::{Clock, RealClock};
use kcm_rollouts::printable;
use thiserror::Error;

/// Exit code of a timeout, as that of `timeout` (GNU coreutils).
const TIMED_OUT: u8 = 124;

#[derive(Debug, Error)]
enum CommandError {
    #[error(transparent)]
    Connect(#[from] ClientConfigError),
    #[error("namespace: {0}")]
    Namespace(#[from] name::NameError),
    #[error(transparent)]
    Why(#[from] why::WhyError),
    #[error(transparent)]
    Preview(#[from] preview::CommandError),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let arguments: Vec<OsString> = std::env::args_os().collect();
    if let Some(words) = complete::words(&arguments) {
        print!("{}", complete::run(&words, &clock).await);
        return ExitCode::SUCCESS;
    }
    let flags = match Flags::parse(arguments.into_iter()) {
        Ok(flags) => flags,
        // `--help` and `--version` are errors for clap, but not failures.
        Err(text) if !text.use_stderr() => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprint!("{}", printable(&error.to_string()));
            return ExitCode::FAILURE;
        }
    };
    match run(&flags, &clock).await {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            // Messages of the API server are the text of others.
            eprintln!("error: {}", printable(&error.to_string()));
            match error {
                CommandError::Why(why::WhyError::TimedOut { .. }) => ExitCode::from(TIMED_OUT),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// Runs the subcommand. Returns the exit code.
async fn run(flags: &Flags, clock: &Arc<dyn Clock>) -> Result<u8, CommandError> {
    let connection = Connection::open(&flags.connection, flags.task.name(), clock).await?;
    // Also that of a kubeconfig, because it becomes a part of paths.
    name::namespace(&connection.namespace)?;
    match &flags.task {
        Task::Why(why) => Ok(why::run(&connection, why, &**clock).await?),
        Task::Preview(flags) => Ok(preview::run(&connection, flags, &**clock).await?),
    }
}

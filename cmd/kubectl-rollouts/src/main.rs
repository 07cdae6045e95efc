//! `kubectl rollouts`: a plugin of `kubectl` that explains rollouts. It sends no writes.

mod connection;
mod flags;
mod preview;
mod reader;
mod why;

use std::{process::ExitCode, sync::Arc};

use connection::Connection;
use flags::{Flags, Task};
use kcm_client::ClientConfigError;
use kcm_clock::{Clock, RealClock};
use thiserror::Error;

#[derive(Debug, Error)]
enum CommandError {
    #[error(transparent)]
    Connect(#[from] ClientConfigError),
    #[error(transparent)]
    Why(#[from] why::WhyError),
    #[error(transparent)]
    Preview(#[from] preview::CommandError),
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let flags = match Flags::parse(std::env::args_os()) {
        Ok(flags) => flags,
        // `--help` and `--version` are errors for clap, but not failures.
        Err(text) if !text.use_stderr() => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprint!("{error}");
            return ExitCode::FAILURE;
        }
    };
    match run(&flags).await {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the subcommand. Returns the exit code.
async fn run(flags: &Flags) -> Result<u8, CommandError> {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let connection = Connection::open(&flags.connection, &clock).await?;
    match &flags.task {
        Task::Why(why) => Ok(why::run(&connection, why, &*clock).await?),
        Task::Preview(flags) => Ok(preview::run(&connection, flags, &*clock).await?),
    }
}

//! Subcommand `why`.

mod cache;
mod common;
pub(crate) mod flags;
mod follow;
mod missing;
mod output;
mod queues;
mod reading;

use std::{io, time::Duration};

use kcm_api::ApiError;
use kcm_client::ClientConfigError;
use kcm_clock::Clock;
use kcm_rollouts::{DiagnoseError, Diagnosis, State};
use thiserror::Error;

use crate::connection::Connection;
use flags::WhyFlags;
use output::Printer;
use reading::Reading;

/// Failure of `why`.
#[derive(Debug, Error)]
pub(crate) enum WhyError {
    /// A required object could not be read.
    #[error("failed to read workloads: {0}")]
    Read(#[from] ApiError),
    /// The caller may not read a required object.
    #[error("not permitted to {permission}: {reason}{commands}")]
    Forbidden {
        /// Missing permission.
        permission: String,
        /// Error of the request.
        reason: String,
        /// Commands that grant it, each in a line.
        commands: String,
    },
    /// The Deployment or the namespace does not exist.
    #[error("{0}")]
    Missing(String),
    /// No object has the labels, so no state of `--until` can be reached.
    #[error("no matching resources found")]
    NoMatch,
    /// The context of the controller manager is invalid.
    #[error(transparent)]
    Manager(#[from] ClientConfigError),
    /// An object could not be decoded.
    #[error(transparent)]
    Diagnose(#[from] DiagnoseError),
    /// The result could not be encoded.
    #[error("failed to encode the result: {0}")]
    Encode(String),
    /// The output could not be written.
    #[error("failed to write the result: {0}")]
    Write(#[from] io::Error),
    /// No state of `--until` was reached in time.
    #[error("timed out after {:#}{}", jiff::SignedDuration::try_from(*.timeout).unwrap_or_default(), last_states(.last))]
    TimedOut {
        /// Timeout.
        timeout: Duration,
        /// Last state of each rollout that is not complete.
        last: Vec<String>,
    },
}

/// Maximum number of rollouts that a timeout names.
const MAX_NAMED: usize = 3;

fn last_states(last: &[String]) -> String {
    let more = last.len().saturating_sub(MAX_NAMED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    last.iter().take(MAX_NAMED).map(|state| format!("; {state}")).collect::<String>() + &more
}

/// Prints the diagnosis. Returns the exit code.
///
/// With `--watch` or `--until`, follows the cluster.
pub(crate) async fn run(
    connection: &Connection,
    flags: &WhyFlags,
    clock: &dyn Clock,
) -> Result<u8, WhyError> {
    let mut printer = Printer::new(flags);
    if flags.watch || !flags.until.is_empty() {
        return follow::run(connection, flags, clock, &mut printer).await;
    }
    let reading = Reading::read(connection, flags, clock).await?;
    let found = reading.diagnose(reading.now)?;
    printer.print(&reading, &found, reading.now)?;
    Ok(exit_code(&found))
}

/// Exit code of the worst rollout.
fn exit_code(found: &[Diagnosis]) -> u8 {
    found.iter().map(|diagnosis| diagnosis.state).max().map_or(0, State::exit_code)
}

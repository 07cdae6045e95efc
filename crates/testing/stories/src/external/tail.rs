//! Follows an audit log file.

use std::{path::PathBuf, time::Duration};

use kcm_invariants::Entry;
use tokio::{
    fs::File,
    io::{AsyncBufReadExt, BufReader},
};
use tokio_util::sync::CancellationToken;

use crate::write_log::WriteLogSender;

/// Interval between two reads at the end of the file.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Sends the entries of an audit log to `log` until `stop` is cancelled. The file may be created later.
pub(super) fn follow(file: PathBuf, log: WriteLogSender, stop: CancellationToken) {
    tokio::spawn(async move {
        stop.run_until_cancelled(read(file, log)).await;
    });
}

async fn read(file: PathBuf, log: WriteLogSender) {
    let audit_log = loop {
        match File::open(&file).await {
            Ok(file) => break file,
            Err(_) => tokio::time::sleep(POLL_INTERVAL).await,
        }
    };
    let mut audit_log = BufReader::new(audit_log);
    // A line may be written in parts.
    let mut line = String::new();
    loop {
        match audit_log.read_line(&mut line).await {
            Ok(count) if count > 0 && line.ends_with('\n') => {
                match Entry::from_audit_line(&line) {
                    Ok(entry) => log.send(entry),
                    Err(error) => tracing::warn!(%error, "Ignoring malformed audit log line"),
                }
                line.clear();
            }
            Ok(_) => tokio::time::sleep(POLL_INTERVAL).await,
            Err(error) => {
                tracing::error!(%error, file = %file.display(), "Failed to read audit log");
                return;
            }
        }
    }
}

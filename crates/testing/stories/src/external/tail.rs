//! Reading an audit log while it is written.

use std::{path::PathBuf, time::Duration};

use tokio::{
    fs::File,
    io::{AsyncBufReadExt, BufReader},
};
use tokio_util::sync::CancellationToken;

use crate::trail::{Entry, TrailSender};

/// How often the file is looked at. What is read late is late for nobody but the story.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// Leaves the entries of a log on a trail until `stop`. The file may come into being later.
pub(super) fn follow(file: PathBuf, trail: TrailSender, stop: CancellationToken) {
    tokio::spawn(async move {
        stop.run_until_cancelled(read(file, trail)).await;
    });
}

async fn read(file: PathBuf, trail: TrailSender) {
    let log = loop {
        match File::open(&file).await {
            Ok(log) => break log,
            Err(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    };
    let mut log = BufReader::new(log);
    // A line may come in pieces.
    let mut line = String::new();
    loop {
        match log.read_line(&mut line).await {
            Ok(count) if count > 0 && line.ends_with('\n') => {
                match Entry::from_audit_line(&line) {
                    Ok(entry) => trail.leave(entry),
                    Err(error) => tracing::warn!(%error, "A line of the audit log is no event"),
                }
                line.clear();
            }
            Ok(_) => tokio::time::sleep(LOOK_EVERY).await,
            Err(error) => {
                tracing::error!(%error, file = %file.display(), "The audit log cannot be read");
                return;
            }
        }
    }
}

//! SIGTERM and SIGINT.

use std::process::exit;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Cancelled by the first signal to end. The second ends the process at once, with status 1, as upstream's.
pub(crate) fn shutdown() -> CancellationToken {
    let token = CancellationToken::new();
    let shutdown = token.clone();
    let (terminate, interrupt) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    tokio::spawn(async move {
        // Where a signal cannot be listened for, it ends the process as it does by default.
        let (Ok(mut terminate), Ok(mut interrupt)) = (terminate, interrupt) else { return };
        next(&mut terminate, &mut interrupt).await;
        shutdown.cancel();
        next(&mut terminate, &mut interrupt).await;
        exit(1);
    });
    token
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

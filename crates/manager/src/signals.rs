//! Shutdown on SIGTERM and SIGINT.

use std::process::exit;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;

/// Token that the first SIGTERM or SIGINT cancels. The second signal exits with code 1, as upstream.
///
/// # Panics
///
/// Outside of a Tokio runtime.
pub fn shutdown_signal() -> CancellationToken {
    let token = CancellationToken::new();
    let shutdown = token.clone();
    let (terminate, interrupt) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    tokio::spawn(async move {
        // If a handler cannot be installed, the signal terminates the process.
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

//! `kube-controller-manager`: the Deployment and ReplicaSet controllers against an API server.
//!
//! *Upstream counterpart:* `cmd/kube-controller-manager`. All but signals and exit codes is in
//! [`kcm_controller_manager`].

use std::{
    error::Error, io::Write, num::NonZero, process::ExitCode, sync::Arc, thread::available_parallelism,
};

use kcm_client::ProxyEnvironment;
use kcm_clock::{Clock, Random, RealClock, SeededRandom};
use kcm_controller_manager::{Command, Options, RunError, Runtime, logging, run};

mod signals;

/// A machine may have many more processors, but not for this: an event costs some 25 µs, a pod 150, and every thread
/// wants memory and, where there is much to do, to be woken.
const MOST_THREADS: usize = 4;

fn main() -> ExitCode {
    let Err(error) = run_command() else { return ExitCode::SUCCESS };
    // If standard error is closed, the status must do.
    let _ = writeln!(std::io::stderr(), "kube-controller-manager: {error}");
    ExitCode::FAILURE
}

fn run_command() -> Result<(), Box<dyn Error>> {
    match Command::parse(std::env::args_os().skip(1))? {
        // Whoever reads it may stop reading at any time.
        Command::Print(text) => drop(std::io::stdout().write_all(text.as_bytes())),
        Command::Run(options) => {
            let threads = available_parallelism().map_or(1, NonZero::get).min(MOST_THREADS);
            tokio::runtime::Builder::new_multi_thread()
                .worker_threads(threads)
                .enable_all()
                .build()?
                .block_on(manage(&options))?;
        }
    }
    Ok(())
}

async fn manage(options: &Options) -> Result<(), RunError> {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let random: Arc<dyn Random> = Arc::new(SeededRandom::from_entropy());
    let log = Some(logging::init(&options.logging, Arc::clone(&clock)));
    // It is for people; that nobody else has the same identity does not hang on it.
    let host = hostname::get().map_or_else(|_| "unknown".into(), |host| host.to_string_lossy().into_owned());
    let proxy = ProxyEnvironment::read(|name| std::env::var(name).ok());
    run(options, Runtime { clock, random, host, proxy, shutdown: signals::shutdown(), log }).await
}

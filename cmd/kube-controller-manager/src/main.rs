//! `kube-controller-manager`: runs the Deployment and ReplicaSet controllers.
//!
//! This crate contains signals and exit codes; see [`kcm_controller_manager`] for the rest.
//!
//! Upstream counterpart: `cmd/kube-controller-manager`.

use std::{error::Error, io::Write, process::ExitCode, sync::Arc};

use kcm_client::ProxyEnvironment;
use kcm_clock::{Clock, Random, RealClock, SeededRandom};
use kcm_controller_manager::{Command, Options, Placement, Runtime, StartError, logging};
use kcm_manager::logging::LoggingOptions;

/// Target of the log lines of this crate.
const TARGET: &str = "kube_controller_manager";

/// See `docs/adr/0013-memory-allocator.md`.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let Err(error) = run() else { return ExitCode::SUCCESS };
    // If stderr is closed, the exit code remains.
    let _ = writeln!(std::io::stderr(), "kube-controller-manager: {error}");
    ExitCode::FAILURE
}

fn run() -> Result<(), Box<dyn Error>> {
    match Command::parse(std::env::args_os().skip(1))? {
        // The reader may close the pipe at any time.
        Command::Print(text) => drop(std::io::stdout().write_all(text.as_bytes())),
        Command::Run(options) => {
            // One thread for the controllers: an event takes about 25 µs of CPU time and a pod 150 µs, most of it in the
            // kernel. Further threads would not increase the throughput of an API server, and each wake-up of another
            // thread costs CPU time.
            tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(manage(&options))?;
        }
    }
    Ok(())
}

async fn manage(options: &Options) -> Result<(), StartError> {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let random: Arc<dyn Random> = Arc::new(SeededRandom::from_entropy());
    let logging = LoggingOptions { targets: vec![TARGET.to_owned()], ..options.logging.clone() };
    let log = Some(logging::init(&logging, Arc::clone(&clock)));
    // The name is informational. The identity in the Lease is unique without it.
    let host = hostname::get().map_or_else(|_| "unknown".into(), |host| host.to_string_lossy().into_owned());
    let proxy = ProxyEnvironment::read(|name| std::env::var(name).ok());
    let (shutdown, placement) = (kcm_manager::shutdown_signal(), Placement::OwnThreads);
    kcm_controller_manager::run(options, Runtime { clock, random, host, proxy, shutdown, log, placement })
        .await
}

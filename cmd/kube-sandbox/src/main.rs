//! `kube-sandbox`: an API server in one process, with simulated nodes and working Deployments.

mod flags;
mod kubeconfig;
mod show;

use std::{
    io::{self, IsTerminal as _},
    net::SocketAddr,
    process::ExitCode,
    sync::Arc,
};

use flags::{Flags, Task};
use kcm_apiserver::{ApiServer, ApiStatus};
use kcm_client::{ClientFactory, ClientOptions, RateLimit};
use kcm_clock::{Clock, Random, RealClock, SeededRandom};
use kcm_controller_manager::{Controllers, ManagerConfig};
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig, demo};
use thiserror::Error;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

#[derive(Debug, Error)]
enum SandboxError {
    #[error("cannot listen on {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("{0} is not a loopback address, and the sandbox lets in whoever can connect")]
    NotLoopback(SocketAddr),
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::KubeconfigError),
    #[error("cannot set up the simulated cluster: {0}")]
    Setup(#[from] ApiStatus),
    #[error(transparent)]
    Demo(#[from] demo::DemoError),
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
}

#[tokio::main]
async fn main() -> ExitCode {
    let flags = match Flags::parse(std::env::args_os()) {
        Ok(flags) => flags,
        // --help and --version come this way too, and are no failure.
        Err(told) if !told.use_stderr() => {
            print!("{told}");
            return ExitCode::SUCCESS;
        }
        Err(refused) => {
            // The first line says what is wrong; the rest is for people with time.
            eprintln!("{}", refused.to_string().lines().next().unwrap_or("error: unusable arguments"));
            return ExitCode::FAILURE;
        }
    };
    start_logging(flags.verbosity);
    match run(flags).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(flags: Flags) -> Result<(), SandboxError> {
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let random: Arc<dyn Random> = Arc::new(SeededRandom::from_entropy());
    let mut config = kcm_apiserver::Config {
        clock: Arc::clone(&clock),
        random: Arc::clone(&random),
        ..kcm_apiserver::Config::default()
    };
    if let Some(version) = flags.advertise_version {
        config.advertise_version = version;
    }
    let server = ApiServer::new(config);
    let sandbox = Sandbox::new(SandboxConfig {
        server: Arc::clone(&server),
        clock: Arc::clone(&clock),
        random: Arc::clone(&random),
        nodes: flags.nodes,
        kubelet: KubeletConfig {
            pod_ready_delay: flags.pod_ready_delay,
            pod_stop_delay: flags.pod_stop_delay,
        },
    })?;
    let stop = CancellationToken::new();
    let stand_ins = tokio::spawn({
        let stop = stop.clone();
        async move { sandbox.run(stop).await }
    });
    let controllers = flags.with_controllers.then(|| start_controllers(&server, &clock, &random));
    let outcome = match flags.task {
        Task::Demo => play(server, clock).await,
        Task::Serve => serve(&server, flags.listen, flags.kubeconfig, &stop).await,
    };
    // Nothing is lost when they are cut short: what they know, they learn again at the next start.
    drop(controllers);
    stop.cancel();
    stand_ins.abort();
    outcome
}

/// Both controllers, on the server in this process. It is fast, and theirs alone: no rate limit.
fn start_controllers(
    server: &Arc<ApiServer>,
    clock: &Arc<dyn Clock>,
    random: &Arc<dyn Random>,
) -> Controllers {
    let options = ClientOptions::new(kcm_controller_manager::user_agent(), Arc::clone(clock));
    let clients = ClientFactory::in_process(server.service(), options);
    let config = ManagerConfig { rate_limit: RateLimit::UNLIMITED, ..ManagerConfig::default() };
    Controllers::start(&config, &clients, clock, random)
}

async fn play(server: Arc<ApiServer>, clock: Arc<dyn Clock>) -> Result<(), SandboxError> {
    let mut show = show::for_stdout();
    let summary = demo::play(server, clock, &mut *show).await?;
    println!("\n{summary}");
    Ok(())
}

async fn serve(
    server: &Arc<ApiServer>,
    address: SocketAddr,
    kubeconfig: Option<std::path::PathBuf>,
    stop: &CancellationToken,
) -> Result<(), SandboxError> {
    if !address.ip().is_loopback() {
        return Err(SandboxError::NotLoopback(address));
    }
    let listen = |source| SandboxError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let path = kubeconfig::write(address, kubeconfig)?;
    println!("serving on http://{address}; point kubectl here with");
    println!("export KUBECONFIG={}", path.display());

    let mut interrupt = signal(SignalKind::interrupt()).map_err(SandboxError::Signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(SandboxError::Signals)?;
    let ended = stop.child_token();
    tokio::select! {
        () = kcm_apiserver::serve(listener, server.service(), ended) => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

fn start_logging(verbosity: u8) {
    let filter = match verbosity {
        0 => "warn",
        1 | 2 => "warn,kcm_apiserver::request=info",
        3 => "info",
        _ => "info,kcm_deployment_controller=debug,kcm_replicaset_controller=debug,kcm_sandbox=debug",
    };
    // RUST_LOG says it more precisely, where it is set.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(filter));
    let colours = io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(io::stderr).init();
}

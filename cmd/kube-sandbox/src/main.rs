//! `kube-sandbox`: a Kubernetes API server in one process, with simulated nodes and the workload controllers.

mod envtest;
mod flags;
mod kubeconfig;
mod output;
mod rollouts;
mod tls;

use std::{
    fmt, fs,
    io::{self, IsTerminal as _},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use flags::{Flags, Task};
use kcm_apiserver::{ApiServer, ApiStatus, Faults};
use kcm_client::{ClientOptions, InProcessServer as _, RateLimit};
use kcm_clock::{Clock, Random, RealClock, SeededRandom};
use kcm_controller_manager::{
    ControllerSelection, Controllers, DebugControllers, Dependencies, ManagerConfig,
};
use kcm_sandbox::{KubeletConfig, Sandbox, SandboxConfig, demo};
use kcm_sandbox_server::{
    AuditLog, AuditPolicy, DataError, Extension, HttpServer, HttpsWebhooks, PodServer, Tokens, serve_pod,
};
use kubeconfig::Access;
use rollouts::Rollouts;
use thiserror::Error;
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// See `docs/adr/0013-memory-allocator.md`.
#[cfg(feature = "jemalloc")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

#[derive(Debug, Error)]
enum SandboxError {
    #[error("failed to listen on {address}: {source}")]
    Listen { address: String, source: io::Error },
    #[error("failed to make the folder {folder}: {source}")]
    Envtest { folder: PathBuf, source: io::Error },
    #[error(transparent)]
    Certificates(#[from] envtest::CertificatesError),
    #[error("refusing to listen on {0}: addresses other than loopback require --tls and --token-auth-file")]
    NotLoopback(SocketAddr),
    #[error(transparent)]
    Tls(#[from] kcm_serving::ServingError),
    #[error(transparent)]
    Data(#[from] DataError),
    #[error("failed to read {path}: {reason}")]
    File { path: PathBuf, reason: String },
    #[error(transparent)]
    Kubeconfig(#[from] kubeconfig::KubeconfigError),
    #[error("failed to create the simulated nodes: {0}")]
    Setup(#[from] ApiStatus),
    #[error(transparent)]
    Demo(#[from] demo::DemoError),
    #[error("failed to install signal handlers: {0}")]
    Signals(io::Error),
}

#[tokio::main]
async fn main() -> ExitCode {
    if let Some(program) = envtest::Program::of(std::env::args_os().next().as_ref()) {
        return match program.parse(std::env::args_os().skip(1)) {
            Ok(arguments) => end(run(program.flags(arguments)).await),
            Err(text) => {
                print!("{text}");
                ExitCode::SUCCESS
            }
        };
    }
    let flags = match Flags::parse(std::env::args_os()) {
        Ok(flags) => flags,
        // `--help` and `--version` are errors for clap, but not failures.
        Err(text) if !text.use_stderr() => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            // Only the first line; the rest of clap's message repeats the usage.
            eprintln!("{}", error.to_string().lines().next().unwrap_or("error: invalid arguments"));
            return ExitCode::FAILURE;
        }
    };
    end(run(flags).await)
}

fn end(result: Result<(), SandboxError>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(flags: Flags) -> Result<(), SandboxError> {
    let parent = envtest::Parent::of_this_process();
    start_logging(flags.verbosity);
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    match &flags.task {
        Task::Envtest(folder) => {
            println!("{}", envtest::make_folder(folder.clone())?.display());
            return Ok(());
        }
        Task::Etcd(arguments) => {
            return tokio::select! {
                result = envtest::serve_etcd(arguments) => result,
                signal = ended(parent, &*clock) => signal,
            };
        }
        Task::Demo | Task::Serve | Task::ApiServer(_) => {}
    }
    let random: Arc<dyn Random> = Arc::new(SeededRandom::from_entropy());
    let mut config = kcm_apiserver::ApiServerConfig {
        clock: Arc::clone(&clock),
        random: Arc::clone(&random),
        rbac: flags.rbac,
        anonymous_auth: flags.anonymous_auth,
        webhooks: Some(Arc::new(HttpsWebhooks)),
        ..kcm_apiserver::ApiServerConfig::default()
    };
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut config.service_account_key)
        .map_err(|error| envtest::CertificatesError::from(rustls::Error::from(error)))?;
    if let Some(issuer) = &flags.service_account_issuer {
        config.service_account_issuer.clone_from(issuer);
    }
    if let Some(version) = &flags.advertise_version {
        config.advertise_version.clone_from(version);
    }
    if let Some(path) = &flags.audit_log_path {
        let policy = match &flags.audit_policy_file {
            Some(path) => read(path, AuditPolicy::parse)?,
            None => AuditPolicy::default(),
        };
        let log = AuditLog::open(path, policy).map_err(|error| unreadable(path, error))?;
        config.audit = Some(log.into_sink());
    }
    config.faults = Faults::new(flags.faults.iter().cloned());
    let server = match &flags.data_dir {
        Some(directory) => kcm_sandbox_server::open(config, directory)?,
        None => ApiServer::new(config),
    };
    let (tls, root_ca) = tls::for_address(flags.listen.ip(), clock.now())?;
    let stop = CancellationToken::new();
    let components = if flags.bare {
        None
    } else {
        let sandbox = new_sandbox(&flags, &server, &clock, &random)?.with_publishers(root_ca.clone());
        let stop = stop.clone();
        Some(tokio::spawn(async move { sandbox.run(stop).await }))
    };
    let debug = DebugControllers::default();
    let controllers = flags.with_controllers.then(|| start_controllers(&server, &clock, &random, &debug));
    let rollouts = || Rollouts::new(Arc::clone(&server), Arc::clone(&clock), debug).into_extension();
    let result = match &flags.task {
        Task::Demo => run_demo(server, clock).await,
        Task::ApiServer(arguments) => {
            let http = http_server(&server, &flags, rollouts())?;
            tokio::select! {
                result = envtest::serve_api(http, arguments, clock.now(), stop.child_token()) => result,
                signal = ended(parent, &*clock) => signal,
            }
        }
        _ => {
            let certificate = flags.tls.then_some((tls, root_ca));
            serve(&server, &flags, rollouts(), certificate, &stop).await
        }
    };
    // No graceful shutdown: controllers and components rebuild their state at the next start.
    drop(controllers);
    stop.cancel();
    if let Some(components) = components {
        components.abort();
    }
    result
}

/// Creates the simulated nodes and components.
fn new_sandbox(
    flags: &Flags,
    server: &Arc<ApiServer>,
    clock: &Arc<dyn Clock>,
    random: &Arc<dyn Random>,
) -> Result<Sandbox, SandboxError> {
    let sandbox = Sandbox::new(SandboxConfig {
        server: Arc::clone(server),
        clock: Arc::clone(clock),
        random: Arc::clone(random),
        nodes: flags.nodes,
        kubelet: KubeletConfig {
            pod_ready_delay: flags.pod_ready_delay,
            pod_stop_delay: flags.pod_stop_delay,
        },
    })?;
    Ok(sandbox.with_missing_image_tags(flags.missing_image_tags.iter().cloned()))
}

/// Starts all controllers on the embedded API server, without a client-side rate limit.
fn start_controllers(
    server: &Arc<ApiServer>,
    clock: &Arc<dyn Clock>,
    random: &Arc<dyn Random>,
    debug: &DebugControllers,
) -> Controllers {
    let config = ManagerConfig {
        controllers: ControllerSelection::all(),
        rate_limit: RateLimit::UNLIMITED,
        ..ManagerConfig::default()
    };
    let options = ClientOptions::new(kcm_controller_manager::user_agent(), Arc::clone(clock));
    let clients = server.service().clients(options);
    let dependencies = Dependencies::new(&clients, clock, random).with_debug(debug.clone());
    kcm_controller_manager::start(&config, &dependencies)
}

async fn run_demo(server: Arc<ApiServer>, clock: Arc<dyn Clock>) -> Result<(), SandboxError> {
    let mut output = output::for_stdout();
    let summary = demo::run(server, clock, &mut *output).await?;
    println!("\n{summary}");
    Ok(())
}

/// HTTP server with the pods' ports, unless there are no pods, and the tokens of `flags`.
fn http_server(
    server: &Arc<ApiServer>,
    flags: &Flags,
    extension: Extension,
) -> Result<HttpServer, SandboxError> {
    Ok(HttpServer {
        extension: Some(extension),
        pod_server: (!flags.bare).then(|| Arc::new(serve_pod) as PodServer),
        max_concurrent_streams: flags.max_concurrent_streams,
        tokens: flags.token_auth_file.as_ref().map(|path| read(path, Tokens::parse)).transpose()?,
        ..HttpServer::new(Arc::clone(server))
    })
}

async fn serve(
    server: &Arc<ApiServer>,
    flags: &Flags,
    extension: Extension,
    certificate: Option<(Arc<rustls::ServerConfig>, String)>,
    stop: &CancellationToken,
) -> Result<(), SandboxError> {
    let address = flags.listen;
    let secured = flags.tls && flags.token_auth_file.is_some();
    if !secured && !address.ip().is_loopback() {
        return Err(SandboxError::NotLoopback(address));
    }
    let mut http = http_server(server, flags, extension)?;
    let mut access = Access {
        token: http.tokens.as_ref().and_then(Tokens::first).map(str::to_owned),
        ..Access::default()
    };
    http.tls = certificate.map(|(config, authority)| {
        access.certificate = Some(authority);
        config
    });
    let listen = |source| SandboxError::Listen { address: address.to_string(), source };
    let listener = TcpListener::bind(address).await.map_err(listen)?;
    let url =
        format!("{}://{}", if flags.tls { "https" } else { "http" }, listener.local_addr().map_err(listen)?);
    let path = kubeconfig::write(&url, &access, flags.kubeconfig.clone())?;
    println!("Serving on {url}");
    println!("Run: export KUBECONFIG={}", path.display());
    println!("Web UI: {url}/ui");
    tokio::select! {
        () = http.serve(listener, stop.child_token()) => Ok(()),
        result = signalled() => result,
    }
}

/// Waits for SIGINT or SIGTERM.
async fn signalled() -> Result<(), SandboxError> {
    let mut interrupt = signal(SignalKind::interrupt()).map_err(SandboxError::Signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(SandboxError::Signals)?;
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// Waits for a signal, or for the end of the test that has started this process.
async fn ended(parent: envtest::Parent, clock: &dyn Clock) -> Result<(), SandboxError> {
    tokio::select! {
        result = signalled() => result,
        () = parent.ended(clock) => Ok(()),
    }
}

/// Reads and parses a file.
fn read<T, E: fmt::Display>(
    path: &Path,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<T, SandboxError> {
    let text = fs::read_to_string(path).map_err(|error| unreadable(path, error))?;
    parse(&text).map_err(|error| unreadable(path, error))
}

fn unreadable(path: &Path, reason: impl fmt::Display) -> SandboxError {
    SandboxError::File { path: path.to_owned(), reason: reason.to_string() }
}

fn start_logging(verbosity: u8) {
    let filter = match verbosity {
        0 => "warn",
        1 | 2 => "warn,kcm_apiserver::request=info",
        3 => "info",
        _ => {
            "info,kcm_runtime=debug,kcm_deployment_controller=debug,kcm_replicaset_controller=debug,\
             kcm_sandbox=debug"
        }
    };
    // RUST_LOG takes precedence over --v.
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(filter));
    let colours = io::stderr().is_terminal();
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours).with_writer(io::stderr).init();
}

//! Clusters of separate processes: an API server and a controller manager, observed through the audit log.
//!
//! The API server is etcd and kube-apiserver, any command, or the embedded API server on a local port. The manager is any
//! command. Commands can contain `{dir}` (directory of all files), `{port}` (a free port), `{kubeconfig}` (kubeconfig of
//! the manager) and `{controllers}` (controllers of the story).

mod activity;
mod control_plane;
mod embedded;
mod files;
mod manager;
mod program;
mod tail;

use std::{
    fmt, io,
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use kcm_client::{ApiClient, ClientFactory, ClientOptions, RateLimit, Request, Server, UserAgent};
use kcm_clock::{Clock, RealClock};

pub use self::{
    control_plane::{Authorization, ControlPlane},
    program::{Program, Signal},
};
use self::{files::Files, manager::ExternalManager};
use crate::{
    cluster::{ClusterError, StoryCluster},
    in_process::STORY_USER_AGENT,
    write_log::WriteLog,
};
pub use activity::activity_of;

/// Configuration of an [`External`] cluster.
#[derive(Debug, Clone)]
pub struct ExternalConfig {
    /// The API server.
    pub server: ServerProgram,
    /// Shell command that runs the manager.
    pub manager: String,
    /// Directory for all files; must exist and be writable.
    pub folder: PathBuf,
}

/// API server to start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerProgram {
    /// `etcd` and `kube-apiserver` from this directory, see `KUBEBUILDER_ASSETS`.
    Kubebuilder(PathBuf),
    /// Shell command. It must serve on `{port}`, accept the tokens in `{dir}/tokens.csv`, and write an audit log to
    /// `{dir}/audit.log` according to the policy `{dir}/audit.yaml`.
    Command {
        /// The command.
        command: String,
        /// `true` if it serves TLS.
        tls: bool,
    },
    /// The embedded API server on a local port.
    Embedded,
}

/// Cluster of separate processes, which are killed on drop.
#[derive(Debug)]
pub struct External {
    /// The cluster.
    pub cluster: StoryCluster,
    _server: Box<dyn Serving>,
    _stop: tokio_util::sync::DropGuard,
}

/// Timeout for start and stop of a program.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Interval of readiness checks.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Starts the API server and prepares the manager.
///
/// # Errors
///
/// Returns an error with the end of the log if a program cannot be started, exits, or is not ready in time.
pub async fn start(config: ExternalConfig) -> Result<External, ClusterError> {
    start_within(TIMEOUT, config).await
}

async fn start_within(timeout: Duration, config: ExternalConfig) -> Result<External, ClusterError> {
    let ExternalConfig { server, manager, folder } = config;
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let (sender, log) = WriteLog::new(Arc::clone(&clock));
    let stop = tokio_util::sync::CancellationToken::new();
    let files = Files::new(&folder);
    let mut serving: Box<dyn Serving> = match &server {
        ServerProgram::Embedded => {
            let address = embedded::serve(&clock, sender, stop.clone()).await?;
            files.write_kubeconfigs(&format!("http://{address}"), false)?;
            Box::new(InThisProcess)
        }
        ServerProgram::Kubebuilder(assets) => {
            let plane = ControlPlane::start(assets, &folder, Authorization::AlwaysAllow)?;
            plane.follow(sender, stop.clone());
            Box::new(plane)
        }
        ServerProgram::Command { command, tls } => {
            files.write_for_server()?;
            tail::follow(files.audit_log(), sender, stop.clone());
            let port = free_port()?;
            let scheme = if *tls { "https" } else { "http" };
            files.write_kubeconfigs(&format!("{scheme}://127.0.0.1:{port}"), true)?;
            let command = fill(command, &[("port", &port.to_string()), ("dir", &text(&folder))]);
            Box::new(Program::shell("API server", &command, &files.log("apiserver"))?)
        }
    };

    let options = ClientOptions::new(UserAgent::new(STORY_USER_AGENT, "v0", ""), Arc::clone(&clock));
    let kubeconfig = Server::Kubeconfig { path: files.kubeconfig("admin"), master: None };
    let clients = ClientFactory::connect(kubeconfig, options).await?;
    let api = clients.client("story", RateLimit::UNLIMITED);
    ready(&mut *serving, &api, &*clock, timeout).await?;
    let manager = ExternalManager::new(manager, files, Arc::clone(&clock), timeout);
    let cluster = StoryCluster::new(api, clock, log, Box::new(manager)).await?;
    Ok(External { cluster, _server: serving, _stop: stop.drop_guard() })
}

/// API server process, or task of this process.
trait Serving: fmt::Debug + Send + Sync {
    /// Returns an error if a process has exited.
    fn check_running(&mut self) -> Result<(), ClusterError>;

    /// End of the log of the API server.
    fn log_tail(&self) -> String;
}

/// The API server is a task of this process.
#[derive(Debug)]
struct InThisProcess;

impl Serving for InThisProcess {
    fn check_running(&mut self) -> Result<(), ClusterError> {
        Ok(())
    }

    fn log_tail(&self) -> String {
        String::new()
    }
}

impl Serving for Program {
    fn check_running(&mut self) -> Result<(), ClusterError> {
        Self::check_running(self)
    }

    fn log_tail(&self) -> String {
        Self::log_tail(self)
    }
}

/// Waits until the API server is ready.
async fn ready(
    serving: &mut dyn Serving,
    api: &ApiClient,
    clock: &dyn Clock,
    timeout: Duration,
) -> Result<(), ClusterError> {
    let deadline = clock.monotonic().saturating_add(timeout);
    // The default namespace is the last object that an API server creates at startup.
    let signs = [Request::get("/readyz"), Request::get("/api/v1/namespaces/default")];
    for sign in signs {
        while let Err(error) = api.send(&sign).await {
            serving.check_running()?;
            if clock.monotonic() > deadline {
                let (seconds, reason, log) = (timeout.as_secs(), error.to_string(), serving.log_tail());
                return Err(ClusterError::NotReady { program: "API server", seconds, reason, log });
            }
            clock.sleep(POLL_INTERVAL).await;
        }
    }
    Ok(())
}

/// Returns a free port. Another process may take it before it is used; starting the program then fails.
fn free_port() -> Result<u16, ClusterError> {
    let failed = |source: io::Error| ClusterError::File { file: "free port".to_owned(), source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    Ok(listener.local_addr().map_err(failed)?.port())
}

/// Replaces `{name}` in `command` by the values.
fn fill(command: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(command.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests;

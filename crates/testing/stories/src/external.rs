//! Clusters of separate processes: an API server and a controller manager, observed through the audit log.
//!
//! The API server is etcd and kube-apiserver, any command, or the embedded API server on a local port. The manager is any
//! command. Commands can contain `{dir}` (directory of all files), `{port}` (a free port), `{kubeconfig}` (kubeconfig of
//! the manager) and `{controllers}` (controllers of the story).

mod activity;
mod commands;
mod control_plane;
mod embedded;
mod embedded_server;
mod files;
mod manager;
mod program;
mod readiness;
mod tail;

use std::{path::PathBuf, sync::Arc, time::Duration};

use kcm_client::{ClientFactory, ClientOptions, RateLimit, Server, UserAgent};
use kcm_clock::{Clock, RealClock};

use self::{
    commands::{fill, free_port, text},
    files::Files,
    manager::ExternalManager,
    readiness::{Serving, TIMEOUT, ready},
};
pub use self::{
    control_plane::{Authorization, ControlPlane},
    embedded_server::EmbeddedServer,
    program::{Program, Signal},
};
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

#[cfg(test)]
mod tests;

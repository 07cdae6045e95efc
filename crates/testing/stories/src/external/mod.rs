//! Worlds of other programs: an API server and a controller manager, observed through the server's audit log.
//!
//! The server is etcd and kube-apiserver from a folder, any command, or the embedded server on a port of this machine.
//! The manager is any command. In commands `{dir}` stands for the folder that all files lie in, `{port}` for a free
//! port, `{kubeconfig}` for the manager's kubeconfig and `{controllers}` for the story's controllers.

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
    in_process::STORY,
    trail::Trail,
    world::{World, WorldError},
};
pub use activity::activity_of;

/// What an external world is made of.
#[derive(Debug, Clone)]
pub struct ExternalConfig {
    /// The API server.
    pub server: ServerProgram,
    /// The command that runs the manager.
    pub manager: String,
    /// Where its files go. The folder is there and can be written to.
    pub folder: PathBuf,
}

/// An API server to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerProgram {
    /// `etcd` and `kube-apiserver` from this folder, as `KUBEBUILDER_ASSETS` names one.
    Kubebuilder(PathBuf),
    /// A command. It must serve on `{port}`, accept the tokens in `{dir}/tokens.csv`, and keep an audit log in
    /// `{dir}/audit.log` after the policy in `{dir}/audit.yaml`.
    Command {
        /// The command.
        command: String,
        /// Whether it serves TLS.
        tls: bool,
    },
    /// The server of this project, on a port of this machine.
    Embedded,
}

/// A world of other programs. They end with it.
#[derive(Debug)]
pub struct External {
    /// The world.
    pub world: World,
    _server: Box<dyn Serving>,
    _stop: tokio_util::sync::DropGuard,
}

/// How long a program may take to become ready, and to end.
const PATIENCE: Duration = Duration::from_secs(60);

/// How often it is asked meanwhile. Programs of others cannot be waited for but by asking.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// Starts the server, and makes ready what will start the manager.
///
/// # Errors
///
/// When a program cannot be started, ends early or is not ready in time: with the end of its log.
pub async fn start(config: ExternalConfig) -> Result<External, WorldError> {
    start_within(PATIENCE, config).await
}

async fn start_within(patience: Duration, config: ExternalConfig) -> Result<External, WorldError> {
    let ExternalConfig { server, manager, folder } = config;
    let clock: Arc<dyn Clock> = Arc::new(RealClock::new());
    let (sender, trail) = Trail::new(Arc::clone(&clock));
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
            Box::new(Program::shell("the API server", &command, &files.log("apiserver"))?)
        }
    };

    let options = ClientOptions::new(UserAgent::new(STORY, "v0", ""), Arc::clone(&clock));
    let kubeconfig = Server::Kubeconfig { path: files.kubeconfig("admin"), master: None };
    let clients = ClientFactory::connect(kubeconfig, options).await?;
    let api = clients.client("story", RateLimit::UNLIMITED);
    ready(&mut *serving, &api, &*clock, patience).await?;
    let manager = ExternalManager::new(manager, files, Arc::clone(&clock), patience);
    let world = World::new(api, clock, trail, Box::new(manager)).await?;
    Ok(External { world, _server: serving, _stop: stop.drop_guard() })
}

/// What a server runs in.
trait Serving: fmt::Debug + Send + Sync {
    /// Fails if a program has ended.
    fn must_run(&mut self) -> Result<(), WorldError>;

    /// What the server has said last.
    fn last_words(&self) -> String;
}

/// The server is a task.
#[derive(Debug)]
struct InThisProcess;

impl Serving for InThisProcess {
    fn must_run(&mut self) -> Result<(), WorldError> {
        Ok(())
    }

    fn last_words(&self) -> String {
        String::new()
    }
}

impl Serving for Program {
    fn must_run(&mut self) -> Result<(), WorldError> {
        Self::must_run(self)
    }

    fn last_words(&self) -> String {
        Self::last_words(self)
    }
}

/// Waits until a server can be used.
async fn ready(
    serving: &mut dyn Serving,
    api: &ApiClient,
    clock: &dyn Clock,
    patience: Duration,
) -> Result<(), WorldError> {
    let deadline = clock.monotonic().saturating_add(patience);
    // The default namespace is the last thing that a server makes before it can be used.
    let signs = [Request::get("/readyz"), Request::get("/api/v1/namespaces/default")];
    for sign in signs {
        while let Err(error) = api.send(&sign).await {
            serving.must_run()?;
            if clock.monotonic() > deadline {
                let (seconds, lacks, said) = (patience.as_secs(), error.to_string(), serving.last_words());
                return Err(WorldError::NotReady { program: "the API server", seconds, lacks, said });
            }
            clock.sleep(ASK_EVERY).await;
        }
    }
    Ok(())
}

/// A port that nobody listens on. Somebody else may take it before it is used; that is then an error of theirs or ours.
fn free_port() -> Result<u16, WorldError> {
    let failed = |source: io::Error| WorldError::File { file: "a free port".to_owned(), source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    Ok(listener.local_addr().map_err(failed)?.port())
}

/// `command` with `{name}` replaced by what it stands for.
fn fill(command: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(command.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[cfg(test)]
mod tests;

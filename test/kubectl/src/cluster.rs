//! API servers that checks run against.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use kcm_clock::{Clock, RealClock};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    process::{Child, Command},
};

use super::{
    failure::Failure,
    http_client::HttpClient,
    kubectl::{Kubectl, Version},
};

/// Timeout for the start of a server.
const TIMEOUT: Duration = Duration::from_secs(30);

/// API server and its process.
#[derive(Debug)]
pub(super) struct Cluster {
    /// Kubeconfig for `kubectl`.
    pub(super) kubeconfig: PathBuf,
    /// Client for plain HTTP.
    pub(super) http: HttpClient,
    /// The sandbox, or `kubectl proxy` for an existing cluster. Killed on drop.
    process: Child,
}

/// Path of the sandbox program.
#[derive(Debug, Clone)]
pub(super) struct SandboxProgram(pub(super) PathBuf);

impl SandboxProgram {
    /// Starts a sandbox with its files in `folder` and additional flags.
    pub(super) async fn start(
        &self,
        folder: &Path,
        version: &Version,
        flags: &[&str],
    ) -> Result<Cluster, Failure> {
        let kubeconfig = folder.join("kubeconfig");
        let mut command = Command::new(&self.0);
        if !flags.contains(&"--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        if let Some(minor) = version.minor {
            command.args(["--advertise-version", &format!("v1.{minor}.0")]);
        }
        command
            .args(["--pod-ready-delay", "100ms", "--pod-stop-delay", "300ms", "--kubeconfig"])
            .arg(&kubeconfig)
            .args(flags);
        let address = |line: &str| {
            let rest = line.split("http://").nth(1)?;
            Some(rest.split([';', ' ', '/']).next()?.to_owned())
        };
        let (process, authority) = start("kube-sandbox", command, address).await?;
        Ok(Cluster { kubeconfig, http: HttpClient { authority }, process })
    }
}

impl Cluster {
    /// Connects to the cluster of the kubeconfig.
    pub(super) async fn existing(kubectl: &Kubectl) -> Result<Self, Failure> {
        let kubeconfig = kubectl.kubeconfig.clone().ok_or_else(|| Failure::new("no kubeconfig"))?;
        let mut command = Command::new(&kubectl.version.program);
        command.args(["proxy", "--port=0", "--kubeconfig"]).arg(&kubeconfig);
        command.env("HOME", &kubectl.home);
        let address = |line: &str| line.split("serve on ").nth(1).map(|rest| rest.trim().to_owned());
        let (process, authority) = start("kubectl proxy", command, address).await?;
        Ok(Self { kubeconfig, http: HttpClient { authority }, process })
    }

    /// Kills the server with SIGKILL.
    pub(super) async fn kill(&mut self) -> Result<(), Failure> {
        Ok(self.process.kill().await?)
    }
}

/// Starts a server and waits for the line that contains its address.
async fn start(
    name: &str,
    mut command: Command,
    address: impl Fn(&str) -> Option<String>,
) -> Result<(Child, String), Failure> {
    let cannot = |error: &dyn std::fmt::Display| Failure::new(format!("failed to start {name}: {error}"));
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| cannot(&error))?;
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (Some(stdout), Some(mut stderr)) = (stdout, stderr) else { return Err(cannot(&"no pipes")) };
    let mut lines = BufReader::new(stdout).lines();
    let found = async {
        while let Ok(Some(line)) = lines.next_line().await {
            if let Some(found) = address(&line) {
                return Some(found);
            }
        }
        None
    };
    let clock = RealClock::new();
    let found = tokio::select! {
        found = found => found,
        () = clock.sleep(TIMEOUT) => None,
    };
    let Some(found) = found else {
        // Reports stderr.
        let mut stderr_text = String::new();
        // The process may hang.
        child.start_kill()?;
        stderr.read_to_string(&mut stderr_text).await?;
        return Err(cannot(&stderr_text.trim()));
    };
    // Drains the output, because a full pipe would block the server.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    tokio::spawn(async move {
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(_)) = lines.next_line().await {}
    });
    Ok((child, found))
}

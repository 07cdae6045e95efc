//! The clusters that checks run against.

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
    kubectl::{Kubectl, Version},
    wire::Wire,
};

/// After this a server is taken not to start.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server, and how to reach it.
#[derive(Debug)]
pub(super) struct Cluster {
    /// Where `kubectl` is told of it.
    pub(super) kubeconfig: PathBuf,
    /// Where plain HTTP reaches it.
    pub(super) wire: Wire,
    /// The sandbox, or the `kubectl proxy` before another cluster; ended with this.
    process: Child,
}

/// The program that is the sandbox.
#[derive(Debug, Clone)]
pub(super) struct SandboxProgram(pub(super) PathBuf);

impl SandboxProgram {
    /// Starts a sandbox whose files are in `folder`, with more flags if wished for.
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
        Ok(Cluster { kubeconfig, wire: Wire { authority }, process })
    }
}

impl Cluster {
    /// Reaches the cluster that `kubectl` is told of.
    pub(super) async fn existing(kubectl: &Kubectl) -> Result<Self, Failure> {
        let kubeconfig = kubectl.kubeconfig.clone().ok_or_else(|| Failure::new("there is no kubeconfig"))?;
        let mut command = Command::new(&kubectl.version.program);
        command.args(["proxy", "--port=0", "--kubeconfig"]).arg(&kubeconfig);
        command.env("HOME", &kubectl.home);
        let address = |line: &str| line.split("serve on ").nth(1).map(|rest| rest.trim().to_owned());
        let (process, authority) = start("kubectl proxy", command, address).await?;
        Ok(Self { kubeconfig, wire: Wire { authority }, process })
    }

    /// Ends the server as a power cut would.
    pub(super) async fn kill(&mut self) -> Result<(), Failure> {
        Ok(self.process.kill().await?)
    }
}

/// Starts a server and waits for the line that tells its address.
async fn start(
    name: &str,
    mut command: Command,
    address: impl Fn(&str) -> Option<String>,
) -> Result<(Child, String), Failure> {
    let cannot = |error: &dyn std::fmt::Display| Failure::new(format!("{name} does not start: {error}"));
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
        () = clock.sleep(PATIENCE) => None,
    };
    let Some(found) = found else {
        // What it said before it gave up.
        let mut said = String::new();
        // It may hang; what it has not said by now does not matter.
        child.start_kill()?;
        stderr.read_to_string(&mut said).await?;
        return Err(cannot(&said.trim()));
    };
    // A full pipe would stop the server.
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    tokio::spawn(async move {
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(_)) = lines.next_line().await {}
    });
    Ok((child, found))
}

//! Exec plugins: commands that issue credentials.
//!
//! Upstream counterpart: `client-go/plugin/pkg/client/auth/exec`. Nothing of a plugin's environment or output is part of an
//! error or a log line.

use std::{io, process::ExitStatus, process::Stdio, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use http::HeaderValue;
use kcm_clock::{Clock, Timestamp};
use kube_client::config::{Cluster, ExecConfig, ExecInteractiveMode};
#[cfg(unix)]
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use thiserror::Error;
use tokio::{
    io::AsyncReadExt,
    process::{Child, Command},
};

const V1: &str = "client.authentication.k8s.io/v1";
const V1BETA1: &str = "client.authentication.k8s.io/v1beta1";

/// Name of the cluster extension that is passed to plugins.
const EXTENSION: &str = "client.authentication.k8s.io/exec";

/// Time after which a plugin is killed.
///
/// DEVIATION: upstream waits for a plugin as long as it runs. Meanwhile no credentials are refreshed.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Configuration of a plugin.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ExecPlugin {
    command: String,
    args: Vec<String>,
    env: Vec<(String, String)>,
    api_version: &'static str,
    install_hint: Option<String>,
    /// Value of `KUBERNETES_EXEC_INFO`.
    info: String,
}

/// Credentials that a plugin issued: a bearer token, a client certificate, or both.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ExecCredential {
    pub(super) token: Option<String>,
    pub(super) identity: Option<ExecIdentity>,
    /// Time from which the credentials are not used any more.
    pub(super) expires: Option<Timestamp>,
}

/// Client certificate and key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct ExecIdentity {
    pub(super) certificate: String,
    pub(super) key: String,
}

/// Error of a run of a plugin.
#[derive(Debug, Error)]
pub(super) enum ExecError {
    #[error("failed to run exec plugin {command:?}: {cause}{}", hint(.install_hint))]
    Start { command: String, cause: io::Error, install_hint: Option<String> },
    #[error("exec plugin {command:?} failed: {status}")]
    Failed { command: String, status: ExitStatus },
    #[error("exec plugin {command:?} did not exit within {}s", TIMEOUT.as_secs())]
    TimedOut { command: String },
    #[error("exec plugin {command:?} returned {reason}")]
    Invalid { command: String, reason: &'static str },
}

fn hint(install_hint: &Option<String>) -> String {
    install_hint.as_ref().map(|hint| format!(": {hint}")).unwrap_or_default()
}

/// `ExecCredential` as a plugin writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Output {
    kind: String,
    api_version: String,
    status: Option<OutputStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct OutputStatus {
    token: Option<String>,
    client_certificate_data: Option<String>,
    client_key_data: Option<String>,
    expiration_timestamp: Option<String>,
}

impl ExecPlugin {
    /// Checks the configuration of a plugin for `cluster` at the address `server`.
    ///
    /// # Errors
    ///
    /// The reason why the configuration is refused.
    pub(super) fn new(exec: ExecConfig, cluster: &Cluster, server: &str) -> Result<Self, String> {
        let command = exec.command.filter(|command| !command.is_empty());
        let command = command.ok_or("exec plugin: command must be specified")?;
        let api_version = match exec.api_version.as_deref() {
            Some(V1) => V1,
            Some(V1BETA1) => V1BETA1,
            other => return Err(format!("exec plugin: invalid apiVersion {:?}", other.unwrap_or_default())),
        };
        match exec.interactive_mode {
            Some(ExecInteractiveMode::Never | ExecInteractiveMode::IfAvailable) => {}
            None if api_version == V1BETA1 => {}
            None => return Err("exec plugin: interactiveMode must be specified".to_owned()),
            // DEVIATION: upstream passes a terminal on standard input to the plugin, and the plugin's standard error to its
            // own. Plugins have neither here.
            Some(ExecInteractiveMode::Always) => {
                return Err("exec plugin: interactiveMode Always is not supported".to_owned());
            }
        }
        let mut env = Vec::new();
        for mut variable in exec.env.unwrap_or_default() {
            let name = variable.remove("name").filter(|name| !name.is_empty() && !name.contains(['=', '\0']));
            let name = name.ok_or("exec plugin: invalid name of an env variable")?;
            env.push((name, variable.remove("value").unwrap_or_default()));
        }
        let mut spec = json!({"interactive": false});
        if exec.provide_cluster_info {
            spec["cluster"] = cluster_info(cluster, server)?;
        }
        let info = json!({"kind": "ExecCredential", "apiVersion": api_version, "spec": spec}).to_string();
        let install_hint = exec.install_hint.filter(|hint| !hint.is_empty());
        Ok(Self { command, args: exec.args.unwrap_or_default(), env, api_version, install_hint, info })
    }

    /// Name or path of the command.
    pub(super) fn command(&self) -> &str {
        &self.command
    }

    /// Runs the plugin. It inherits the environment of this process, and its standard error is discarded.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future kills the plugin and, on Unix, its process group.
    pub(super) async fn run(&self, clock: &dyn Clock) -> Result<ExecCredential, ExecError> {
        let mut command = Command::new(&self.command);
        command
            .args(&self.args)
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .env("KUBERNETES_EXEC_INFO", &self.info)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let failed = |cause: io::Error| {
            let install_hint = self.install_hint.clone().filter(|_| cause.kind() == io::ErrorKind::NotFound);
            ExecError::Start { command: self.command.clone(), cause, install_hint }
        };
        let mut process = PluginProcess(command.spawn().map_err(failed)?);
        let output = tokio::select! {
            biased;
            output = process.output() => output,
            () = clock.sleep(TIMEOUT) => return Err(ExecError::TimedOut { command: self.command.clone() }),
        };
        let (status, output) = output.map_err(failed)?;
        if !status.success() {
            return Err(ExecError::Failed { command: self.command.clone(), status });
        }
        self.parse(&output).map_err(|reason| ExecError::Invalid { command: self.command.clone(), reason })
    }

    fn parse(&self, output: &[u8]) -> Result<ExecCredential, &'static str> {
        // Upstream accepts YAML, too.
        let parsed: Option<Output> =
            serde_json::from_slice(output).ok().or_else(|| serde_saphyr::from_slice(output).ok());
        let output = parsed.filter(|output| output.kind == "ExecCredential").ok_or("no ExecCredential")?;
        if output.api_version != self.api_version {
            return Err("an ExecCredential of another apiVersion than configured");
        }
        let status = output.status.ok_or("an ExecCredential without status")?;
        let set = |field: Option<String>| field.filter(|text| !text.is_empty());
        let token = set(status.token);
        if token.as_ref().is_some_and(|token| HeaderValue::from_str(token).is_err()) {
            return Err("a token that cannot be sent in a header");
        }
        let identity = match (set(status.client_certificate_data), set(status.client_key_data)) {
            (Some(certificate), Some(key)) => Some(ExecIdentity { certificate, key }),
            (None, None) if token.is_none() => return Err("neither a token nor a client certificate"),
            (None, None) => None,
            _ => return Err("only a client certificate or its key, not both"),
        };
        let expires = status.expiration_timestamp.map(|text| text.parse()).transpose();
        let expires = expires.map_err(|_| "an invalid expirationTimestamp")?;
        Ok(ExecCredential { token, identity, expires })
    }
}

/// Process of a plugin, in its own process group. Both are killed when it is dropped, unless the plugin has exited.
struct PluginProcess(Child);

impl PluginProcess {
    /// Waits for the exit. Returns the status and the standard output.
    async fn output(&mut self) -> io::Result<(ExitStatus, Vec<u8>)> {
        let mut output = Vec::new();
        if let Some(stdout) = &mut self.0.stdout {
            stdout.read_to_end(&mut output).await?;
        }
        Ok((self.0.wait().await?, output))
    }
}

impl Drop for PluginProcess {
    fn drop(&mut self) {
        #[cfg(unix)]
        if let Some(group) = self.0.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)) {
            // A wrapper in a shell does not forward signals. Processes that have exited or changed their user cannot be killed.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// `spec.cluster` of the input.
fn cluster_info(cluster: &Cluster, server: &str) -> Result<Value, String> {
    let authority = match (&cluster.certificate_authority_data, &cluster.certificate_authority) {
        (Some(data), _) => Some(data.clone()),
        (None, Some(path)) => {
            let file = std::fs::read(path).map_err(|error| format!("{path:?}: {error}"))?;
            Some(BASE64_STANDARD.encode(file))
        }
        (None, None) => None,
    };
    let extension = cluster.extensions.iter().flatten().find(|extension| extension.name == EXTENSION);
    let fields = [
        ("server", Some(server.into())),
        ("tls-server-name", cluster.tls_server_name.clone().map(Value::from)),
        ("insecure-skip-tls-verify", cluster.insecure_skip_tls_verify.filter(|skip| *skip).map(Value::from)),
        ("certificate-authority-data", authority.map(Value::from)),
        ("proxy-url", cluster.proxy_url.clone().map(Value::from)),
        ("disable-compression", cluster.disable_compression.filter(|disable| *disable).map(Value::from)),
        ("config", extension.map(|extension| extension.extension.clone())),
    ];
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Ok(Value::Object(fields.collect::<Map<_, _>>()))
}

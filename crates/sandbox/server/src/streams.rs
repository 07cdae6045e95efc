//! `pods/exec`, `pods/attach` and `pods/portforward`.
//!
//! Upstream counterpart: `registry/core/pod/rest.ExecREST`, `AttachREST` and `PortForwardREST`, and the streaming server of
//! the kubelet. No container runs: a [`shell`](crate::shell) executes commands, and [`ports`] answer for the pod.

mod ports;
mod websocket;

use std::{collections::HashMap, future::Future, pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use kcm_apiserver::{
    ApiServer, ApiStatus, Connection, FieldSelector, Object, Resource, Selection, Subresource, WatchEvent,
    WatchStart, Watcher,
    containers::{container_of, is_running},
    http::response::{self, ApiResponse},
    json::{bool_at, list_at, str_at},
};
use kcm_clock::Clock;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use websocket::{Channels, Message};

use crate::{
    PodServer,
    executor::Spawner,
    shell::{Process, Program},
};

pub(crate) const STDIN: u8 = 0;
pub(crate) const STDOUT: u8 = 1;
pub(crate) const STDERR: u8 = 2;
const ERROR: u8 = 3;

/// Protocols of `exec` and `attach`. From the fourth version on, the result is a Status.
const PROCESS_PROTOCOLS: &[&str] = &["v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io", ""];

/// Protocols of `portforward`.
const PORT_PROTOCOLS: &[&str] = &["v4.channel.k8s.io", ""];

/// Exit code of a process that is killed.
const KILLED: i32 = 137;

/// Time after which a connection is closed whose input nothing reads.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Time that a client has to close its side of a connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Data of a channel, with the channel's number.
pub(crate) type Output = mpsc::Sender<(u8, Bytes)>;

/// Serves a request for streams.
pub(crate) fn connect(
    server: &Arc<ApiServer>,
    pod_server: &PodServer,
    mut request: Request<Bytes>,
) -> Result<ApiResponse, ApiStatus> {
    let Some(connection) = request.extensions_mut().remove::<Connection>() else {
        return Err(ApiStatus::unknown_path());
    };
    let Connection { namespace, name, subresource, options } = &connection;
    // Before the read, so that no change is missed.
    let start = WatchStart::After(server.revision());
    let pod = server.get(Resource::PODS, namespace, name)?;
    let container = match subresource {
        Subresource::PortForward => None,
        _ => {
            let given = Some(str_at(options, &["container"])).filter(|given| !given.is_empty());
            Some(container_of(&pod, given)?.to_owned())
        }
    };
    if str_at(pod.value(), &["spec", "nodeName"]).is_empty() {
        return Err(ApiStatus::bad_request(format!("pod {name} does not have a host assigned")));
    }
    if !is_upgrade(request.headers()) {
        return Err(ApiStatus::bad_request("Upgrade request required"));
    }
    let supported = if container.is_some() { PROCESS_PROTOCOLS } else { PORT_PROTOCOLS };
    let accepted = websocket::accept(request.headers(), supported);
    let target = || Target::new(server, pod_server, &pod, container.as_deref(), &connection);
    let (response, protocol, target) =
        match accepted.and_then(|(response, protocol)| Ok((response, protocol, target()?))) {
            Ok(accepted) => accepted,
            Err((code, text)) => {
                let mut response = response::text(text);
                *response.status_mut() = code;
                return Ok(response);
            }
        };
    let fields = FieldSelector::parse(&format!("metadata.name={name}"), Resource::PODS)
        .map_err(|error| ApiStatus::bad_request(error.to_string()))?;
    let selection = Selection { fields, ..Selection::default() };
    let watcher = server.watch_selected(Resource::PODS, Some(namespace), selection, start);
    let clock = Arc::clone(server.clock());
    let upgrade = hyper::upgrade::on(&mut request);
    let extensions = request.extensions();
    let shutdown = extensions.get::<CancellationToken>().cloned().unwrap_or_default();
    let ended = ended(watcher, container);
    // Without a socket there is no connection to upgrade.
    let Some(spawner) = extensions.get::<Spawner>() else {
        return Err(ApiStatus::bad_request("Upgrade request required"));
    };
    spawner.spawn(async move {
        tokio::select! {
            () = serve(upgrade, protocol, target, ended, clock) => {}
            () = shutdown.cancelled() => {}
        }
    });
    Ok(response)
}

/// Destination of the streams.
enum Target {
    Process { process: Process, is_attached: bool },
    Ports(ports::Ports),
}

impl Target {
    /// Checks the request as the kubelet does.
    fn new(
        server: &ApiServer,
        pod_server: &PodServer,
        pod: &Arc<Object>,
        container: Option<&str>,
        connection: &Connection,
    ) -> Result<Self, (StatusCode, String)> {
        let options = &connection.options;
        let Some(container) = container else {
            if str_at(pod.value(), &["status", "phase"]) != "Running" {
                let name = format!("{}_{}", pod.name(), pod.namespace());
                return Err((StatusCode::INTERNAL_SERVER_ERROR, format!("pod not found ({name:?})")));
            }
            let ports: Vec<u16> = list_at(options, &["ports"])
                .iter()
                .filter_map(|port| port.as_u64()?.try_into().ok())
                .collect();
            let error = match ports.as_slice() {
                [] => "query parameter \"port\" is required",
                ports if ports.contains(&0) => "port \"0\" must be > 0",
                many if many.len() > ports::MAX => "too many ports",
                _ => return Ok(Self::Ports(ports::Ports::new(pod, pod_server, &ports))),
            };
            return Err((StatusCode::BAD_REQUEST, error.to_owned()));
        };
        let tty = bool_at(options, &["tty"]);
        let [stdin, stdout, stderr] = ["stdin", "stdout", "stderr"].map(|name| bool_at(options, &[name]));
        if !(stdin || stdout || stderr && !tty) {
            let text = "you must specify at least 1 of stdin, stdout, stderr";
            return Err((StatusCode::BAD_REQUEST, text.to_owned()));
        }
        let is_attached = connection.subresource == Subresource::Attach;
        if !is_running(pod, container) {
            let text = if is_attached {
                let name = format!("{}_{}", pod.name(), pod.namespace());
                format!("container {container} not found in pod {name}")
            } else {
                format!("container not found ({container:?})")
            };
            return Err((StatusCode::INTERNAL_SERVER_ERROR, text));
        }
        let containers = ["containers", "initContainers", "ephemeralContainers"];
        let mut specs = containers.into_iter().flat_map(|list| list_at(pod.value(), &["spec", list]));
        let spec = specs.find(|spec| str_at(spec, &["name"]) == container).unwrap_or(&Value::Null);
        let strings = |value, name| {
            list_at(value, &[name]).iter().filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
        };
        let program = if is_attached {
            Program::Attached([strings(spec, "command"), strings(spec, "args")].concat())
        } else {
            Program::Command(strings(options, "command"))
        };
        let process = Process {
            program,
            env: list_at(spec, &["env"])
                .iter()
                .map(|one| (str_at(one, &["name"]).to_owned(), str_at(one, &["value"]).to_owned()))
                .collect(),
            clock: Arc::clone(server.clock()),
            stdin,
            stdout: stdout.then_some(STDOUT),
            // A terminal has one output.
            stderr: if tty { stdout.then_some(STDOUT) } else { stderr.then_some(STDERR) },
            tty,
        };
        Ok(Self::Process { process, is_attached })
    }
}

/// `true` if the client requests an upgrade.
fn is_upgrade(headers: &HeaderMap) -> bool {
    let mut values = headers.get_all(header::CONNECTION).iter().filter_map(|value| value.to_str().ok());
    values.any(|value| value.to_ascii_lowercase().contains("upgrade"))
}

/// Waits until the container, or without one the pod, does not run any more.
async fn ended(mut watcher: Watcher, container: Option<String>) {
    loop {
        let is_running = |pod: &Object| match &container {
            Some(container) => is_running(pod, container),
            None => str_at(pod.value(), &["status", "phase"]) == "Running",
        };
        match watcher.next().await {
            Ok(WatchEvent::Added(pod) | WatchEvent::Modified(pod)) if is_running(&pod) => {}
            Ok(WatchEvent::InitialEventsEnd(_)) => {}
            _ => return,
        }
    }
}

/// Serves the streams until the program, the container or the connection has ended.
async fn serve(
    upgrade: OnUpgrade,
    protocol: &'static str,
    target: Target,
    ended: impl Future<Output = ()>,
    clock: Arc<dyn Clock>,
) {
    let Ok(upgraded) = upgrade.await else { return };
    let mut channels = Channels::new(upgraded, protocol).await;
    let mut inputs = HashMap::new();
    let (output, mut outputs) = mpsc::channel(1);
    let served = match target {
        Target::Process { process, is_attached } => {
            let stdin = process.stdin.then(|| input(&mut inputs, STDIN));
            // Reports that the connection is established.
            let first = process.stdout.or(process.stderr).unwrap_or(ERROR);
            let run = async {
                if output.send((first, Bytes::new())).await.is_err() {
                    return KILLED;
                }
                let killed = if is_attached { 0 } else { KILLED };
                tokio::select! {
                    code = process.run(stdin, output) => if is_attached { 0 } else { code },
                    () = ended => killed,
                }
            };
            let code = transfer(&mut channels, inputs, &mut outputs, run, &*clock).await;
            match code.and_then(|code| result(code, protocol)) {
                Some(result) => channels.send(ERROR, &result).await,
                None => code.map(drop),
            }
        }
        Target::Ports(ports) => {
            let receivers = ports.channels().map(|channel| input(&mut inputs, channel)).collect();
            let run = async {
                tokio::select! {
                    () = ports.serve(receivers, &output) => {}
                    () = ended => {}
                }
            };
            transfer(&mut channels, inputs, &mut outputs, run, &*clock).await
        }
    };
    if served.is_some() {
        tokio::select! {
            () = channels.close() => {}
            () = clock.sleep(CLOSE_TIMEOUT) => {}
        }
    }
}

/// Adds a channel. Returns the data that the client sends on it.
fn input(inputs: &mut HashMap<u8, mpsc::Sender<Bytes>>, channel: u8) -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(1);
    inputs.insert(channel, sender);
    receiver
}

/// Message on the error channel: a Status, or before the fourth version of the protocol the text of a failure.
fn result(code: i32, protocol: &str) -> Option<Vec<u8>> {
    let message =
        format!("command terminated with non-zero exit code: command terminated with exit code {code}");
    let is_status = protocol.starts_with('v');
    let status = match code {
        0 if is_status => json!({"metadata": {}, "status": "Success"}),
        0 => return None,
        _ if is_status => json!({
            "metadata": {},
            "status": "Failure",
            "message": message,
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        _ => return Some(message.into_bytes()),
    };
    Some(status.to_string().into_bytes())
}

/// Transfers data between the channels and `run` until `run` has ended. `None` if the connection ends before.
async fn transfer<T>(
    channels: &mut Channels,
    mut inputs: HashMap<u8, mpsc::Sender<Bytes>>,
    outputs: &mut mpsc::Receiver<(u8, Bytes)>,
    run: impl Future<Output = T>,
    clock: &dyn Clock,
) -> Option<T> {
    let mut run = pin!(run);
    // Data that is not accepted yet. Nothing is received meanwhile.
    let mut held: Option<(u8, Bytes)> = None;
    loop {
        tokio::select! {
            biased;
            Some((channel, data)) = outputs.recv() => channels.send(channel, &data).await?,
            ended = &mut run => {
                while let Ok((channel, data)) = outputs.try_recv() {
                    channels.send(channel, &data).await?;
                }
                return Some(ended);
            }
            () = deliver(&inputs, &mut held), if held.is_some() => {}
            () = clock.sleep(STALL_TIMEOUT), if held.is_some() => return None,
            message = channels.receive(), if held.is_none() => match message? {
                Message::Data(channel, data) => held = Some((channel, data)),
                Message::Close(channel) => drop(inputs.remove(&channel)),
            },
        }
    }
}

/// Passes data on when there is room. Data for other channels is dropped.
async fn deliver(inputs: &HashMap<u8, mpsc::Sender<Bytes>>, held: &mut Option<(u8, Bytes)>) {
    let input = held.as_ref().and_then(|(channel, _)| inputs.get(channel));
    let room = match input {
        Some(input) => input.reserve().await.ok(),
        None => None,
    };
    if let (Some((_, data)), Some(room)) = (held.take(), room) {
        room.send(data);
    }
}

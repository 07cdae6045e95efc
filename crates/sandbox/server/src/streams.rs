//! `pods/exec`, `pods/attach` and `pods/portforward`.
//!
//! Upstream counterpart: `registry/core/pod/rest.ExecREST`, `AttachREST` and `PortForwardREST`, and the streaming server of
//! the kubelet. No container runs: a [`shell`](crate::shell) executes commands, and [`ports`] answer for the pod.

mod ports;
mod websocket;

use std::{
    collections::{HashMap, VecDeque},
    future::Future,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use hyper::upgrade::OnUpgrade;
use kcm_apiserver::{
    ApiServer, ApiStatus, Connection, Object, Resource, Subresource,
    containers::{container_of, ended, is_running},
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
    executor::{Spawner, end_turn},
    shell::{Process, Program},
};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;

/// Protocols of `exec` and `attach`. From the fourth version on, the result is a Status.
const PROCESS_PROTOCOLS: &[&str] = &["v5.channel.k8s.io", "v4.channel.k8s.io", "channel.k8s.io", ""];

/// Protocols of `portforward`.
const PORT_PROTOCOLS: &[&str] = &["v4.channel.k8s.io", ""];

/// Exit code of a process that is killed.
const KILLED: i32 = 137;

/// Exit code of a process that is interrupted at its terminal.
const INTERRUPTED: i32 = 130;

const CONTROL_C: u8 = 3;

/// Size of messages that are held until they are read.
const MAX_HELD: usize = 1 << 20;

/// Time after which a connection is closed whose client reads nothing, or whose held messages nothing reads.
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
    let clock = Arc::clone(server.clock());
    let upgrade = hyper::upgrade::on(&mut request);
    let extensions = request.extensions();
    let shutdown = extensions.get::<CancellationToken>().cloned().unwrap_or_default();
    let ended = ended(Arc::clone(server), pod, container);
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
            if !is_running(pod, None) {
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
        if !is_running(pod, Some(container)) {
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
            let is_terminal = process.tty;
            let stdin = process.stdin.then(|| input(&mut inputs, STDIN));
            // Reports that the connection is established.
            let first = process.stdout.or(process.stderr).unwrap_or(ERROR);
            let run = async {
                if output.send((first, Bytes::new())).await.is_err() {
                    return KILLED;
                }
                tokio::select! {
                    code = process.run(stdin, output) => code,
                    () = ended => KILLED,
                }
            };
            let interrupt = |channel, data: &Bytes| {
                let is_interrupt = is_terminal && channel == STDIN && data.contains(&CONTROL_C);
                is_interrupt.then_some(INTERRUPTED)
            };
            let code = transfer(&mut channels, inputs, &mut outputs, run, interrupt, &*clock).await;
            // The streams of a container's program have no exit code.
            let code = code.map(|code| if is_attached { 0 } else { code });
            match code.and_then(|code| result(code, protocol)) {
                Some(result) => send(&mut channels, ERROR, &result, &*clock).await,
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
            transfer(&mut channels, inputs, &mut outputs, run, |_, _| None, &*clock).await
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

/// Transfers data between the channels and `run` until `run` has ended, or `interrupt` returns its result for data of a
/// client. `None` if the connection ends before.
async fn transfer<T>(
    channels: &mut Channels,
    mut inputs: HashMap<u8, mpsc::Sender<Bytes>>,
    outputs: &mut mpsc::Receiver<(u8, Bytes)>,
    run: impl Future<Output = T>,
    interrupt: impl Fn(u8, &Bytes) -> Option<T>,
    clock: &dyn Clock,
) -> Option<T> {
    let mut run = pin!(run);
    // Messages that are not accepted yet, and their size.
    let (mut held, mut size) = (VecDeque::new(), 0);
    loop {
        tokio::select! {
            biased;
            Some((channel, data)) = outputs.recv() => send(channels, channel, &data, clock).await?,
            ended = &mut run => {
                while let Ok((channel, data)) = outputs.try_recv() {
                    send(channels, channel, &data, clock).await?;
                }
                return Some(ended);
            }
            delivered = deliver(&mut inputs, &mut held), if !held.is_empty() => size -= delivered,
            () = clock.sleep(STALL_TIMEOUT), if size >= MAX_HELD => return None,
            message = channels.receive(), if size < MAX_HELD => {
                let message = message?;
                if let Message::Data(channel, data) = &message
                    && let Some(result) = interrupt(*channel, data)
                {
                    return Some(result);
                }
                size += message.size();
                held.push_back(message);
                // The client may send without a pause.
                end_turn().await;
            }
        }
    }
}

/// Sends data. `None` if the connection is closed, or if the client does not read.
async fn send(channels: &mut Channels, channel: u8, data: &[u8], clock: &dyn Clock) -> Option<()> {
    tokio::select! {
        biased;
        sent = channels.send(channel, data) => sent,
        () = clock.sleep(STALL_TIMEOUT) => None,
    }
}

/// Passes the first message on when there is room, and returns its size. Data for other channels is dropped.
async fn deliver(inputs: &mut HashMap<u8, mpsc::Sender<Bytes>>, held: &mut VecDeque<Message>) -> usize {
    if let Some(Message::Data(channel, _)) = held.front()
        && let Some(input) = inputs.get(channel)
        && let Ok(room) = input.reserve().await
        && let Some(Message::Data(_, data)) = held.front()
    {
        room.send(data.clone());
    }
    let message = held.pop_front();
    if let Some(Message::Close(channel)) = &message {
        inputs.remove(channel);
    }
    message.map_or(0, |message| message.size())
}

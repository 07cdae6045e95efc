//! `pods/exec`, `pods/attach` and `pods/portforward`.

use std::{net::SocketAddr, sync::Arc};

use futures_util::{SinkExt, StreamExt};
use http::Request;
use kcm_apiserver::{ApiServer, ApiServerConfig, DeleteOptions, Patch, Resource, Subresource, WriteOptions};
use kcm_sandbox_server::{HttpServer, PodServer, Tokens, serve_pod};
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::{
    WebSocketStream, client_async,
    tungstenite::{Error, Message, client::IntoClientRequest},
};
use tokio_util::sync::CancellationToken;

const V5: &str = "v5.channel.k8s.io";
const V4: &str = "v4.channel.k8s.io";

type Socket = WebSocketStream<TcpStream>;

struct Cluster {
    server: Arc<ApiServer>,
    address: SocketAddr,
    shutdown: CancellationToken,
}

/// A server with the pod `p`, whose containers `c` and `d` run. The pod has an echo at port 7 and nginx at port 80.
async fn start(rbac: bool) -> Cluster {
    let server = ApiServer::new(ApiServerConfig { rbac, ..ApiServerConfig::default() });
    let options = WriteOptions::default();
    let ports = json!([{"containerPort": 7}]);
    let containers = json!([
        {"name": "c", "image": "nginx", "env": [{"name": "NAME", "value": "c"}]},
        {"name": "d", "image": "echo", "command": ["echo", "main"], "ports": ports},
    ]);
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": containers, "nodeName": "n"}});
    server.create(Resource::PODS, "default", pod, &options).unwrap();
    for name in ["pending", "unbound"] {
        let node = if name == "pending" { "n" } else { "" };
        let spec = json!({"containers": [{"name": "c", "image": "i"}], "nodeName": node});
        let pod = json!({"metadata": {"name": name}, "spec": spec});
        server.create(Resource::PODS, "default", pod, &options).unwrap();
    }
    let status =
        |name: &str| json!({"name": name, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}});
    let status = json!({"status": {"phase": "Running", "containerStatuses": [status("c"), status("d")]}});
    let patch = Patch::merge(status);
    server.patch(Resource::PODS, "default", "p", Some(Subresource::Status), patch, &options).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, shutdown) = (listener.local_addr().unwrap(), CancellationToken::new());
    let http = HttpServer {
        pod_server: Some(Arc::new(serve_pod) as PodServer),
        tokens: rbac.then(|| Tokens::parse("token,user,uid\n").unwrap()),
        ..HttpServer::new(Arc::clone(&server))
    };
    tokio::spawn(http.serve(listener, shutdown.clone()));
    Cluster { server, address, shutdown }
}

impl Cluster {
    /// Opens the streams of a path below the pods.
    async fn connect(&self, path: &str, protocol: &str) -> Result<Socket, (u16, String)> {
        let uri = format!("ws://{}/api/v1/namespaces/default/pods/{path}", self.address);
        let mut request: Request<()> = uri.into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", protocol.parse().unwrap());
        request.headers_mut().insert("authorization", "Bearer token".parse().unwrap());
        let stream = TcpStream::connect(self.address).await.unwrap();
        match client_async(request, stream).await {
            Ok((socket, response)) => {
                assert_eq!(response.headers()["sec-websocket-protocol"], protocol);
                Ok(socket)
            }
            Err(Error::Http(response)) => {
                let body = response.body().clone().unwrap_or_default();
                let body = String::from_utf8_lossy(&body).into_owned();
                let status: Value = serde_json::from_str(&body).unwrap_or_default();
                let message = status["message"].as_str().map_or(body, str::to_owned);
                Err((response.status().as_u16(), message))
            }
            Err(error) => panic!("{error}"),
        }
    }
}

async fn send(socket: &mut Socket, channel: u8, data: &str) {
    socket.send(Message::binary([&[channel], data.as_bytes()].concat())).await.unwrap();
}

/// Receives a message that is not empty.
async fn receive(socket: &mut Socket) -> Option<(u8, String)> {
    loop {
        match socket.next().await?.ok()? {
            Message::Binary(data) if data.len() > 1 => {
                return Some((data[0], String::from_utf8_lossy(&data[1..]).into_owned()));
            }
            Message::Binary(_) => {}
            Message::Close(frame) => {
                assert_eq!(u16::from(frame.unwrap().code), 1000);
                return None;
            }
            other => panic!("{other:?}"),
        }
    }
}

/// Exit code in a Status. 0 is success.
fn exit_code((channel, status): (u8, String)) -> i32 {
    assert_eq!(channel, 3, "{status}");
    let status: Value = serde_json::from_str(&status).unwrap();
    if status["status"] == "Success" {
        return 0;
    }
    assert_eq!((&status["status"], &status["reason"]), (&json!("Failure"), &json!("NonZeroExitCode")));
    status["details"]["causes"][0]["message"].as_str().unwrap().parse().unwrap()
}

#[tokio::test]
async fn exec_copies_the_streams() {
    let cluster = start(false).await;
    let path = "p/exec?container=c&command=sh&stdin=true&stdout=true&stderr=true";
    let mut socket = cluster.connect(path, V5).await.unwrap();
    send(&mut socket, 0, "echo $NAME; cat >&2\n").await;
    assert_eq!(receive(&mut socket).await, Some((1, "c\n".to_owned())));
    send(&mut socket, 0, "input").await;
    assert_eq!(receive(&mut socket).await, Some((2, "input".to_owned())));
    socket.send(Message::binary(vec![255, 0])).await.unwrap();
    assert_eq!(receive(&mut socket).await.map(exit_code), Some(0));
    assert_eq!(receive(&mut socket).await, None);

    let path =
        "p/exec?container=c&command=sh&command=-c&command=echo+a;exit+3&stdout=true&stderr=true&tty=true";
    let mut socket = cluster.connect(path, V4).await.unwrap();
    assert_eq!(receive(&mut socket).await, Some((1, "a\r\n".to_owned())));
    assert_eq!(receive(&mut socket).await.map(exit_code), Some(3));
}

#[tokio::test]
async fn input_waits_until_it_is_read_and_control_c_ends_the_process() {
    let cluster = start(false).await;
    let path = "p/exec?container=c&command=sh&stdin=true&stdout=true&tty=true";
    let mut socket = cluster.connect(path, V5).await.unwrap();
    for typed in ["sleep 1000000\r", "echo a\r", "echo b\r", "\u{3}"] {
        send(&mut socket, 0, typed).await;
    }
    assert_eq!(receive(&mut socket).await, Some((1, "sleep 1000000\r\n".to_owned())));
    assert_eq!(receive(&mut socket).await.map(exit_code), Some(130));
}

#[tokio::test]
async fn attach_runs_the_command_of_the_container() {
    let cluster = start(false).await;
    let mut socket = cluster.connect("p/attach?container=d&stdout=true", V4).await.unwrap();
    assert_eq!(receive(&mut socket).await, Some((1, "main\n".to_owned())));
    assert_eq!(receive(&mut socket).await.map(exit_code), Some(0));
    let mut socket = cluster.connect("p/attach?container=c&stdin=true&stdout=true", V5).await.unwrap();
    send(&mut socket, 0, "echo").await;
    assert_eq!(receive(&mut socket).await, Some((1, "echo".to_owned())));
}

#[tokio::test]
async fn streams_end_with_the_pod_and_the_server() {
    let cluster = start(false).await;
    let exec = "p/exec?container=c&command=sleep&command=1000000&stdout=true";
    let mut killed = cluster.connect(exec, V4).await.unwrap();
    let mut port = cluster.connect("p/portforward?ports=7", V4).await.unwrap();
    assert_eq!(receive(&mut port).await, Some((0, "\u{7}\0".to_owned())));
    assert_eq!(receive(&mut port).await, Some((1, "\u{7}\0".to_owned())));
    let now = DeleteOptions { grace_period_seconds: Some(0), ..DeleteOptions::default() };
    cluster.server.delete(Resource::PODS, "default", "p", &now).unwrap();
    assert_eq!(receive(&mut killed).await.map(exit_code), Some(137));
    assert_eq!(receive(&mut port).await, None);

    let cluster = start(false).await;
    let mut socket = cluster.connect(exec, V4).await.unwrap();
    cluster.shutdown.cancel();
    assert_eq!(receive(&mut socket).await, None);
}

#[tokio::test]
async fn ports_echo_or_respond() {
    let cluster = start(false).await;
    let mut socket = cluster.connect("p/portforward?ports=7,80&ports=81", V4).await.unwrap();
    let mut messages = Vec::new();
    for _ in 0..7 {
        messages.push(receive(&mut socket).await.unwrap());
    }
    let refused = messages.iter().find(|(channel, text)| *channel == 5 && text.len() > 2).unwrap();
    assert!(refused.1.starts_with("error forwarding port 81 to pod p, uid "), "{refused:?}");
    send(&mut socket, 0, "hello").await;
    assert_eq!(receive(&mut socket).await, Some((0, "hello".to_owned())));
    send(&mut socket, 2, "GET / HTTP/1.1\r\nhost: p\r\nconnection: close\r\n\r\n").await;
    let (channel, response) = receive(&mut socket).await.unwrap();
    assert!(channel == 2 && response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
}

#[tokio::test]
async fn requests_are_refused_as_upstream() {
    let cluster = start(false).await;
    for (path, protocol, code, message) in [
        ("q/exec?stdout=true", V5, 404, "pods \"q\" not found"),
        ("p/exec?stdout=true", V5, 400, "a container name must be specified for pod p, choose one of: [c d]"),
        ("p/exec?stdout=true&container=e", V5, 400, "container e is not valid for pod p"),
        ("unbound/exec?stdout=true", V5, 400, "pod unbound does not have a host assigned"),
        ("unbound/portforward?ports=1", V4, 400, "pod unbound does not have a host assigned"),
        ("pending/exec?stdout=true", V5, 500, "container not found (\"c\")"),
        ("pending/attach?stdout=true", V5, 500, "container c not found in pod pending_default"),
        ("pending/portforward?ports=1", V4, 500, "pod not found (\"pending_default\")"),
        ("p/exec?container=c", V5, 400, "you must specify at least 1 of stdin, stdout, stderr"),
        (
            "p/exec?container=c&stderr=1&tty=1",
            V5,
            400,
            "you must specify at least 1 of stdin, stdout, stderr",
        ),
        ("p/portforward", V4, 400, "query parameter \"port\" is required"),
        ("p/portforward?ports=0", V4, 400, "port \"0\" must be > 0"),
        (
            "p/portforward?ports=x",
            V4,
            400,
            "cannot convert to []int32: strconv.ParseUint: parsing \"x\": invalid syntax",
        ),
        (
            "p/portforward?ports=7",
            "SPDY/3.1+portforward.k8s.io",
            403,
            "unable to upgrade: unable to negotiate protocol: client supports [\"SPDY/3.1+portforward.k8s.io\"], server \
             accepts [v4.channel.k8s.io, ]",
        ),
    ] {
        let refused = cluster.connect(path, protocol).await.map(drop);
        assert_eq!(refused, Err((code, message.to_owned())), "{path}");
    }
}

/// As upstream, the verb `get` does not permit to open streams.
#[tokio::test]
async fn streams_require_the_permission_to_create() {
    let cluster = start(true).await;
    let grant = |verbs: Value| {
        let rules = json!([{"verbs": verbs, "apiGroups": [""], "resources": ["pods/exec"]}]);
        let role = json!({"metadata": {"name": "exec"}, "rules": rules});
        let roles = cluster.server.resource("rbac.authorization.k8s.io", "clusterroles").unwrap();
        cluster.server.delete(roles, "", "exec", &DeleteOptions::default()).ok();
        cluster.server.create(roles, "", role, &WriteOptions::default()).unwrap();
    };
    let bindings = cluster.server.resource("rbac.authorization.k8s.io", "clusterrolebindings").unwrap();
    let binding = json!({
        "metadata": {"name": "exec"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "exec"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "user"}],
    });
    cluster.server.create(bindings, "", binding, &WriteOptions::default()).unwrap();
    let path = "p/exec?container=c&command=true&stdout=true";
    grant(json!(["get"]));
    let refused = cluster.connect(path, V5).await.map(drop);
    assert_eq!(refused, Err((403, "pods \"p\" is forbidden: ".to_owned())));
    grant(json!(["get", "create"]));
    cluster.connect(path, V5).await.unwrap();
}

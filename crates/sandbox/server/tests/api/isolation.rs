//! Clients that harm no others: each test has one demanding client and measures requests of another.
//!
//! The runtime has one thread. So the delay of a request is the work done before its response, which is counted in
//! writes, bytes or turns instead of milliseconds.

use std::{net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kcm_apiserver::{ApiServer, ApiServerConfig, HistoryLimits, Resource, WriteOptions};
use kcm_sandbox_server::HttpServer;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

const NAMESPACE: &str = "/api/v1/namespaces/default";

struct Cluster {
    server: Arc<ApiServer>,
    address: SocketAddr,
}

impl Cluster {
    async fn start(history: HistoryLimits) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = ApiServer::new(ApiServerConfig { history, ..ApiServerConfig::default() });
        tokio::spawn(HttpServer::new(server.clone()).serve(listener, CancellationToken::new()));
        Self { server, address }
    }

    async fn connect(&self) -> SendRequest<Full<Bytes>> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        // Otherwise the body of a request can wait 40 ms for the acknowledgement of its headers.
        stream.set_nodelay(true).unwrap();
        let (sender, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        sender
    }

    fn request(&self, method: &str, path: &str, body: String) -> Request<Full<Bytes>> {
        let uri = format!("http://{}{path}", self.address);
        Request::builder().method(method).uri(uri).body(Full::new(body.into())).unwrap()
    }

    /// Creates a config map in process.
    fn create(&self, name: &str, size: usize) {
        let object =
            json!({"metadata": {"name": name}, "data": {"key": format!("{name}{}", "x".repeat(size))}});
        self.server.create(Resource::CONFIG_MAPS, "default", object, &WriteOptions::default()).unwrap();
    }

    /// Sends a request. Returns its status and the number of writes before its response.
    async fn probe(
        &self,
        client: &mut SendRequest<Full<Bytes>>,
        method: &str,
        path: &str,
        body: String,
    ) -> (u16, u64) {
        let before = self.server.revision();
        let response = client.send_request(self.request(method, path, body)).await.unwrap();
        let status = response.status().as_u16();
        response.into_body().collect().await.unwrap();
        (status, self.server.revision() - before)
    }
}

/// 5,000 creates are sent at once on 50 connections. Requests of others wait for a few writes per connection at most.
#[tokio::test]
async fn burst_of_creates_delays_others_by_few_writes() {
    const CONNECTIONS: usize = 50;
    const CREATES: usize = 100;
    /// A write of each other connection in each round of turns. There are rounds for the handshake, the request's headers,
    /// its body, its handler and the response.
    const MAX_WRITES: u64 = 5 * CONNECTIONS as u64;

    let cluster = Cluster::start(HistoryLimits::default()).await;
    let (mut reader, mut writer) = (cluster.connect().await, cluster.connect().await);
    let mut burst = JoinSet::new();
    for connection in 0..CONNECTIONS {
        let client = cluster.connect().await;
        for number in 0..CREATES {
            let name = format!("burst-{connection}-{number}");
            let object = json!({"metadata": {"name": name}}).to_string();
            let (mut client, request) = (client.clone(), cluster.request("POST", CONFIG_MAPS, object));
            burst.spawn(async move {
                client.ready().await.unwrap();
                let response = client.send_request(request).await.unwrap();
                let status = response.status().as_u16();
                response.into_body().collect().await.unwrap();
                status
            });
        }
    }
    let (mut probes, first) = (0, cluster.server.revision());
    while cluster.server.revision() - first < (CONNECTIONS * CREATES) as u64 / 2 {
        let (status, writes) = cluster.probe(&mut reader, "GET", NAMESPACE, String::new()).await;
        assert_eq!(status, 200);
        assert!(writes <= MAX_WRITES, "{writes} writes before a read");
        let object = json!({"metadata": {"name": format!("probe-{probes}")}}).to_string();
        let (status, writes) = cluster.probe(&mut writer, "POST", CONFIG_MAPS, object).await;
        assert_eq!(status, 201);
        assert!(writes <= MAX_WRITES, "{writes} writes before a create");
        probes += 1;
    }
    assert!(probes >= 3, "{probes}");
    while let Some(status) = burst.join_next().await {
        assert_eq!(status.unwrap(), 201);
    }
}

/// 1,000 creates are sent at once, each on its own connection. Requests of another client wait for a few of them at most,
/// also on a new connection.
#[tokio::test]
async fn burst_of_connections_delays_others_by_few_writes() {
    const CONNECTIONS: usize = 1000;
    const MAX_WRITES: u64 = 50;

    let cluster = Cluster::start(HistoryLimits::default()).await;
    let mut burst = Vec::new();
    for number in 0..CONNECTIONS {
        let mut stream = TcpStream::connect(cluster.address).await.unwrap();
        let object = json!({"metadata": {"name": format!("burst-{number}")}}).to_string();
        let request = http_1("POST", CONFIG_MAPS, "burst", &object);
        stream.write_all(request.strip_suffix('}').unwrap().as_bytes()).await.unwrap();
        burst.push(stream);
    }
    let mut connected = TcpStream::connect(cluster.address).await.unwrap();
    send(&mut connected, &http_1("GET", NAMESPACE, "other", "")).await;
    let first = cluster.server.revision();
    for stream in &burst {
        assert_eq!(stream.try_write(b"}").unwrap(), 1);
    }
    let mut probes = 0;
    while cluster.server.revision() - first < CONNECTIONS as u64 / 2 {
        let before = cluster.server.revision();
        send(&mut connected, &http_1("GET", NAMESPACE, "other", "")).await;
        let writes = cluster.server.revision() - before;
        assert!(writes <= MAX_WRITES, "{writes} writes before a read");
        let mut new = TcpStream::connect(cluster.address).await.unwrap();
        send(&mut new, &http_1("GET", NAMESPACE, "other", "")).await;
        let writes = cluster.server.revision() - before - writes;
        assert!(writes <= MAX_WRITES, "{writes} writes before a read on a new connection");
        probes += 1;
    }
    assert!(probes >= 3, "{probes}");
    for mut stream in burst {
        assert!(receive(&mut stream).await.starts_with("HTTP/1.1 201 "));
    }
}

fn http_1(method: &str, path: &str, user_agent: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nuser-agent: {user_agent}\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// Sends a request and waits for its response.
async fn send(stream: &mut TcpStream, request: &str) {
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(receive(stream).await.starts_with("HTTP/1.1 200 "));
}

/// Receives the response to a request for one object.
async fn receive(stream: &mut TcpStream) -> String {
    let mut response = Vec::new();
    while !response.ends_with(b"}\n") && !response.ends_with(b"}") {
        assert!(stream.read_buf(&mut response).await.unwrap() > 0);
    }
    String::from_utf8(response).unwrap()
}

/// The response is serialized only as far as the client reads, and in chunks between which others are served.
#[tokio::test]
async fn long_list_is_serialized_as_it_is_read() {
    const OBJECTS: usize = 100_000;
    const SIZE: usize = 500;

    let cluster = Cluster::start(HistoryLimits { events: 0, bytes: 0 }).await;
    for number in 0..OBJECTS {
        cluster.create(&format!("object-{number:06}"), SIZE);
    }
    let mut slow = cluster.connect().await;
    let response = slow.send_request(cluster.request("GET", CONFIG_MAPS, String::new())).await.unwrap();
    let mut body = response.into_body();
    let first = body.frame().await.unwrap().unwrap().into_data().unwrap();

    let mut other = cluster.connect().await;
    assert_eq!(cluster.probe(&mut other, "GET", "/readyz", String::new()).await.0, 200);
    let (status, _) =
        cluster.probe(&mut other, "GET", &format!("{CONFIG_MAPS}/object-000001"), String::new()).await;
    assert_eq!(status, 200);

    let (mut length, mut chunks) = (first.len(), 1);
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        assert!(data.len() <= 1 << 20, "a chunk of {} bytes", data.len());
        (length, chunks) = (length + data.len(), chunks + 1);
    }
    assert!(length > OBJECTS * SIZE && chunks > 100, "{length} bytes in {chunks} chunks");
}

/// A watcher that does not read keeps no events beyond the window. When it reads again, it gets 410.
#[tokio::test]
async fn watcher_that_does_not_read_expires() {
    const WRITES: usize = 20_000;

    let cluster = Cluster::start(HistoryLimits { events: 1000, bytes: 1 << 20 }).await;
    let mut stuck = TcpStream::connect(cluster.address).await.unwrap();
    let request =
        format!("GET {CONFIG_MAPS}?watch=true&resourceVersion=0 HTTP/1.1\r\nhost: localhost\r\n\r\n");
    stuck.write_all(request.as_bytes()).await.unwrap();
    stuck.readable().await.unwrap();
    let mut other = cluster.connect().await;
    for number in 0..WRITES {
        cluster.create(&format!("object-{number:06}"), 1000);
        if number % 100 == 0 {
            assert_eq!(cluster.probe(&mut other, "GET", "/readyz", String::new()).await, (200, 0));
        }
    }
    let mut received = Vec::new();
    while !received.ends_with(b"0\r\n\r\n") {
        assert!(stuck.read_buf(&mut received).await.unwrap() > 0);
    }
    let text = String::from_utf8_lossy(&received);
    assert!(text.contains("\"type\":\"ERROR\"") && text.contains("\"code\":410"), "{} bytes", text.len());
    assert!(received.len() < WRITES * 1000, "{} bytes were buffered", received.len());
}

#[tokio::test]
async fn idle_connections_do_not_delay_others() {
    let cluster = Cluster::start(HistoryLimits::default()).await;
    let mut idle = Vec::new();
    for _ in 0..1000 {
        // Half of a request.
        let mut stream = TcpStream::connect(cluster.address).await.unwrap();
        stream
            .write_all(b"POST /api/v1/namespaces HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{")
            .await
            .unwrap();
        idle.push(stream);
    }
    let mut other = cluster.connect().await;
    let object = json!({"metadata": {"name": "probe"}}).to_string();
    assert_eq!(cluster.probe(&mut other, "POST", CONFIG_MAPS, object).await, (201, 1));
    assert_eq!(cluster.probe(&mut other, "GET", "/readyz", String::new()).await, (200, 0));
}

//! The server on a socket.

use std::time::Duration;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kcm_apiserver::{ApiServer, ApiServerConfig, Faults, ListOptions, Resource};
use kcm_sandbox_server::HttpServer;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

async fn start() -> (std::net::SocketAddr, CancellationToken, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = CancellationToken::new();
    let server = HttpServer::new(ApiServer::new(ApiServerConfig::default()));
    let serving = tokio::spawn(server.serve(listener, shutdown.clone()));
    (address, shutdown, serving)
}

async fn ask(address: std::net::SocketAddr, path: &str, host: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn foreign_host_is_rejected() {
    let (address, _shutdown, _server) = start().await;
    assert!(ask(address, "/livez", &address.to_string()).await.starts_with("HTTP/1.1 200"));
    assert!(ask(address, "/livez", "evil.example").await.starts_with("HTTP/1.1 403"));
}

#[tokio::test]
async fn http_2_by_prior_knowledge() {
    let (address, _shutdown, _server) = start().await;
    let stream = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("http://{address}/version")).body(Empty::<Bytes>::new()).unwrap();
    let response = sender.send_request(request).await.unwrap();
    assert_eq!((response.status().as_u16(), response.version()), (200, http::Version::HTTP_2));
    assert!(!response.into_body().collect().await.unwrap().to_bytes().is_empty());
}

#[tokio::test]
async fn shutdown_ends_watches() {
    let (address, shutdown, server) = start().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = "GET /api/v1/pods?watch=true&resourceVersion=1 HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut head = [0_u8; 12];
    stream.read_exact(&mut head).await.unwrap();
    assert_eq!(&head, b"HTTP/1.1 200", "headers come before any event");

    shutdown.cancel();
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "a clean end of the chunked body: {rest}");
    tokio::time::timeout(Duration::from_secs(10), server).await.expect("the server should end").unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn broken_connection_is_closed_without_response() {
    let faults = Faults::new(["POST /** late:0s".parse().unwrap()]);
    let server = ApiServer::new(ApiServerConfig { faults, ..ApiServerConfig::default() });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(HttpServer::new(server.clone()).serve(listener, CancellationToken::new()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = json!({"metadata": {"name": "a"}}).to_string();
    let path = "/api/v1/namespaces/default/configmaps";
    let head = format!("POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // End of stream or reset, depending on the operating system.
    let _ = stream.read_to_end(&mut answer).await;
    let created = server.list(Resource::CONFIG_MAPS, None, &ListOptions::default()).unwrap().items;
    assert_eq!((answer.len(), created.len()), (0, 1));
}

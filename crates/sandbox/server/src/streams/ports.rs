//! Ports of a pod.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::join_all;
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::TokioIo;
use kcm_apiserver::{Object, json::list_at};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, duplex, split},
    sync::mpsc,
};

use super::Output;
use crate::{PodRequest, PodServer};

/// Maximum number of ports of a connection. It has two channels per port, and messages of each are in memory.
pub(super) const MAX: usize = 16;

/// Size of buffers.
const BUFFER: usize = 16 << 10;

/// Maximum size of a request's body.
const MAX_BODY: usize = 1 << 20;

/// Ports of a connection.
pub(super) struct Ports {
    pod: Arc<Object>,
    server: PodServer,
    numbers: Vec<u16>,
}

impl Ports {
    pub(super) fn new(pod: &Arc<Object>, server: &PodServer, numbers: &[u16]) -> Self {
        Self { pod: Arc::clone(pod), server: Arc::clone(server), numbers: numbers.to_vec() }
    }

    /// Data channels of the ports. The next channel of each is that of its errors.
    pub(super) fn channels(&self) -> impl Iterator<Item = u8> {
        (0..=u8::MAX).step_by(2).take(self.numbers.len())
    }

    /// Serves all ports, whose channels have these inputs, until they are closed.
    pub(super) async fn serve(&self, inputs: Vec<mpsc::Receiver<Bytes>>, output: &Output) {
        let ports = self.channels().zip(&self.numbers).zip(inputs);
        let mut served = Vec::new();
        for ((channel, port), input) in ports {
            served.push(self.serve_port(*port, channel, input, output));
        }
        join_all(served).await;
    }

    /// Serves a port: by the pod's server, or as an echo of the input. `None` if the connection is closed.
    async fn serve_port(
        &self,
        port: u16,
        channel: u8,
        mut input: mpsc::Receiver<Bytes>,
        output: &Output,
    ) -> Option<()> {
        for channel in [channel, channel + 1] {
            output.send((channel, Bytes::copy_from_slice(&port.to_le_bytes()))).await.ok()?;
        }
        let probe = PodRequest { pod: &self.pod, port, method: "GET", path: "/", query: "", body: &[] };
        if (self.server)(&probe).is_some() {
            return self.serve_http(port, channel, input, output).await;
        }
        if !self.is_open(port) {
            let (name, uid) = (self.pod.name(), self.pod.uid());
            let message = format!(
                "error forwarding port {port} to pod {name}, uid {uid}: failed to connect to localhost:{port}: dial tcp \
                 127.0.0.1:{port}: connect: connection refused"
            );
            return output.send((channel + 1, message.into())).await.ok();
        }
        while let Some(data) = input.recv().await {
            output.send((channel, data)).await.ok()?;
        }
        Some(())
    }

    /// `true` if a container declares the port or has it as an argument.
    fn is_open(&self, port: u16) -> bool {
        let number = port.to_string();
        list_at(self.pod.value(), &["spec", "containers"]).iter().any(|container| {
            let mut declared = list_at(container, &["ports"]).iter();
            declared.any(|declared| declared["containerPort"].as_u64() == Some(port.into()))
                || ["command", "args"]
                    .iter()
                    .flat_map(|list| list_at(container, &[list]))
                    .filter_map(Value::as_str)
                    .any(|argument| argument == number)
        })
    }

    /// Serves HTTP/1.1 on a port.
    async fn serve_http(
        &self,
        port: u16,
        channel: u8,
        mut input: mpsc::Receiver<Bytes>,
        output: &Output,
    ) -> Option<()> {
        let (near, far) = duplex(BUFFER);
        let (mut read, mut write) = split(near);
        let (pod, server) = (Arc::clone(&self.pod), Arc::clone(&self.server));
        let service =
            service_fn(move |request| respond(Arc::clone(&pod), Arc::clone(&server), port, request));
        let serving = hyper::server::conn::http1::Builder::new()
            .half_close(true)
            .serve_connection(TokioIo::new(far), service);
        let requests = async {
            while let Some(data) = input.recv().await {
                if write.write_all(&data).await.is_err() {
                    break;
                }
            }
            write.shutdown().await.ok();
            // The responses to the last requests.
            std::future::pending::<()>().await;
        };
        let responses = async {
            let mut buffer = vec![0; BUFFER];
            while let Ok(length @ 1..) = read.read(&mut buffer).await {
                let data = buffer.get(..length).unwrap_or_default();
                output.send((channel, Bytes::copy_from_slice(data))).await.ok()?;
            }
            Some(())
        };
        let serving = async {
            // A client that does not speak HTTP is disconnected.
            serving.await.ok();
            std::future::pending::<()>().await;
        };
        tokio::select! {
            sent = responses => sent,
            () = requests => None,
            () = serving => None,
        }
    }
}

/// Response of the server of a pod.
async fn respond(
    pod: Arc<Object>,
    server: PodServer,
    port: u16,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, tower::BoxError> {
    let (parts, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY).collect().await?.to_bytes();
    let (method, path) = (parts.method.as_str(), parts.uri.path());
    let query = parts.uri.query().unwrap_or_default();
    let answer = server(&PodRequest { pod: &pod, port, method, path, query, body: &body });
    let code = answer.as_ref().and_then(|answer| StatusCode::from_u16(answer.code).ok());
    let mut response = Response::new(answer.map_or_else(String::new, |answer| answer.body).into());
    *response.status_mut() = code.unwrap_or(StatusCode::BAD_GATEWAY);
    Ok(response)
}

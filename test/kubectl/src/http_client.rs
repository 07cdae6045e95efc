//! Plain HTTP requests that no `kubectl` command sends.

use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, time::Duration};

use kcm_clock::{Clock, RealClock};

use super::failure::Failure;

/// Maximum time to wait for an event.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Client for a server that accepts plain HTTP: the sandbox, or `kubectl proxy`.
#[derive(Debug, Clone)]
pub(super) struct HttpClient {
    /// Host and port.
    pub(super) authority: String,
}

/// Complete response.
#[derive(Debug, Clone)]
pub(super) struct HttpResponse {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) body: Value,
}

impl HttpResponse {
    /// Returns the body if the response has this status.
    pub(super) fn expect(self, status: u16) -> Result<Value, Failure> {
        if self.status == status {
            return Ok(self.body);
        }
        Err(Failure::new(format!("status {}, expected {status}: {}", self.status, self.body)))
    }
}

impl HttpClient {
    async fn open(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Failure> {
        let what = format!("{} {}", request.method(), request.uri());
        let cannot = |error: &dyn std::fmt::Display| Failure::new(format!("{what}: {error}"));
        let stream = TcpStream::connect(&self.authority).await.map_err(|error| cannot(&error))?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| cannot(&error))?;
        // Ends with the response body, which reports its errors.
        tokio::spawn(connection);
        sender.send_request(request).await.map_err(|error| cannot(&error))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        (name, value): (header::HeaderName, &str),
        body: Option<&Value>,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
        Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.authority)
            .header(name, value)
            .body(Full::new(body))
            .map_err(|error| Failure::new(format!("{path}: {error}")))
    }

    /// Sends a request and returns the response.
    pub(super) async fn send(
        &self,
        method: Method,
        path: &str,
        header: (header::HeaderName, &str),
        body: Option<&Value>,
    ) -> Result<HttpResponse, Failure> {
        let answer = self.open(self.request(method, path, header, body)?).await?;
        let status = answer.status().as_u16();
        let content_type = answer.headers().get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = content_type.unwrap_or_default().to_owned();
        let bytes =
            answer.into_body().collect().await.map_err(|error| Failure::new(format!("{path}: {error}")))?;
        let body = serde_json::from_slice(&bytes.to_bytes()).unwrap_or(Value::Null);
        Ok(HttpResponse { status, content_type, body })
    }

    pub(super) async fn get(&self, path: &str) -> Result<HttpResponse, Failure> {
        self.send(Method::GET, path, (header::ACCEPT, "application/json"), None).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Result<HttpResponse, Failure> {
        self.send(Method::POST, path, (header::CONTENT_TYPE, "application/json"), Some(body)).await
    }

    pub(super) async fn put(&self, path: &str, body: &Value) -> Result<HttpResponse, Failure> {
        self.send(Method::PUT, path, (header::CONTENT_TYPE, "application/json"), Some(body)).await
    }

    /// Sends a JSON merge patch.
    pub(super) async fn patch(&self, path: &str, body: &Value) -> Result<HttpResponse, Failure> {
        self.send(Method::PATCH, path, (header::CONTENT_TYPE, "application/merge-patch+json"), Some(body))
            .await
    }

    pub(super) async fn delete(&self, path: &str) -> Result<HttpResponse, Failure> {
        self.send(Method::DELETE, path, (header::ACCEPT, "application/json"), None).await
    }

    /// Starts a watch; `path` includes the query.
    pub(super) async fn watch(&self, path: &str) -> Result<Watch, Failure> {
        let request = self.request(Method::GET, path, (header::ACCEPT, "application/json"), None)?;
        let answer = self.open(request).await?;
        if answer.status().as_u16() != 200 {
            return Err(Failure::new(format!("watch {path}: status {}", answer.status())));
        }
        Ok(Watch { path: path.to_owned(), body: answer.into_body(), buffer: Vec::new() })
    }
}

/// Events of a watch.
#[derive(Debug)]
pub(super) struct Watch {
    path: String,
    body: Incoming,
    buffer: Vec<u8>,
}

/// Watch event.
#[derive(Debug, Clone)]
pub(super) struct Event {
    pub(super) kind: String,
    pub(super) object: Value,
}

impl Event {
    pub(super) fn name(&self) -> &str {
        self.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn revision(&self) -> u64 {
        super::objects::revision(&self.object)
    }
}

impl Watch {
    /// Returns the next event, or `None` if the server closed the watch.
    pub(super) async fn next(&mut self) -> Result<Option<Event>, Failure> {
        let clock = RealClock::new();
        tokio::select! {
            event = self.read() => event,
            () = clock.sleep(TIMEOUT) => Err(Failure::new(format!("watch {}: no event within the timeout", self.path))),
        }
    }

    /// Returns the next event, which must be of this type.
    pub(super) async fn expect(&mut self, kind: &str) -> Result<Event, Failure> {
        match self.next().await? {
            Some(event) if event.kind == kind => Ok(event),
            Some(event) => Err(Failure::new(format!(
                "watch {}: {}, expected {kind}: {}",
                self.path, event.kind, event.object
            ))),
            None => Err(Failure::new(format!("watch {}: closed, expected {kind}", self.path))),
        }
    }

    /// Reads up to the first event that `is_last` accepts.
    pub(super) async fn until(
        &mut self,
        mut is_last: impl FnMut(&Event) -> bool,
    ) -> Result<Vec<Event>, Failure> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await? {
            let last = is_last(&event);
            events.push(event);
            if last {
                return Ok(events);
            }
        }
        Err(Failure::new(format!("watch {}: closed early", self.path)))
    }

    async fn read(&mut self) -> Result<Option<Event>, Failure> {
        loop {
            if let Some(at) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=at).collect();
                let mut event: Value = serde_json::from_slice(&line)
                    .map_err(|error| Failure::new(format!("watch {}: {error}", self.path)))?;
                let kind = event["type"].as_str().unwrap_or_default().to_owned();
                return Ok(Some(Event { kind, object: event["object"].take() }));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(Err(error)) => return Err(Failure::new(format!("watch {}: {error}", self.path))),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
            }
        }
    }
}

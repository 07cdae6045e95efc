//! API servers for tests: one in this process that plays a script, and one on [`socket`]s.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its part")]

pub mod files;
pub mod proxy;
pub mod socket;

use std::{
    collections::VecDeque,
    convert::Infallible,
    fmt::Display,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Method, Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody, combinators::BoxBody};
use kcm_client::{ApiClient, Body, ClientFactory, ClientOptions, RateLimit, UserAgent};
use kcm_clock::Clock;

pub type AnswerBody = BoxBody<Bytes, Infallible>;

/// Received request.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: Method,
    pub path: String,
    pub headers: HeaderMap,
    pub body: String,
    /// Time on the test's clock.
    pub at: Duration,
}

/// Scripted response.
pub enum Answer {
    /// Code, headers, body.
    Whole(u16, Vec<(&'static str, &'static str)>, String),
    /// The pieces of a stream, which then ends.
    Pieces(Vec<String>),
    /// Pieces of a stream that never ends.
    Endless(Vec<String>),
    /// Nothing, ever.
    Silence,
    /// The connection breaks.
    Break,
}

pub fn ok(body: impl Display) -> Answer {
    #![allow(clippy::needless_pass_by_value, reason = "so that literals and values can be given alike")]
    Answer::Whole(200, vec![], body.to_string())
}

pub fn status(code: u16, reason: &str, message: &str) -> String {
    serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message, "code": code,
    })
    .to_string()
}

/// Answers requests with the script's answers, one by one; with 599 once there are none left.
#[derive(Clone)]
pub struct Scripted {
    script: Arc<Mutex<VecDeque<Answer>>>,
    seen: Arc<Mutex<Vec<Seen>>>,
    clock: Arc<dyn Clock>,
}

impl Scripted {
    pub fn new(clock: Arc<dyn Clock>, script: impl IntoIterator<Item = Answer>) -> Self {
        Self { script: Arc::new(Mutex::new(script.into_iter().collect())), seen: Arc::default(), clock }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    pub fn factory(&self) -> ClientFactory {
        self.factory_with(self.options())
    }

    pub fn factory_with(&self, options: ClientOptions) -> ClientFactory {
        let this = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| this.clone().answer(request));
        ClientFactory::in_process(service, options)
    }

    pub fn options(&self) -> ClientOptions {
        options(Arc::clone(&self.clock))
    }

    pub fn client(&self) -> ApiClient {
        self.factory().client("test", RateLimit::UNLIMITED)
    }

    async fn answer(self, request: Request<Body>) -> Result<Response<AnswerBody>, std::io::Error> {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().await.unwrap();
        self.seen.lock().unwrap().push(Seen {
            method: head.method,
            path: head.uri.to_string(),
            headers: head.headers,
            body: String::from_utf8(body.to_vec()).unwrap(),
            at: self.clock.monotonic(),
        });
        let answer = self.script.lock().unwrap().pop_front();
        match answer.unwrap_or(Answer::Whole(599, vec![], String::new())) {
            Answer::Whole(code, headers, body) => {
                let mut builder = Response::builder().status(code);
                for (name, value) in headers {
                    builder = builder.header(name, value);
                }
                Ok(builder.body(http_body_util::Full::from(body).boxed()).unwrap())
            }
            Answer::Pieces(pieces) => Ok(Response::new(BoxBody::new(StreamBody::new(frames(pieces))))),
            Answer::Endless(pieces) => {
                let endless = frames(pieces).chain(stream::pending());
                Ok(Response::new(BoxBody::new(StreamBody::new(endless))))
            }
            Answer::Silence => std::future::pending().await,
            Answer::Break => Err(std::io::Error::other("connection reset by the script")),
        }
    }
}

pub fn frames(pieces: Vec<String>) -> impl futures_util::Stream<Item = Result<Frame<Bytes>, Infallible>> {
    stream::iter(pieces.into_iter().map(|piece| Ok(Frame::data(Bytes::from(piece)))))
}

pub fn options(clock: Arc<dyn Clock>) -> ClientOptions {
    ClientOptions::new(UserAgent::new("test-binary", "v1.2.3", "abcdef0123"), clock)
}

//! Connection to the API server and clock of a manager, with injected faults.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use http::Request;
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kcm_apiserver::ApiService;
use kcm_client::Body;
use kcm_clock::{Clock, Sleep, Timestamp};
use tokio::sync::watch;
use tower::{BoxError, Service};

/// State of a manager's process and connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Process and connection work.
    Up,
    /// The process is stopped (SIGSTOP). Time continues.
    Stopped,
    /// All connections are broken, and new ones fail.
    Cut,
}

/// Control of the state of a manager.
#[derive(Debug, Clone)]
pub struct Switch {
    state: Arc<watch::Sender<State>>,
    /// Streams of earlier generations deliver no more data.
    generation: Arc<watch::Sender<u64>>,
    /// Offset of the wall clock, in seconds.
    ahead: Arc<AtomicI64>,
}

impl Switch {
    pub fn new() -> Self {
        Self {
            state: Arc::new(watch::Sender::new(State::Up)),
            generation: Arc::default(),
            ahead: Arc::default(),
        }
    }

    pub fn set(&self, state: State) {
        self.state.send_replace(state);
    }

    /// Sets the offset of the wall clock, in seconds.
    pub fn set_time_of_day(&self, ahead: i64) {
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    /// Stops all open streams without an error.
    pub fn freeze_streams(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }

    /// Waits while the process is stopped. Returns an error if the connection is broken.
    async fn resumed(&self) -> Result<(), BoxError> {
        match *self.state.subscribe().wait_for(|state| *state != State::Stopped).await? {
            State::Cut => Err(cut()),
            _ => Ok(()),
        }
    }

    async fn broken(&self) {
        let _ = self.state.subscribe().wait_for(|state| *state == State::Cut).await;
    }
}

fn cut() -> BoxError {
    io::Error::from(io::ErrorKind::ConnectionReset).into()
}

/// Connection to the API server.
#[derive(Clone)]
pub struct Connection {
    pub server: ApiService,
    pub switch: Switch,
    /// Decides the outcome of each request.
    pub fault: Option<Fault>,
}

/// Function that decides the outcome of a request.
pub type Fault = Arc<dyn Fn(&Request<Body>) -> Outcome + Send + Sync>;

/// Outcome of a request.
pub enum Outcome {
    /// The API server responds.
    Served,
    /// The client gets this response.
    Response(Response),
    /// The client gets no response.
    Lost,
}

pub type Response = http::Response<UnsyncBoxBody<Bytes, BoxError>>;

/// Response with a status code, a body and optionally `Retry-After`.
pub fn response(code: u16, text: &'static str, retry_after: Option<&str>) -> Response {
    let body = Full::from(text).map_err(|never| match never {}).boxed_unsync();
    let builder = http::Response::builder().status(code);
    match retry_after {
        Some(seconds) => builder.header("retry-after", seconds),
        None => builder,
    }
    .body(body)
    .unwrap()
}

impl Service<Request<Body>> for Connection {
    type Response = Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { mut server, switch, fault } = self.clone();
        Box::pin(async move {
            switch.resumed().await?;
            match fault.map_or(Outcome::Served, |fault| fault(&request)) {
                Outcome::Served => {}
                Outcome::Response(response) => return Ok(response),
                Outcome::Lost => std::future::pending().await,
            }
            let response = server.call(request).await?;
            switch.resumed().await?;
            let (head, body) = response.into_parts();
            let generation = *switch.generation.borrow();
            let frames = stream::unfold(Some((body, switch)), move |rest| async move {
                let (mut body, switch) = rest?;
                let frame: Option<Result<Frame<Bytes>, BoxError>> = tokio::select! {
                    biased;
                    () = switch.broken() => Some(Err(cut())),
                    frame = body.frame() => frame.map(|frame| frame.map_err(Into::into)),
                };
                if *switch.generation.borrow() != generation {
                    switch.broken().await;
                }
                if let Err(broken) = switch.resumed().await {
                    return Some((Err(broken), None));
                }
                let frame = frame?;
                let rest = frame.is_ok().then_some((body, switch));
                Some((frame, rest))
            });
            Ok(http::Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
        })
    }
}

/// Clock of a process that can be stopped. Time continues, and sleeps end after the process is continued.
#[derive(Debug)]
pub struct ProcessClock {
    pub clock: Arc<dyn Clock>,
    pub switch: Switch,
}

impl Clock for ProcessClock {
    fn now(&self) -> Timestamp {
        let ahead = self.switch.ahead.load(Ordering::Relaxed) * 1_000_000;
        Timestamp::from_microsecond(self.clock.now().as_microsecond() + ahead).unwrap()
    }

    fn monotonic(&self) -> Duration {
        self.clock.monotonic()
    }

    fn sleep(&self, duration: Duration) -> Sleep {
        let (sleep, switch) = (self.clock.sleep(duration), self.switch.clone());
        Box::pin(async move {
            sleep.await;
            let _ = switch.resumed().await;
        })
    }
}

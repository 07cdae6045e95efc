//! What lies between a manager and the rest of the world: its line to the API server, and its time.

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
use http::{Request, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use kcm_apiserver::ApiService;
use kcm_client::Body;
use kcm_clock::{Clock, Sleep, Timestamp};
use tokio::sync::watch;
use tower::{BoxError, Service};

/// How things are between a manager and the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// As they should be.
    Up,
    /// The process is stopped (SIGSTOP): nothing of it goes on, but time does.
    Stopped,
    /// Every connection is broken, and none comes about.
    Cut,
}

/// Set to change how things are.
#[derive(Debug, Clone)]
pub struct Switch {
    state: Arc<watch::Sender<State>>,
    /// Streams that were opened at an earlier one of these bring nothing any more.
    generation: Arc<watch::Sender<u64>>,
    /// How many seconds ahead the time of day is.
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

    /// Sets the machine's time of day, so many seconds ahead of the truth or behind it.
    pub fn set_time_of_day(&self, ahead: i64) {
        self.ahead.store(ahead, Ordering::Relaxed);
    }

    /// All streams that there are die without a sign.
    pub fn let_streams_die(&self) {
        self.generation.send_modify(|generation| *generation += 1);
    }

    /// Waits while the process is stopped; then says whether there is a line.
    async fn go_on(&self) -> Result<(), BoxError> {
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

/// The API server, seen over a line.
#[derive(Clone)]
pub struct Line {
    pub server: ApiService,
    pub switch: Switch,
    /// Answers some requests in the server's place.
    pub instead: Option<Instead>,
}

/// What becomes of a request.
pub type Instead = Arc<dyn Fn(&Request<Body>) -> Fate + Send + Sync>;

/// What becomes of a request.
pub enum Fate {
    /// The server answers it.
    Served,
    /// This answers it.
    Answered(Answer),
    /// Nobody does.
    Lost,
}

pub type Answer = Response<UnsyncBoxBody<Bytes, BoxError>>;

/// An answer with this code, text and, if any, `Retry-After`.
pub fn answer(code: u16, text: &'static str, retry_after: Option<&str>) -> Answer {
    let body = Full::from(text).map_err(|never| match never {}).boxed_unsync();
    let builder = Response::builder().status(code);
    match retry_after {
        Some(seconds) => builder.header("retry-after", seconds),
        None => builder,
    }
    .body(body)
    .unwrap()
}

impl Service<Request<Body>> for Line {
    type Response = Answer;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Answer, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { mut server, switch, instead } = self.clone();
        Box::pin(async move {
            switch.go_on().await?;
            match instead.map_or(Fate::Served, |instead| instead(&request)) {
                Fate::Served => {}
                Fate::Answered(answer) => return Ok(answer),
                Fate::Lost => std::future::pending().await,
            }
            let answer = server.call(request).await?;
            switch.go_on().await?;
            let (head, body) = answer.into_parts();
            let born = *switch.generation.borrow();
            let frames = stream::unfold(Some((body, switch)), move |rest| async move {
                let (mut body, switch) = rest?;
                let frame: Option<Result<Frame<Bytes>, BoxError>> = tokio::select! {
                    biased;
                    () = switch.broken() => Some(Err(cut())),
                    frame = body.frame() => frame.map(|frame| frame.map_err(Into::into)),
                };
                if *switch.generation.borrow() != born {
                    switch.broken().await;
                }
                if let Err(broken) = switch.go_on().await {
                    return Some((Err(broken), None));
                }
                let frame = frame?;
                let rest = frame.is_ok().then_some((body, switch));
                Some((frame, rest))
            });
            Ok(Response::from_parts(head, StreamBody::new(frames).boxed_unsync()))
        })
    }
}

/// Time as a process sees it that may be stopped: it goes on meanwhile, and what waits for it wakes later.
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
            let _ = switch.go_on().await;
        })
    }
}

use std::{
    convert::Infallible,
    future::pending,
    sync::atomic::{AtomicUsize, Ordering},
};

use bytes::Bytes;
use futures_util::{FutureExt, future::join_all};
use http_body_util::{BodyExt, Full};
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use kcm_clock::{Clock, SimulatedClock, Timestamp};
use tokio::io::{DuplexStream, duplex};

use super::{super::stream::Opened, *};
use crate::causes;

/// Outcome of a dial.
enum Outcome {
    /// Opened after this time.
    After(Duration),
    Refused,
    Unanswered,
}

use Outcome::{After, Refused, Unanswered};

/// A pool and the server that it connects to in simulated time.
struct World {
    pool: Pool,
    clock: SimulatedClock,
    log: Arc<Log>,
}

#[derive(Default)]
struct Log {
    /// Starts of the dials.
    dials: Mutex<Vec<Duration>>,
    in_progress: AtomicUsize,
    max_in_progress: AtomicUsize,
    /// Connections that were opened.
    opened: AtomicUsize,
}

struct DialInProgress<'a>(&'a Log);

impl Drop for DialInProgress<'_> {
    fn drop(&mut self) {
        self.0.in_progress.fetch_sub(1, Ordering::Relaxed);
    }
}

impl super::super::fence::Socket for DuplexStream {}

const ZERO: Duration = Duration::ZERO;

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A server that decides the outcome of a dial by its number and start.
fn world(purpose: Purpose, outcome: impl Fn(usize, Duration) -> Outcome + Send + Sync + 'static) -> World {
    let clock = SimulatedClock::new(Timestamp::UNIX_EPOCH);
    let log = Arc::new(Log::default());
    let (seen, time, outcome) = (Arc::clone(&log), clock.clone(), Arc::new(outcome));
    let connector = move || -> BoxFuture<'static, Result<Opened, BoxError>> {
        let (seen, time, outcome) = (Arc::clone(&seen), time.clone(), Arc::clone(&outcome));
        Box::pin(async move {
            let now = time.monotonic();
            let number = {
                let mut dials = seen.dials.lock();
                dials.push(now);
                dials.len() - 1
            };
            let in_progress = seen.in_progress.fetch_add(1, Ordering::Relaxed) + 1;
            seen.max_in_progress.fetch_max(in_progress, Ordering::Relaxed);
            let _in_progress = DialInProgress(&seen);
            match outcome(number, now) {
                After(delay) => time.sleep(delay).await,
                Refused => return Err("refused".into()),
                Unanswered => pending().await,
            }
            seen.opened.fetch_add(1, Ordering::Relaxed);
            let (near, far) = duplex(1 << 16);
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(far), service_fn(answer)));
            Ok(Opened { socket: Box::new(near), trial: None })
        })
    };
    let endpoint = Endpoint::plain(Arc::new(connector), Arc::new(clock.clone()));
    World { pool: Pool::new(endpoint, purpose), clock, log }
}

async fn answer(request: Request<hyper::body::Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    match request.uri().path() {
        "/hold" => pending().await,
        _ => Ok(Response::new(Full::from("{}"))),
    }
}

impl World {
    /// Sends a request and reads its answer. Returns the time of that.
    async fn get(&self, path: &str) -> Result<Duration, String> {
        let request = Request::get(format!("http://server{path}")).body(Body::default()).unwrap();
        let answer = self.pool.send(Box::new(request)).await;
        let answer = answer.map_err(|error| causes::describe(&error))?;
        answer.into_body().collect().await.map_err(|error| causes::describe(&error))?;
        Ok(self.clock.monotonic())
    }

    /// Starts of the dials in milliseconds.
    fn dials(&self) -> Vec<u128> {
        self.log.dials.lock().iter().map(Duration::as_millis).collect()
    }

    fn max_in_progress(&self) -> usize {
        self.log.max_in_progress.load(Ordering::Relaxed)
    }

    /// Waits, after which the dial in progress has the age of `time`, and no request waits for it.
    async fn abandon_request_after(&self, time: Duration) {
        let gone = tokio::time::timeout(time, self.get("/ok")).await;
        assert!(gone.is_err());
    }
}

const BOTH: [Purpose; 2] = [Purpose::Election, Purpose::General];

/// The API server closes all connections and answers no new one for three seconds.
#[tokio::test(start_paused = true)]
async fn request_is_sent_soon_after_dials_are_answered_again() {
    for purpose in BOTH {
        let world = world(purpose, |_, now| if now < seconds(3) { Unanswered } else { After(ZERO) });
        assert_eq!(world.get("/ok").await, Ok(seconds(3)));
        assert_eq!(world.dials(), [0, 1000, 2000, 3000]);
        assert_eq!(world.max_in_progress(), 3);
    }
}

/// The same, if the request timed out before, as that of a renewal.
#[tokio::test(start_paused = true)]
async fn next_request_does_not_wait_for_an_old_dial() {
    for purpose in BOTH {
        let world = world(purpose, |_, now| if now < seconds(6) { Unanswered } else { After(ZERO) });
        world.abandon_request_after(seconds(5)).await;
        tokio::time::sleep(seconds(2)).await;
        assert_eq!(world.get("/ok").await, Ok(seconds(7)));
    }
}

#[tokio::test(start_paused = true)]
async fn server_that_takes_seconds_is_reached_by_the_first_dial() {
    let world = world(Purpose::General, |_, _| After(millis(8500)));
    assert_eq!(world.get("/ok").await, Ok(millis(8500)));
    assert_eq!(world.max_in_progress(), 3);
    // The surplus ones are given up, except for the last, which has not waited for a second.
    tokio::time::sleep(seconds(1)).await;
    assert_eq!(world.log.in_progress.load(Ordering::Relaxed), 1);
    assert_eq!(world.log.opened.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn failed_dial_fails_no_request_that_another_serves() {
    for failing in [0, 1] {
        let world = world(Purpose::General, move |number, _| match number {
            _ if number == failing && failing > 0 => Refused,
            0 => After(millis(1500)),
            _ => Unanswered,
        });
        assert_eq!(world.get("/ok").await, Ok(millis(1500)), "{failing}");
    }
}

#[tokio::test(start_paused = true)]
async fn dials_go_on_beside_one_that_is_refused() {
    let world = world(Purpose::General, |number, _| match number {
        0 => Unanswered,
        1..4 => Refused,
        _ => After(ZERO),
    });
    assert_eq!(world.get("/ok").await, Ok(seconds(4)));
    assert_eq!(world.max_in_progress(), 2);
}

#[tokio::test(start_paused = true)]
async fn refusal_fails_at_once() {
    let world = world(Purpose::General, |_, _| Refused);
    assert_eq!(world.get("/ok").await, Err("refused".to_owned()));
    assert_eq!(world.dials(), [0]);
}

#[tokio::test(start_paused = true)]
async fn request_waits_for_half_a_minute() {
    let unanswered = world(Purpose::General, |_, _| Unanswered);
    assert_eq!(unanswered.get("/ok").await, Err("connect timeout".to_owned()));
    assert_eq!(unanswered.clock.monotonic(), seconds(30));
    assert_eq!(unanswered.dials().len(), 30);
    assert_eq!(unanswered.max_in_progress(), 3);
    // The last failure explains more than the timeout.
    let refused = world(Purpose::General, |number, _| if number == 0 { Unanswered } else { Refused });
    assert_eq!(refused.get("/ok").await, Err("refused".to_owned()));
    assert_eq!(refused.clock.monotonic(), seconds(30));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_dialed_while_no_request_waits() {
    let world = world(Purpose::General, |_, _| Unanswered);
    world.abandon_request_after(millis(1500)).await;
    tokio::time::sleep(seconds(20)).await;
    assert_eq!(world.dials(), [0, 1000]);
}

#[tokio::test(start_paused = true)]
async fn renewal_dials_beside_a_dial_that_began_before() {
    for (purpose, expected) in [(Purpose::Election, 200), (Purpose::General, 1000)] {
        let world = world(purpose, |number, _| if number == 0 { Unanswered } else { After(ZERO) });
        world.abandon_request_after(millis(200)).await;
        assert_eq!(world.get("/ok").await, Ok(millis(expected)));
    }
}

#[tokio::test(start_paused = true)]
async fn requests_of_an_election_share_a_dial() {
    let world = world(Purpose::Election, |_, _| After(millis(50)));
    join_all((0..3).map(|_| world.get("/ok"))).await;
    assert_eq!(world.dials()[0], 0);
    assert!(world.dials()[1..].iter().all(|dial| *dial >= 50), "{:?}", world.dials());
}

/// Without HTTP/2, each request has its own connection, as with Go.
#[tokio::test(start_paused = true)]
async fn surplus_dials_are_limited_without_streams() {
    let world = world(Purpose::General, |number, now| match number {
        0 => After(ZERO),
        _ if now < seconds(5) => Unanswered,
        _ => After(ZERO),
    });
    world.get("/ok").await.unwrap();
    let held = join_all((0..40).map(|_| world.get("/hold")));
    let others = async {
        tokio::time::sleep(seconds(5)).await;
        // One request is held on the first connection.
        assert_eq!(world.max_in_progress(), 39 + MAX_SURPLUS_DIALS);
        world.get("/ok").await
    };
    let answered = tokio::select! { _ = held => unreachable!(), answered = others => answered };
    assert!(answered.is_ok());
}

/// A renewal can time out earlier than other requests are suspect.
#[tokio::test(start_paused = true)]
async fn renewal_without_an_answer_fires_pings() {
    for (purpose, expected) in [(Purpose::Election, true), (Purpose::General, false)] {
        let world = world(purpose, |_, _| After(ZERO));
        let fired = world.pool.pings().fired();
        let unanswered = tokio::time::timeout(millis(500), world.get("/hold")).await;
        assert!(unanswered.is_err());
        assert_eq!(fired.now_or_never().is_some(), expected, "{purpose:?}");
    }
}

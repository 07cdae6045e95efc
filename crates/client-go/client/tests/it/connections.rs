//! Number and use of the connections to an API server, against real sockets on loopback.

use std::{future::pending, sync::Arc, time::Duration};

use futures_util::{StreamExt, future::join_all};
use kcm_client::{ApiClient, ClientFactory, RateLimit, Request, Server};
use kcm_clock::{Clock, FakeClock, Sleep, Timestamp};
use kcm_informer::WatchOptions;
use kcm_testkit::CertificateAuthority;
use tokio::task::JoinHandle;

use crate::support::{
    Sources as _,
    files::Files,
    options,
    socket::{Limits, SocketServer},
};

const TWO_STREAMS: Limits = Limits { streams: 2, window: 65_535 };
const ONE_STREAM: Limits = Limits { streams: 1, window: 65_535 };

/// A server and clients of it. The clock stands still unless it is stepped.
struct World {
    server: SocketServer,
    factory: ClientFactory,
    clock: FakeClock,
    _files: Option<Files>,
}

impl World {
    async fn plain() -> Self {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        Self::plain_at(clock.clone(), Arc::new(clock)).await
    }

    async fn plain_at(clock: FakeClock, theirs: Arc<dyn Clock>) -> Self {
        let server = SocketServer::plain().await;
        let address = Server::Master(server.address.to_string());
        let factory = ClientFactory::connect(address, options(theirs)).await.unwrap();
        Self { server, factory, clock, _files: None }
    }

    async fn tls(limits: Limits) -> Self {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        Self::tls_at(limits, clock.clone(), Arc::new(clock)).await
    }

    /// The clients use `theirs`, a view of `clock`.
    async fn tls_at(limits: Limits, clock: FakeClock, theirs: Arc<dyn Clock>) -> Self {
        let authority = CertificateAuthority::new("ca");
        let server = SocketServer::tls_with(&authority, limits).await;
        let files = Files::new(&server, &authority, "token: t");
        let factory = ClientFactory::connect(files.server(), options(theirs)).await.unwrap();
        Self { server, factory, clock, _files: Some(files) }
    }

    fn client(&self) -> ApiClient {
        self.factory.client("test", RateLimit::UNLIMITED)
    }

    /// Sends `count` requests that the server holds, and waits until they have arrived.
    async fn hold(&self, count: usize) -> Vec<JoinHandle<()>> {
        let held = (0..count).map(|_| tokio::spawn(send(self.client(), Request::get("/hold")))).collect();
        let begun = self.server.requests().len() + count;
        self.server.wait_for(|log| log.requests.len() >= begun).await;
        held
    }

    /// Waits until all connections are idle, and are closed for that. A plain connection is idle shortly after its last
    /// answer was read.
    async fn close_idle(&self) {
        while self.server.open() > 0 {
            self.clock.step(Duration::from_secs(90));
            tokio::task::yield_now().await;
        }
    }

    /// Connections of the requests to `path`.
    fn connections_of(&self, path: &str) -> Vec<usize> {
        let requests = self.server.requests();
        requests
            .iter()
            .filter(|request| request.what.ends_with(path))
            .map(|request| request.connection)
            .collect()
    }
}

async fn send(client: ApiClient, request: Request) {
    client.send(&request).await.unwrap();
}

async fn ok(client: &ApiClient) {
    client.send(&Request::get("/ok")).await.unwrap();
}

async fn join(held: Vec<JoinHandle<()>>) {
    for outcome in join_all(held).await {
        outcome.unwrap();
    }
}

mod pool {
    use super::*;

    #[tokio::test]
    async fn opens_connection_when_streams_are_in_use() {
        let world = World::tls(TWO_STREAMS).await;
        let held = world.hold(5).await;
        assert_eq!(world.server.connections(), 3);
        // There is room for one.
        ok(&world.client()).await;
        assert_eq!(world.server.connections(), 3);
        world.server.release();
        join(held).await;
    }

    #[tokio::test]
    async fn opens_as_many_connections_as_needed() {
        let world = World::tls(Limits::default()).await;
        let held = world.hold(250).await;
        assert_eq!(world.server.connections(), 3);
        world.server.release();
        join(held).await;
    }

    #[tokio::test]
    async fn closes_idle_connections() {
        let world = World::tls(TWO_STREAMS).await;
        let held = world.hold(5).await;
        world.server.release();
        join(held).await;
        ok(&world.client()).await;
        assert_eq!(world.connections_of("/ok"), [1], "the oldest connection is used first");
        world.clock.step(Duration::from_secs(30));
        world.server.wait_for(|log| log.open == 1).await;
        world.clock.step(Duration::from_secs(59));
        ok(&world.client()).await;
        assert_eq!((world.server.connections(), world.connections_of("/ok")), (3, vec![1, 1]));
        world.clock.step(Duration::from_secs(90));
        world.server.wait_for(|log| log.open == 0).await;
        ok(&world.client()).await;
        assert_eq!(world.server.connections(), 4);
    }

    #[tokio::test]
    async fn plain_connections_are_reused_and_closed() {
        let world = World::plain().await;
        let held = world.hold(3).await;
        assert_eq!(world.server.connections(), 3);
        world.server.release();
        join(held).await;
        for _ in 0..5 {
            ok(&world.client()).await;
        }
        assert_eq!(world.server.connections(), 3);
        world.close_idle().await;
    }

    #[tokio::test]
    async fn keeps_25_idle_connections_without_streams() {
        let world = World::plain().await;
        let held = world.hold(40).await;
        assert_eq!(world.server.open(), 40);
        world.server.release();
        join_all(held).await;
        world.server.wait_for(|log| log.open == 25).await;
        world.close_idle().await;
    }

    #[tokio::test]
    async fn watch_uses_a_stream_until_dropped() {
        let world = World::tls(ONE_STREAM).await;
        let client = world.client();
        let deployments = client.deployments();
        let watch = async || {
            let mut events = deployments.watch(&WatchOptions::default()).await.unwrap();
            events.next().await.unwrap().unwrap();
            events
        };
        let (first, second) = (watch().await, watch().await);
        assert_eq!(world.server.connections(), 2);
        drop(first);
        let third = watch().await;
        assert_eq!(world.server.connections(), 2);
        drop((second, third));
    }

    #[tokio::test]
    async fn dropped_request_frees_its_stream() {
        let world = World::tls(ONE_STREAM).await;
        let held = world.hold(1).await;
        held.iter().for_each(JoinHandle::abort);
        join_all(held).await;
        ok(&world.client()).await;
        assert_eq!(world.server.connections(), 1);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn requests_dropped_at_any_time_free_their_streams() {
        for world in [World::tls(TWO_STREAMS).await, World::plain().await] {
            let client = world.client();
            for round in 0..20 {
                let tasks: Vec<_> = (0..50)
                    .map(|_| {
                        let client = client.clone();
                        tokio::spawn(async move { ok(&client).await })
                    })
                    .collect();
                for task in tasks.iter().skip(round % 3).step_by(2) {
                    task.abort();
                }
                for outcome in join_all(tasks).await {
                    assert!(outcome.is_ok() || outcome.is_err_and(|error| error.is_cancelled()));
                }
            }
            world.close_idle().await;
            ok(&client).await;
        }
    }

    /// A server that shuts down, or balances its load, ends connections by GOAWAY.
    #[tokio::test]
    async fn drained_connection_fails_no_request() {
        let world = World::tls(Limits::default()).await;
        let held = world.hold(10).await;
        world.server.drain();
        let client = world.client();
        let write = Request::post("/ok", "{}");
        while world.server.connections() == 1 {
            for outcome in join_all((0..10).map(|_| client.send(&write))).await {
                outcome.unwrap();
            }
        }
        assert_eq!(world.server.connections(), 2);
        world.server.release();
        join(held).await;
    }

    #[tokio::test]
    async fn waiting_requests_fail_with_their_connection() {
        let world = World::tls(ONE_STREAM).await;
        let held = world.hold(1).await;
        world.server.fill();
        let client = world.client();
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let client = client.clone();
                tokio::spawn(async move { client.send(&Request::post("/ok", "{}")).await })
            })
            .collect();
        world.server.wait_for(|log| log.connections > 1).await;
        // The TLS handshake is given up after ten seconds.
        world.clock.step(Duration::from_secs(10));
        for outcome in join_all(waiting).await {
            let error = outcome.unwrap().unwrap_err();
            assert!(
                matches!(&error, kcm_api::ApiError::NotSent(text) if text.to_string().ends_with("TLS handshake timeout")),
                "{error:?}"
            );
        }
        world.server.release();
        join(held).await;
    }
}

/// Requests of an election are answered while all connections are in use and no other can be opened.
async fn renews_while_others_wait(world: World) {
    let election = world.factory.for_election().client("leader-election", RateLimit::UNLIMITED);
    let lease = Request::get("/ok");
    election.send(&lease).await.unwrap();
    let held = world.hold(3).await;
    world.server.fill();
    let waiting = tokio::spawn(send(world.client(), Request::post("/unread", "{}")));
    world.server.wait_for(|log| log.connections > 4).await;
    for _ in 0..5 {
        election.send(&lease).await.unwrap();
    }
    assert_eq!(world.connections_of("/ok"), [1; 6]);
    assert!(!world.connections_of("/hold").contains(&1));
    world.server.release();
    join(held).await;
    waiting.await.unwrap();
    assert!(!world.connections_of("/unread").contains(&1));
}

mod election {
    use super::*;

    #[tokio::test]
    async fn does_not_wait_for_other_requests_tls() {
        renews_while_others_wait(World::tls(ONE_STREAM).await).await;
    }

    #[tokio::test]
    async fn does_not_wait_for_other_requests_plain() {
        renews_while_others_wait(World::plain().await).await;
    }

    /// A connection whose peer is gone without a reset costs one renewal.
    #[tokio::test]
    async fn uses_a_new_connection_after_a_timeout() {
        let world = World::tls(Limits::default()).await;
        let election = world.factory.for_election().with_timeout(Duration::from_secs(5)).without_retries();
        let election = election.client("leader-election", RateLimit::UNLIMITED);
        ok(&election).await;
        let renewal = tokio::spawn({
            let election = election.clone();
            async move { election.send(&Request::get("/hold")).await }
        });
        world.server.wait_for(|log| log.requests.len() == 2).await;
        world.clock.step(Duration::from_secs(5));
        let error = renewal.await.unwrap().unwrap_err();
        assert!(matches!(error, kcm_api::ApiError::Timeout(_)), "{error:?}");
        ok(&election).await;
        ok(&election).await;
        assert_eq!(world.connections_of("/ok"), [1, 2, 2]);
        world.server.wait_for(|log| log.open == 1).await;
    }
}

/// A request is answered on another connection, while the TLS handshake of the first one has no answer.
async fn is_answered_beside_a_silent_handshake(factory: impl FnOnce(&ClientFactory) -> ClientFactory) {
    let world = World::tls(Limits::default()).await;
    let client = factory(&world.factory).client("test", RateLimit::UNLIMITED);
    world.server.fill();
    let request = tokio::spawn(send(client, Request::post("/ok", "{}")));
    world.server.wait_for(|log| log.connections == 1).await;
    world.server.make_room();
    let answered = async {
        // The timeouts of the request and of the handshake, and the next dial.
        while world.clock.sleepers() < 3 {
            tokio::task::yield_now().await;
        }
        world.clock.step(Duration::from_secs(1));
        request.await.unwrap();
    };
    let answered = tokio::time::timeout(Duration::from_secs(20), answered).await;
    assert!(answered.is_ok(), "the request waits for the first connection");
    assert_eq!(world.connections_of("/ok"), [2]);
}

mod silent_handshake {
    use super::*;

    #[tokio::test]
    async fn delays_a_request_by_a_second() {
        is_answered_beside_a_silent_handshake(ClientFactory::clone).await;
    }

    #[tokio::test]
    async fn delays_a_renewal_by_a_second() {
        is_answered_beside_a_silent_handshake(ClientFactory::for_election).await;
    }
}

/// Clock of a process that is stopped: time passes, and no timer fires.
#[derive(Debug, Clone)]
struct Stopped(FakeClock);

impl Clock for Stopped {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn sleep(&self, _: Duration) -> Sleep {
        Box::pin(pending())
    }
}

impl World {
    /// Client that may write for ten seconds.
    fn leader(&self) -> ApiClient {
        let clock = self.clock.clone();
        let until = clock.monotonic() + Duration::from_secs(10);
        let factory = self.factory.gated(move || until.saturating_sub(clock.monotonic()));
        factory.client("test", RateLimit::UNLIMITED)
    }
}

/// Loses the lease while writes wait for a connection.
async fn sends_no_write_that_waited(world: World) {
    let leader = world.leader();
    let held = world.hold(1).await;
    world.server.fill();
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let leader = leader.clone();
            tokio::spawn(async move { leader.send(&Request::post("/ok", "{}")).await })
        })
        .collect();
    world.server.wait_for(|log| log.connections > 1).await;
    world.clock.step(Duration::from_secs(10));
    world.server.release();
    for outcome in join_all(waiting).await {
        assert!(outcome.unwrap().unwrap_err().is_not_leading());
    }
    join(held).await;
    // Reads use the connections that the writes waited for.
    world.clock.step(Duration::from_secs(1));
    for _ in 0..20 {
        leader.send(&Request::get("/hold")).await.unwrap();
    }
    assert!(world.connections_of("/ok").is_empty());
}

mod lost_lease {
    use super::*;

    #[tokio::test]
    async fn waiting_write_is_not_sent_tls() {
        sends_no_write_that_waited(World::tls(ONE_STREAM).await).await;
    }

    #[tokio::test]
    async fn waiting_write_is_not_sent_plain() {
        sends_no_write_that_waited(World::plain().await).await;
    }

    #[tokio::test]
    async fn other_clients_use_other_connections() {
        let world = World::tls(Limits::default()).await;
        let write = Request::post("/ok", "{}");
        world.leader().send(&write).await.unwrap();
        world.clock.step(Duration::from_secs(10));
        world.client().send(&write).await.unwrap();
        assert_eq!(world.connections_of("/ok"), [1, 2]);
    }

    #[tokio::test]
    async fn rest_of_a_write_is_not_sent_tls() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        let limits = Limits { window: 1024, ..Limits::default() };
        sends_no_rest_of_a_write(World::tls_at(limits, clock.clone(), Arc::new(Stopped(clock))).await).await;
    }

    #[tokio::test]
    async fn rest_of_a_write_is_not_sent_plain() {
        let clock = FakeClock::new(Timestamp::UNIX_EPOCH);
        sends_no_rest_of_a_write(World::plain_at(clock.clone(), Arc::new(Stopped(clock))).await).await;
    }
}

/// Stops the process while a part of a write is in its buffers, and continues it when the lease is lost.
async fn sends_no_rest_of_a_write(world: World) {
    let leader = world.leader();
    // More than the socket buffers of both sides take.
    let body = "x".repeat(64 << 20);
    let write = tokio::spawn(async move { leader.send(&Request::post("/unread", body)).await });
    world.server.wait_for(|log| log.begun == 1).await;
    world.clock.step(Duration::from_secs(10));
    world.server.release();
    world.server.wait_for(|log| log.cut_off + log.requests.len() == 1).await;
    assert!(world.server.requests().is_empty());
    assert!(write.await.unwrap().unwrap_err().is_not_leading());
    world.server.wait_for(|log| log.open == 0).await;
    // A client without a gate has the same pool, and gets a new connection.
    ok(&world.client()).await;
    assert_eq!(world.server.connections(), 2);
}

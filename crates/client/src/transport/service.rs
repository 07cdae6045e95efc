//! The connections of a process, renewed when credentials change.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use hyper::body::Incoming;
use kcm_clock::Clock;
use kube_client::{
    Client,
    client::{Body, ClientBuilder},
};
use parking_lot::Mutex;
use tower::{BoxError, Service, ServiceExt};

use super::{
    credentials::{ConfigError, Credentials, Server},
    gate::Gate,
    server,
    stack::{self, Channel, Pool},
};

/// How old credentials may be when they are used, at most. Upstream re-reads tokens every minute, certificates
/// every five.
const RECHECK: Duration = Duration::from_secs(30);

/// What a connection is used for. Each use has connections of its own, so that a burst of writes never waits for
/// a stream that a watch holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lane {
    Requests,
    Watches,
}

/// All connections to one API server.
///
/// Credentials are looked at again when a request comes and the last look is half a minute old: no timer, no
/// task. New credentials get new connections; what is under way on the old ones ends there.
pub(crate) struct Transport {
    server: Server,
    /// Whether the credentials there are left aside.
    is_anonymous: bool,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

struct State {
    credentials: Arc<Credentials>,
    requests: Way,
    watches: Way,
    /// When credentials were last looked at.
    checked: Duration,
}

#[derive(Clone)]
struct Way {
    pool: Pool,
    channel: Channel,
    gate: Gate,
}

impl Transport {
    /// Reads the configuration. No connection is made yet.
    pub(crate) async fn new(server: Server, clock: Arc<dyn Clock>) -> Result<Arc<Self>, ConfigError> {
        Self::connect(server, false, clock).await
    }

    /// Connections to the same server on which nobody says who he is.
    pub(crate) async fn anonymous(&self) -> Result<Arc<Self>, ConfigError> {
        Self::connect(self.server.clone(), true, Arc::clone(&self.clock)).await
    }

    async fn connect(
        server: Server,
        is_anonymous: bool,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, ConfigError> {
        let from = server.clone();
        let (credentials, requests, watches) = off_the_runtime(&server, move || {
            let credentials = load(&from, is_anonymous)?;
            let requests = Way::new(&from, &credentials, None)?;
            let watches = Way::new(&from, &credentials, None)?;
            Ok((Arc::new(credentials), requests, watches))
        })
        .await?;
        let checked = clock.monotonic();
        let state = Mutex::new(State { credentials, requests, watches, checked });
        Ok(Arc::new(Self { server, is_anonymous, clock, state }))
    }

    /// The address of the API server.
    pub(crate) fn address(&self) -> String {
        server::show(&self.state.lock().credentials.config.cluster_url)
    }

    /// A client on the connections of one lane.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub(crate) fn client(self: &Arc<Self>, lane: Lane) -> Client {
        let namespace = self.state.lock().credentials.config.default_namespace.clone();
        ClientBuilder::new(LaneService { transport: Arc::clone(self), lane }, namespace).build()
    }

    async fn way(&self, lane: Lane) -> Way {
        let due = {
            let mut state = self.state.lock();
            let now = self.clock.monotonic();
            let due = now.saturating_sub(state.checked) >= RECHECK;
            if due {
                // The others go on with what there is meanwhile.
                state.checked = now;
            }
            due
        };
        if due {
            self.recheck().await;
        }
        let state = self.state.lock();
        match lane {
            Lane::Requests => state.requests.clone(),
            Lane::Watches => state.watches.clone(),
        }
    }

    async fn recheck(&self) {
        let (server, current, requests, watches) = {
            let state = self.state.lock();
            (
                self.server.clone(),
                Arc::clone(&state.credentials),
                state.requests.clone(),
                state.watches.clone(),
            )
        };
        let is_anonymous = self.is_anonymous;
        let renewed = off_the_runtime(&self.server, move || {
            let fresh = load(&server, is_anonymous)?;
            let same_connection = fresh.connection_print == current.connection_print;
            if same_connection && fresh.request_print == current.request_print {
                return Ok(None);
            }
            if fresh.config.cluster_url != current.config.cluster_url {
                // Caches are full of the old one's objects.
                return Err(ConfigError::broken(
                    &server,
                    "it names another API server now; restart to go there",
                ));
            }
            let requests = Way::new(&server, &fresh, same_connection.then_some(requests))?;
            let watches = Way::new(&server, &fresh, same_connection.then_some(watches))?;
            Ok(Some((Arc::new(fresh), requests, watches)))
        });
        match renewed.await {
            Ok(None) => {}
            Ok(Some((credentials, requests, watches))) => {
                tracing::info!(server = %self.server, "Credentials have changed, using the new ones");
                let mut state = self.state.lock();
                let checked = state.checked;
                *state = State { credentials, requests, watches, checked };
            }
            // They may be half written. What worked may still work, and there will be a next look.
            Err(error) => tracing::warn!(err = %error, "Cannot re-read credentials, keeping those in use"),
        }
    }
}

fn load(server: &Server, is_anonymous: bool) -> Result<Credentials, ConfigError> {
    let credentials = Credentials::load(server)?;
    Ok(if is_anonymous { credentials.anonymous() } else { credentials })
}

impl Way {
    /// A way with `credentials`; on the connections of `over`, if given.
    fn new(server: &Server, credentials: &Credentials, over: Option<Self>) -> Result<Self, ConfigError> {
        let config = &credentials.config;
        let (pool, gate) = match over {
            Some(Self { pool, gate, .. }) => (pool, gate),
            None => (stack::pool(server, config)?, Gate::default()),
        };
        let channel = stack::channel(server, config, pool.clone())?;
        Ok(Self { pool, channel, gate })
    }
}

/// Runs what blocks where it may.
async fn off_the_runtime<T: Send + 'static>(
    server: &Server,
    work: impl FnOnce() -> Result<T, ConfigError> + Send + 'static,
) -> Result<T, ConfigError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(ConfigError::broken(server, error)),
    }
}

#[derive(Clone)]
struct LaneService {
    transport: Arc<Transport>,
    lane: Lane,
}

impl Service<Request<Body>> for LaneService {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // An error here would be the end of the client for good: kube's buffer does not ask twice.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { transport, lane } = self.clone();
        Box::pin(async move {
            let way = transport.way(lane).await;
            let first = way.gate.pass(&*transport.clock).await;
            let answer = way.channel.oneshot(request).await?;
            way.gate.open();
            drop(first);
            Ok(answer)
        })
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("server", &self.server).finish_non_exhaustive()
    }
}

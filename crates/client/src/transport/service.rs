//! The connections of a process, renewed when credentials change.

use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use kcm_clock::Clock;
use kube_client::{
    Client,
    client::{Body, ClientBuilder},
};
use parking_lot::Mutex;
use tower::{BoxError, Service, ServiceExt};

use super::{
    credentials::{ConfigError, Credentials, Server},
    pool::{Pool, PooledBody},
    server,
    stack::{self, Channel},
};

/// How old credentials may be when they are used, at most. Upstream re-reads tokens every minute, certificates
/// every five.
const RECHECK: Duration = Duration::from_secs(30);

/// Purpose of a connection. Each purpose has connections of its own.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lane {
    /// Reads and writes of controllers.
    Requests,
    /// Watches of informers: a burst of writes does not wait for streams that watches hold.
    Watches,
    /// The Lease of an election: its renewal waits for no other request.
    Election,
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
    ways: Ways,
    /// When credentials were last looked at.
    checked: Duration,
}

#[derive(Clone)]
struct Way {
    pool: Pool,
    channel: Channel,
}

/// The way of each [`Lane`].
#[derive(Clone)]
struct Ways {
    requests: Way,
    watches: Way,
    election: Way,
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
        let (from, by) = (server.clone(), Arc::clone(&clock));
        let (credentials, ways) = off_the_runtime(&server, move || {
            let credentials = load(&from, is_anonymous)?;
            let ways = Ways::new(&from, &credentials, &by)?;
            Ok((Arc::new(credentials), ways))
        })
        .await?;
        let checked = clock.monotonic();
        let state = Mutex::new(State { credentials, ways, checked });
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
            Lane::Requests => state.ways.requests.clone(),
            Lane::Watches => state.ways.watches.clone(),
            Lane::Election => state.ways.election.clone(),
        }
    }

    async fn recheck(&self) {
        let (current, ways) = {
            let state = self.state.lock();
            (Arc::clone(&state.credentials), state.ways.clone())
        };
        let (server, is_anonymous, clock) = (self.server.clone(), self.is_anonymous, Arc::clone(&self.clock));
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
            let ways = if same_connection {
                ways.with_credentials(&server, &fresh)?
            } else {
                Ways::new(&server, &fresh, &clock)?
            };
            Ok(Some((Arc::new(fresh), ways)))
        });
        match renewed.await {
            Ok(None) => {}
            Ok(Some((credentials, ways))) => {
                tracing::info!(server = %self.server, "Credentials have changed, using the new ones");
                let mut state = self.state.lock();
                let checked = state.checked;
                *state = State { credentials, ways, checked };
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

impl Ways {
    /// New connections for each purpose.
    fn new(server: &Server, credentials: &Credentials, clock: &Arc<dyn Clock>) -> Result<Self, ConfigError> {
        let way = || Way::new(server, credentials, stack::pool(server, &credentials.config, clock)?);
        Ok(Self { requests: way()?, watches: way()?, election: way()? })
    }

    /// The same connections with other credentials.
    fn with_credentials(&self, server: &Server, credentials: &Credentials) -> Result<Self, ConfigError> {
        let way = |old: &Way| Way::new(server, credentials, old.pool.clone());
        Ok(Self {
            requests: way(&self.requests)?,
            watches: way(&self.watches)?,
            election: way(&self.election)?,
        })
    }
}

impl Way {
    fn new(server: &Server, credentials: &Credentials, pool: Pool) -> Result<Self, ConfigError> {
        let channel = stack::channel(server, &credentials.config, pool.clone())?;
        Ok(Self { pool, channel })
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
    type Response = Response<PooledBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // An error here would be the end of the client for good: kube's buffer does not ask twice.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Self { transport, lane } = self.clone();
        Box::pin(async move { transport.way(lane).await.channel.oneshot(request).await })
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("server", &self.server).finish_non_exhaustive()
    }
}

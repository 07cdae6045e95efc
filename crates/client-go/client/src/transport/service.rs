//! Connections of a process, replaced when credentials change.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::{
    FutureExt,
    future::{BoxFuture, Shared},
};
use http::{Request, Response, StatusCode};
use kcm_clock::Clock;
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tower::BoxError;

use super::{
    auth_headers::auth_headers,
    credentials::{ClientConfigError, Credentials, Server},
    exec::{ExecCredential, ExecPlugin},
    issued::{Issued, IssuedState, Now, RefreshNeed},
    liveness::PingTrigger,
    pool::{Pool, PooledBody, Purpose},
    proxy::ProxyEnvironment,
    route::{self, Route},
    server,
};
use crate::Body;

/// Interval at which credential files are read again. Upstream reads tokens every minute and certificates every five
/// minutes.
const RECHECK: Duration = Duration::from_secs(30);

/// Purpose of a connection. Each purpose has separate connections.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lane {
    /// Reads and writes of controllers.
    Requests,
    /// Watches of informers: a burst of writes does not wait for streams that watches hold.
    Watches,
    /// The Lease of an election: its renewal waits for no other request, and follows no other on a connection that may be
    /// dead.
    Election,
}

/// All connections to one API server.
///
/// Files are read again when a request is sent and they were last read half a minute ago. An exec plugin runs before its
/// credentials expire, and after a 401. A request waits for the plugin only if there are no credentials that it can use.
///
/// A new client certificate gets new connections. Requests in flight on the old ones are finished there; watches are closed,
/// and opened again by their informers.
///
/// Tasks of the connections and the credentials run on the runtime of the request that starts them. Requests of other
/// runtimes may have to wait for these tasks, so a runtime that must not wait for others uses a
/// [separate](Self::separate) transport.
///
/// DEVIATION: upstream closes the old connections with all requests on them. The outcome of their writes is then unknown.
pub(crate) struct Transport {
    server: Server,
    /// If `true`, the credentials are not used.
    is_anonymous: bool,
    environment: ProxyEnvironment,
    /// Shared with [separate](Self::separate) connections.
    pings: PingTrigger,
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
    /// Held while new credentials are loaded and put into use.
    update: tokio::sync::Mutex<()>,
}

struct State {
    credentials: Arc<Credentials>,
    issued: IssuedState,
    routes: Routes,
    /// Time at which the files were last read.
    checked: Duration,
    /// Last run of the plugin.
    run: Option<Run>,
}

/// Run of an exec plugin, which all requests share that wait for it.
#[derive(Clone)]
struct Run {
    task: AbortHandle,
    outcome: Shared<BoxFuture<'static, Result<(), ClientConfigError>>>,
}

/// The route of each [`Lane`].
#[derive(Clone)]
struct Routes {
    requests: Arc<Route>,
    watches: Arc<Route>,
    election: Arc<Route>,
}

impl Transport {
    /// Reads the configuration. Opens no connection.
    pub(crate) async fn new(
        server: Server,
        environment: ProxyEnvironment,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, ClientConfigError> {
        Self::connect(server, environment, false, clock).await
    }

    /// Returns connections to the same server without credentials.
    pub(crate) async fn anonymous(&self) -> Result<Arc<Self>, ClientConfigError> {
        Self::connect(self.server.clone(), self.environment.clone(), true, Arc::clone(&self.clock)).await
    }

    /// Returns connections to the same server that share no connection, and neither runs of the plugin nor reads of the
    /// files with these. A dead connection of either makes both send pings.
    pub(crate) fn separate(&self) -> Arc<Self> {
        let state = {
            let State { credentials, issued, routes, checked, run: _ } = &*self.state.lock();
            State {
                credentials: Arc::clone(credentials),
                issued: issued.clone(),
                routes: routes.separate(),
                checked: *checked,
                run: None,
            }
        };
        Arc::new(Self {
            server: self.server.clone(),
            is_anonymous: self.is_anonymous,
            environment: self.environment.clone(),
            pings: self.pings.clone(),
            clock: Arc::clone(&self.clock),
            state: Mutex::new(state),
            update: tokio::sync::Mutex::default(),
        })
    }

    async fn connect(
        server: Server,
        environment: ProxyEnvironment,
        is_anonymous: bool,
        clock: Arc<dyn Clock>,
    ) -> Result<Arc<Self>, ClientConfigError> {
        let pings = PingTrigger::default();
        let (from, variables, by) =
            (server.clone(), environment.clone(), (pings.clone(), Arc::clone(&clock)));
        let (credentials, routes) = off_the_runtime(&server, move || {
            let credentials = load(&from, &variables, is_anonymous)?;
            if let Some(cause) = &credentials.missing_authority {
                tracing::error!(err = cause, "Expected to load root CA config");
            }
            let routes = Routes::new(&from, &credentials, None, &by.0, &by.1)?;
            Ok((Arc::new(credentials), routes))
        })
        .await?;
        let checked = clock.monotonic();
        let issued = IssuedState::default();
        let state = Mutex::new(State { credentials, issued, routes, checked, run: None });
        let update = tokio::sync::Mutex::default();
        Ok(Arc::new(Self { server, is_anonymous, environment, pings, clock, state, update }))
    }

    /// Returns the address of the API server.
    pub(crate) fn address(&self) -> String {
        server::show(&self.state.lock().credentials.config.cluster_url)
    }

    /// Sends a request with a relative URI on a connection of `lane`.
    ///
    /// # Errors
    ///
    /// [`ClientConfigError`] if there are no credentials, otherwise [`SendError`](super::SendError).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels the request, which may take effect nevertheless.
    pub(super) async fn send(
        self: &Arc<Self>,
        lane: Lane,
        request: Box<Request<Body>>,
    ) -> Result<Response<PooledBody>, BoxError> {
        let (route, issued) = self.route(lane).await?;
        let answer = route.send(request).await?;
        if let Some(issued) = issued.filter(|_| answer.status() == StatusCode::UNAUTHORIZED) {
            self.refuse(&issued);
        }
        Ok(answer)
    }

    fn now(&self) -> Now {
        Now { wall: self.clock.now(), monotonic: self.clock.monotonic() }
    }

    /// Returns the route of a lane, with the credentials of the exec plugin that it uses.
    async fn route(
        self: &Arc<Self>,
        lane: Lane,
    ) -> Result<(Arc<Route>, Option<Arc<Issued>>), ClientConfigError> {
        self.recheck_if_due(lane).await;
        loop {
            let run = {
                let mut state = self.state.lock();
                let plugin = state.credentials.plugin.clone();
                let need =
                    if plugin.is_some() { state.issued.need(self.now()) } else { RefreshNeed::Nothing };
                match (need, plugin) {
                    (RefreshNeed::Wait, Some(plugin)) => self.run(&mut state, plugin),
                    (RefreshNeed::Refresh, Some(plugin)) => {
                        self.run(&mut state, plugin);
                        return Ok(state.route(lane));
                    }
                    _ => return Ok(state.route(lane)),
                }
            };
            let outcome = run.outcome.await;
            let state = self.state.lock();
            if state.issued.current().is_some() && (outcome.is_ok() || state.issued.is_usable(self.now())) {
                // Even if they have expired: the plugin returned no others.
                return Ok(state.route(lane));
            }
            outcome?;
            // The kubeconfig now contains another plugin.
        }
    }

    /// Runs the plugin, unless it is running.
    fn run(self: &Arc<Self>, state: &mut State, plugin: Arc<ExecPlugin>) -> Run {
        if let Some(run) = state.run.as_ref().filter(|run| !run.task.is_finished()) {
            return run.clone();
        }
        let this = Arc::clone(self);
        let task = tokio::spawn(async move { this.refresh(&plugin).await });
        let (handle, server) = (task.abort_handle(), self.server.clone());
        let outcome = task
            .map(move |ended| ended.unwrap_or_else(|error| Err(ClientConfigError::broken(&server, error))));
        let run = Run { task: handle, outcome: outcome.boxed().shared() };
        state.run = Some(run.clone());
        run
    }

    /// Runs `plugin` and puts its credentials into use.
    async fn refresh(&self, plugin: &Arc<ExecPlugin>) -> Result<(), ClientConfigError> {
        let outcome = self.try_refresh(plugin).await;
        if let Err(error) = &outcome {
            self.state.lock().issued.fail(self.now());
            tracing::warn!(err = %error, "Failed to refresh credentials");
        }
        outcome
    }

    async fn try_refresh(&self, plugin: &Arc<ExecPlugin>) -> Result<(), ClientConfigError> {
        let credential = plugin.run(&*self.clock).await;
        let credential = credential.map_err(|error| ClientConfigError::broken(&self.server, error))?;
        let _updating = self.update.lock().await;
        let (credentials, previous, routes) = {
            let state = self.state.lock();
            (Arc::clone(&state.credentials), state.issued.current().cloned(), state.routes.clone())
        };
        if credentials.plugin.as_ref() != Some(plugin) {
            return Ok(());
        }
        let previous = previous.and_then(|issued| issued.credential.identity.clone());
        let is_same_identity = previous == credential.identity;
        let (server, clock, issued) = (self.server.clone(), Arc::clone(&self.clock), credential.clone());
        let (old, pings) = (routes.clone(), self.pings.clone());
        let built = off_the_runtime(&self.server, move || {
            if is_same_identity {
                routes.with_credentials(&server, &credentials, Some(&issued))
            } else {
                Routes::new(&server, &credentials, Some(&issued), &pings, &clock)
            }
        });
        // The cause can quote the certificate.
        let routes = built.await.map_err(|_| {
            let command = plugin.command();
            let error = format_args!("exec plugin {command:?} returned an invalid client certificate or key");
            ClientConfigError::broken(&self.server, error)
        })?;
        {
            let mut state = self.state.lock();
            state.routes = routes;
            state.issued.issue(credential, self.now());
        }
        if !is_same_identity {
            old.retire();
        }
        tracing::debug!(command = plugin.command(), "Refreshed credentials");
        Ok(())
    }

    /// Records a 401 for a request with `issued`, and runs the plugin again.
    ///
    /// As upstream, the request is not repeated.
    fn refuse(self: &Arc<Self>, issued: &Arc<Issued>) {
        let mut state = self.state.lock();
        state.issued.refuse(issued);
        let Some(plugin) = state.credentials.plugin.clone() else { return };
        if state.issued.need(self.now()) != RefreshNeed::Nothing {
            self.run(&mut state, plugin);
        }
    }

    /// Reads the files again if they were last read [`RECHECK`] ago. Other requests use the present credentials meanwhile. So
    /// does a request of an election.
    async fn recheck_if_due(self: &Arc<Self>, lane: Lane) {
        {
            let mut state = self.state.lock();
            let now = self.clock.monotonic();
            if now.saturating_sub(state.checked) < RECHECK {
                return;
            }
            state.checked = now;
        }
        let this = Arc::clone(self);
        let recheck = tokio::spawn(async move { this.recheck().await });
        if !matches!(lane, Lane::Election) {
            // An error means that the runtime ends.
            drop(recheck.await);
        }
    }

    async fn recheck(&self) {
        let _updating = self.update.lock().await;
        let (current, issued, routes) = {
            let state = self.state.lock();
            (Arc::clone(&state.credentials), state.issued.current().cloned(), state.routes.clone())
        };
        let (server, is_anonymous, clock) = (self.server.clone(), self.is_anonymous, Arc::clone(&self.clock));
        let (environment, pings, old) = (self.environment.clone(), self.pings.clone(), routes.clone());
        let renewed = off_the_runtime(&self.server, move || {
            let loaded = load(&server, &environment, is_anonymous)
                .and_then(|fresh| fresh.check_successor_of(&current, &server).map(|()| fresh));
            let renew = |fresh: Credentials| {
                if fresh.has_same_contents(&current) {
                    return Ok(None);
                }
                let same_connection = fresh.has_same_connections(&current);
                let same_plugin = fresh.plugin == current.plugin;
                let issued = issued.as_ref().filter(|_| same_plugin).map(|issued| &issued.credential);
                let routes = if same_connection {
                    routes.with_credentials(&server, &fresh, issued)?
                } else {
                    Routes::new(&server, &fresh, issued, &pings, &clock)?
                };
                Ok(Some((Arc::new(fresh), routes, same_connection, same_plugin)))
            };
            Ok(match loaded.and_then(renew) {
                Ok(renewed) => (renewed, None),
                // A part of the files may be incomplete. The others are used, as upstream.
                Err(error) => {
                    let renewed = renew(current.with_present_files(&server))
                        .or_else(|_| renew(current.with_present_token(&server)));
                    (renewed.unwrap_or_default(), Some(error))
                }
            })
        });
        let (renewed, error) = renewed.await.unwrap_or_else(|error| (None, Some(error)));
        if let Some((credentials, routes, same_connection, same_plugin)) = renewed {
            tracing::info!(server = %self.server, "Credentials have changed, using the new ones");
            let mut state = self.state.lock();
            (state.credentials, state.routes) = (credentials, routes);
            if !same_plugin {
                state.issued = IssuedState::default();
            }
            drop(state);
            if !same_connection {
                old.retire();
            }
        }
        // Until the next check.
        if let Some(error) = error {
            tracing::warn!(err = %error, "Cannot re-read credentials, keeping what cannot be read");
        }
    }
}

impl State {
    fn route(&self, lane: Lane) -> (Arc<Route>, Option<Arc<Issued>>) {
        let route = match lane {
            Lane::Requests => &self.routes.requests,
            Lane::Watches => &self.routes.watches,
            Lane::Election => &self.routes.election,
        };
        (Arc::clone(route), self.issued.current().cloned())
    }
}

fn load(
    server: &Server,
    environment: &ProxyEnvironment,
    is_anonymous: bool,
) -> Result<Credentials, ClientConfigError> {
    let credentials = Credentials::load(server, environment)?;
    Ok(if is_anonymous { credentials.anonymous() } else { credentials })
}

impl Routes {
    /// New connections for each purpose.
    fn new(
        server: &Server,
        credentials: &Credentials,
        issued: Option<&ExecCredential>,
        pings: &PingTrigger,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, ClientConfigError> {
        let config = credentials.with_issued(issued);
        let endpoint = route::endpoint(server, &config, credentials.proxy.as_ref(), pings.clone(), clock)?;
        let headers = auth_headers(server, &config.auth_info)?;
        let [requests, watches, election] =
            [Purpose::General, Purpose::General, Purpose::Election].map(|purpose| {
                Arc::new(Route::new(&config, headers.clone(), Pool::new(endpoint.clone(), purpose)))
            });
        Ok(Self { requests, watches, election })
    }

    /// New connections with the same credentials.
    fn separate(&self) -> Self {
        self.map(Route::separate)
    }

    /// The same connections with other credentials.
    fn with_credentials(
        &self,
        server: &Server,
        credentials: &Credentials,
        issued: Option<&ExecCredential>,
    ) -> Result<Self, ClientConfigError> {
        let headers = auth_headers(server, &credentials.with_issued(issued).auth_info)?;
        Ok(self.map(|old| old.with_headers(headers.clone())))
    }

    fn map(&self, route: impl Fn(&Route) -> Route) -> Self {
        let [requests, watches, election] =
            [&self.requests, &self.watches, &self.election].map(|old| Arc::new(route(old)));
        Self { requests, watches, election }
    }

    /// Lets the connections close.
    fn retire(&self) {
        for route in [&self.requests, &self.watches, &self.election] {
            route.pool().retire();
        }
    }
}

/// Runs blocking code outside the runtime.
async fn off_the_runtime<T: Send + 'static>(
    server: &Server,
    work: impl FnOnce() -> Result<T, ClientConfigError> + Send + 'static,
) -> Result<T, ClientConfigError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(outcome) => outcome,
        Err(error) => Err(ClientConfigError::broken(server, error)),
    }
}

impl fmt::Debug for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transport").field("server", &self.server).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

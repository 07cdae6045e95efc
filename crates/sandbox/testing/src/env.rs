//! A running test environment.

use std::{fmt, fmt::Write as _, panic::Location, sync::Arc, time::Duration};

use kcm_apiserver::{ApiServer, AuditEvent, AuditSink, Fault, FaultHandle, Faults};
use kcm_client::{Api, ApiClient, ClientFactory, Decode, Kind};
use kcm_clock::{Clock, Random};
use parking_lot::Mutex;
use tokio_util::sync::DropGuard;

use crate::{TestEnvBuilder, builder};

/// Time within which [`TestEnv::eventually`] expects a state.
const LIMIT: Duration = Duration::from_secs(30);
/// Interval between two checks of a state.
const INTERVAL: Duration = Duration::from_millis(50);
/// Name of the client of the test, and end of its user agent.
pub(crate) const CLIENT: &str = "test";
/// Number of refused requests that a failure lists.
const LISTED: usize = 5;

/// API server with custom resources, clients, clock, and optionally simulated nodes. See the [example](crate).
///
/// Dropping it stops the simulated components.
pub struct TestEnv {
    pub(crate) server: Option<Arc<ApiServer>>,
    pub(crate) clients: ClientFactory,
    pub(crate) client: ApiClient,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) random: Arc<dyn Random>,
    pub(crate) namespace: String,
    pub(crate) log: Arc<Log>,
    pub(crate) _components: Option<DropGuard>,
    #[cfg(feature = "controllers")]
    pub(crate) _controllers: Option<kcm_controller_manager::Controllers>,
}

/// Requests of the environment, and failures of its managers.
#[derive(Default)]
pub(crate) struct Log {
    requests: Mutex<Vec<AuditEvent>>,
    failures: Mutex<Vec<String>>,
}

impl Log {
    /// Sink that stores the requests and passes them to `next`.
    pub(crate) fn sink(self: &Arc<Self>, next: Option<AuditSink>) -> AuditSink {
        let log = Arc::clone(self);
        Arc::new(move |event: &AuditEvent| {
            log.requests.lock().push(event.clone());
            if let Some(next) = &next {
                next(event);
            }
        })
    }

    #[cfg(feature = "manager")]
    pub(crate) fn add_failure(&self, failure: String) {
        self.failures.lock().push(failure);
    }

    /// Failures of managers, and the last refused requests of other clients than that of the test.
    fn describe(&self) -> String {
        let mut text = String::new();
        for failure in &*self.failures.lock() {
            let _ = write!(text, "\n  {failure}");
        }
        let requests = self.requests.lock();
        let is_refused =
            |event: &&AuditEvent| event.code >= 400 && !event.user_agent.ends_with(&format!("/{CLIENT}"));
        let refused: Vec<_> = requests.iter().rev().filter(is_refused).take(LISTED).collect();
        for AuditEvent { verb, uri, code, failure, .. } in refused.into_iter().rev() {
            let failure = failure.as_ref().map(ToString::to_string).unwrap_or_default();
            let _ = write!(text, "\n  {verb} {uri}: {code} {failure}");
        }
        text
    }
}

impl TestEnv {
    /// Builder of an environment.
    pub fn builder() -> TestEnvBuilder {
        TestEnvBuilder::new()
    }

    /// Namespace of the test.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Objects of a type, in the [namespace](Self::namespace) of the test unless the type is cluster-scoped.
    pub fn api<K: Kind<Decoder: Decode<K>>>(&self) -> Api<K> {
        let api = self.client.api::<K>();
        if api.resource().namespaced { api.namespaced(&self.namespace) } else { api }
    }

    /// Client without a rate limit.
    pub fn client(&self) -> &ApiClient {
        &self.client
    }

    /// Factory of clients, for controllers.
    pub fn clients(&self) -> &ClientFactory {
        &self.clients
    }

    /// Client of kube-rs. Its default namespace is [that of the test](Self::namespace).
    ///
    /// # Panics
    ///
    /// Without an embedded API server, and outside of a Tokio runtime.
    #[cfg(feature = "kube-client")]
    pub fn kube_client(&self) -> kube_client::Client {
        kube_client::Client::new(self.server().service(), &*self.namespace)
    }

    /// Embedded API server. Its methods read and write objects without HTTP, and are not subject to faults.
    ///
    /// # Panics
    ///
    /// Without an embedded API server.
    pub fn server(&self) -> &Arc<ApiServer> {
        match &self.server {
            Some(server) => server,
            None => panic!("the environment has no embedded API server"),
        }
    }

    /// Faults of the embedded API server.
    ///
    /// # Panics
    ///
    /// Without an embedded API server.
    pub fn faults(&self) -> &Faults {
        self.server().faults()
    }

    /// Adds a [fault](Fault) to those of the embedded API server:
    ///
    /// | Rule | Effect |
    /// |---|---|
    /// | `POST /api/v1/**/pods 500 times=1` | the next creation of a pod fails |
    /// | `PATCH /** late:0s skip=2 times=1` | the third patch takes effect, and its response is lost |
    /// | `WATCH /**/pods 410 times=1` | the next watch of pods is too old, so the client lists again |
    ///
    /// # Panics
    ///
    /// If the rule is invalid, and without an embedded API server.
    #[track_caller]
    pub fn fault(&self, rule: &str) -> FaultHandle {
        match rule.parse::<Fault>() {
            Ok(fault) => self.faults().add(fault),
            Err(error) => panic!("{error}"),
        }
    }

    /// Requests that the embedded API server has received, in the order of their responses. Empty for another API server.
    pub fn requests(&self) -> Vec<AuditEvent> {
        self.log.requests.lock().clone()
    }

    /// Clock of the environment.
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Seeded source of randomness.
    pub fn random(&self) -> &Arc<dyn Random> {
        &self.random
    }

    /// Creates a namespace unless it exists.
    ///
    /// # Panics
    ///
    /// If the API server refuses it.
    pub async fn create_namespace(&self, name: &str) {
        builder::create_namespace(&self.client, name).await;
    }

    /// Lets time pass. Everything that is due within `duration` happens before this returns.
    pub async fn advance(&self, duration: Duration) {
        self.clock.sleep(duration).await;
    }

    /// Waits up to 30 s until `reached` returns `true`. `what` describes the state in the failure.
    ///
    /// # Panics
    ///
    /// If the state is not reached in time. The message lists failures of managers, and the last refused requests of the
    /// operator.
    #[track_caller]
    pub fn eventually(&self, what: &str, reached: impl AsyncFn() -> bool) -> impl Future<Output = ()> {
        self.within(LIMIT, what, reached)
    }

    /// Waits up to `limit` until `reached` returns `true`. See [`eventually`](Self::eventually).
    ///
    /// # Panics
    ///
    /// If the state is not reached in time.
    #[track_caller]
    pub fn within(
        &self,
        limit: Duration,
        what: &str,
        reached: impl AsyncFn() -> bool,
    ) -> impl Future<Output = ()> {
        let caller = Location::caller();
        async move {
            let polls = async {
                while !reached().await {
                    self.clock.sleep(INTERVAL).await;
                }
            };
            tokio::select! {
                biased;
                () = polls => {}
                () = self.clock.sleep(limit) => {
                    panic!("{caller}: not within {limit:?}: {what}{}", self.log.describe())
                }
            }
        }
    }
}

impl fmt::Debug for TestEnv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestEnv")
            .field("server", &self.server)
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

//! Where clients come from.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use kcm_clock::Clock;
use kube_client::{
    Client,
    client::{Body, ClientBuilder},
};
use tower::{BoxError, Service};

use crate::{
    agent::UserAgent,
    api_client::{ApiClient, Parts},
    limiter::{RateLimit, TokenBucket},
    metrics::{ClientMetrics, NoClientMetrics},
    service_account::ServiceAccounts,
    throttle::ThrottleLog,
    transport::{ClientConfigError, Lane, ProxyEnvironment, Server, Transport},
    write_gate::WriteGate,
};

/// What all clients of a process have in common.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// How they introduce themselves.
    pub agent: UserAgent,
    /// How long a request that is no watch may take, from being sent to the end of the answer.
    pub timeout: Duration,
    /// Where they get the time from.
    pub clock: Arc<dyn Clock>,
    /// Who is told what they do.
    pub metrics: Arc<dyn ClientMetrics>,
    /// Proxy settings of the environment. None by default.
    pub proxy: ProxyEnvironment,
}

impl ClientOptions {
    /// As long as the API server itself gives a request.
    const TIMEOUT: Duration = Duration::from_secs(60);

    /// Options for everyday use: a minute for a request, nobody watching.
    pub fn new(agent: UserAgent, clock: Arc<dyn Clock>) -> Self {
        Self {
            agent,
            timeout: Self::TIMEOUT,
            clock,
            metrics: Arc::new(NoClientMetrics),
            proxy: ProxyEnvironment::default(),
        }
    }
}

/// Makes clients that share connections: some for requests, others for watches.
///
/// Upstream counterpart: `clientbuilder.SimpleControllerClientBuilder`. Cheap to clone.
#[derive(Clone)]
pub struct ClientFactory {
    server: Arc<str>,
    requests: Client,
    watches: Client,
    options: ClientOptions,
    throttle_log: Arc<ThrottleLog>,
    gate: WriteGate,
    /// Whether a request is sent again for which there is hope.
    repeats: bool,
    /// None in process.
    transport: Option<Arc<Transport>>,
    accounts: Option<ServiceAccounts>,
}

impl ClientFactory {
    /// Clients of the API server at `server`. Reads the configuration; makes no connection yet.
    ///
    /// # Errors
    ///
    /// When the configuration or a file that it names cannot be read or understood.
    pub async fn connect(server: Server, options: ClientOptions) -> Result<Self, ClientConfigError> {
        let transport = Transport::new(server, options.proxy.clone(), Arc::clone(&options.clock)).await?;
        Ok(Self {
            server: transport.address().into(),
            requests: transport.client(Lane::Requests),
            watches: transport.client(Lane::Watches),
            options,
            throttle_log: Arc::default(),
            gate: WriteGate::default(),
            repeats: true,
            transport: Some(transport),
            accounts: None,
        })
    }

    /// Clients of a service in this process: an embedded API server, or a test's imitation of one. No socket.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime: a task of it hands the requests on.
    pub fn in_process<S, B>(service: S, options: ClientOptions) -> Self
    where
        S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let client = ClientBuilder::new(service, "default").build();
        let gate = WriteGate::default();
        let (requests, watches) = (client.clone(), client);
        Self {
            server: "".into(),
            requests,
            watches,
            options,
            throttle_log: Arc::default(),
            gate,
            repeats: true,
            transport: None,
            accounts: None,
        }
    }

    /// The same, for [controllers' clients](Self::controller_client) that each act as a service account of their own
    /// name in `namespace`. Tokens are asked for by `client` when they are needed, and service accounts that are
    /// missing are created.
    ///
    /// Upstream counterpart: `clientbuilder.NewDynamicClientBuilder`.
    ///
    /// # Errors
    ///
    /// When the configuration cannot be read anymore.
    pub async fn with_service_accounts(
        &self,
        namespace: &str,
        client: ApiClient,
    ) -> Result<Self, ClientConfigError> {
        let (requests, watches) = match &self.transport {
            None => (self.requests.clone(), self.watches.clone()),
            Some(transport) => {
                let anonymous = transport.anonymous().await?;
                (anonymous.client(Lane::Requests), anonymous.client(Lane::Watches))
            }
        };
        let accounts = ServiceAccounts { namespace: namespace.into(), client, requests, watches };
        Ok(Self { accounts: Some(accounts), ..self.clone() })
    }

    /// Returns a factory of clients that write only while `remaining` returns more than zero. They read at any time, and
    /// share the connections of the other clients.
    ///
    /// `remaining` returns the time for which this process leads unless it renews its lease: `LeaderGate::remaining` of
    /// `kcm-leader-election`.
    ///
    /// The gate is checked after all waits of a write, and before each retry. A write that is in flight when the gate
    /// closes is cancelled, and the connections of such writes send no more bytes. Writes that are not sent or are
    /// cancelled fail with [`ApiError::NotLeading`](kcm_api::ApiError::NotLeading). A write that the API server has
    /// received may take effect nevertheless.
    #[must_use]
    pub fn gated(&self, remaining: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { gate: WriteGate::new(remaining), ..self.clone() }
    }

    /// Sends no more writes of [gated](Self::gated) clients, and waits for those under way. Whether all of them
    /// [have settled](Self::writes_have_settled).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops waiting; no more writes are sent all the same.
    pub async fn stop_writing(&self, within: Duration) -> bool {
        self.gate.stop(within, &*self.options.clock).await
    }

    /// Whether every write of [gated](Self::gated) clients so far has come to its end: there was an answer, or a failure
    /// to get one. It is not so while a write is under way, nor ever after somebody has stopped waiting for one: that
    /// may be carried out at any time.
    pub fn writes_have_settled(&self) -> bool {
        self.gate.has_settled()
    }

    /// The same connections for clients that wait this long for an answer.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        let mut this = self.clone();
        this.options.timeout = timeout;
        this
    }

    /// A client for the controller called `name`. If controllers have [service
    /// accounts](Self::with_service_accounts), it acts as the one of that name; otherwise it is as any other.
    pub fn controller_client(&self, name: &str, limit: RateLimit) -> ApiClient {
        let Some(accounts) = &self.accounts else { return self.client(name, limit) };
        let account = accounts.of(name);
        ApiClient::new(Parts {
            agent: self.options.agent.header(&account.user()),
            requests: accounts.requests.clone(),
            watches: accounts.watches.clone(),
            account: Some(account),
            ..self.parts(name, limit)
        })
    }

    /// The same server for the clients of an election. Their requests and watches share connections with no other client,
    /// so that a renewal waits for no other request.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    #[must_use]
    pub fn for_election(&self) -> Self {
        let mut this = self.clone();
        if let Some(transport) = &self.transport {
            let client = transport.client(Lane::Election);
            (this.requests, this.watches) = (client.clone(), client);
        }
        this
    }

    /// The same connections for clients that send nothing twice: for those who try again themselves, at a pace of their
    /// own, and want to know each time why.
    #[must_use]
    pub fn without_repetition(&self) -> Self {
        Self { repeats: false, ..self.clone() }
    }

    /// A client of its own name and rate limit. Events of a controller go through the same client, so that they
    /// share its limit (US-1.3).
    pub fn client(&self, name: &str, limit: RateLimit) -> ApiClient {
        ApiClient::new(self.parts(name, limit))
    }

    fn parts(&self, name: &str, limit: RateLimit) -> Parts {
        Parts {
            name: name.to_owned(),
            agent: self.options.agent.header(name),
            server: Arc::clone(&self.server),
            requests: self.requests.clone(),
            watches: self.watches.clone(),
            bucket: TokenBucket::new(limit, Arc::clone(&self.options.clock)),
            throttle_log: Arc::clone(&self.throttle_log),
            clock: Arc::clone(&self.options.clock),
            timeout: self.options.timeout,
            metrics: Arc::clone(&self.options.metrics),
            gate: self.gate.clone(),
            repeats: self.repeats,
            account: None,
        }
    }

    /// Where requests go, such as `https://10.0.0.1:6443`; empty in process.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// What the clients have in common.
    pub fn options(&self) -> &ClientOptions {
        &self.options
    }
}

/// An API server in this process: any service of HTTP requests that [`ClientFactory::in_process`] can talk to, for
/// those who need not know that it is one.
pub trait InProcessServer {
    /// Clients of it.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    fn clients(self, options: ClientOptions) -> ClientFactory;
}

impl<S, B> InProcessServer for S
where
    S: Service<Request<Body>, Response = Response<B>> + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<BoxError>,
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    fn clients(self, options: ClientOptions) -> ClientFactory {
        ClientFactory::in_process(self, options)
    }
}

impl fmt::Debug for ClientFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientFactory").field("server", &self.server).finish_non_exhaustive()
    }
}

//! Factory of clients that share connections.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::BodyExt;
use kcm_clock::Clock;
use tower::{BoxError, Service, ServiceExt, util::BoxCloneSyncService};

use crate::{
    Body,
    agent::UserAgent,
    api_client::{ApiClient, Parts},
    limiter::{RateLimit, RateLimiter},
    metrics::{ClientMetrics, NoClientMetrics},
    request::ContentType,
    service_account::ServiceAccounts,
    throttle::ThrottleLog,
    transport::{Channel, ClientConfigError, Lane, ProxyEnvironment, Server, Transport},
    write_gate::WriteGate,
};

/// Options of all clients of a factory.
#[derive(Debug, Clone)]
pub struct ClientOptions {
    /// User agent.
    pub agent: UserAgent,
    /// Timeout of a request that is not a watch, from sending it to the end of the response. Default: none, as upstream. The
    /// API server has its own (kube-apiserver: `--request-timeout`), and dead connections are detected within 45 s.
    pub timeout: Option<Duration>,
    /// Clock for rate limits, timeouts and retries.
    pub clock: Arc<dyn Clock>,
    /// Metrics. None by default.
    pub metrics: Arc<dyn ClientMetrics>,
    /// Proxy settings of the environment. None by default.
    pub proxy: ProxyEnvironment,
    /// Encoding of objects. Default: JSON.
    pub content_type: ContentType,
}

impl ClientOptions {
    /// Creates options without a timeout, metrics and proxies.
    pub fn new(agent: UserAgent, clock: Arc<dyn Clock>) -> Self {
        Self {
            agent,
            timeout: None,
            clock,
            metrics: Arc::new(NoClientMetrics),
            proxy: ProxyEnvironment::default(),
            content_type: ContentType::default(),
        }
    }
}

/// Creates clients that share connections. Requests and watches use different connections. Cheap to clone.
///
/// Upstream counterpart: `clientbuilder.SimpleControllerClientBuilder`.
#[derive(Clone)]
pub struct ClientFactory {
    server: Arc<str>,
    requests: Channel,
    watches: Channel,
    options: ClientOptions,
    throttle_log: Arc<ThrottleLog>,
    gate: WriteGate,
    /// If `true`, requests are retried.
    retries: bool,
    /// `None` for a service in this process.
    transport: Option<Arc<Transport>>,
    accounts: Option<ServiceAccounts>,
}

impl ClientFactory {
    /// Creates a factory of clients of the API server at `server`. Reads the configuration, but opens no connection.
    ///
    /// ```
    /// use std::sync::Arc;
    ///
    /// use kcm_client::{ClientFactory, ClientOptions, Server, UserAgent};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let agent = UserAgent::new("example-operator", "v1.0.0", "");
    /// let options = ClientOptions::new(agent, Arc::new(kcm_clock::RealClock::new()));
    /// // Also: `Server::Kubeconfig` and `Server::InCluster`.
    /// let server = Server::Master("https://10.0.0.1:6443".to_owned());
    /// let factory = ClientFactory::connect(server, options).await?;
    /// assert_eq!(factory.server(), "https://10.0.0.1:6443");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the configuration or one of its files cannot be read or is invalid.
    pub async fn connect(server: Server, options: ClientOptions) -> Result<Self, ClientConfigError> {
        let transport = Transport::new(server, options.proxy.clone(), Arc::clone(&options.clock)).await?;
        Ok(Self {
            server: transport.address().into(),
            requests: Channel::Server(Arc::clone(&transport), Lane::Requests),
            watches: Channel::Server(Arc::clone(&transport), Lane::Watches),
            options,
            throttle_log: Arc::default(),
            gate: WriteGate::default(),
            retries: true,
            transport: Some(transport),
            accounts: None,
        })
    }

    /// Creates a factory of clients of a service in this process, such as an embedded API server or a test server. See the
    /// [example of the crate](crate). An [`ApiError`](kcm_api::ApiError) of the service is that of the request.
    pub fn in_process<S, B>(service: S, options: ClientOptions) -> Self
    where
        S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send + 'static,
        S::Error: Into<BoxError>,
        B: http_body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let service = service.map_err(Into::into);
        let boxed = |body: B| body.map_err(Into::into).boxed_unsync();
        let service = service.map_response(move |answer: Response<B>| answer.map(boxed));
        let channel = Channel::InProcess(BoxCloneSyncService::new(service));
        Self {
            server: "".into(),
            requests: channel.clone(),
            watches: channel,
            options,
            throttle_log: Arc::default(),
            gate: WriteGate::default(),
            retries: true,
            transport: None,
            accounts: None,
        }
    }

    /// Returns a factory whose [controller clients](Self::controller_client) authenticate as service accounts of
    /// their names in `namespace`. `client` requests their tokens, and creates missing service accounts.
    ///
    /// Upstream counterpart: `clientbuilder.NewDynamicClientBuilder`.
    ///
    /// # Errors
    ///
    /// If the configuration cannot be read any more.
    pub async fn with_service_accounts(
        &self,
        namespace: &str,
        client: ApiClient,
    ) -> Result<Self, ClientConfigError> {
        let (requests, watches) = match &self.transport {
            None => (self.requests.clone(), self.watches.clone()),
            Some(transport) => {
                let anonymous = transport.anonymous().await?;
                let requests = Channel::Server(Arc::clone(&anonymous), Lane::Requests);
                (requests, Channel::Server(anonymous, Lane::Watches))
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
    /// ```
    /// use std::{sync::Arc, time::Duration};
    ///
    /// use kcm_client::{ClientFactory, ClientOptions, RateLimit, Request, UserAgent};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let server = kcm_apiserver::ApiServer::new(kcm_apiserver::ApiServerConfig::default());
    /// # let agent = UserAgent::new("example-operator", "v1.0.0", "");
    /// # let options = ClientOptions::new(agent, Arc::new(kcm_clock::RealClock::new()));
    /// # let factory = ClientFactory::in_process(server.service(), options);
    /// // This process does not lead.
    /// let client = factory.gated(|| Duration::ZERO).client("example-controller", RateLimit::DEFAULT);
    /// assert!(client.send(&Request::get("/version")).await.is_ok());
    /// assert!(client.send(&Request::post("/api/v1/namespaces", "{}")).await.unwrap_err().is_not_leading());
    /// # }
    /// ```
    ///
    /// The gate is checked after all waits of a write, and before each retry. A write that is in flight when the gate
    /// closes is cancelled, and the connections of such writes send no more bytes. Writes that are not sent or are
    /// cancelled fail with [`ApiError::NotLeading`](kcm_api::ApiError::NotLeading). A write that the API server has
    /// received may take effect nevertheless.
    #[must_use]
    pub fn gated(&self, remaining: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        Self { gate: WriteGate::new(remaining), ..self.clone() }
    }

    /// Stops the writes of [gated](Self::gated) clients and waits for those in flight, at most for `within`. Returns
    /// `true` if all [have settled](Self::writes_have_settled).
    ///
    /// # Cancel safety
    ///
    /// Dropping the future stops waiting. The writes remain stopped.
    pub async fn stop_writing(&self, within: Duration) -> bool {
        self.gate.stop(within, &*self.options.clock).await
    }

    /// `true` if every write of [gated](Self::gated) clients got a response or failed. `false` while a write is in
    /// flight, and forever after the future of a write was dropped: such a write may take effect at any time.
    pub fn writes_have_settled(&self) -> bool {
        self.gate.has_settled()
    }

    /// Returns a factory of clients with a timeout for each request. They share the connections.
    #[must_use]
    pub fn with_timeout(&self, timeout: Duration) -> Self {
        let mut this = self.clone();
        this.options.timeout = Some(timeout);
        this
    }

    /// Creates the client of the controller `name`. With [service accounts](Self::with_service_accounts), it
    /// authenticates as the one of that name; otherwise it is the same as [`client`](Self::client).
    pub fn controller_client(&self, name: &str, limit: RateLimit) -> ApiClient {
        let Some(accounts) = &self.accounts else { return self.client(name, limit) };
        let account = accounts.of(name);
        ApiClient::new(Parts {
            agent: self.options.agent.header(&account.user()),
            requests: accounts.requests.clone(),
            watches: accounts.watches.clone(),
            authenticator: Some(account),
            ..self.parts(name, limit)
        })
    }

    /// Returns a factory for the clients of leader election. They share no connection with other clients, so a
    /// renewal does not wait for other requests. After a request that is given up, as by a [timeout](Self::with_timeout),
    /// they use a new connection.
    ///
    /// They read credential files and run exec plugins themselves, too. Their requests can be sent on a thread with
    /// another runtime, and then do not wait for the thread of the other clients.
    #[must_use]
    pub fn for_election(&self) -> Self {
        let mut this = self.clone();
        if let Some(transport) = &self.transport {
            let transport = transport.separate();
            let channel = Channel::Server(Arc::clone(&transport), Lane::Election);
            (this.requests, this.watches) = (channel.clone(), channel);
            this.transport = Some(transport);
        }
        this
    }

    /// Returns a factory of clients that do not retry, for callers that retry themselves.
    #[must_use]
    pub fn without_retries(&self) -> Self {
        Self { retries: false, ..self.clone() }
    }

    /// Returns a factory of clients whose rate limits, timeouts and retries are measured by `clock`.
    #[must_use]
    pub fn with_clock(&self, clock: Arc<dyn Clock>) -> Self {
        let mut this = self.clone();
        this.options.clock = clock;
        this
    }

    /// Creates a client with a name and a rate limit. A controller's events use the same client, so that they share
    /// the rate limit (US-1.3).
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
            rate_limiter: RateLimiter::new(limit, Arc::clone(&self.options.clock)),
            throttle_log: Arc::clone(&self.throttle_log),
            clock: Arc::clone(&self.options.clock),
            timeout: self.options.timeout,
            metrics: Arc::clone(&self.options.metrics),
            gate: self.gate.clone(),
            retries: self.retries,
            content_type: self.options.content_type,
            authenticator: None,
        }
    }

    /// Returns the address of the API server, such as `https://10.0.0.1:6443`. Empty for a service in this process.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Returns the options of the clients.
    pub fn options(&self) -> &ClientOptions {
        &self.options
    }
}

/// Service that [`ClientFactory::in_process`] accepts. Lets callers take it without its type parameters.
pub trait InProcessServer {
    /// Creates a factory of its clients.
    fn clients(self, options: ClientOptions) -> ClientFactory;
}

impl<S, B> InProcessServer for S
where
    S: Service<Request<Body>, Response = Response<B>> + Clone + Send + Sync + 'static,
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

//! Standing for election, as the flags say.

use std::{convert::Infallible, future::pending, sync::Arc, time::Duration};

use kcm_api::ObjectKey;
use kcm_client::{ApiClient, RateLimit};
use kcm_events::EventBroadcaster;
use kcm_leader_election::{
    ElectionConfigError, ElectionOutcome, ElectionStatus, LeaderElectionConfig, LeaderElector, LeaderGate,
    identity,
};
use tokio_util::sync::CancellationToken;

use crate::{
    Dependencies, LeaderElectionSettings,
    adapters::{EventClient, LeaseClient},
    version::BINARY,
};

/// The name of the client that holds the lease (US-1.3).
const CLIENT: &str = "leader-election";

/// How long the end of a manager waits for what it has to say on the Lease.
const LAST_EVENTS: Duration = Duration::from_secs(1);

/// A candidate with a client of its own. A renewal shares neither its connection nor its rate limit with other requests.
pub(crate) struct Election {
    elector: LeaderElector,
    client: ApiClient,
    lease: ObjectKey,
    events: EventBroadcaster,
}

impl Election {
    /// A candidate of an identity that nobody else has, on the machine called `host`. It does nothing yet.
    ///
    /// # Errors
    ///
    /// When an election with these `settings` would not work.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub(crate) fn new(
        settings: &LeaderElectionSettings,
        host: &str,
        limit: RateLimit,
        dependencies: &Dependencies,
    ) -> Result<Self, ElectionConfigError> {
        let Dependencies { clients, clock, random, metrics, .. } = dependencies;
        let lease = ObjectKey::new(&*settings.resource_namespace, &*settings.resource_name);
        // As upstream's event client: by a client that need not lead.
        let sink = Arc::new(EventClient::new(clients.client(BINARY, limit)));
        let events = EventBroadcaster::start(sink, Arc::clone(clock), Arc::clone(random));
        let client = clients.client(CLIENT, limit);
        let mut config = LeaderElectionConfig {
            unique_identity: true,
            lease_duration: settings.lease_duration,
            renew_deadline: settings.renew_deadline,
            retry_period: settings.retry_period,
            release_on_cancel: settings.release_on_cancel,
            recorder: Some(events.recorder(BINARY)),
            ..LeaderElectionConfig::new(
                lease.clone(),
                identity(host, &**random),
                Arc::new(LeaseClient::new(client)),
                Arc::clone(clock),
                Arc::clone(random),
            )
        };
        if let Some(metrics) = metrics {
            config.metrics = metrics.election();
        }
        // DEVIATION: upstream's client waits as long as a server under load asks it to, and the lease may run out
        // meanwhile; nor does the log say what the server said. The pace of the election harms no server.
        let clients = clients.for_election().with_timeout(config.request_timeout()).without_repetition();
        let client = clients.client(CLIENT, limit);
        config.lock = Arc::new(LeaseClient::new(client.clone()));
        let elector = LeaderElector::new(config)?;
        if let Some(metrics) = metrics {
            metrics.leader_gate(&settings.resource_name, elector.gate());
        }
        Ok(Self { elector, client, lease, events })
    }

    /// Open while this process leads.
    pub(crate) fn gate(&self) -> LeaderGate {
        self.elector.gate()
    }

    /// What the health check asks.
    pub(crate) fn status(&self) -> ElectionStatus {
        self.elector.status()
    }

    /// Stands by until elected, then leads until that is done or the lease is lost. See [`LeaderElector::run`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the leadership at once, and the Lease is not given back.
    pub(crate) async fn run<F, Fut>(self, cancel: &CancellationToken, lead: F) -> ElectionOutcome<Fut::Output>
    where
        F: FnOnce() -> Fut,
        Fut: Future,
    {
        let Self { mut elector, client, lease, events } = self;
        let (trigger, elected) = (elector.acquire_trigger(), CancellationToken::new());
        // A leader knows without a watch, and its renewals would come back as events for nothing.
        let follow = async {
            let watch = client.watch_lease(&lease, |lease| trigger.lease_changed(lease));
            elected.run_until_cancelled(watch).await;
            pending::<Infallible>().await
        };
        let run = elector.run(cancel, |_| {
            elected.cancel();
            lead()
        });
        let outcome = tokio::select! {
            biased;
            outcome = run => outcome,
            never = follow => match never {},
        };
        // Who has lost the lease has nothing more to say.
        let within = if matches!(outcome, ElectionOutcome::Lost(_)) { Duration::ZERO } else { LAST_EVENTS };
        events.shutdown(within).await;
        outcome
    }
}

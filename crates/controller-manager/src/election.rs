//! Leader election of a manager.

use std::{convert::Infallible, future::pending, sync::Arc, time::Duration};

use kcm_api::{Lease, ObjectKey};
use kcm_client::{Api, RateLimit};
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

/// Name of the client of the Lease (US-1.3).
const CLIENT: &str = "leader-election";

/// Time to write queued events about the Lease at shutdown.
const EVENT_TIMEOUT: Duration = Duration::from_secs(1);

/// Leader elector with a separate client: renewals share neither connections nor a rate limit with other requests.
pub(crate) struct Election {
    elector: LeaderElector,
    leases: Api<Lease>,
    lease: ObjectKey,
    events: EventBroadcaster,
}

impl Election {
    /// Creates a candidate with a unique identity that begins with `host`. [`run`](Self::run) starts it.
    ///
    /// # Errors
    ///
    /// If `settings` are invalid.
    ///
    /// # Panics
    ///
    /// Outside of a Tokio runtime.
    pub(crate) fn new(
        settings: &LeaderElectionSettings,
        host: &str,
        limit: RateLimit,
        dependencies: &Dependencies,
    ) -> Result<Self, ElectionConfigError> {
        let Dependencies { clients, clock, random, metrics, .. } = dependencies;
        let lease = ObjectKey::new(&*settings.resource_namespace, &*settings.resource_name);
        // As upstream: events use a client that can write without being the leader.
        let sink = Arc::new(EventClient::new(&clients.client(BINARY, limit)));
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
                Arc::new(LeaseClient::new(&client)),
                Arc::clone(clock),
                Arc::clone(random),
            )
        };
        if let Some(metrics) = metrics {
            config.metrics = metrics.election();
        }
        // DEVIATION: upstream's client obeys `Retry-After`, during which the lease may expire, and does not log the
        // response. The retry period limits the load on the API server.
        let clients = clients.for_election().with_timeout(config.request_timeout()).without_retries();
        let client = clients.client(CLIENT, limit);
        config.lock = Arc::new(LeaseClient::new(&client));
        let elector = LeaderElector::new(config)?;
        if let Some(metrics) = metrics {
            metrics.leader_gate(&settings.resource_name, elector.gate());
        }
        Ok(Self { elector, leases: client.api(), lease, events })
    }

    /// Gate that is open while this process is the leader.
    pub(crate) fn gate(&self) -> LeaderGate {
        self.elector.gate()
    }

    /// Status for the health check.
    pub(crate) fn status(&self) -> ElectionStatus {
        self.elector.status()
    }

    /// Waits until elected, then runs `lead` until it returns or the lease is lost. See [`LeaderElector::run`].
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the leadership. The Lease is not released.
    pub(crate) async fn run<F, Fut>(self, cancel: &CancellationToken, lead: F) -> ElectionOutcome<Fut::Output>
    where
        F: FnOnce() -> Fut,
        Fut: Future,
    {
        let Self { mut elector, leases, lease, events } = self;
        let (trigger, elected) = (elector.acquire_trigger(), CancellationToken::new());
        // A leader does not watch the Lease: every event would be its renewal.
        let follow = async {
            let watch = leases.watch_object(&lease, |lease| trigger.lease_changed(lease));
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
        // After a lost lease, queued events are dropped.
        let timeout =
            if matches!(outcome, ElectionOutcome::Lost(_)) { Duration::ZERO } else { EVENT_TIMEOUT };
        events.shutdown(timeout).await;
        outcome
    }
}

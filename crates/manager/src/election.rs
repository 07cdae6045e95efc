//! Leader election of a manager.

use std::{convert::Infallible, future::pending, sync::Arc, time::Duration};

use kcm_api::{Lease, ObjectKey};
use kcm_client::{Api, EventClient, LeaseClient};
use kcm_events::EventBroadcaster;
use kcm_leader_election::{
    ElectionConfigError, ElectionOutcome, ElectionStatus, LeaderElectionConfig, LeaderElector, LeaderGate,
    identity,
};
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::{Dependencies, LeaderElectionSettings, Placement, RunError, Settings};

/// Name of the client of the Lease (US-1.3).
const CLIENT: &str = "leader-election";

/// Name of the thread of the election.
const THREAD: &str = "leader-election";

/// Time to write queued events about the Lease at shutdown.
const EVENT_TIMEOUT: Duration = Duration::from_secs(1);

/// Leader elector with a separate client: renewals share neither connections nor a rate limit with other requests.
///
/// Renewals depend on nothing that runs on the thread of the controllers: the client has its own connections and
/// credentials, and events are only queued. Their writer runs on the thread of the controllers.
pub(crate) struct Election {
    candidate: Candidate,
    events: EventBroadcaster,
    placement: Placement,
}

/// Part of an election that runs on its thread.
struct Candidate {
    elector: LeaderElector,
    leases: Api<Lease>,
    lease: ObjectKey,
}

impl Election {
    /// Creates a candidate with a unique identity that begins with the host. [`run`](Self::run) starts it.
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
        of: &Settings,
        dependencies: &Dependencies,
    ) -> Result<Self, ElectionConfigError> {
        let limit = of.rate_limit;
        let Dependencies { clients, clock, random, metrics, placement, .. } = dependencies;
        let lease = ObjectKey::new(&*settings.resource_namespace, &*settings.resource_name);
        // As upstream: events use a client that can write without being the leader.
        let sink = Arc::new(EventClient::new(&clients.client(of.name, limit)));
        let events = EventBroadcaster::start(sink, Arc::clone(clock), Arc::clone(random));
        let client = clients.client(CLIENT, limit);
        let mut config = LeaderElectionConfig {
            unique_identity: true,
            lease_duration: settings.lease_duration,
            renew_deadline: settings.renew_deadline,
            retry_period: settings.retry_period,
            release_on_cancel: settings.release_on_cancel,
            recorder: Some(events.recorder(of.name)),
            ..LeaderElectionConfig::new(
                lease.clone(),
                identity(&of.host, &**random),
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
            metrics.leader_gate(&settings.resource_name, elector.gate(), of.unserved.len());
        }
        let candidate = Candidate { elector, leases: client.api(), lease };
        Ok(Self { candidate, events, placement: *placement })
    }

    /// Gate that is open while this process is the leader.
    pub(crate) fn gate(&self) -> LeaderGate {
        self.candidate.elector.gate()
    }

    /// Notified when the API server's storage was restored from a backup.
    pub(crate) fn restored(&self) -> Arc<Notify> {
        self.candidate.elector.restored()
    }

    /// Status for the health check.
    pub(crate) fn status(&self) -> ElectionStatus {
        self.candidate.elector.status()
    }

    /// Waits until elected, cancels `elected`, and leads until `finished` is sent or the lease is lost. See
    /// [`LeaderElector::run`].
    ///
    /// # Errors
    ///
    /// If the thread of the election cannot be started.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future ends the leadership. The Lease is not released.
    pub(crate) async fn run(
        self,
        cancel: CancellationToken,
        elected: CancellationToken,
        finished: oneshot::Receiver<()>,
    ) -> Result<ElectionOutcome<()>, RunError> {
        let Self { candidate, events, placement } = self;
        let outcome = placement
            .start(THREAD, candidate.run(cancel, elected, finished))
            .map_err(|cause| RunError::Thread { name: THREAD, cause })?
            .await;
        // After a lost lease, queued events are dropped.
        let timeout =
            if matches!(outcome, ElectionOutcome::Lost(_)) { Duration::ZERO } else { EVENT_TIMEOUT };
        events.shutdown(timeout).await;
        Ok(outcome)
    }
}

impl Candidate {
    async fn run(
        self,
        cancel: CancellationToken,
        elected: CancellationToken,
        finished: oneshot::Receiver<()>,
    ) -> ElectionOutcome<()> {
        let Self { mut elector, leases, lease } = self;
        let trigger = elector.acquire_trigger();
        // A leader does not watch the Lease: every event would be its renewal.
        let follow = async {
            let watch = leases.watch_object(&lease, |lease| trigger.lease_changed(lease));
            elected.run_until_cancelled(watch).await;
            pending::<Infallible>().await
        };
        let lead = |_| async {
            elected.cancel();
            // The sender is dropped without a signal when the election must end without a release.
            if finished.await.is_err() {
                pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            outcome = elector.run(&cancel, lead) => outcome,
            never = follow => match never {},
        }
    }
}

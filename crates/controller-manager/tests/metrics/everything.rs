//! Metrics of a manager after each event has occurred once.

use std::{sync::Arc, time::Duration};

use http::Method;
use kcm_api::{ApiError, Deployment, Pod, PodDecoder};
use kcm_client::{PriorityLevel, RequestInfo};
use kcm_clock::{FakeClock, SeededRandom, Timestamp};
use kcm_controller_manager::Metrics;
use kcm_informer::{Indexers, ListWatchError, ListWatchErrorKind, StoreWriter};
use kcm_leader_election::{LeaderElectionConfig, LeaderElector, MemoryLock};
use kcm_metrics::{BuildInfo, HealthStatus, MetricsOptions};
use kcm_runtime::{GroupResource, SyncResult};
use kcm_workqueue::{QueueConfig, RateLimitingQueue};
use serde_json::json;

pub(crate) const SERVER: &str = "https://10.0.0.1:6443";

pub(crate) fn clock() -> FakeClock {
    FakeClock::new(Timestamp::UNIX_EPOCH)
}

pub(crate) fn metrics(clock: &FakeClock) -> Metrics {
    Metrics::new(&MetricsOptions::default(), Arc::new(clock.clone()), &BuildInfo::default()).unwrap()
}

pub(crate) fn request<'a>(method: &'a Method, path: &'a str) -> RequestInfo<'a> {
    RequestInfo {
        client: "deployment-controller",
        server: SERVER,
        method,
        path,
        attempt: 1,
        watch: false,
        priority_level: PriorityLevel::default(),
    }
}

pub(crate) fn pod(name: &str) -> Pod {
    let json = json!({
        "metadata": {
            "name": name, "namespace": "default", "uid": format!("uid-of-{name}"), "resourceVersion": "12345",
            "labels": {"app": "web", "pod-template-hash": "5f7c9d8b6"},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5f7c9d8b6", "controller": true,
                "uid": "0b1c2d3e-0000-4000-8000-000000000000",
            }],
        },
        "spec": {"nodeName": "node-1"},
        "status": {"phase": "Running"},
    });
    PodDecoder::default().decode(&json.to_string()).unwrap()
}

/// Metrics with at least one time series each.
pub(crate) fn after_everything() -> Metrics {
    let clock = clock();
    let metrics = metrics(&clock);
    let second = Duration::from_secs(1);

    let mut config = QueueConfig::new("deployment", Arc::new(clock.clone()) as _);
    config.metrics = metrics.queues();
    let queue = RateLimitingQueue::new(config);
    queue.add("default/web");

    let informers = metrics.informers();
    for informer in ["pods", "deployments"] {
        informers.store_changed(informer, 3, "42");
        informers.listed(informer, false);
        informers.listed(informer, true);
        informers.watch_started(informer);
        informers.watch_ended(informer, second / 2, 0);
        informers.processed(informer, second / 100);
        informers.undecodable(informer);
        let refused = ApiError::Transport("connection refused".into());
        informers.request_failed(informer, &ListWatchError::new(ListWatchErrorKind::Connection, refused));
        let expired = ApiError::status(410, "Expired", "too old resource version");
        informers.request_failed(informer, &ListWatchError::new(ListWatchErrorKind::Expired, expired));
    }
    let mut writer = StoreWriter::new(Indexers::new());
    writer.apply(Arc::new(pod("web-1")));
    metrics.cache("pods", writer.reader());

    let clients = metrics.clients();
    let path = "/apis/apps/v1/namespaces/default/deployments/web/status";
    let put = request(&Method::PUT, path);
    clients.throttled(put, Duration::ZERO);
    clients.sent(put, 700);
    clients.answered(put, Some(500), second);
    clients.answered(RequestInfo { attempt: 2, ..put }, None, second);
    clients.denied(put);
    clients.received(put, 900);
    clients.finished(put, 2 * second);

    let elector = LeaderElector::new(LeaderElectionConfig {
        metrics: metrics.election(),
        ..LeaderElectionConfig::new(
            kcm_api::ObjectKey::new("kube-system", "kube-controller-manager"),
            "node-a".to_owned(),
            Arc::new(MemoryLock::new()),
            Arc::new(clock.clone()),
            Arc::new(SeededRandom::new(1)),
        )
    });
    metrics.leader_gate("kube-controller-manager", elector.unwrap().gate(), 1);
    let election = metrics.election();
    election.slow_path("kube-controller-manager");
    election.new_leader("kube-controller-manager", "node-b");
    election.identity_shared("kube-controller-manager");

    let syncs = metrics.syncs("deployment-controller");
    for result in SyncResult::ALL {
        syncs.started();
        syncs.ended(second / 100, result);
    }
    syncs.started();
    metrics.controller_running("deployment-controller", true);
    metrics.replica_sets().sorting_deletion_age_ratio(1.5);
    metrics.replica_sets().stale_sync_skip(GroupResource::PODS);
    let mut paused = Deployment::default();
    paused.spec.paused = true;
    metrics.rollouts().on_add(&Arc::new(paused), true);

    metrics.features([("AllAlpha", "ALPHA", false), ("LogarithmicScaleDown", "", true)]);
    metrics.health_check("leaderElection", "healthz", HealthStatus::Success);
    metrics.health_check("deployment-controller", "healthz", HealthStatus::Error);
    metrics
}

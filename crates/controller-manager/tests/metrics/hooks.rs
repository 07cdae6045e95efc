//! Metrics after events of queues, clients, caches and syncs.

use std::{sync::Arc, time::Duration};

use http::Method;
use kcm_client::RequestInfo;
use kcm_controller_manager::Metrics;
use kcm_metrics::{BuildInfo, MetricsOptions};
use kcm_runtime::SyncResult;
use kcm_testkit::lint;
use kcm_workqueue::{QueueConfig, RateLimitingQueue};

use crate::everything::{after_everything, clock, metrics, request};

/// Value of a time series.
pub(crate) fn value(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[track_caller]
fn assert_values(text: &str, expected: &[(&str, f64)]) {
    for (series, expected) in expected {
        assert_eq!(value(text, series), Some(*expected), "{series} in\n{text}");
    }
}

#[test]
fn exposition_passes_the_lint() {
    let metrics = after_everything();
    assert_eq!(lint(&metrics.text()), []);
    assert_eq!(lint(&metrics.slis_text()), []);
    // A scrape does not change the values.
    let stable = |text: String| -> String {
        text.lines().filter(|line| !line.contains("process_")).map(|line| format!("{line}\n")).collect()
    };
    assert_eq!(stable(metrics.text()), stable(metrics.text()));
}

#[tokio::test]
async fn queue_exports_depth_and_durations() {
    let clock = clock();
    let metrics = metrics(&clock);
    let mut config = QueueConfig::new("deployment", Arc::new(clock.clone()) as _);
    config.metrics = metrics.queues();
    let queue = RateLimitingQueue::new(config);
    for item in ["a", "b", "a"] {
        queue.add(item);
    }
    clock.step(Duration::from_millis(5));
    let taken = queue.get().await.unwrap();
    clock.step(Duration::from_secs(2));
    assert_values(
        &metrics.text(),
        &[
            ("workqueue_adds_total{name=\"deployment\"}", 2.0),
            ("workqueue_depth{name=\"deployment\"}", 1.0),
            ("workqueue_unfinished_work_seconds{name=\"deployment\"}", 2.0),
            ("workqueue_longest_running_processor_seconds{name=\"deployment\"}", 2.0),
            ("workqueue_queue_duration_seconds_bucket{name=\"deployment\",le=\"0.001\"}", 0.0),
            ("workqueue_queue_duration_seconds_bucket{name=\"deployment\",le=\"0.01\"}", 1.0),
            ("workqueue_work_duration_seconds_count{name=\"deployment\"}", 0.0),
        ],
    );
    drop(taken);
    queue.add_rate_limited("c");
    assert_values(
        &metrics.text(),
        &[
            ("workqueue_unfinished_work_seconds{name=\"deployment\"}", 0.0),
            ("workqueue_work_duration_seconds_sum{name=\"deployment\"}", 2.0),
            ("workqueue_retries_total{name=\"deployment\"}", 1.0),
        ],
    );
    // The time series of a dropped queue stay.
    drop(queue);
    assert_values(&metrics.text(), &[("workqueue_adds_total{name=\"deployment\"}", 2.0)]);
}

#[test]
fn writes_are_counted_by_resource_and_verb() {
    let metrics = metrics(&clock());
    let clients = metrics.clients();
    let pods = "/api/v1/namespaces/default/pods";
    clients.answered(request(&Method::POST, pods), Some(201), Duration::ZERO);
    clients.answered(request(&Method::POST, pods), Some(201), Duration::ZERO);
    clients.answered(request(&Method::GET, pods), Some(200), Duration::ZERO);
    let again = RequestInfo { attempt: 2, ..request(&Method::DELETE, "/api/v1/namespaces/default/pods/a") };
    clients.answered(again, Some(404), Duration::ZERO);
    let text = metrics.text();
    let writes = |verb, code| {
        format!(
            "kcm_client_writes_total{{client=\"deployment-controller\",code=\"{code}\",resource=\"pods\",\
             subresource=\"\",verb=\"{verb}\"}}"
        )
    };
    let requests = |code, method| {
        format!("rest_client_requests_total{{code=\"{code}\",host=\"10.0.0.1:6443\",method=\"{method}\"}}")
    };
    assert_values(
        &text,
        &[
            (&writes("create", "201"), 2.0),
            (&writes("delete", "404"), 1.0),
            (&requests("201", "POST"), 2.0),
            (&requests("200", "GET"), 1.0),
            ("rest_client_request_retries_total{code=\"404\",host=\"10.0.0.1:6443\",verb=\"DELETE\"}", 1.0),
        ],
    );
    assert!(!text.contains("verb=\"get\""), "reads are not counted");
}

#[test]
fn denied_requests_are_counted_by_verb() {
    let metrics = metrics(&clock());
    let clients = metrics.clients();
    let lease = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x";
    clients.denied(request(&Method::GET, lease));
    clients.denied(RequestInfo { watch: true, ..request(&Method::GET, lease) });
    clients.denied(request(&Method::PUT, "/apis/apps/v1/namespaces/a/deployments/web/status"));
    let series = |resource, subresource, verb| {
        format!(
            "kcm_client_access_denied_total{{client=\"deployment-controller\",resource=\"{resource}\",\
             subresource=\"{subresource}\",verb=\"{verb}\"}}"
        )
    };
    assert_values(
        &metrics.text(),
        &[
            (&series("leases", "", "read"), 1.0),
            (&series("leases", "", "watch"), 1.0),
            (&series("deployments", "status", "update"), 1.0),
        ],
    );
}

#[test]
fn watches_are_counted_as_requests_without_durations() {
    let metrics = metrics(&clock());
    let clients = metrics.clients();
    let watch = RequestInfo { watch: true, ..request(&Method::GET, "/api/v1/pods") };
    clients.sent(watch, 0);
    clients.answered(watch, Some(200), Duration::from_secs(1));
    clients.received(watch, 100);
    let text = metrics.text();
    assert_values(
        &text,
        &[("rest_client_requests_total{code=\"200\",host=\"10.0.0.1:6443\",method=\"GET\"}", 1.0)],
    );
    assert!(!text.contains("_size_bytes"), "{text}");
}

#[test]
fn age_of_a_cache_increases_without_events() {
    let clock = clock();
    let metrics = metrics(&clock);
    metrics.informers().store_changed("pods", 7, "1234567890123456789");
    clock.step(Duration::from_secs(90));
    let upstream = "{group=\"\",name=\"kube-controller-manager\",resource=\"pods\",version=\"v1\"}";
    assert_values(
        &metrics.text(),
        &[
            ("kcm_cache_objects{resource=\"pods\"}", 7.0),
            ("kcm_cache_last_event_age_seconds{resource=\"pods\"}", 90.0),
            (&format!("informer_store_resource_version{upstream}"), 567_890_123_456_789.0),
            (&format!("informer_queued_items{upstream}"), 0.0),
        ],
    );
    metrics.informers().store_changed("pods", 7, "1234567890123456790");
    assert_values(&metrics.text(), &[("kcm_cache_last_event_age_seconds{resource=\"pods\"}", 0.0)]);
}

#[test]
fn syncs_are_counted_by_result_and_in_progress() {
    let metrics = metrics(&clock());
    let syncs = metrics.syncs("deployment-controller");
    for _ in 0..3 {
        syncs.started();
    }
    syncs.ended(Duration::from_millis(3), SyncResult::Success);
    syncs.ended(Duration::from_secs(1), SyncResult::Error);
    assert_values(
        &metrics.text(),
        &[
            ("kcm_syncs_in_flight{controller=\"deployment-controller\"}", 1.0),
            ("kcm_syncs_total{controller=\"deployment-controller\",result=\"success\"}", 1.0),
            ("kcm_syncs_total{controller=\"deployment-controller\",result=\"error\"}", 1.0),
            ("kcm_syncs_total{controller=\"deployment-controller\",result=\"dropped\"}", 0.0),
            ("kcm_sync_duration_seconds_bucket{controller=\"deployment-controller\",le=\"0.005\"}", 1.0),
            ("kcm_sync_duration_seconds_count{controller=\"deployment-controller\"}", 2.0),
        ],
    );
}

#[test]
fn options_are_validated_and_applied() {
    let new = |options: &MetricsOptions| Metrics::new(options, Arc::new(clock()), &BuildInfo::default());
    let options = MetricsOptions { show_hidden_for_version: Some("1.20".to_owned()), ..Default::default() };
    assert!(new(&options).is_err());

    let options = MetricsOptions {
        disabled: vec!["kcm_syncs_total".to_owned(), "unknown_metric".to_owned()],
        allowed_labels: vec![(
            "kcm_sync_duration_seconds".to_owned(),
            "controller".to_owned(),
            vec!["replicaset-controller".to_owned()],
        )],
        show_hidden_for_version: Some("1.35".to_owned()),
    };
    let metrics = new(&options).unwrap();
    metrics.syncs("deployment-controller").ended(Duration::ZERO, SyncResult::Success);
    let text = metrics.text();
    assert!(!text.contains("kcm_syncs_total"), "{text}");
    assert_values(
        &text,
        &[
            ("disabled_metrics_total", 2.0),
            ("cardinality_enforcement_unexpected_categorizations_total", 1.0),
            ("kcm_sync_duration_seconds_count{controller=\"unexpected\"}", 1.0),
        ],
    );
}

use kcm_clock::Timestamp;
use serde_json::json;

use super::*;

/// Ready pod, with times in seconds since the start of a day.
struct Pod {
    created: u32,
    started: u32,
    ready: u32,
    restarts: u8,
}

const DEFAULT: Pod = Pod { created: 0, started: 2, ready: 12, restarts: 0 };

fn at(seconds: u32) -> String {
    format!("2026-01-01T{:02}:{:02}:{:02}Z", seconds / 3600, seconds / 60 % 60, seconds % 60)
}

fn pod(pod: &Pod, set: &str) -> Value {
    json!({
        "metadata": {
            "creationTimestamp": at(pod.created), "ownerReferences": [{ "controller": true, "uid": set }],
        },
        "spec": { "containers": [{ "name": "app", "image": "web:1", "readinessProbe": {} }] },
        "status": {
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": at(pod.ready) }],
            "containerStatuses": [{
                "name": "app", "restartCount": pod.restarts, "state": { "running": { "startedAt": at(pod.started) } },
            }],
        },
    })
}

fn template(image: &str) -> Value {
    json!({ "metadata": {}, "spec": { "containers": [{ "name": "app", "image": image }] } })
}

/// Deployment with the ReplicaSets `old` and `new`. Its rollout was complete at this time.
fn snapshot(pods: Vec<Value>, completed: Option<u32>) -> Snapshot {
    let conditions: Vec<Value> = completed
        .map(|at_| {
            json!({
                "type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable", "lastUpdateTime": at(at_),
            })
        })
        .into_iter()
        .collect();
    let set = |uid: &str, revision: &str, image: &str| {
        json!({
            "metadata": {
                "uid": uid, "annotations": { REVISION: revision },
                "ownerReferences": [{ "controller": true, "uid": "d" }],
            },
            "spec": { "template": template(image) },
        })
    };
    Snapshot {
        taken: at(7200).parse::<Timestamp>().unwrap(),
        deployment: Some(json!({ "metadata": { "uid": "d" }, "status": { "conditions": conditions } })),
        replica_sets: vec![set("old", "1", "web:1"), set("new", "2", "web:2")],
        pods,
        ..Snapshot::default()
    }
}

/// Timings of a change to `image`.
fn resolve(snapshot: &Snapshot, image: &str) -> Timings {
    let after: Deployment =
        serde_json::from_value(json!({ "spec": { "template": template(image) } })).unwrap();
    Timings::resolve(&TimingOptions::default(), snapshot, &after)
}

fn assert_ready(timings: &Timings, seconds: f64, source: ReadyAfterSource) {
    assert!((timings.ready_after_seconds - seconds).abs() < 1e-9, "{timings:?}");
    assert_eq!(timings.ready_after_source, source, "{timings:?}");
}

fn assert_median(timings: &Timings, seconds: f64, age: TemplateAge) {
    assert_ready(timings, seconds, ReadyAfterSource::ExistingPods);
    assert_eq!(timings.ready_after_template, Some(age), "{timings:?}");
}

#[test]
fn median_of_pods_without_restarts() {
    let ready = [4, 20, 6];
    let mut pods: Vec<Value> =
        ready.iter().map(|ready| pod(&Pod { ready: *ready, ..DEFAULT }, "new")).collect();
    pods.push(pod(&Pod { ready: 7, restarts: 1, ..DEFAULT }, "new"));
    let timings = resolve(&snapshot(pods, None), "web:3");
    assert_median(&timings, 6.0, TemplateAge::Current);
    assert_eq!((timings.ready_after_pods, timings.ready_after_ignored), (3, 1));
    assert_eq!(timings.start_after_seconds, Some(2.0));
    assert_eq!(timings.stop_after_source, StopAfterSource::GracePeriod);
    assert_eq!(timings.stop_after(), Duration::from_secs(30));
}

/// The Ready condition changes again when a pod recovers.
#[test]
fn recovered_readiness_is_no_first_readiness() {
    let recovered = |ready| pod(&Pod { ready, ..DEFAULT }, "new");
    // One sibling is enough to show it.
    let pods = vec![recovered(1500), recovered(1501), pod(&DEFAULT, "new")];
    assert_median(&resolve(&snapshot(pods, None), "web:3"), 12.0, TemplateAge::Current);
    // So does the end of the rollout, at which all pods were available: it was 14 s after the last pod was created.
    let pods = vec![recovered(1500), pod(&Pod { created: 9, ready: 1500, ..DEFAULT }, "new")];
    let timings = resolve(&snapshot(pods, Some(23)), "web:3");
    assert_ready(&timings, 14.0, ReadyAfterSource::LastRollout);
    assert_eq!(timings.ready_after_ignored, 2);
}

#[test]
fn pod_without_probes_is_ready_when_it_runs() {
    let mut recovered = pod(&Pod { ready: 1500, ..DEFAULT }, "new");
    recovered["spec"]["containers"][0].as_object_mut().unwrap().remove("readinessProbe");
    assert_median(&resolve(&snapshot(vec![recovered], None), "web:3"), 2.0, TemplateAge::Current);
}

#[test]
fn wait_for_a_node_does_not_count() {
    let mut waited = pod(&Pod { started: 302, ready: 312, ..DEFAULT }, "new");
    let scheduled = json!({ "type": "PodScheduled", "status": "True", "lastTransitionTime": at(300) });
    waited["status"]["conditions"].as_array_mut().unwrap().push(scheduled);
    assert_median(&resolve(&snapshot(vec![waited], None), "web:3"), 12.0, TemplateAge::Current);
}

#[test]
fn pods_of_the_same_template_take_precedence() {
    let pods = || vec![pod(&Pod { ready: 40, ..DEFAULT }, "old"), pod(&DEFAULT, "new")];
    assert_median(&resolve(&snapshot(pods(), None), "web:1"), 40.0, TemplateAge::Same);
    assert_median(&resolve(&snapshot(pods(), None), "web:3"), 12.0, TemplateAge::Current);
    let old = vec![pod(&Pod { ready: 40, ..DEFAULT }, "old")];
    assert_median(&resolve(&snapshot(old, None), "web:3"), 40.0, TemplateAge::Older);
    assert_ready(&resolve(&snapshot(vec![], None), "web:3"), 10.0, ReadyAfterSource::Assumed);
}

#[test]
fn given_timings_take_precedence() {
    let options = TimingOptions {
        ready_after: Some(Duration::from_secs(3)),
        stop_after: Some(Duration::from_secs(1)),
        unready: 2,
    };
    let snapshot = snapshot(vec![pod(&DEFAULT, "new")], None);
    let timings = Timings::resolve(&options, &snapshot, &Deployment::default());
    assert_eq!((timings.ready_after_seconds, timings.stop_after_seconds, timings.unready), (3.0, 1.0, 2));
}

/// Pods that are not ready at the time of the preview.
#[test]
fn remaining_time() {
    let now: Timestamp = at(10).parse().unwrap();
    let timings = Timings { ready_after_seconds: 12.0, start_after_seconds: Some(2.0), ..Timings::default() };
    let unready = |started: u32, since: u32| {
        let mut pod = pod(&Pod { started, ..DEFAULT }, "new");
        pod["status"]["conditions"] =
            json!([{ "type": "Ready", "status": "False", "lastTransitionTime": at(since) }]);
        pod
    };
    assert_eq!(timings.remaining(&unready(7, 1), now), Some(7.0));
    let mut waiting = unready(7, 1);
    waiting["status"]["containerStatuses"][0]["state"] = json!({ "waiting": {} });
    assert_eq!(timings.remaining(&waiting, now), Some(2.0));
    assert_eq!(timings.remaining(&unready(7, 9), now), None, "has been ready");
    let mut restarted = unready(7, 1);
    restarted["status"]["containerStatuses"][0]["restartCount"] = json!(1);
    assert_eq!(timings.remaining(&restarted, now), None);
    // The times in objects have a resolution of a second.
    assert_eq!(timings.remaining(&unready(7, 1), at(18).parse().unwrap()), Some(0.0));
    assert_eq!(timings.remaining(&unready(7, 1), at(20).parse().unwrap()), None, "is late");
}

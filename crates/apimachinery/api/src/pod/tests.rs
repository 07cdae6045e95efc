use std::sync::Weak;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn decode(pod: &Value) -> Pod {
    let decoder = PodDecoder::default();
    let from_text = decoder.decode(&pod.to_string()).unwrap();
    assert_eq!(decoder.decode_value(pod).unwrap(), from_text);
    from_text
}

fn error(pod: &Value) -> String {
    let decoder = PodDecoder::default();
    let from_text = decoder.decode(&pod.to_string()).unwrap_err().to_string();
    assert!(decoder.decode_value(pod).is_err());
    from_text
}

/// A pod of ReplicaSet `web` in namespace `shop`.
fn web(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "shop", "uid": format!("uid-{name}"), "resourceVersion": "77",
            "generateName": "web-", "generation": 1, "creationTimestamp": "2026-01-02T03:04:05Z",
            "labels": {"app": "web", "pod-template-hash": "abc"},
            "annotations": {"other": "x", "controller.kubernetes.io/pod-deletion-cost": "-5"},
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Other", "name": "o", "uid": "u-o"},
                {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-web",
                 "controller": true, "blockOwnerDeletion": true},
            ],
            "managedFields": [{"manager": "m", "fieldsV1": {"f:status": {}}}],
        },
        "spec": {
            "nodeName": "node-1",
            "initContainers": [{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}],
            "containers": [{"name": "web", "image": "nginx"}],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-02T03:04:06Z"},
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T03:04:09Z"},
            ],
            "initContainerStatuses": [{"name": "setup", "restartCount": 9}, {"name": "proxy", "restartCount": 2}],
            "containerStatuses": [{"name": "web", "restartCount": 1}, {"name": "log", "restartCount": 3}],
        },
    })
}

fn with(path: &str, value: Value) -> Value {
    let mut pod = web("web-1");
    *pod.pointer_mut(path).unwrap() = value;
    pod
}

#[test]
fn decodes_every_field() {
    assert_eq!(
        decode(&web("web-1")),
        Pod {
            key: ObjectKey::new("shop", "web-1"),
            uid: "uid-web-1".into(),
            resource_version: "77".into(),
            labels: Arc::new(
                [("app", "web"), ("pod-template-hash", "abc")]
                    .map(|(k, v)| (k.to_owned(), v.to_owned()))
                    .into()
            ),
            controller: Some(Arc::new(PodControllerRef {
                api_version: "apps/v1".into(),
                kind: "ReplicaSet".into(),
                name: "web".into(),
                uid: "u-web".into(),
                block_owner_deletion: Some(true),
            })),
            creation_timestamp: Some("2026-01-02T03:04:05Z".parse().unwrap()),
            deletion_timestamp: None,
            node_name: Some("node-1".into()),
            phase: Phase::Running,
            ready: Ready { is_ready: true, since: Some("2026-01-02T03:04:09Z".parse().unwrap()) },
            deletion_cost: -5,
            max_restarts: 3,
            max_sidecar_restarts: 2,
            waiting: Waiting::NoFailure,
        }
    );
}

#[test]
fn decodes_empty_pod() {
    let nothing = decode(&json!({}));
    assert_eq!((nothing.node_name, nothing.controller, nothing.creation_timestamp), (None, None, None));
    assert_eq!((nothing.phase, nothing.ready), (Phase::Pending, Ready::default()));
}

#[test]
fn null_is_unset() {
    let bare = decode(&json!({"metadata": {"name": "web-1"}}));
    let nulls = json!({
        "metadata": {
            "name": "web-1", "namespace": null, "uid": null, "resourceVersion": null, "creationTimestamp": null,
            "deletionTimestamp": null, "labels": null, "annotations": null, "ownerReferences": null,
        },
        "spec": {"nodeName": null, "initContainers": null, "containers": null},
        "status": {
            "phase": null, "conditions": [null, {"type": null, "lastTransitionTime": null}],
            "containerStatuses": null, "initContainerStatuses": [null, {"name": null, "restartCount": null}],
        },
    });
    assert_eq!(decode(&nulls), bare);
    assert_eq!(decode(&json!({"metadata": {"name": "web-1"}, "spec": null, "status": null})), bare);
    let owners = json!({"metadata": {"name": "web-1", "ownerReferences": [null, {"controller": null}]}});
    assert_eq!(decode(&owners), bare);
}

#[test]
fn other_fields_are_ignored() {
    let mut pod = web("web-1");
    pod["spec"]["containers"] = json!("none");
    pod["spec"]["hostNetwork"] = json!([1.5e300]);
    pod["status"]["podIP"] = json!({"deep": [[[]]]});
    pod["metadata"]["managedFields"] = json!(7);
    pod["metadata"]["annotations"]["other"] = json!({"not": "a text"});
    pod["future"] = json!(true);
    assert_eq!(decode(&pod), decode(&web("web-1")));
}

#[test]
fn wrong_type_is_an_error_with_the_name() {
    for (path, value) in [
        ("/metadata/labels", json!({"app": 5})),
        ("/metadata/labels", json!(["app"])),
        ("/metadata/creationTimestamp", json!("yesterday")),
        ("/metadata/ownerReferences", json!({})),
        ("/spec/nodeName", json!(7)),
        ("/spec", json!([])),
        ("/status/phase", json!({})),
        ("/status/conditions/1/lastTransitionTime", json!("soon")),
        ("/status/conditions/0", json!(["Ready"])),
        ("/status/containerStatuses/0/restartCount", json!(3_000_000_000_u32)),
    ] {
        let message = error(&with(path, value));
        assert!(message.starts_with("cannot decode pod \"shop/web-1\": "), "{path}: {message}");
    }
    for no_pod in [json!(null), json!([]), json!("pod"), json!({"metadata": []})] {
        assert!(error(&no_pod).starts_with("cannot decode pod \"\": "), "{no_pod}");
    }
    assert!(PodDecoder::default().decode("{").is_err());
}

#[test]
fn pods_of_one_owner_share_values() {
    let decoder = PodDecoder::default();
    let pods = ["web-1", "web-2"].map(|name| decoder.decode_value(&web(name)).unwrap());
    let [a, b] = &pods;
    assert!(Arc::ptr_eq(&a.key.namespace, &b.key.namespace));
    assert!(Arc::ptr_eq(&a.labels, &b.labels));
    assert!(Arc::ptr_eq(a.controller.as_ref().unwrap(), b.controller.as_ref().unwrap()));
    assert!(Arc::ptr_eq(a.node_name.as_ref().unwrap(), b.node_name.as_ref().unwrap()));
    assert!(!Arc::ptr_eq(&a.uid, &b.uid));
}

#[test]
fn shared_values_are_freed_with_the_last_pod() {
    let decoder = PodDecoder::default();
    let pod = decoder.decode_value(&web("web-1")).unwrap();
    let (labels, controller) = (Arc::downgrade(&pod.labels), pod.controller.as_ref().map(Arc::downgrade));
    drop(pod);
    assert_eq!((labels.strong_count(), controller.as_ref().map_or(1, Weak::strong_count)), (0, 0));
}

#[test]
fn different_controllers_are_not_shared() {
    let decoder = PodDecoder::default();
    let controller = |field: &str, value: Value| {
        let mut pod = web("web-1");
        pod["metadata"]["ownerReferences"][1][field] = value;
        decoder.decode_value(&pod).unwrap().controller.unwrap()
    };
    let original = controller("controller", json!(true));
    for (field, value) in [
        ("apiVersion", json!("apps/v2")),
        ("kind", json!("Set")),
        ("name", json!("api")),
        ("uid", json!("u-2")),
        ("blockOwnerDeletion", json!(false)),
        ("blockOwnerDeletion", json!(null)),
    ] {
        assert_ne!(controller(field, value), original, "{field}");
    }
}

#[test]
fn equal_labels_are_shared_in_any_order() {
    let decoder = PodDecoder::default();
    let labels =
        |text: &str| decoder.decode(&format!(r#"{{"metadata": {{"labels": {text}}}}}"#)).unwrap().labels;
    let set = labels(r#"{"a": "1", "b": "2"}"#);
    assert!(Arc::ptr_eq(&set, &labels(r#"{"b": "2", "a": "1"}"#)));
    assert!(Arc::ptr_eq(&set, &labels(r#"{"\u0061": "1", "b": "\u0032"}"#)));
    assert!(Arc::ptr_eq(&set, &labels(r#"{"b": "2", "a": "0", "a": "1"}"#)), "the last of duplicates counts");
    assert_eq!(labels(r#"{"a": null}"#).get("a").map(String::as_str), Some(""));
}

#[test]
fn deletion_cost_is_parsed_as_upstream() {
    // US-5.6
    let cost = |text: &str| {
        decode(&json!({"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": text}}}))
            .deletion_cost
    };
    for (text, value) in
        [("0", 0), ("10", 10), ("-10", -10), ("2147483647", i32::MAX), ("-2147483648", i32::MIN)]
    {
        assert_eq!(cost(text), value, "{text}");
    }
    assert_eq!(cost("-08"), -8, "leading zeros are refused only without a sign");
    for text in
        ["", "+10", "008", "00", " 1", "1 ", "1.5", "1e3", "-", "abc", "2147483648", "-2147483649", "1_000"]
    {
        assert_eq!(cost(text), 0, "{text}");
    }
}

#[test]
fn ready_is_the_first_condition_of_that_type() {
    let ready = |conditions: Value| decode(&with("/status/conditions", conditions)).ready;
    let first = ready(json!([
        {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-02T00:00:00Z"},
    ]));
    assert_eq!(first, Ready { is_ready: false, since: Some("2026-01-01T00:00:00Z".parse().unwrap()) });
    assert_eq!(ready(json!([{"type": "ready", "status": "True"}])), Ready::default());
    assert!(!ready(json!([{"type": "Ready", "status": "Unknown"}])).is_ready);
    assert_eq!(ready(json!([{"type": "Ready", "status": "True"}])), Ready { is_ready: true, since: None });
}

#[test]
fn restarts_of_containers_and_sidecars() {
    let restarts = |containers: Value, statuses: Value| {
        let mut pod = web("web-1");
        pod["spec"]["initContainers"] = containers;
        pod["status"]["initContainerStatuses"] = statuses;
        let pod = decode(&pod);
        (pod.max_restarts, pod.max_sidecar_restarts)
    };
    let statuses = || json!([{"name": "a", "restartCount": 4}, {"name": "b", "restartCount": 7}]);
    assert_eq!(restarts(json!([{"name": "a"}, {"name": "b"}]), statuses()), (3, 0));
    assert_eq!(
        restarts(json!([{"name": "b"}, {"name": "a", "restartPolicy": "Always"}]), statuses()),
        (3, 4)
    );
    assert_eq!(restarts(json!([{"name": "c", "restartPolicy": "Always"}]), statuses()), (3, 0));
    assert_eq!(restarts(json!([{"name": "b", "restartPolicy": "OnFailure"}]), statuses()), (3, 0));
    let negative = json!([{"name": "a", "restartCount": -4}]);
    assert_eq!(restarts(json!([{"name": "a", "restartPolicy": "Always"}]), negative), (3, 0));
}

#[test]
fn failure_of_the_first_container_that_waits() {
    let waiting = |init: &str, first: &str, second: &str| {
        let status = |name: &str, reason: &str| match reason {
            "" => json!({"name": name, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}),
            reason => json!({"name": name, "state": {"waiting": {"reason": reason, "message": "m"}}}),
        };
        let mut pod = web("web-1");
        pod["status"]["initContainerStatuses"] = json!([status("setup", init)]);
        pod["status"]["containerStatuses"] = json!([status("web", first), status("log", second)]);
        decode(&pod).waiting
    };
    assert_eq!(waiting("", "", ""), Waiting::NoFailure);
    assert_eq!(waiting("", "ContainerCreating", ""), Waiting::NoFailure);
    assert_eq!(waiting("", "", "ImagePullBackOff"), Waiting::ImagePull);
    assert_eq!(waiting("", "CrashLoopBackOff", "ImagePullBackOff"), Waiting::CrashLoop);
    assert_eq!(waiting("CrashLoopBackOff", "PodInitializing", "PodInitializing"), Waiting::InitCrashLoop);
    assert_eq!(waiting("ErrImagePull", "PodInitializing", ""), Waiting::ImagePull);
    assert_eq!(waiting("", "CreateContainerConfigError", ""), Waiting::ContainerConfig);
    let null = with(
        "/status/containerStatuses",
        json!([{"name": "web", "state": {"waiting": null}}, {"state": null}]),
    );
    assert_eq!(decode(&null).waiting, Waiting::NoFailure);
}

/// The failure takes no memory in the cache.
#[test]
fn size_of_a_cached_pod() {
    assert!(size_of::<Pod>() <= 168, "{}", size_of::<Pod>());
}

#[test]
fn phases() {
    let phase = |text: &str| decode(&with("/status/phase", json!(text))).phase;
    assert_eq!(phase("Pending"), Phase::Pending);
    assert_eq!(phase("Running"), Phase::Running);
    assert_eq!(phase("Succeeded"), Phase::Succeeded);
    assert_eq!(phase("Failed"), Phase::Failed);
    assert_eq!(phase("Unknown"), Phase::Unknown);
    assert_eq!(phase("Dreaming"), Phase::Other);
    assert_eq!(phase(""), Phase::Pending);
}

#[test]
fn pod_is_active_terminating_or_finished() {
    let state = |phase: &str, deleted: Value| {
        let mut pod = with("/status/phase", json!(phase));
        pod["metadata"]["deletionTimestamp"] = deleted;
        let pod = decode(&pod);
        (pod.is_active(), pod.is_terminating(), pod.is_finished())
    };
    let now = || json!("2026-01-02T03:04:05Z");
    assert_eq!(state("Running", json!(null)), (true, false, false));
    assert_eq!(state("Running", now()), (false, true, false));
    assert_eq!(state("Failed", now()), (false, false, true));
    assert_eq!(state("Succeeded", json!(null)), (false, false, true));
}

#[test]
fn times_have_seconds_and_zero_is_none() {
    let created = |text: &str| decode(&with("/metadata/creationTimestamp", json!(text))).creation_timestamp;
    assert_eq!(created("2026-01-02T03:04:05.9Z"), created("2026-01-02T03:04:05Z"));
    assert_eq!(created("2026-01-02T04:04:05+01:00"), created("2026-01-02T03:04:05Z"));
    assert_eq!(created("0001-01-01T00:00:00Z"), None);
}

proptest! {
    #[test]
    fn no_text_makes_the_decoder_panic(cut in 0..2000_usize, byte: u8, text: String) {
        let decoder = PodDecoder::default();
        let _ = decoder.decode(&text);
        let mut bytes = web("web-1").to_string().into_bytes();
        let place = cut % bytes.len();
        bytes[place] = byte;
        let _ = decoder.decode(&String::from_utf8_lossy(&bytes));
        bytes.truncate(place);
        prop_assert!(decoder.decode(&String::from_utf8_lossy(&bytes)).is_err());
    }
}

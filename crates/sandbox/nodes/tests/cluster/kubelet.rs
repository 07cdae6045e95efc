//! Pods with the annotation `kube-sandbox/behavior`: states, conditions, events and delays of a kubelet.

use std::time::Duration;

use kcm_apiserver::{ApiServerConfig, DeleteOptions, ListOptions, Patch, Resource, WriteOptions};
use serde_json::{Value, json};

use crate::test_server::{RunningSandbox, TestServer};

struct Pod {
    test: TestServer,
    _sandbox: RunningSandbox,
}

impl Pod {
    /// Creates the pod `p` with this behavior. `spec` is merged into its specification.
    fn new(behavior: &Value, spec: &Value) -> Self {
        let test = TestServer::new();
        let sandbox = test.run_sandbox(1);
        let mut pod = json!({
            "metadata": { "name": "p", "annotations": { "kube-sandbox/behavior": behavior.to_string() } },
            "spec": { "containers": [{ "name": "app", "image": "app:1" }] },
        });
        for (name, value) in spec.as_object().unwrap() {
            pod["spec"][name] = value.clone();
        }
        test.server.create(Resource::PODS, "default", pod, &WriteOptions::default()).unwrap();
        Self { test, _sandbox: sandbox }
    }

    async fn after(&self, seconds: u64) -> Value {
        self.test.clock.sleep(Duration::from_secs(seconds)).await;
        self.now()
    }

    fn now(&self) -> Value {
        self.test.server.get(Resource::PODS, "default", "p").unwrap().value()["status"].clone()
    }

    /// Reasons, messages and counts of the kubelet's events, in the order of their creation.
    fn events(&self) -> Vec<(String, String, u64)> {
        let list = self.test.server.list(Resource::EVENTS, Some("default"), &ListOptions::default()).unwrap();
        let mut events: Vec<Value> = list.items.iter().map(|event| event.value().clone()).collect();
        events.retain(|event| event["source"]["component"] != "default-scheduler");
        events.sort_by_key(|event| event["metadata"]["name"].to_string());
        let text = |event: &Value, field: &str| event[field].as_str().unwrap().to_owned();
        let row =
            |event: &Value| (text(event, "reason"), text(event, "message"), event["count"].as_u64().unwrap());
        events.iter().map(row).collect()
    }

    fn reasons(&self) -> Vec<String> {
        self.events().into_iter().map(|(reason, _, _)| reason).collect()
    }

    fn count(&self, reason: &str, part: &str) -> u64 {
        let found = |(other, message, _): &&(String, String, u64)| other == reason && message.contains(part);
        self.events().iter().filter(found).map(|(_, _, count)| count).sum()
    }
}

fn condition(status: &Value, type_: &str) -> String {
    let conditions = status["conditions"].as_array().unwrap();
    let condition = conditions.iter().find(|condition| condition["type"] == type_).unwrap();
    let text = |field: &str| condition[field].as_str().unwrap_or_default();
    format!("{} {} {}", text("status"), text("reason"), text("message")).trim_end().to_owned()
}

/// State of the first container: its name and its reason, if any.
fn state(status: &Value, list: &str) -> String {
    let (name, state) = status[list][0]["state"].as_object().unwrap().iter().next().unwrap();
    format!("{name} {}", state["reason"].as_str().unwrap_or_default()).trim_end().to_owned()
}

fn app(status: &Value) -> String {
    state(status, "containerStatuses")
}

#[tokio::test(start_paused = true)]
async fn pod_is_created_and_becomes_ready() {
    let pod = Pod::new(&json!({ "containers": { "app": { "pull": { "takes": "4s" } } } }), &json!({}));
    let status = pod.after(2).await;
    assert_eq!((status["phase"].as_str(), &*app(&status)), (Some("Pending"), "waiting ContainerCreating"));
    assert_eq!(condition(&status, "PodReadyToStartContainers"), "False");
    assert_eq!(condition(&status, "Initialized"), "True");
    assert_eq!(condition(&status, "Ready"), "False ContainersNotReady containers with unready status: [app]");
    assert_eq!((status.get("podIP"), status.get("startTime").is_some()), (None, true));
    let status = pod.after(10).await;
    assert_eq!((status["phase"].as_str(), &*app(&status)), (Some("Running"), "running"));
    assert_eq!(
        (condition(&status, "Ready"), condition(&status, "ContainersReady")),
        ("True".into(), "True".into())
    );
    assert!(status["podIP"].is_string());
    assert_eq!(status["containerStatuses"][0]["started"], true);
    assert_eq!(pod.reasons(), ["Pulling", "Pulled", "Created", "Started"]);
}

#[tokio::test(start_paused = true)]
async fn settled_pods_write_nothing() {
    let probe = json!({ "httpGet": { "path": "/", "port": 80 } });
    let containers =
        json!([{ "name": "app", "image": "app:1", "readinessProbe": probe, "livenessProbe": probe }]);
    let pod = Pod::new(&json!({}), &json!({ "containers": containers }));
    pod.after(60).await;
    let revision = || {
        let list = |resource| pod.test.server.list(resource, None, &ListOptions::default()).unwrap();
        let lists = [list(Resource::PODS), list(Resource::EVENTS)];
        lists.iter().flat_map(|list| &list.items).map(|object| object.revision()).max()
    };
    let before = revision();
    assert_eq!(condition(&pod.now(), "Ready"), "True");
    pod.after(3600).await;
    assert_eq!(revision(), before);
}

#[tokio::test(start_paused = true)]
async fn pod_with_host_network_has_its_address_before_its_volumes_are_mounted() {
    let message = "MountVolume.SetUp failed for volume \"tls\" : secret \"tls\" not found";
    let pod = Pod::new(&json!({ "mount": message, "recovers": "60s" }), &json!({ "hostNetwork": true }));
    let status = pod.after(20).await;
    assert_eq!(status["podIP"], status["hostIP"]);
    assert_eq!(app(&status), "waiting ContainerCreating");
    // After 1, 1.5, 2.5, 4.5, 8.5 and 16.5 s.
    assert_eq!(pod.count("FailedMount", message), 6);
    assert_eq!(app(&pod.after(180).await), "running");
}

#[tokio::test(start_paused = true)]
async fn image_pull_backs_off() {
    let pod = Pod::new(
        &json!({ "containers": { "app": { "pull": { "error": "not found", "failures": 3 } } } }),
        &json!({}),
    );
    pod.after(1).await;
    let status = pod.after(0).await;
    assert!(["waiting ErrImagePull", "waiting ImagePullBackOff"].contains(&&*app(&status)), "{status}");
    let status = pod.after(2).await;
    assert_eq!(app(&status), "waiting ImagePullBackOff");
    let message = &status["containerStatuses"][0]["state"]["waiting"]["message"];
    assert_eq!(*message, "Back-off pulling image \"app:1\": ErrImagePull: not found");
    assert_eq!(status["phase"], "Pending");
    assert_eq!(app(&pod.after(300).await), "running");
    assert_eq!(pod.count("Pulling", "app:1"), 3);
    assert_eq!(pod.count("Failed", "Failed to pull image \"app:1\": not found"), 3);
}

#[tokio::test(start_paused = true)]
async fn crash_loop_backs_off() {
    let behavior = json!({ "containers": { "app": {
        "pull": { "takes": "0s" }, "runs": "3s", "exitCode": 137, "reason": "OOMKilled",
    } } });
    let pod = Pod::new(&behavior, &json!({}));
    // The first restart is immediate, the later ones wait for 10 s, 20 s and so on.
    let status = pod.after(12).await;
    let container = &status["containerStatuses"][0];
    assert_eq!((app(&status), &container["restartCount"]), ("waiting CrashLoopBackOff".into(), &json!(1)));
    let message = container["state"]["waiting"]["message"].as_str().unwrap();
    assert!(message.starts_with("back-off 10s restarting failed container=app pod=p_default("), "{message}");
    let end = &container["lastState"]["terminated"];
    assert_eq!((&end["exitCode"], &end["reason"]), (&json!(137), &json!("OOMKilled")));
    assert_eq!(status["phase"], "Running");
    let status = pod.after(600).await;
    let restarts = status["containerStatuses"][0]["restartCount"].as_u64().unwrap();
    assert!((4..=6).contains(&restarts), "{restarts}");
    assert!(pod.count("BackOff", "Back-off restarting failed container app in pod p_default") > 5);
    assert_eq!(pod.events().iter().filter(|(reason, _, _)| reason == "BackOff").count(), 1);
}

#[tokio::test(start_paused = true)]
async fn config_error_is_retried() {
    let message = "configmap \"settings\" not found";
    let pod = Pod::new(&json!({ "containers": { "app": { "config": message } } }), &json!({}));
    let status = pod.after(60).await;
    assert_eq!(app(&status), "waiting CreateContainerConfigError");
    assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["message"], message);
    assert!((4..=7).contains(&pod.count("Failed", &format!("Error: {message}"))), "{:?}", pod.events());
}

#[tokio::test(start_paused = true)]
async fn init_containers_and_sidecars_start_in_order() {
    let spec = json!({ "initContainers": [
        { "name": "migrate", "image": "m:1" },
        { "name": "proxy", "image": "p:1", "restartPolicy": "Always" },
    ] });
    let pod = Pod::new(&json!({ "containers": { "migrate": { "runs": "10s" } } }), &spec);
    let status = pod.after(5).await;
    assert_eq!(
        (state(&status, "initContainerStatuses"), app(&status)),
        ("running".into(), "waiting PodInitializing".into())
    );
    assert_eq!(
        condition(&status, "Initialized"),
        "False ContainersNotInitialized containers with incomplete status: [migrate proxy]"
    );
    assert_eq!(status["phase"], "Pending");
    let status = pod.after(20).await;
    assert_eq!(state(&status, "initContainerStatuses"), "terminated Completed");
    assert_eq!((app(&status), &*condition(&status, "Ready")), ("running".into(), "True"));
    assert_eq!(status["initContainerStatuses"][0]["ready"], true);
    assert_eq!(status["initContainerStatuses"][1]["started"], true);
}

#[tokio::test(start_paused = true)]
async fn probes_fail_and_kill() {
    let containers = json!([{
        "name": "app", "image": "app:1",
        "readinessProbe": { "tcpSocket": { "port": 8080 }, "periodSeconds": 5 },
        "livenessProbe": { "httpGet": { "path": "/", "port": 80 }, "periodSeconds": 5 },
    }]);
    let behavior = json!({ "containers": { "app": {
        "pull": { "takes": "0s" }, "ready": "12s", "liveness": { "failsAfter": "30s" },
    } } });
    let pod = Pod::new(&behavior, &json!({ "containers": containers }));
    let status = pod.after(8).await;
    assert_eq!((app(&status), &status["containerStatuses"][0]["ready"]), ("running".into(), &json!(false)));
    assert!(pod.count("Unhealthy", "Readiness probe failed: dial tcp") > 0);
    assert_eq!(condition(&pod.after(12).await, "Ready"), "True");
    let status = pod.after(35).await;
    assert_eq!(pod.count("Unhealthy", "Liveness probe failed: HTTP probe failed with statuscode: 503"), 3);
    assert_eq!(pod.count("Killing", "Container app failed liveness probe, will be restarted"), 1);
    let container = &status["containerStatuses"][0];
    assert_eq!(container["restartCount"], 1);
    assert_eq!(container["lastState"]["terminated"]["exitCode"], 137);
}

#[tokio::test(start_paused = true)]
async fn readiness_gate_is_observed() {
    let pod = Pod::new(&json!({}), &json!({ "readinessGates": [{ "conditionType": "example.com/lb" }] }));
    let status = pod.after(10).await;
    assert_eq!(condition(&status, "ContainersReady"), "True");
    assert!(condition(&status, "Ready").starts_with("False ReadinessGatesNotReady"), "{status}");
    let open = json!({ "status": { "conditions": [{ "type": "example.com/lb", "status": "True" }] } });
    let part = Some(kcm_apiserver::Subresource::Status);
    let options = WriteOptions::default();
    pod.test.server.patch(Resource::PODS, "default", "p", part, Patch::strategic(open), &options).unwrap();
    assert_eq!(condition(&pod.after(1).await, "Ready"), "True");
}

#[tokio::test(start_paused = true)]
async fn sandbox_and_network_fail() {
    for (member, reason) in [("sandbox", "FailedCreatePodSandBox"), ("network", "NetworkNotReady")] {
        let pod = Pod::new(&json!({ member: "no network" }), &json!({}));
        let status = pod.after(60).await;
        assert_eq!(app(&status), "waiting ContainerCreating");
        assert_eq!(condition(&status, "PodReadyToStartContainers"), "False");
        assert_eq!(status.get("podIP"), None);
        assert!(pod.count(reason, "no network") >= 4, "{:?}", pod.events());
    }
}

#[tokio::test(start_paused = true)]
async fn evicted_and_rejected_pods_fail() {
    let pod = Pod::new(&json!({ "evict": { "after": "10s", "message": "low on memory" } }), &json!({}));
    assert_eq!(pod.after(5).await["phase"], "Running");
    let status = pod.after(10).await;
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("Evicted")));
    assert_eq!(condition(&status, "DisruptionTarget"), "True TerminationByKubelet low on memory");
    assert_eq!(
        (condition(&status, "Ready"), app(&status)),
        ("False PodFailed".into(), "terminated Error".into())
    );
    assert_eq!(pod.count("Evicted", "low on memory"), 1);
    let pod = Pod::new(&json!({ "reject": { "reason": "OutOfcpu", "message": "no cpu" } }), &json!({}));
    let status = pod.after(5).await;
    assert_eq!((&status["phase"], &status["reason"]), (&json!("Failed"), &json!("OutOfcpu")));
    assert_eq!(status["message"], "Pod was rejected: no cpu");
}

#[tokio::test(start_paused = true)]
async fn deleted_pods_stop() {
    let pod = Pod::new(&json!({ "stop": "8s" }), &json!({}));
    pod.after(5).await;
    let delete =
        || pod.test.server.delete(Resource::PODS, "default", "p", &DeleteOptions::default()).unwrap();
    delete();
    assert_eq!(app(&pod.after(6).await), "running");
    assert_eq!(pod.count("Killing", "Stopping container app"), 1);
    pod.test.clock.sleep(Duration::from_secs(3)).await;
    assert!(pod.test.server.get(Resource::PODS, "default", "p").is_err());
    let pod = Pod::new(&json!({ "stop": "never" }), &json!({}));
    pod.after(5).await;
    pod.test.server.delete(Resource::PODS, "default", "p", &DeleteOptions::default()).unwrap();
    assert_eq!(app(&pod.after(600).await), "running");
}

#[tokio::test(start_paused = true)]
async fn events_of_one_pod_are_limited() {
    let pod = Pod::new(&json!({ "network": "no network" }), &json!({}));
    pod.after(240).await;
    // A burst of 25, then one in five minutes.
    assert_eq!(pod.count("NetworkNotReady", "no network"), 25);
    pod.after(900).await;
    assert_eq!(pod.count("NetworkNotReady", "no network"), 28);
}

#[tokio::test(start_paused = true)]
async fn scheduler_observes_host_ports() {
    let ports = json!([{ "containerPort": 80, "hostPort": 80 }]);
    let spec = json!({ "containers": [{ "name": "app", "image": "app:1", "ports": ports }] });
    let pod = Pod::new(&json!({}), &spec);
    pod.after(5).await;
    let other = json!({ "metadata": { "name": "q" }, "spec": spec });
    pod.test.server.create(Resource::PODS, "default", other, &WriteOptions::default()).unwrap();
    pod.after(5).await;
    let status = || pod.test.server.get(Resource::PODS, "default", "q").unwrap().value()["status"].clone();
    assert_eq!(
        condition(&status(), "PodScheduled"),
        "False Unschedulable 0/1 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
    );
    pod.test.server.delete(Resource::PODS, "default", "p", &DeleteOptions::default()).unwrap();
    pod.test.clock.sleep(Duration::from_secs(5)).await;
    assert_eq!(condition(&status(), "PodScheduled"), "True");
}

#[tokio::test(start_paused = true)]
async fn late_quota_refuses_pods_until_its_status_is_updated() {
    let config = ApiServerConfig { charge_quota_status: true, ..ApiServerConfig::default() };
    let test = TestServer::with(config);
    let _sandbox = test.run_sandbox_with(1, |sandbox| sandbox.with_quota_delay(Duration::from_secs(30)));
    let options = WriteOptions::default();
    let quota = json!({ "metadata": { "name": "small" }, "spec": { "hard": { "pods": "1" } } });
    test.server.create(Resource::RESOURCE_QUOTAS, "default", quota, &options).unwrap();
    let create = |name: &str| {
        let spec = json!({ "containers": [{ "name": "app", "image": "app:1" }] });
        let pod = json!({ "metadata": { "name": name }, "spec": spec });
        test.server.create(Resource::PODS, "default", pod, &options)
    };
    create("p").unwrap();
    test.clock.sleep(Duration::from_secs(60)).await;
    test.server.delete(Resource::PODS, "default", "p", &DeleteOptions::default()).unwrap();
    test.clock.sleep(Duration::from_secs(10)).await;
    assert!(test.server.get(Resource::PODS, "default", "p").is_err());
    let error = create("q").unwrap_err().to_string();
    assert!(
        error.contains("exceeded quota: small, requested: pods=1, used: pods=1, limited: pods=1"),
        "{error}"
    );
    test.clock.sleep(Duration::from_secs(60)).await;
    create("q").unwrap();
}

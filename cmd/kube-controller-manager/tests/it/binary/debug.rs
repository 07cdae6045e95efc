//! `/debug/controllers/` of a leader and a standby.

use std::path::PathBuf;

use kcm_api::ApiError;
use kcm_apiserver::{Patch, Resource, WriteOptions};
use serde_json::{Value, json};

use crate::binary::cluster::{Cluster, Manager};

const MANAGER: &str = env!("CARGO_BIN_EXE_kube-controller-manager");

/// Manager with a secure port.
struct Port {
    _manager: Manager,
    port: u16,
    certificate: PathBuf,
}

impl Port {
    fn start(cluster: &Cluster, user: &str, flags: &[&str]) -> Self {
        let port = kcm_testkit::unused_address().port();
        let certificates = cluster.path(&format!("{user}-certificates"));
        let mut all = vec![
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            format!("--cert-dir={}", certificates.display()),
        ];
        all.extend(flags.iter().map(|flag| (*flag).to_owned()));
        let certificate = certificates.join("kube-controller-manager.crt");
        Self { _manager: cluster.manager_with(MANAGER, user, &all), port, certificate }
    }

    fn get(&self, cluster: &Cluster, path: &str) -> Result<Value, ApiError> {
        let text = cluster.get(self.port, &self.certificate, &format!("/debug/controllers/{path}"))?;
        Ok(serde_json::from_str(&text).unwrap())
    }

    fn code(&self, cluster: &Cluster, path: &str) -> Option<u16> {
        self.get(cluster, path).unwrap_err().code()
    }
}

const ALLOWED: &str = "--authorization-always-allow-paths=/healthz,/debug/controllers/*";

#[test]
fn leader_shows_plan_and_retries_of_an_object() {
    let mut cluster = Cluster::start();
    let leader = Port::start(&cluster, "a", &[ALLOWED]);
    cluster.wait_for_leader("a");
    let pods = json!({ "metadata": { "name": "pods" }, "spec": { "hard": { "pods": "1" } } });
    cluster.server.create(Resource::RESOURCE_QUOTAS, "default", pods, &WriteOptions::default()).unwrap();
    cluster.deploy("web", 1);
    cluster.wait_for_pod_of("a");

    let deployment = || leader.get(&cluster, "deployment/default/web").unwrap();
    // The state changes between two requests, so the values to compare come from one answer.
    let mut settled = Value::Null;
    cluster.until("the rollout is complete", || {
        settled = deployment();
        settled["blockedOn"] == json!([])
            && settled["plan"]["actionCount"] == 0
            && settled["lastSync"]["result"] == "success"
    });
    assert_eq!((&settled["name"], &settled["replicaSetCount"]), (&json!("web"), &json!(1)), "{settled}");
    assert_eq!(settled["observedGeneration"], 1, "{settled}");

    let patch = json!({ "spec": { "replicas": 3 } });
    let options = WriteOptions::default();
    let patch = Patch::merge(patch);
    cluster.server.patch(Resource::DEPLOYMENTS, "default", "web", None, patch, &options).unwrap();
    let name = settled["replicaSets"][0]["name"].as_str().unwrap();
    let replica_set = || leader.get(&cluster, &format!("replicaset/default/{name}")).unwrap();
    let mut stuck = Value::Null;
    cluster.until("the ReplicaSet waits for its retry", || {
        stuck = replica_set();
        let waits = stuck["blockedOn"].as_array().unwrap().iter().any(|on| on["reason"] == "backOff");
        waits && stuck["plan"]["action"] == "createPods"
    });
    let error = stuck["lastSync"]["error"].as_str().unwrap_or_default();
    assert!(error.contains("exceeded quota: pods"), "{stuck}");
    assert!(stuck["queue"]["retries"].as_u64().unwrap() > 0, "{stuck}");
    assert_eq!((&stuck["replicas"], &stuck["activePods"]), (&json!(3), &json!(1)), "{stuck}");
    assert_eq!(stuck["plan"]["count"], 2, "{stuck}");
    assert_eq!(stuck["pendingCreateCount"], 0, "a refused name is not pending: {stuck}");
    cluster.until("the Deployment waits for pods", || deployment()["blockedOn"][0]["reason"] == "newPods");

    for path in ["deployment/default/api", "deployment/default", ""] {
        assert_eq!(leader.code(&cluster, path), Some(404), "{path}");
    }
    assert_eq!(leader.code(&cluster, "daemonset/default/web"), Some(503));
}

#[test]
fn standby_has_no_controllers() {
    let mut cluster = Cluster::start();
    let _leader = cluster.manager(MANAGER, "a");
    cluster.wait_for_leader("a");
    let standby = Port::start(&cluster, "b", &[ALLOWED]);
    cluster.wait_for_standby("b");
    cluster
        .until("the port is served", || cluster.get(standby.port, &standby.certificate, "/healthz").is_ok());
    assert_eq!(standby.code(&cluster, "deployment/default/web"), Some(503));
}

#[test]
fn requests_are_authorized_and_a_flag_disables_the_paths() {
    let mut cluster = Cluster::start();
    let protected = Port::start(&cluster, "a", &[]);
    cluster.wait_for_leader("a");
    assert_eq!(protected.code(&cluster, "deployment/default/web"), Some(403));
    let disabled = Port::start(&cluster, "b", &[ALLOWED, "--profiling=false"]);
    cluster.wait_for_standby("b");
    cluster.until("the port is served", || {
        cluster.get(disabled.port, &disabled.certificate, "/healthz").is_ok()
    });
    assert_eq!(disabled.code(&cluster, "deployment/default/web"), Some(404));
}

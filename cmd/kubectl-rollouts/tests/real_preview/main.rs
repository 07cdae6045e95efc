//! `kubectl rollouts preview` with kube-apiserver: the preview is made with a token that can only read, then `kubectl` makes
//! the change.
//!
//! Requires `KUBEBUILDER_ASSETS`, a folder with etcd, kube-apiserver and kubectl. With `KUBE_CONTROLLER_MANAGER`, upstream's
//! manager makes the changes, too.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test may fail in its helpers, too")]

mod accuracy;
mod case;
mod cluster;
mod course;
mod draw;
mod kubelet;
mod measure;
mod nodes;

use serde_json::{Value, json};

use self::{
    case::{Case, Change},
    cluster::{Cluster, Manager},
    course::Course,
    nodes::Timing,
};

/// Number of drawn changes per manager.
const CASES: u64 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn this_manager_does_what_the_preview_says() {
    let Some(mut cluster) = Cluster::start(Manager::This).await else { return };
    compare_drawn_changes(&mut cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn upstreams_manager_does_what_the_preview_says() {
    let Some(program) = cluster::upstream_program() else { return };
    let Some(mut cluster) = Cluster::start(Manager::Upstream(program)).await else { return };
    compare_drawn_changes(&mut cluster).await;
}

async fn compare_drawn_changes(cluster: &mut Cluster) {
    for seed in 0..CASES {
        let case = Case::draw(seed);
        let namespace = format!("case-{seed}");
        cluster.deploy(&namespace, &case).await;
        let arguments = case.change.preview_arguments(&cluster.manifest(&case.changed_manifest()));
        let preview = cluster.preview("viewer", &namespace, &arguments, case.timing).await;
        assert_eq!(preview["dryRun"]["performed"], false, "{preview:#}");
        let before = cluster.pods(&namespace).await;
        cluster.change(&namespace, &case).await;
        let steps = cluster.course(&namespace, case.timing).await;
        let made = Course::observed(&before, steps);
        let mut predicted = Course::predicted(&preview, &made);
        if case.change == Change::Restart {
            // The hash contains the time of the restart.
            let name = cluster.newest_replica_set(&namespace).await;
            predicted.rename(preview["replicaSet"]["name"].as_str().unwrap(), &name);
        }
        assert!(predicted.is(&made), "seed {seed}: {case:?}\npredicted {predicted:#?}\nmade {made:#?}");
    }
}

/// The token permits `get` and `list` only.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn preview_writes_nothing() {
    let Some(mut cluster) = Cluster::start(Manager::This).await else { return };
    let timing = Timing { ready: 5, stop: 2 };
    let case = Case { timing, ..Case::draw(0) };
    cluster.deploy("shop", &case).await;
    let versions = cluster.versions("shop").await;
    cluster.requests("shop").await;
    let changes = [
        (Change::Image, "newReplicaSet"),
        (Change::Replicas(9), "scale"),
        (Change::Restart, "newReplicaSet"),
        (Change::Apply, "newReplicaSet"),
    ];
    for (change, effect) in &changes {
        let arguments = change.preview_arguments(&cluster.manifest(&case.changed_manifest()));
        let preview = cluster.preview("viewer", "shop", &arguments, timing).await;
        assert_eq!(preview["effect"], *effect, "{preview:#}");
        let reason = preview["dryRun"]["reason"].as_str().unwrap();
        assert!(reason.contains("cannot patch resource \"deployments\""), "{reason}");
        assert_eq!(preview["unreadable"], json!([]), "{preview:#}");
        assert_eq!(preview["nodes"]["fits"], true, "{preview:#}");
        let text = cluster.run("viewer", "shop", &arguments, timing).await;
        assert!(text.contains("Checked by an embedded API server"), "{text}");
    }
    // An administrator's dry runs are performed, and write nothing either.
    let by_administrator =
        cluster.preview("admin", "shop", &["--image=app=app:new".to_owned()], timing).await;
    assert_eq!(by_administrator["dryRun"], json!({ "performed": true, "reason": null, "warnings": [] }));
    let by_viewer = cluster.preview("viewer", "shop", &["--image=app=app:new".to_owned()], timing).await;
    for field in ["replicaSet", "steps", "writes", "outcome"] {
        assert_eq!(by_administrator[field], by_viewer[field], "{field}");
    }
    assert_eq!(cluster.versions("shop").await, versions, "an object was written");
    let requests = cluster.requests("shop").await;
    let refused = requests.iter().filter(|request| request.verb == "patch" && request.code == 403).count();
    assert_eq!((refused, requests.len()), (2 * changes.len() + 1, 2 * changes.len() + 1), "{requests:#?}");
}

/// A user without permission for some lists gets a preview that names them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn plugin_of_kubectl_with_few_permissions() {
    let Some(mut cluster) = Cluster::start(Manager::This).await else { return };
    let case = Case::draw(1);
    cluster.deploy("shop", &case).await;
    let output = cluster.kubectl("guest", &["rollouts", "why", "web", "-n", "shop"]).await;
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let arguments = ["rollouts", "preview", "web", "-n", "shop", "--restart", "-o", "json"];
    let output = cluster.kubectl("guest", &arguments).await;
    let preview: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let unreadable = preview["unreadable"].as_array().unwrap();
    let names: Vec<_> = unreadable.iter().map(|one| one["resource"].as_str().unwrap()).collect();
    assert!(names.contains(&"nodes") && names.contains(&"resourcequotas"), "{names:?}");
    assert_eq!((&preview["nodes"]["fits"], &preview["outcome"]["end"]), (&Value::Null, &json!("complete")));
}

use super::*;
use crate::{
    Action, View,
    testing::{decide, deployment, replica_set, set_recreate},
};

fn view(running: &[&str]) -> View {
    let mut d = deployment(2);
    set_recreate(&mut d);
    let running = running.iter().map(|name| format!("uid-of-{name}").into()).collect();
    View { deployment: Arc::new(d), replica_sets: Vec::new(), running, terminating_replicas: true }
}

/// `TestScaleDownOldReplicaSets`.
#[test]
fn scale_down_old_replica_sets_takes_all_that_have_pods_to_zero() {
    let old = [(1, 3), (2, 0), (3, 5)]
        .map(|(created, size)| Arc::new(replica_set(&format!("old-{created}"), "any", created, size, 0)));
    let roles = ReplicaSetSplit { new: None, old: old.to_vec() };
    let (scaled, actions) = decide(&view(&[]), |pass| scale_down_old_replica_sets(pass, &roles));
    assert!(scaled.unwrap());
    let sizes: Vec<_> = actions
        .iter()
        .filter_map(|planned| match &planned.action {
            Action::UpdateReplicaSet(set) => Some((&*set.metadata.name, set.replicas())),
            _ => None,
        })
        .collect();
    assert_eq!(sizes, [("old-1", 0), ("old-3", 0)]);
    let none = ReplicaSetSplit { new: None, old: vec![Arc::clone(&old[1])] };
    assert!(!decide(&view(&[]), |pass| scale_down_old_replica_sets(pass, &none)).0.unwrap());
}

/// The cases of `TestOldPodsRunning` that look at pods are in `syncer`, where pods are looked at.
#[test]
fn old_pods_running_goes_by_pods_and_by_what_the_status_says() {
    let set = |name: &str, actual: i32| {
        let mut set = replica_set(name, "any", 1, 0, 0);
        set.status.replicas = actual;
        Arc::new(set)
    };
    let of = |roles: &ReplicaSetSplit, running: &[&str]| {
        decide(&view(running), |pass| Ok(old_pods_running(pass, roles))).0.unwrap()
    };
    let new = || Some(set("new", 2));
    assert!(!of(&ReplicaSetSplit { new: new(), old: vec![] }, &["new"]), "those of the new one do not count");
    assert!(of(&ReplicaSetSplit { new: new(), old: vec![set("old", 0)] }, &["old"]), "pods running");
    assert!(of(&ReplicaSetSplit { new: new(), old: vec![set("old", 1)] }, &[]), "pods by its status");
    assert!(!of(&ReplicaSetSplit { new: new(), old: vec![set("old", 0)] }, &[]), "none");
    assert!(of(&ReplicaSetSplit { new: None, old: vec![set("old", 0)] }, &["old"]), "no new one");
}

use std::sync::Arc;

use super::*;
use crate::{
    plan::Action,
    testing::{decide, deployment, replica_set, set_recreate, view_of},
    view::View,
};

/// Returns a view of a Recreate in which these ReplicaSets have running pods.
fn view(running: &[&str]) -> View {
    let mut d = deployment(2);
    set_recreate(&mut d);
    let running = running.iter().map(|name| format!("uid-of-{name}").into()).collect();
    View { running, ..view_of(d) }
}

/// `TestScaleDownOldReplicaSets`.
#[test]
fn scale_down_old_replica_sets_scales_active_ones_to_zero() {
    let old = [(1, 3), (2, 0), (3, 5)]
        .map(|(created, size)| Arc::new(replica_set(&format!("old-{created}"), "any", created, size, 0)));
    let replica_sets = ReplicaSetSplit { new: None, old: old.to_vec() };
    let (scaled, actions) = decide(&view(&[]), |plan| scale_down_old_replica_sets(plan, &replica_sets));
    assert!(scaled.unwrap());
    let sizes: Vec<_> = actions
        .iter()
        .filter_map(|planned| match &planned.action {
            Action::UpdateReplicaSet(set) => {
                Some((&*set.metadata.name, set.replicas(), planned.reason.clone()))
            }
            _ => None,
        })
        .collect();
    let reason = Some(Reason::RecreateScaleDown);
    assert_eq!(sizes, [("old-1", 0, reason.clone()), ("old-3", 0, reason)]);
    let inactive = ReplicaSetSplit { new: None, old: vec![Arc::clone(&old[1])] };
    assert!(!decide(&view(&[]), |plan| scale_down_old_replica_sets(plan, &inactive)).0.unwrap());
}

mod old_pods_running {
    use super::{super::old_pods_running, *};

    /// ReplicaSets, and the names of those with running pods.
    struct Case {
        name: &'static str,
        with_new: bool,
        /// `status.replicas` of the ReplicaSet `old`, if it exists.
        old_replicas: Option<i32>,
        running: &'static [&'static str],
        expected: bool,
    }

    fn check(case: &Case) {
        let set = |name: &str, replicas: i32| {
            let mut set = replica_set(name, "any", 1, 0, 0);
            set.status.replicas = replicas;
            Arc::new(set)
        };
        let replica_sets = ReplicaSetSplit {
            new: case.with_new.then(|| set("new", 2)),
            old: case.old_replicas.map(|replicas| set("old", replicas)).into_iter().collect(),
        };
        let (running, _) = decide(&view(case.running), |plan| Ok(old_pods_running(plan, &replica_sets)));
        assert_eq!(running.unwrap(), case.expected, "{}", case.name);
    }

    #[test]
    fn considers_pods_and_status_of_old_sets() {
        let cases = [
            Case {
                name: "pods of the new set",
                with_new: true,
                old_replicas: None,
                running: &["new"],
                expected: false,
            },
            Case {
                name: "pods of the old set",
                with_new: true,
                old_replicas: Some(0),
                running: &["old"],
                expected: true,
            },
            Case {
                name: "pods in the status of the old set",
                with_new: true,
                old_replicas: Some(1),
                running: &[],
                expected: true,
            },
            Case { name: "no pods", with_new: true, old_replicas: Some(0), running: &[], expected: false },
            Case {
                name: "no new set",
                with_new: false,
                old_replicas: Some(0),
                running: &["old"],
                expected: true,
            },
        ];
        cases.iter().for_each(check);
    }
}

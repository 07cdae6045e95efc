//! Upstream's TestGetPodsToDelete, and plans as they read.

use kcm_api::{Phase, Ready};

use super::*;
use crate::testing::{ago, now, owned_by, pod, ready, replica_set};

fn view(replicas: i32, pods: Vec<Pod>) -> View {
    let replica_set = replica_set("web", replicas);
    View {
        active: pods.into_iter().map(|pod| Arc::new(owned_by(&replica_set, pod))).collect(),
        replica_set: Arc::new(replica_set),
        terminating: Some(0),
        hold: None,
        burst_replicas: 500,
        pod_deletion_cost: true,
        related: Vec::new(),
    }
}

fn pods(count: usize) -> Vec<Pod> {
    (0..count).map(|number| pod(&format!("pod-{number:03}"))).collect()
}

/// The table of upstream's test.
struct Table;

impl Table {
    fn unscheduled_pending() -> Pod {
        Pod { phase: Phase::Pending, node_name: None, ..pod("unscheduled-pending") }
    }
    fn scheduled_pending() -> Pod {
        Pod { phase: Phase::Pending, ..pod("scheduled-pending") }
    }
    fn running_not_ready() -> Pod {
        pod("running-not-ready")
    }
    fn running_ready_on_node_1() -> Pod {
        Pod { node_name: Some("node-1".into()), ..ready(pod("running-ready-node-1"), ago(0)) }
    }
    fn running_ready_on_node_2() -> Pod {
        Pod { node_name: Some("node-2".into()), ..ready(pod("running-ready-node-2"), ago(0)) }
    }
}

/// The names of those that go when `keep` of `pods` may stay; related are `pods`, if nobody else is.
fn victims(keep: i32, pods: Vec<Pod>, related: Option<Vec<Pod>>) -> Vec<String> {
    let related = related.unwrap_or_else(|| pods.clone());
    let mut view = view(keep, pods);
    view.related = related.into_iter().map(Arc::new).collect();
    match plan(&view, now()) {
        Plan::DeletePods { victims, .. } => {
            victims.iter().map(|victim| victim.pod.key.name.to_string()).collect()
        }
        Plan::Nothing { .. } => Vec::new(),
        Plan::CreatePods { .. } => panic!("nothing is missing"),
    }
}

/// Upstream: TestGetPodsToDelete, all ten.
#[test]
fn test_get_pods_to_delete() {
    type T = Table;
    // A pod that upstream's test has twice goes by another name here.
    let again = |name: &str, pod: Pod| Pod { key: kcm_api::ObjectKey::new("default", name), ..pod };
    let various = || {
        vec![
            T::running_ready_on_node_1(),
            again("second-on-node-1", T::running_ready_on_node_1()),
            T::running_ready_on_node_2(),
            T::running_not_ready(),
            T::scheduled_pending(),
            T::unscheduled_pending(),
        ]
    };
    let in_order: &[&str] = &[
        "running-ready-node-1",
        "second-on-node-1",
        "running-ready-node-2",
        "running-not-ready",
        "scheduled-pending",
        "unscheduled-pending",
    ];
    let crowded = vec![
        T::running_ready_on_node_1(),
        T::running_ready_on_node_2(),
        again("sibling", T::running_ready_on_node_2()),
    ];
    // The pods, those related where that is not the same, how many go, and which.
    type Case<'a> = (&'static str, Vec<Pod>, Option<Vec<Pod>>, usize, &'a [&'static str]);
    let cases: [Case<'_>; 10] = [
        ("len(pods) = 0 (i.e., diff = 0 too)", vec![], None, 0, &[]),
        (
            "diff = len(pods)",
            vec![T::running_not_ready(), T::running_ready_on_node_1()],
            None,
            2,
            &["running-not-ready", "running-ready-node-1"],
        ),
        (
            "diff < len(pods)",
            vec![T::running_ready_on_node_1(), T::running_not_ready()],
            None,
            1,
            &["running-not-ready"],
        ),
        ("various pod phases and conditions, diff = len(pods)", various(), None, 6, in_order),
        (
            "various pod phases and conditions, diff = len(pods), relatedPods empty",
            various(),
            Some(vec![]),
            6,
            in_order,
        ),
        (
            "scheduled vs unscheduled, diff < len(pods)",
            vec![T::scheduled_pending(), T::unscheduled_pending()],
            None,
            1,
            &["unscheduled-pending"],
        ),
        (
            "ready vs not-ready, diff < len(pods)",
            vec![
                T::running_ready_on_node_1(),
                T::running_not_ready(),
                again("running-not-ready-too", T::running_not_ready()),
            ],
            None,
            2,
            &["running-not-ready", "running-not-ready-too"],
        ),
        (
            "ready and colocated with another ready pod vs not colocated, diff < len(pods)",
            vec![T::running_ready_on_node_1(), T::running_ready_on_node_2()],
            Some(crowded),
            1,
            &["running-ready-node-2"],
        ),
        (
            "pending vs running, diff < len(pods)",
            vec![T::scheduled_pending(), T::running_not_ready()],
            None,
            1,
            &["scheduled-pending"],
        ),
        (
            "various pod phases and conditions, diff < len(pods)",
            various().into_iter().filter(|pod| &*pod.key.name != "second-on-node-1").collect(),
            None,
            3,
            &["unscheduled-pending", "scheduled-pending", "running-not-ready"],
        ),
    ];
    for (name, pods, related, count, expected) in cases {
        let keep = i32::try_from(pods.len() - count).unwrap();
        assert_eq!(victims(keep, pods, related), expected, "{name}");
    }
}

#[test]
fn nothing_goes_where_nothing_is_too_many() {
    assert_eq!(victims(2, vec![Table::running_not_ready(), Table::running_ready_on_node_1()], None), [""; 0]);
}

#[test]
fn plan_creates_or_deletes_at_most_a_burst() {
    let with_burst = |burst_replicas, view: View| plan(&View { burst_replicas, ..view }, now());
    let Plan::CreatePods { count, reason } = with_burst(500, view(1200, pods(1))) else { panic!("creates") };
    assert_eq!((count, reason.as_str()), (500, "1200 wanted, 1 active: 1199 missing, 500 of them in one go"));
    let Plan::DeletePods { victims, reason } = with_burst(3, view(1, pods(5))) else { panic!("deletes") };
    assert_eq!((victims.len(), reason.as_str()), (3, "1 wanted, 5 active: 4 too many, 3 of them in one go"));
    // A burst may leave a choice where all must go in the end.
    let Plan::DeletePods { victims, .. } = with_burst(1, view(0, pods(2))) else { panic!("deletes") };
    assert_ne!(victims[0].why, Why::AllGo);
}

#[test]
fn plan_for_a_size_below_zero_deletes_what_is_there() {
    let Plan::DeletePods { victims, .. } = plan(&view(-3, pods(2)), now()) else { panic!("deletes") };
    assert_eq!(victims.len(), 2);
    assert!(matches!(plan(&view(-3, pods(0)), now()), Plan::Nothing { .. }));
}

#[test]
fn plan_on_hold_does_nothing_and_says_why() {
    let held = |hold| plan(&View { hold: Some(hold), ..view(5, pods(1)) }, now());
    assert_eq!(
        held(Hold::ExpectationsPending).reason(),
        "earlier creations or deletions have not all been seen yet"
    );
    assert_eq!(held(Hold::BeingDeleted).reason(), "it is being deleted: only its status is kept up");
}

#[test]
fn age_ratio_of_pods_created_this_very_moment_is_not_computed() {
    let young = |name: &str| Pod { creation_timestamp: ago(0), ..ready(pod(name), ago(0)) };
    let Plan::DeletePods { victims, .. } = plan(&view(1, vec![young("a"), young("b")]), now()) else {
        panic!("deletes")
    };
    assert_eq!(victims[0].age_ratio, None);
}

#[test]
fn plan_for_a_new_replica_set_reads_well() {
    insta::assert_yaml_snapshot!(plan(&view(3, vec![]), now()));
}

#[test]
fn plan_for_a_settled_replica_set_reads_well() {
    insta::assert_yaml_snapshot!(plan(&view(2, pods(2)), now()));
}

#[test]
fn plan_to_zero_reads_well() {
    insta::assert_yaml_snapshot!(plan(&view(0, pods(2)), now()));
}

/// `TestPodDeletionCost`: the case `disabled-with-different-costs`, in which the pod that restarted goes.
#[test]
fn deletion_cost_is_ignored_with_the_gate_off() {
    let pod = |name: &str, deletion_cost, max_restarts| Pod {
        deletion_cost,
        max_restarts,
        ..ready(pod(name), ago(0))
    };
    let view = view(1, vec![pod("expensive", 1000, 5), pod("cheap", 100, 0)]);
    let deleted = |pod_deletion_cost| match plan(&View { pod_deletion_cost, ..view.clone() }, now()) {
        Plan::DeletePods { victims, .. } => {
            victims.iter().map(|victim| victim.pod.key.name.to_string()).collect()
        }
        other => vec![format!("{other:?}")],
    };
    assert_eq!(deleted(true), ["cheap"]);
    assert_eq!(deleted(false), ["expensive"]);
}

#[test]
fn plan_that_scales_down_tells_why_each_pod_goes() {
    let on = |node: &str, pod: Pod| Pod { node_name: Some(node.into()), ..pod };
    let old = |name: &str| Pod { creation_timestamp: ago(100_000), ..ready(pod(name), ago(90_000)) };
    let all = vec![
        on("quiet", old("stays")),
        on("quiet", Pod { max_restarts: 4, ..old("restarts") }),
        on("quiet", ready(old("just-ready"), ago(5))),
        on("crowded", old("crowded")),
        on("quiet", Pod { deletion_cost: -5, ..old("cheap") }),
        on("quiet", Pod { ready: Ready { is_ready: false, since: ago(50) }, ..pod("not-ready") }),
        on("quiet", Pod { phase: Phase::Pending, ..pod("pending") }),
        Pod { node_name: None, phase: Phase::Pending, ..pod("unscheduled") },
    ];
    let mut view = view(1, all);
    let siblings = ["x", "y", "z", "w", "v", "u", "t"].map(|name| Arc::new(on("crowded", pod(name))));
    view.related = view.active.iter().cloned().chain(siblings).collect();
    insta::assert_yaml_snapshot!(plan(&view, now()));
}

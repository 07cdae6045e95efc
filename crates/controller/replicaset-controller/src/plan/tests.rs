use std::sync::Arc;

use kcm_api::{ObjectKey, Phase, Pod, Ready};

use super::*;
use crate::testing::{ago, now, owned_by, pod, ready, replica_set};

fn view(replicas: i32, pods: Vec<Pod>) -> View {
    let replica_set = replica_set("web", replicas);
    View {
        active: pods.into_iter().map(|pod| Arc::new(owned_by(&replica_set, pod))).collect(),
        replica_set: Arc::new(replica_set),
        terminating: Some(0),
        block: None,
        burst_replicas: 500,
        pod_deletion_cost: true,
        related: Vec::new(),
    }
}

fn pods(count: usize) -> Vec<Pod> {
    (0..count).map(|number| pod(&format!("pod-{number:03}"))).collect()
}

/// Pods of upstream's cases.
mod case_pods {
    use super::*;

    pub(super) fn unscheduled_pending() -> Pod {
        Pod { phase: Phase::Pending, node_name: None, ..pod("unscheduled-pending") }
    }

    pub(super) fn scheduled_pending() -> Pod {
        Pod { phase: Phase::Pending, ..pod("scheduled-pending") }
    }

    pub(super) fn running_not_ready() -> Pod {
        pod("running-not-ready")
    }

    pub(super) fn ready_on_node_1() -> Pod {
        Pod { node_name: Some("node-1".into()), ..ready(pod("ready-node-1"), ago(0)) }
    }

    pub(super) fn ready_on_node_2() -> Pod {
        Pod { node_name: Some("node-2".into()), ..ready(pod("ready-node-2"), ago(0)) }
    }

    /// The second pod of the same properties in one case.
    pub(super) fn second(name: &str, pod: Pod) -> Pod {
        Pod { key: ObjectKey::new("default", name), ..pod }
    }
}

/// Names of the pods that `plan` deletes.
fn deleted(plan: &Plan) -> Vec<&str> {
    match plan {
        Plan::DeletePods { pods, .. } => pods.iter().map(|deletion| &*deletion.pod.key.name).collect(),
        Plan::Nothing { .. } => Vec::new(),
        Plan::CreatePods { .. } => panic!("{plan:?}"),
    }
}

struct Case {
    name: &'static str,
    pods: Vec<Pod>,
    /// `None` if the related pods are `pods`.
    related: Option<Vec<Pod>>,
    diff: usize,
    expected: Vec<&'static str>,
}

impl Case {
    fn check(self) {
        let replicas = i32::try_from(self.pods.len() - self.diff).unwrap();
        let related = self.related.unwrap_or_else(|| self.pods.clone());
        let mut view = view(replicas, self.pods);
        view.related = related.into_iter().map(Arc::new).collect();
        assert_eq!(deleted(&plan(&view, now())), self.expected, "{}", self.name);
    }
}

/// Upstream: TestGetPodsToDelete, all ten cases.
#[test]
fn test_get_pods_to_delete() {
    use case_pods::*;
    let various = || {
        vec![
            ready_on_node_1(),
            second("second-on-node-1", ready_on_node_1()),
            ready_on_node_2(),
            running_not_ready(),
            scheduled_pending(),
            unscheduled_pending(),
        ]
    };
    let all_various = || {
        vec![
            "ready-node-1",
            "second-on-node-1",
            "ready-node-2",
            "running-not-ready",
            "scheduled-pending",
            "unscheduled-pending",
        ]
    };
    let cases = [
        Case {
            name: "len(pods) = 0 (i.e., diff = 0 too)",
            pods: vec![],
            related: None,
            diff: 0,
            expected: vec![],
        },
        Case {
            name: "diff = len(pods)",
            pods: vec![running_not_ready(), ready_on_node_1()],
            related: None,
            diff: 2,
            expected: vec!["running-not-ready", "ready-node-1"],
        },
        Case {
            name: "diff < len(pods)",
            pods: vec![ready_on_node_1(), running_not_ready()],
            related: None,
            diff: 1,
            expected: vec!["running-not-ready"],
        },
        Case {
            name: "various pod phases and conditions, diff = len(pods)",
            pods: various(),
            related: None,
            diff: 6,
            expected: all_various(),
        },
        Case {
            name: "various pod phases and conditions, diff = len(pods), relatedPods empty",
            pods: various(),
            related: Some(vec![]),
            diff: 6,
            expected: all_various(),
        },
        Case {
            name: "scheduled vs unscheduled, diff < len(pods)",
            pods: vec![scheduled_pending(), unscheduled_pending()],
            related: None,
            diff: 1,
            expected: vec!["unscheduled-pending"],
        },
        Case {
            name: "ready vs not-ready, diff < len(pods)",
            pods: vec![
                ready_on_node_1(),
                running_not_ready(),
                second("running-not-ready-too", running_not_ready()),
            ],
            related: None,
            diff: 2,
            expected: vec!["running-not-ready", "running-not-ready-too"],
        },
        Case {
            name: "ready and colocated with another ready pod vs not colocated, diff < len(pods)",
            pods: vec![ready_on_node_1(), ready_on_node_2()],
            related: Some(vec![ready_on_node_1(), ready_on_node_2(), second("sibling", ready_on_node_2())]),
            diff: 1,
            expected: vec!["ready-node-2"],
        },
        Case {
            name: "pending vs running, diff < len(pods)",
            pods: vec![scheduled_pending(), running_not_ready()],
            related: None,
            diff: 1,
            expected: vec!["scheduled-pending"],
        },
        Case {
            name: "various pod phases and conditions, diff < len(pods)",
            pods: various().into_iter().filter(|pod| &*pod.key.name != "second-on-node-1").collect(),
            related: None,
            diff: 3,
            expected: vec!["unscheduled-pending", "scheduled-pending", "running-not-ready"],
        },
    ];
    cases.into_iter().for_each(Case::check);
}

#[test]
fn deletes_nothing_without_surplus() {
    let pods = vec![case_pods::running_not_ready(), case_pods::ready_on_node_1()];
    assert_eq!(
        plan(&view(2, pods), now()),
        Plan::Nothing { reason: PlanReason::Settled { need: 2, active: 2 } }
    );
}

#[test]
fn creates_or_deletes_at_most_a_burst() {
    let with_burst = |burst_replicas, view: View| plan(&View { burst_replicas, ..view }, now());
    let reason = PlanReason::TooFewReplicas { need: 1200, active: 1, creating: 500 };
    assert_eq!(with_burst(500, view(1200, pods(1))), Plan::CreatePods { count: 500, reason });
    let plan = with_burst(3, view(1, pods(5)));
    assert_eq!(deleted(&plan).len(), 3);
    assert_eq!(plan.reason(), PlanReason::TooManyReplicas { need: 1, active: 5, deleting: 3 });
}

/// All pods are deleted by two syncs. The first ranks them.
#[test]
fn ranks_pods_if_the_burst_is_smaller_than_their_number() {
    let view = View { burst_replicas: 1, ..view(0, pods(2)) };
    let Plan::DeletePods { pods, .. } = plan(&view, now()) else { panic!("deletes") };
    assert_ne!(pods[0].reason, DeletionReason::AllPods);
}

#[test]
fn deletes_all_pods_if_replicas_is_negative() {
    assert_eq!(deleted(&plan(&view(-3, pods(2)), now())).len(), 2);
    assert!(matches!(plan(&view(-3, pods(0)), now()), Plan::Nothing { .. }));
}

#[test]
fn does_nothing_if_blocked() {
    let reason = |block| plan(&View { block: Some(block), ..view(5, pods(1)) }, now()).reason();
    assert_eq!(reason(ManageBlock::ExpectationsPending), PlanReason::ExpectationsPending);
    assert_eq!(reason(ManageBlock::BeingDeleted), PlanReason::BeingDeleted);
}

/// The age of the youngest ready pod is the divisor.
#[test]
fn age_ratio_is_not_computed_if_the_divisor_is_zero() {
    let young = |name: &str| Pod { creation_timestamp: ago(0), ..ready(pod(name), ago(0)) };
    let Plan::DeletePods { pods, .. } = plan(&view(1, vec![young("a"), young("b")]), now()) else {
        panic!("deletes")
    };
    assert_eq!(pods[0].age_ratio, None);
}

#[test]
fn transcript_of_a_new_replica_set() {
    insta::assert_yaml_snapshot!(plan(&view(3, vec![]), now()));
}

#[test]
fn transcript_of_a_settled_replica_set() {
    insta::assert_yaml_snapshot!(plan(&view(2, pods(2)), now()));
}

#[test]
fn transcript_of_a_replica_set_scaled_to_zero() {
    insta::assert_yaml_snapshot!(plan(&view(0, pods(2)), now()));
}

/// `TestPodDeletionCost`: the case `disabled-with-different-costs`, in which the pod that restarted is deleted.
#[test]
fn deletion_cost_is_ignored_with_the_gate_off() {
    let pod = |name: &str, deletion_cost, max_restarts| Pod {
        deletion_cost,
        max_restarts,
        ..ready(pod(name), ago(0))
    };
    let view = view(1, vec![pod("expensive", 1000, 5), pod("cheap", 100, 0)]);
    let with_gate = |pod_deletion_cost| plan(&View { pod_deletion_cost, ..view.clone() }, now());
    assert_eq!(deleted(&with_gate(true)), ["cheap"]);
    assert_eq!(deleted(&with_gate(false)), ["expensive"]);
}

#[test]
fn transcript_of_a_scale_down() {
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

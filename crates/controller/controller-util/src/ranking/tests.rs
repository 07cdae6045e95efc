use proptest::prelude::*;

use super::*;
use crate::testing::{ago, now, on, pod, ready};

const HOUR: i64 = 3600;
const MONTH: i64 = 30 * 24 * HOUR;

/// Compares two pods, given the related pods on their nodes. `Less` if `a` is deleted first.
fn decide(a: &Pod, a_related: u32, b: &Pod, b_related: u32) -> (Ordering, Criterion) {
    decide_with(true, (a, a_related), (b, b_related))
}

/// [`decide`] with the feature gate `PodDeletionCost` on or off.
fn decide_with(deletion_cost: bool, a: (&Pod, u32), b: (&Pod, u32)) -> (Ordering, Criterion) {
    fn ranked(pod: &Arc<Pod>, related: u32, deletion_cost: bool) -> Ranked<'_, Pod> {
        let counts = NodeCounts(HashMap::from([(pod.node(), related)]));
        Ranked::new(pod, &Ranking { deletion_cost, ..Ranking::new(&counts, now()) })
    }
    let ((a, a_related), (b, b_related)) = (a, b);
    let (a, b) = (Arc::new(a.clone()), Arc::new(b.clone()));
    let (a, b) = (ranked(&a, a_related, deletion_cost), ranked(&b, b_related, deletion_cost));
    let order = a.grade.cmp(&b.grade).then_with(|| compare_in_grade(&**a.pod, &**b.pod, now()).0);
    (order, a.difference(&b, now()))
}

/// Pods of upstream's cases.
struct Table {
    unscheduled: Pod,
    scheduled_pending: Pod,
    unknown: Pod,
    running_not_ready: Pod,
    ready_without_time: Pod,
    ready_now: Pod,
    ready_for_a_month: Pod,
    ready_with_restarts: Pod,
    ready_with_more_restarts: Pod,
    low_cost: Pod,
    high_cost: Pod,
}

impl Table {
    fn new() -> Self {
        // Upstream's have no UIDs, so that UIDs decide nothing.
        let pod = |name| Pod { uid: "".into(), ..pod(name) };
        let here = |name| on(pod(name), "node");
        Self {
            unscheduled: Pod { phase: Phase::Pending, ..pod("unscheduled") },
            scheduled_pending: Pod { phase: Phase::Pending, ..here("scheduled-pending") },
            unknown: Pod { phase: Phase::Unknown, ..here("unknown") },
            running_not_ready: here("running-not-ready"),
            ready_without_time: ready(here("ready-without-time"), None),
            ready_now: ready(here("ready-now"), ago(0)),
            ready_for_a_month: ready(here("ready-for-a-month"), ago(MONTH)),
            ready_with_restarts: Pod { max_restarts: 1, ..ready(here("restarts-1"), ago(MONTH)) },
            ready_with_more_restarts: Pod { max_restarts: 2, ..ready(here("restarts-2"), ago(MONTH)) },
            low_cost: Pod { deletion_cost: -10, ..ready(here("low-cost"), ago(MONTH)) },
            high_cost: Pod { deletion_cost: 10, ..here("high-cost") },
        }
    }
}

/// A pod of upstream's `TestSortingActivePodsWithRanks`, by its name there.
fn upstream_pod(name: &str) -> Pod {
    // Upstream's have no UIDs, so that UIDs decide nothing.
    let scheduled = |phase| Pod { uid: "".into(), phase, ..on(pod(name), "node") };
    let nowhere = |phase| Pod { node_name: None, ..scheduled(phase) };
    let month = ago(MONTH);
    let created = |created, pod: Pod| Pod { creation_timestamp: created, ..pod };
    let running = |since, when| created(when, ready(scheduled(Phase::Running), since));
    match name {
        "unscheduled" => nowhere(Phase::Pending),
        "pending" => scheduled(Phase::Pending),
        "unknown-phase" => scheduled(Phase::Unknown),
        "not-ready" => scheduled(Phase::Running),
        "ready-no-last-transition-time" => running(None, None),
        "ready-now" => running(ago(0), ago(0)),
        "ready-then" => running(month, month),
        "ready-high-restarts" => Pod { max_restarts: 9001, ..running(ago(0), ago(0)) },
        "ready-high-side-restarts" => {
            Pod { max_restarts: 9001, max_sidecar_restarts: 9001, ..running(ago(0), ago(0)) }
        }
        "ready-now-created-then" => running(ago(0), month),
        "low-deletion-cost" => Pod { deletion_cost: 10, ..running(ago(0), month) },
        "high-deletion-cost" => Pod { deletion_cost: 100, ..running(ago(0), month) },
        "unscheduled-5-hours" => created(ago(5 * HOUR), nowhere(Phase::Pending)),
        "unscheduled-10-hours" => created(ago(8 * HOUR), nowhere(Phase::Pending)),
        "ready-2-hours" => created(month, ready(nowhere(Phase::Running), ago(2 * HOUR))),
        "ready-5-hours" => created(month, ready(nowhere(Phase::Running), ago(5 * HOUR))),
        "ready-10-hours" => created(month, ready(nowhere(Phase::Running), ago(8 * HOUR))),
        _ => panic!("upstream has no pod {name}"),
    }
}

/// `TestSortingActivePodsWithRanks`: its eleven equal pairs, of which one comes twice. Five and eight hours (which
/// upstream calls ten) are of one order of magnitude.
#[test]
fn test_sorting_active_pods_with_ranks_equal_pairs() {
    let cases = [
        "unscheduled = unscheduled",
        "pending = pending",
        "unknown-phase = unknown-phase",
        "not-ready = not-ready",
        "ready-now-created-then = ready-now-created-then",
        "ready-now = ready-now",
        "ready-then = ready-then",
        "ready-high-restarts = ready-high-restarts",
        "unscheduled-5-hours = unscheduled-10-hours",
        "ready-5-hours = ready-10-hours",
    ];
    for name in cases {
        let (one, other) = name.split_once(" = ").unwrap();
        let (one, other) = (upstream_pod(one), upstream_pod(other));
        assert_eq!(decide(&one, 1, &other, 1).0, Ordering::Equal, "{name}");
        assert_eq!(decide(&other, 1, &one, 1).0, Ordering::Equal, "{name}, the other way round");
    }
}

/// `TestSortingActivePodsWithRanks`: its ordered pairs, each with its rank.
#[test]
fn test_sorting_active_pods_with_ranks_ordered_pairs() {
    use Criterion as C;
    let cases = [
        ("unscheduled 1 < pending 2", C::NotScheduled),
        ("unscheduled 2 < pending 1", C::NotScheduled),
        ("pending 1 < unknown-phase 2", C::Phase),
        ("unknown-phase 1 < not-ready 2", C::Phase),
        ("not-ready 1 < ready-no-last-transition-time 1", C::NotReady),
        ("ready-no-last-transition-time 1 < ready-now 1", C::ReadyMoreRecently),
        ("ready-now 2 < ready-no-last-transition-time 1", C::CrowdedNode),
        ("ready-now 1 < ready-then 1", C::ReadyMoreRecently),
        ("ready-now 2 < ready-then 1", C::CrowdedNode),
        ("ready-high-restarts 1 < ready-now 1", C::MoreRestarts),
        ("ready-high-side-restarts 1 < ready-high-restarts 1", C::MoreSidecarRestarts),
        ("ready-now 2 < ready-high-restarts 1", C::CrowdedNode),
        ("ready-now 1 < ready-now-created-then 1", C::CreatedMoreRecently),
        ("ready-now-created-then 2 < ready-now 1", C::CrowdedNode),
        ("low-deletion-cost 2 < high-deletion-cost 1", C::DeletionCost),
        ("ready-2-hours 1 < ready-5-hours 1", C::ReadyMoreRecently),
    ];
    let ranked = |text: &str| {
        let (name, rank) = text.split_once(' ').unwrap();
        (upstream_pod(name), rank.parse().unwrap())
    };
    for (name, criterion) in cases {
        let (lesser, greater) = name.split_once(" < ").unwrap();
        let ((lesser, lesser_rank), (greater, greater_rank)) = (ranked(lesser), ranked(greater));
        let there = decide(&lesser, lesser_rank, &greater, greater_rank);
        assert_eq!(there, (Ordering::Less, criterion), "{name}");
        let back = decide(&greater, greater_rank, &lesser, lesser_rank);
        assert_eq!(back, (Ordering::Greater, criterion), "{name}, the other way round");
    }
}

/// `TestSortingActivePodsWithRanks`: high-deletion-cost 2 < low-deletion-cost 1 with the gate PodDeletionCost off.
#[test]
fn test_sorting_active_pods_with_ranks_without_deletion_cost() {
    let (high, low) = (upstream_pod("high-deletion-cost"), upstream_pod("low-deletion-cost"));
    let off = |a: (&Pod, u32), b: (&Pod, u32)| decide_with(false, a, b);
    assert_eq!(off((&high, 2), (&low, 1)), (Ordering::Less, Criterion::CrowdedNode));
    assert_eq!(off((&low, 1), (&high, 2)), (Ordering::Greater, Criterion::CrowdedNode));
    assert_eq!(off((&low, 1), (&high, 1)).0, Ordering::Equal);
}

#[test]
fn rank_and_cost_and_restarts_decide_in_this_order() {
    struct Case<'a> {
        first: &'a Pod,
        first_related: u32,
        second: &'a Pod,
        second_related: u32,
        criterion: Criterion,
    }

    use Criterion as C;
    let t = Table::new();
    let pairs = [
        // More related pods on the node come before the age of being ready, and before restarts.
        Case {
            first: &t.ready_for_a_month,
            first_related: 2,
            second: &t.ready_now,
            second_related: 1,
            criterion: C::CrowdedNode,
        },
        Case {
            first: &t.ready_for_a_month,
            first_related: 2,
            second: &t.ready_with_restarts,
            second_related: 1,
            criterion: C::CrowdedNode,
        },
        Case {
            first: &t.ready_with_restarts,
            first_related: 1,
            second: &t.ready_for_a_month,
            second_related: 1,
            criterion: C::MoreRestarts,
        },
        Case {
            first: &t.ready_with_more_restarts,
            first_related: 1,
            second: &t.ready_with_restarts,
            second_related: 1,
            criterion: C::MoreRestarts,
        },
        Case {
            first: &t.low_cost,
            first_related: 0,
            second: &t.ready_for_a_month,
            second_related: 5,
            criterion: C::DeletionCost,
        },
        Case {
            first: &t.running_not_ready,
            first_related: 0,
            second: &t.high_cost,
            second_related: 5,
            criterion: C::DeletionCost,
        },
    ];
    for Case { first, first_related, second, second_related, criterion } in pairs {
        let name = format!("{} before {}", first.key, second.key);
        let there = decide(first, first_related, second, second_related);
        assert_eq!(there, (Ordering::Less, criterion), "{name}");
        let back = decide(second, second_related, first, first_related);
        assert_eq!(back, (Ordering::Greater, criterion), "{name}, the other way round");
    }
}

/// Upstream: TestSortingActivePods.
#[test]
fn test_sorting_active_pods() {
    let t = Table::new();
    let expected = [
        &t.unscheduled,
        &t.scheduled_pending,
        &t.unknown,
        &t.running_not_ready,
        &t.ready_without_time,
        &t.ready_now,
        &t.ready_with_more_restarts,
        &t.ready_with_restarts,
        &t.ready_for_a_month,
    ];
    let pods: Vec<_> = expected.iter().rev().map(|pod| Arc::new((*pod).clone())).collect();
    let order = rank_for_deletion(&pods, pods.len(), &Ranking::new(&NodeCounts::default(), now()));
    let names: Vec<_> = order.iter().map(|ranked| ranked.pod.key.name.to_string()).collect();
    assert_eq!(names, expected.map(|pod| pod.key.name.to_string()));
}

#[test]
fn unknown_phase_ranks_like_pending() {
    let here = |phase| on(Pod { phase, ..pod("a") }, "node");
    assert_eq!(decide(&here(Phase::Other), 0, &here(Phase::Pending), 0).0, Ordering::Equal);
    assert_eq!(decide(&here(Phase::Other), 0, &here(Phase::Unknown), 0).0, Ordering::Less);
}

#[test]
fn times_of_one_magnitude_compare_by_uid_only() {
    // As upstream, restarts are not compared (US-9.28).
    let a = Pod { uid: "a".into(), ..ready(pod("x"), ago(8 * HOUR)) };
    let b = Pod { uid: "b".into(), max_restarts: 9, ..ready(pod("y"), ago(5 * HOUR)) };
    assert_eq!(decide(&a, 0, &b, 0), (Ordering::Less, Criterion::ReadyUid));
    let created = |uid: &str, age| Pod { uid: uid.into(), creation_timestamp: ago(age), ..pod(uid) };
    let (a, b) = (created("a", 8 * HOUR), created("b", 5 * HOUR));
    assert_eq!(decide(&a, 0, &b, 0), (Ordering::Less, Criterion::CreatedUid));
}

#[test]
fn future_time_ranks_before_past_and_missing_time_before_both() {
    let at = |since| ready(pod("a"), since);
    assert_eq!(decide(&at(ago(-60)), 0, &at(ago(1)), 0).0, Ordering::Less);
    assert_eq!(decide(&at(None), 0, &at(ago(-60)), 0).0, Ordering::Less);
}

#[test]
fn node_counts_contain_active_pods_and_pods_without_node() {
    let pods = [
        on(pod("a"), "n1"),
        on(pod("b"), "n1"),
        on(Pod { phase: Phase::Succeeded, ..pod("c") }, "n1"),
        on(Pod { deletion_timestamp: ago(1), ..pod("d") }, "n1"),
        pod("e"),
    ]
    .map(Arc::new);
    let counts = NodeCounts::of(&pods);
    assert_eq!((counts.get("n1"), counts.get(""), counts.get("n2")), (2, 1, 0));
}

#[test]
fn criterion_is_the_difference_from_the_first_kept_pod() {
    let pods = [
        pod("nowhere"),
        on(Pod { phase: Phase::Pending, ..pod("pending") }, "n"),
        on(pod("kept"), "n"),
        ready(on(pod("kept-too"), "n"), ago(9)),
    ]
    .map(Arc::new);
    let ranked = rank_for_deletion(&pods, 2, &Ranking::new(&NodeCounts::default(), now()));
    let criteria: Vec<_> = ranked.iter().map(|ranked| (&*ranked.pod.key.name, ranked.criterion)).collect();
    assert_eq!(criteria, [("nowhere", Criterion::NotScheduled), ("pending", Criterion::Phase)]);
}

#[test]
fn returns_at_most_all_pods() {
    let pods = [pod("a"), pod("b")].map(Arc::new);
    assert_eq!(rank_for_deletion(&pods, 5, &Ranking::new(&NodeCounts::default(), now())).len(), 2);
    assert!(rank_for_deletion::<Pod>(&[], 5, &Ranking::new(&NodeCounts::default(), now())).is_empty());
    assert!(rank_for_deletion(&pods, 0, &Ranking::new(&NodeCounts::default(), now())).is_empty());
}

#[test]
fn result_is_deterministic_if_the_comparison_is_cyclic() {
    // By UID b < c < a, because c became ready at another time of the same magnitude; by restarts a < b.
    let make =
        |uid: &str, since, max_restarts| Pod { uid: uid.into(), max_restarts, ..ready(pod(uid), ago(since)) };
    let (a, b, c) = (make("3", HOUR * 5, 2), make("1", HOUR * 5, 1), make("2", HOUR * 6, 0));
    let before = |x: &Pod, y: &Pod| decide(x, 0, y, 0).0 == Ordering::Less;
    assert!(before(&a, &b) && before(&b, &c) && before(&c, &a), "no cycle");
    let orders = [[&a, &b, &c], [&c, &b, &a], [&b, &a, &c]].map(|pods| {
        let pods = pods.map(|pod| Arc::new(pod.clone()));
        rank_for_deletion(&pods, 3, &Ranking::new(&NodeCounts::default(), now()))
    });
    assert!(orders.iter().all(|order| *order == orders[0]));
}

fn any_pod() -> impl Strategy<Value = Pod> {
    // Few values, so that ties and cycles occur.
    let phase = prop_oneof![Just(Phase::Pending), Just(Phase::Running), Just(Phase::Unknown)];
    let time = prop_oneof![Just(None), (0_i64..6).prop_map(|n| ago(n * 7)), Just(ago(-3)), Just(ago(MONTH))];
    let node = prop_oneof![Just(None), Just(Some("n1")), Just(Some("n2"))];
    let numbers = (0_i32..2, 0_i32..3, 0_i32..2);
    (0_u32..1000, node, phase, any::<bool>(), time.clone(), time, numbers).prop_map(
        |(uid, node, phase, is_ready, since, created, (cost, restarts, sidecars))| Pod {
            uid: uid.to_string().into(),
            node_name: node.map(Into::into),
            phase,
            ready: Ready { is_ready, since },
            creation_timestamp: created,
            deletion_cost: cost,
            max_restarts: restarts,
            max_sidecar_restarts: sidecars,
            ..pod("p")
        },
    )
}

fn any_pods() -> impl Strategy<Value = Vec<Arc<Pod>>> {
    prop::collection::vec(any_pod(), 0..14).prop_map(|pods| {
        let numbered = pods.into_iter().enumerate();
        numbered
            .map(|(number, pod)| {
                Arc::new(Pod { key: kcm_api::ObjectKey::new("n", format!("p{number}")), ..pod })
            })
            .collect()
    })
}

proptest! {
    #[test]
    fn ranking_does_not_depend_on_the_order_of_the_cache(
        (pods, shuffled) in any_pods().prop_flat_map(|pods| (Just(pods.clone()), Just(pods).prop_shuffle())),
        count in 0_usize..14,
    ) {
        let related = NodeCounts::of(&pods);
        prop_assert_eq!(
            rank_for_deletion(&pods, count, &Ranking::new(&related, now())),
            rank_for_deletion(&shuffled, count, &Ranking::new(&related, now()))
        );
    }

    /// If upstream's comparison is an order, deleted pods are in this order, and no kept pod precedes a deleted one.
    #[test]
    fn ranking_agrees_with_upstream_if_its_comparison_is_an_order(
        pods in any_pods(),
        count in 0_usize..14,
    ) {
        let related = NodeCounts::of(&pods);
        let before = |a: &Arc<Pod>, b: &Arc<Pod>| {
            let (a, b) = (Ranked::new(a, &Ranking::new(&related, now())), Ranked::new(b, &Ranking::new(&related, now())));
            a.grade.cmp(&b.grade).then_with(|| compare_in_grade(&**a.pod, &**b.pod, now()).0).is_lt()
        };
        let equal = |a: &Arc<Pod>, b: &Arc<Pod>| !before(a, b) && !before(b, a);
        let is_order = pods.iter().all(|a| pods.iter().all(|b| pods.iter().all(|c| {
            (!before(a, b) || !before(b, c) || before(a, c)) && (!equal(a, b) || !equal(b, c) || equal(a, c))
        })));
        prop_assume!(is_order);

        let deleted: Vec<_> =
            rank_for_deletion(&pods, count, &Ranking::new(&related, now())).into_iter().map(|ranked| ranked.pod).collect();
        prop_assert_eq!(deleted.len(), count.min(pods.len()));
        prop_assert!(deleted.windows(2).all(|pair| !before(&pair[1], &pair[0])));
        let mut kept = pods.iter().filter(|pod| !deleted.contains(pod));
        prop_assert!(kept.all(|kept| deleted.iter().all(|deleted| !before(kept, deleted))));
    }
}

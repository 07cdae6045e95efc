use proptest::prelude::*;

use super::*;
use crate::testing::{ago, now, on, pod, ready};

const HOUR: i64 = 3600;
const MONTH: i64 = 30 * 24 * HOUR;

/// Which of two pods goes first, given how many related pods there are on their nodes; and by what.
fn decide(a: &Pod, a_related: u32, b: &Pod, b_related: u32) -> (Ordering, Criterion) {
    fn ranked(pod: &Arc<Pod>, related: u32) -> Ranked<'_> {
        let counts = NodeCounts(HashMap::from([(node(pod), related)]));
        Ranked::new(pod, &counts, now())
    }
    let (a, b) = (Arc::new(a.clone()), Arc::new(b.clone()));
    let (a, b) = (ranked(&a, a_related), ranked(&b, b_related));
    let order = a.grade.cmp(&b.grade).then_with(|| compare_in_grade(a.pod, b.pod, now()).0);
    (order, a.difference(&b, now()))
}

/// The pods of upstream's table.
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
    ready_with_sidecar_restarts: Pod,
    ready_and_created_now: Pod,
    ready_and_created_a_month_ago: Pod,
    low_cost: Pod,
    high_cost: Pod,
    ready_for_two_hours: Pod,
    ready_for_five_hours: Pod,
    ready_for_eight_hours: Pod,
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
            ready_with_sidecar_restarts: Pod {
                max_restarts: 1,
                max_sidecar_restarts: 3,
                ..ready(here("sidecar"), ago(MONTH))
            },
            ready_and_created_now: Pod { created: ago(0), ..ready(here("created-now"), ago(MONTH)) },
            ready_and_created_a_month_ago: Pod {
                created: ago(MONTH),
                ..ready(here("created-a-month-ago"), ago(MONTH))
            },
            low_cost: Pod { deletion_cost: -10, ..ready(here("low-cost"), ago(MONTH)) },
            high_cost: Pod { deletion_cost: 10, ..here("high-cost") },
            ready_for_two_hours: ready(here("two-hours"), ago(2 * HOUR)),
            ready_for_five_hours: ready(here("five-hours"), ago(5 * HOUR)),
            ready_for_eight_hours: ready(here("eight-hours"), ago(8 * HOUR)),
        }
    }
}

#[test]
fn test_sorting_active_pods_with_ranks_equal_pairs() {
    let table = Table::new();
    let each = [
        &table.unscheduled,
        &table.scheduled_pending,
        &table.unknown,
        &table.running_not_ready,
        &table.ready_without_time,
        &table.ready_now,
        &table.ready_for_a_month,
        &table.ready_with_restarts,
        &table.ready_with_sidecar_restarts,
        &table.ready_and_created_now,
    ];
    for pod in each {
        assert_eq!(decide(pod, 2, pod, 2), (Ordering::Equal, Criterion::Nothing), "{}", pod.key);
    }
    // Five and eight hours are of one order of magnitude, and without UIDs nothing else tells the two apart.
    let (five, eight) = (&table.ready_for_five_hours, &table.ready_for_eight_hours);
    assert_eq!(decide(five, 0, eight, 0).0, Ordering::Equal);
}

#[test]
fn test_sorting_active_pods_with_ranks_ordered_pairs() {
    use Criterion as C;
    let t = Table::new();
    let pairs: [(&Pod, u32, &Pod, u32, Criterion); 17] = [
        (&t.unscheduled, 1, &t.scheduled_pending, 2, C::NotScheduled),
        (&t.unscheduled, 2, &t.scheduled_pending, 1, C::NotScheduled),
        (&t.scheduled_pending, 1, &t.unknown, 2, C::Phase),
        (&t.unknown, 1, &t.running_not_ready, 2, C::Phase),
        (&t.running_not_ready, 1, &t.ready_without_time, 1, C::NotReady),
        (&t.ready_without_time, 1, &t.ready_now, 1, C::ReadyMoreRecently),
        (&t.ready_now, 1, &t.ready_for_a_month, 1, C::ReadyMoreRecently),
        // More related pods on the node come before the age of being ready, and before restarts.
        (&t.ready_for_a_month, 2, &t.ready_now, 1, C::CrowdedNode),
        (&t.ready_for_a_month, 2, &t.ready_with_restarts, 1, C::CrowdedNode),
        (&t.ready_for_a_month, 1, &t.ready_for_a_month, 0, C::CrowdedNode),
        (&t.ready_with_restarts, 1, &t.ready_for_a_month, 1, C::MoreRestarts),
        (&t.ready_with_more_restarts, 1, &t.ready_with_restarts, 1, C::MoreRestarts),
        (&t.ready_with_sidecar_restarts, 1, &t.ready_with_restarts, 1, C::MoreSidecarRestarts),
        (&t.ready_and_created_now, 1, &t.ready_and_created_a_month_ago, 1, C::CreatedMoreRecently),
        (&t.low_cost, 0, &t.ready_for_a_month, 5, C::DeletionCost),
        (&t.running_not_ready, 0, &t.high_cost, 5, C::DeletionCost),
        (&t.ready_for_two_hours, 1, &t.ready_for_five_hours, 1, C::ReadyMoreRecently),
    ];
    for (first, first_related, second, second_related, criterion) in pairs {
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
    let order = first_to_go(&pods, pods.len(), &NodeCounts::default(), now());
    let names: Vec<_> = order.iter().map(|choice| choice.pod.key.name.to_string()).collect();
    assert_eq!(names, expected.map(|pod| pod.key.name.to_string()));
}

#[test]
fn phase_that_the_api_does_not_name_ranks_like_pending() {
    let here = |phase| on(Pod { phase, ..pod("a") }, "node");
    assert_eq!(decide(&here(Phase::Other), 0, &here(Phase::Pending), 0).0, Ordering::Equal);
    assert_eq!(decide(&here(Phase::Other), 0, &here(Phase::Unknown), 0).0, Ordering::Less);
}

#[test]
fn times_of_one_magnitude_are_decided_by_uid_and_by_nothing_after_it() {
    // Upstream quirk: more restarts would say otherwise, but is not asked any more (US-9.28).
    let a = Pod { uid: "a".into(), ..ready(pod("x"), ago(8 * HOUR)) };
    let b = Pod { uid: "b".into(), max_restarts: 9, ..ready(pod("y"), ago(5 * HOUR)) };
    assert_eq!(decide(&a, 0, &b, 0), (Ordering::Less, Criterion::ReadyUid));
    let created = |uid: &str, age| Pod { uid: uid.into(), created: ago(age), ..pod(uid) };
    let (a, b) = (created("a", 8 * HOUR), created("b", 5 * HOUR));
    assert_eq!(decide(&a, 0, &b, 0), (Ordering::Less, Criterion::CreatedUid));
}

#[test]
fn time_still_to_come_is_younger_than_the_youngest_and_no_time_is_younger_still() {
    let at = |since| ready(pod("a"), since);
    assert_eq!(decide(&at(ago(-60)), 0, &at(ago(1)), 0).0, Ordering::Less);
    assert_eq!(decide(&at(None), 0, &at(ago(-60)), 0).0, Ordering::Less);
}

#[test]
fn node_counts_are_of_active_pods_only_and_no_node_counts_as_one() {
    let pods = [
        on(pod("a"), "n1"),
        on(pod("b"), "n1"),
        on(Pod { phase: Phase::Succeeded, ..pod("c") }, "n1"),
        on(Pod { deleted: ago(1), ..pod("d") }, "n1"),
        pod("e"),
    ]
    .map(Arc::new);
    let counts = NodeCounts::of(&pods);
    assert_eq!((counts.get(&pods[0]), counts.get(&pods[4]), counts.get(&on(pod("x"), "n2"))), (2, 1, 0));
}

#[test]
fn pods_that_go_say_in_what_they_differ_from_the_first_that_stays() {
    let pods = [
        pod("nowhere"),
        on(Pod { phase: Phase::Pending, ..pod("pending") }, "n"),
        on(pod("stays"), "n"),
        ready(on(pod("stays-too"), "n"), ago(9)),
    ]
    .map(Arc::new);
    let choices = first_to_go(&pods, 2, &NodeCounts::default(), now());
    let texts: Vec<_> =
        choices.iter().map(|choice| format!("{}: {}", choice.pod.key.name, choice.criterion)).collect();
    assert_eq!(texts, ["nowhere: bound to no node", "pending: less far in its life"]);
}

#[test]
fn more_pods_asked_for_than_there_are_gives_all_of_them() {
    let pods = [pod("a"), pod("b")].map(Arc::new);
    assert_eq!(first_to_go(&pods, 5, &NodeCounts::default(), now()).len(), 2);
    assert!(first_to_go(&[], 5, &NodeCounts::default(), now()).is_empty());
    assert!(first_to_go(&pods, 0, &NodeCounts::default(), now()).is_empty());
}

#[test]
fn comparison_that_goes_round_in_a_circle_is_survived() {
    // By UID b < c < a, because c became ready at another time of the same magnitude; by restarts a < b.
    let make =
        |uid: &str, since, max_restarts| Pod { uid: uid.into(), max_restarts, ..ready(pod(uid), ago(since)) };
    let (a, b, c) = (make("3", HOUR * 5, 2), make("1", HOUR * 5, 1), make("2", HOUR * 6, 0));
    let before = |x: &Pod, y: &Pod| decide(x, 0, y, 0).0 == Ordering::Less;
    assert!(before(&a, &b) && before(&b, &c) && before(&c, &a), "this test is about a circle");
    let orders = [[&a, &b, &c], [&c, &b, &a], [&b, &a, &c]].map(|pods| {
        let pods = pods.map(|pod| Arc::new(pod.clone()));
        first_to_go(&pods, 3, &NodeCounts::default(), now())
    });
    assert!(orders.iter().all(|order| *order == orders[0]));
}

fn any_pod() -> impl Strategy<Value = Pod> {
    // Few values each, so that ties and circles come up.
    let phase = prop_oneof![Just(Phase::Pending), Just(Phase::Running), Just(Phase::Unknown)];
    let time = prop_oneof![Just(None), (0_i64..6).prop_map(|n| ago(n * 7)), Just(ago(-3)), Just(ago(MONTH))];
    let node = prop_oneof![Just(None), Just(Some("n1")), Just(Some("n2"))];
    let numbers = (0_i32..2, 0_i32..3, 0_i32..2);
    (0_u32..1000, node, phase, any::<bool>(), time.clone(), time, numbers).prop_map(
        |(uid, node, phase, is_true, since, created, (cost, restarts, sidecars))| Pod {
            uid: uid.to_string().into(),
            node_name: node.map(Into::into),
            phase,
            ready: kcm_api::Ready { is_true, since },
            created,
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
    fn choice_does_not_depend_on_the_order_of_the_cache(
        (pods, shuffled) in any_pods().prop_flat_map(|pods| (Just(pods.clone()), Just(pods).prop_shuffle())),
        count in 0_usize..14,
    ) {
        let related = NodeCounts::of(&pods);
        prop_assert_eq!(
            first_to_go(&pods, count, &related, now()),
            first_to_go(&shuffled, count, &related, now())
        );
    }

    /// Where upstream's comparison is an order, the choice is in that order, and nothing that stays goes before
    /// anything that goes.
    #[test]
    fn choice_agrees_with_upstreams_comparison_where_that_is_an_order(
        pods in any_pods(),
        count in 0_usize..14,
    ) {
        let related = NodeCounts::of(&pods);
        let before = |a: &Arc<Pod>, b: &Arc<Pod>| {
            let (a, b) = (Ranked::new(a, &related, now()), Ranked::new(b, &related, now()));
            a.grade.cmp(&b.grade).then_with(|| compare_in_grade(a.pod, b.pod, now()).0).is_lt()
        };
        let equal = |a: &Arc<Pod>, b: &Arc<Pod>| !before(a, b) && !before(b, a);
        let is_order = pods.iter().all(|a| pods.iter().all(|b| pods.iter().all(|c| {
            (!before(a, b) || !before(b, c) || before(a, c)) && (!equal(a, b) || !equal(b, c) || equal(a, c))
        })));
        prop_assume!(is_order);

        let goes: Vec<_> =
            first_to_go(&pods, count, &related, now()).into_iter().map(|choice| choice.pod).collect();
        prop_assert_eq!(goes.len(), count.min(pods.len()));
        prop_assert!(goes.windows(2).all(|pair| !before(&pair[1], &pair[0])));
        let stays = pods.iter().filter(|pod| !goes.contains(pod));
        prop_assert!(stays.into_iter().all(|stays| goes.iter().all(|goes| !before(stays, goes))));
    }
}

use serde_json::{Value, json};

use super::*;

/// Pool of three pods with a finalizer and a current status.
fn pool(change: impl FnOnce(&mut Value)) -> PodPool {
    let mut pool = json!({
        "apiVersion": "example.org/v1", "kind": "PodPool",
        "metadata": {"namespace": "shop", "name": "web", "uid": "1", "generation": 1, "finalizers": [FINALIZER]},
        "spec": {
            "replicas": 3, "selector": {"app": "web"},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": []}},
        },
        "status": {"observedGeneration": 1, "replicas": 3, "readyReplicas": 3, "cordonedReplicas": 0},
    });
    change(&mut pool);
    serde_json::from_value(pool).unwrap()
}

fn pod_on(node: &str, name: &str, change: impl FnOnce(&mut Value)) -> Arc<Pod> {
    let mut pod = json!({
        "metadata": {"name": name}, "spec": {"nodeName": node, "containers": []},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    change(&mut pod);
    Arc::new(serde_json::from_value(pod).unwrap())
}

fn ready(node: &str, name: &str) -> Arc<Pod> {
    pod_on(node, name, |_| {})
}

/// Two pods on node `one`, one on `two`.
fn three() -> Vec<Arc<Pod>> {
    vec![ready("one", "a"), ready("one", "b"), ready("two", "c")]
}

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

/// Seats that were reserved `age` ago.
fn reserved(seats: u32, age: Duration) -> Option<Reservation> {
    Some(Reservation { seats, at: now() - age })
}

struct Case {
    pool: PodPool,
    pods: Vec<Arc<Pod>>,
    cordoned: &'static [&'static str],
    reservation: Option<Reservation>,
    is_current: bool,
}

impl Case {
    /// A settled pool.
    fn new() -> Self {
        Self {
            pool: pool(|_| {}),
            pods: three(),
            cordoned: &[],
            reservation: reserved(3, Duration::ZERO),
            is_current: true,
        }
    }

    fn plan(&self) -> Plan {
        let view = View {
            pool: &self.pool,
            pods: &self.pods,
            cordoned: &self.cordoned.iter().map(|&name| name.to_owned()).collect(),
            reservation: self.reservation,
            is_current: self.is_current,
        };
        plan(&view, now())
    }

    /// The operations, without the status, and with the names of deleted pods.
    fn operations(&self) -> Vec<String> {
        let text = |operation: Operation| match operation {
            Operation::WriteStatus(_) => None,
            Operation::DeletePods(pods) => {
                let names: Vec<_> = pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect();
                Some(format!("delete {}", names.join(" ")))
            }
            other => Some(format!("{other:?}")),
        };
        self.plan().operations.into_iter().filter_map(text).collect()
    }
}

#[test]
fn settled_pool_has_no_operations_until_the_renewal() {
    let mut case = Case::new();
    case.reservation = reserved(3, Duration::from_secs(60));
    assert_eq!(case.plan(), Plan { operations: vec![], again: Some(Duration::from_secs(540)) });
    case.reservation = reserved(3, RENEWAL);
    assert_eq!(case.plan(), Plan { operations: vec![Operation::Reserve(3)], again: Some(RENEWAL) });
}

#[test]
fn new_pool_gets_the_finalizer_first() {
    let mut case = Case::new();
    case.pool = pool(|pool| pool["metadata"]["finalizers"] = json!([]));
    case.pods.clear();
    assert_eq!(case.operations(), ["AddFinalizer"]);
}

mod scale {
    use super::*;

    #[test]
    fn seats_are_reserved_before_pods_are_created() {
        let mut case = Case::new();
        (case.pods, case.reservation) = (three()[..1].to_vec(), None);
        assert_eq!(case.operations(), ["Reserve(3)", "CreatePods(2)"]);
    }

    #[test]
    fn seats_are_kept_until_pods_are_deleted() {
        let mut case = Case::new();
        case.pool = pool(|pool| pool["spec"]["replicas"] = json!(2));
        assert_eq!(case.operations(), ["delete a"]);
        case.pods.pop();
        assert_eq!(case.operations(), ["Reserve(2)"]);
    }

    #[test]
    fn pods_are_written_only_with_a_current_cache() {
        let mut case = Case::new();
        case.is_current = false;
        case.pods.clear();
        assert_eq!(case.operations(), [""; 0]);
        assert!(matches!(*case.plan().operations, [Operation::WriteStatus(_)]));
    }

    #[test]
    fn terminating_and_finished_pods_are_replaced() {
        let mut case = Case::new();
        case.pods[0] =
            pod_on("one", "a", |pod| pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
        case.pods[1] = pod_on("one", "b", |pod| pod["status"]["phase"] = json!("Failed"));
        assert_eq!(case.operations(), ["delete b", "CreatePods(2)"]);
    }

    #[test]
    fn order_of_deletion() {
        let mut case = Case::new();
        case.pool = pool(|pool| pool["spec"]["replicas"] = json!(0));
        let unready = |pod: &mut Value| pod["status"] = json!({});
        case.pods = vec![
            ready("a", "5"),
            ready("b", "4"),
            ready("b", "3"),
            pod_on("a", "2", unready),
            ready("c", "1"),
        ];
        case.pods.push(ready("b", "0"));
        case.cordoned = &["c"];
        assert_eq!(case.operations(), ["delete 1 2 0 3 4 5"]);
    }
}

mod cordon {
    use super::*;

    #[test]
    fn pods_are_moved_within_max_unavailable() {
        let mut case = Case::new();
        case.cordoned = &["one"];
        assert_eq!(case.operations(), ["delete a"]);
        case.pods[2] = pod_on("two", "c", |pod| pod["status"] = json!({}));
        assert_eq!(case.operations(), [""; 0]);
    }

    #[test]
    fn pods_that_are_not_ready_are_moved_at_once() {
        let mut case = Case::new();
        case.cordoned = &["one"];
        case.pods[1] = pod_on("one", "b", |pod| pod["status"] = json!({}));
        assert_eq!(case.operations(), ["delete b"]);
    }
}

mod deletion {
    use super::*;

    #[test]
    fn pods_then_reservation_then_finalizer() {
        let mut case = Case::new();
        case.pool = pool(|pool| pool["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z"));
        assert_eq!(case.operations(), ["delete a b c"]);
        for pod in &mut case.pods {
            *pod = pod_on("one", "a", |pod| {
                pod["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
            });
        }
        assert_eq!(case.operations(), [""; 0]);
        case.pods.clear();
        assert_eq!(case.operations(), ["Release", "RemoveFinalizer"]);
        case.is_current = false;
        assert_eq!(case.operations(), [""; 0]);
        case.pool.metadata.finalizers = None;
        assert_eq!(case.plan(), Plan::default());
    }
}

//! Rules that the simulated components of the embedded cluster do not produce: objects are changed after they were read.

use kcm_apiserver::Resource;
use kcm_preview::try_commands;
use kcm_rollouts::{Cause, Diagnosis, Known, Snapshot, State};
use serde_json::{Value, json};

use crate::{
    READY, changed, outcome, rolled_out, template,
    world::{World, deployment, simulate},
};

pub(crate) fn read(list: &mut Known<Vec<Value>>) -> &mut Vec<Value> {
    let objects = match list {
        Known::Read(objects) => Some(objects),
        Known::Unread(_) => None,
    };
    objects.unwrap()
}

pub(crate) fn found(world: &World, snapshot: &Snapshot) -> Diagnosis {
    world.diagnose_as(snapshot, &world.deployment())
}

pub(crate) fn message(diagnosis: &Diagnosis, cause: Cause) -> &str {
    let finding = diagnosis.findings.iter().find(|finding| finding.cause == cause);
    assert!(finding.is_some(), "no {cause}: {diagnosis:#?}");
    &finding.unwrap().message
}

pub(crate) fn commands(diagnosis: &Diagnosis) -> String {
    diagnosis.commands.iter().map(|command| format!("{}\n", command.command)).collect()
}

#[test]
fn deleted_pods_are_missed_while_no_controller_runs() {
    simulate(async {
        let mut world = rolled_out(3).await;
        world.stop_controllers();
        for pod in world.list(Resource::PODS) {
            let name = pod["metadata"]["name"].as_str().unwrap();
            let options =
                kcm_apiserver::DeleteOptions { grace_period_seconds: Some(0), ..Default::default() };
            world.server.delete(Resource::PODS, crate::world::NAMESPACE, name, &options).unwrap();
        }
        world.advance(30).await;
        let diagnosis = world.diagnose();
        assert_eq!(diagnosis.state, State::Stuck, "{diagnosis:#?}");
        let message = message(&diagnosis, Cause::ReplicaSetControllerNotRunning);
        assert!(message.contains("reports 3 pods, 3 available; 0 exist, 0 available."), "{message}");
        assert!(message.contains("Leader master-1 has not renewed its Lease for 30s."), "{message}");
        assert!(message.contains("The last recorded change was "), "{message}");
        assert!(diagnosis.findings.iter().any(|finding| finding.cause == Cause::StatusOutdated));
        // The deletion of a pod leaves no time, so it can be a moment ago.
        let mut snapshot = world.snapshot();
        let Known::Read(Some(lease)) = &mut snapshot.lease else { panic!() };
        lease["spec"]["renewTime"] = json!(kcm_api::MicroTime::new(world.now()));
        let diagnosis = found(&world, &snapshot);
        assert_eq!(outcome(&diagnosis), (State::Unknown, Some(Cause::StatusOutdated)));
    });
}

#[test]
fn overdue_writes_are_not_explained_without_a_stale_lease() {
    simulate(async {
        let mut world = changed(&json!({})).await;
        world.advance(2).await;
        world.stop_controllers();
        world.advance(120).await;
        let causes = [Cause::ControllerNotRunning, Cause::ReplicaSetControllerNotRunning];
        let claims = |snapshot: &Snapshot| {
            let diagnosis = found(&world, snapshot);
            assert_eq!(diagnosis.state == State::Unknown, !causes.contains(&diagnosis.cause.unwrap()));
            diagnosis.state == State::Stuck
        };
        let stale = world.snapshot();
        assert!(claims(&stale));
        assert!(!claims(&Snapshot { lease: Known::Read(None), ..stale.clone() }));
        assert!(!claims(&Snapshot { lease: Known::not_requested("leases"), ..stale.clone() }));
        let mut current = stale.clone();
        let Known::Read(Some(lease)) = &mut current.lease else { panic!() };
        lease["spec"]["renewTime"] = json!(kcm_api::MicroTime::new(world.now()));
        assert!(!claims(&current));
        // A recent event of a controller.
        let mut active = stale.clone();
        read(&mut active.events).push(json!({
            "type": "Normal", "reason": "SuccessfulCreate", "source": { "component": "replicaset-controller" },
            "involvedObject": { "uid": world.list(Resource::REPLICA_SETS)[0]["metadata"]["uid"] },
            "lastTimestamp": kcm_api::Time::new(world.now()),
        }));
        assert!(!claims(&active));
    });
}

#[test]
fn deletions_are_causes_and_nothing_is_created() {
    simulate(async {
        let world = changed(&json!({})).await;
        world.advance(30).await;
        let deleted = json!(kcm_api::Time::new(world.now()));
        world.advance(60).await;
        let mut snapshot = world.snapshot();
        for set in read(&mut snapshot.replica_sets) {
            set["metadata"]["deletionTimestamp"] = deleted.clone();
            set["metadata"]["finalizers"] = json!(["example.com/audit"]);
        }
        read(&mut snapshot.pods).clear();
        let diagnosis = found(&world, &snapshot);
        assert_eq!(diagnosis.cause, Some(Cause::ReplicaSetDeleted), "{diagnosis:#?}");
        let text = message(&diagnosis, Cause::ReplicaSetDeleted);
        assert!(text.contains("being deleted since 1m; finalizers: example.com/audit"), "{text}");
        assert!(!diagnosis.next.iter().any(|next| next.contains("create")), "{:?}", diagnosis.next);
        let mut snapshot = world.snapshot();
        snapshot.namespace =
            Known::Read(Some(json!({ "metadata": { "name": "shop", "deletionTimestamp": deleted } })));
        read(&mut snapshot.pods).clear();
        let diagnosis = found(&world, &snapshot);
        assert_eq!(outcome(&diagnosis), (State::Stuck, Some(Cause::NamespaceTerminating)));
        assert!(!diagnosis.next.iter().any(|next| next.contains("create")), "{:?}", diagnosis.next);
    });
}

pub(crate) fn failing(world: &World, reason: &str, text: &str) -> Snapshot {
    let mut snapshot = world.snapshot();
    let new = world.new_pods()[0]["metadata"]["ownerReferences"][0]["uid"].clone();
    for set in read(&mut snapshot.replica_sets).iter_mut().filter(|set| set["metadata"]["uid"] == new) {
        set["status"]["conditions"] = json!([{
            "type": "ReplicaFailure", "status": "True", "reason": reason, "message": text,
            "lastTransitionTime": kcm_api::Time::new(world.now().saturating_sub(jiff::SignedDuration::from_secs(40)).unwrap()),
        }]);
        set["status"]["replicas"] = json!(1);
    }
    snapshot
}

#[test]
fn refused_deletions_and_back_offs() {
    simulate(async {
        let world = changed(&json!({ "kube-sandbox/ready": "never" })).await;
        world.advance(5).await;
        let refused =
            failing(&world, "FailedDelete", "admission webhook \"keep.example.com\" denied the request: no");
        let diagnosis = found(&world, &refused);
        assert_eq!(diagnosis.state, State::Progressing, "the pods start: {diagnosis:#?}");
        assert!(message(&diagnosis, Cause::DeleteRefused).contains("keep.example.com"));
        let text = "pods \"web-1\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=4, limited: pods=4";
        let mut room = failing(&world, "FailedCreate", text);
        let quota = |used: &str| json!({ "metadata": { "name": "small" }, "status": { "hard": { "pods": "6" }, "used": { "pods": used } } });
        *read(&mut room.quotas) = vec![quota("5")];
        let back_off = found(&world, &room);
        let text = message(&back_off, Cause::CreateBackOff);
        assert!(text.contains("Quota small refused new pods and has room again"), "{text}");
        assert!(text.contains("40s at most"), "{text}");
        *read(&mut room.quotas) = vec![quota("6")];
        message(&found(&world, &room), Cause::QuotaExceeded);
    });
}

/// Status of a new pod with the containers `init` and `app`.
fn with_status(world: &World, spec: &Value, status: &Value, events: &[Value]) -> Diagnosis {
    let mut snapshot = world.snapshot();
    let new: Vec<String> = world.new_pods().iter().map(|pod| pod["metadata"]["uid"].to_string()).collect();
    for pod in
        read(&mut snapshot.pods).iter_mut().filter(|pod| new.contains(&pod["metadata"]["uid"].to_string()))
    {
        for (name, value) in spec.as_object().unwrap() {
            pod["spec"][name] = value.clone();
        }
        pod["status"] = status.clone();
    }
    let about = |event: &Value| {
        let mut event = event.clone();
        event["involvedObject"]["uid"] = world.new_pods()[0]["metadata"]["uid"].clone();
        event["lastTimestamp"] = json!(kcm_api::Time::new(world.now()));
        event
    };
    *read(&mut snapshot.events) = events.iter().map(about).collect();
    found(world, &snapshot)
}

/// A pod, its events, and the cause with a part of its explanation.
#[derive(serde::Deserialize)]
struct Case {
    spec: Value,
    status: Value,
    events: Vec<Value>,
    cause: String,
    part: String,
}

#[test]
fn causes_in_pods() {
    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("causes_in_pods.yaml")).unwrap();
    simulate(async {
        let world = changed(&json!({ "kube-sandbox/ready-delay": "24h" })).await;
        world.advance(30).await;
        for case in cases {
            let diagnosis = with_status(&world, &case.spec, &case.status, &case.events);
            let cause = *Cause::ALL.iter().find(|cause| cause.name() == case.cause).unwrap();
            let text = message(&diagnosis, cause);
            assert!(text.contains(&case.part), "{text}");
        }
    });
}

#[test]
fn commands_help() {
    simulate(async {
        // Without an older revision, there is nothing to undo.
        let world = World::new(READY);
        world.create(Resource::DEPLOYMENTS, deployment(2, "app:broken"));
        world.advance(60).await;
        let diagnosis = world.diagnose();
        assert_eq!(diagnosis.cause, Some(Cause::ImagePull));
        assert!(!commands(&diagnosis).contains("undo"), "{}", commands(&diagnosis));
        // A change of the Deployment is tried.
        let world = rolled_out(3).await;
        world.change(template("app:broken", &json!({})));
        world.advance(60).await;
        let mut diagnosis = world.diagnose();
        try_commands(&world.snapshot(), &world.deployment(), world.now(), &mut diagnosis);
        let undo = diagnosis.commands.iter().find(|command| command.command.ends_with("undo deployment/web"));
        let course = undo.unwrap().course.as_deref();
        assert!(course.is_some_and(|course| course.starts_with("completes in about ")), "{course:?}");
        // A resumed rollout does not complete with the image, and nothing else can be done while it is paused.
        world.change(json!({ "spec": { "paused": true } }));
        world.advance(5).await;
        let mut diagnosis = world.diagnose();
        try_commands(&world.snapshot(), &world.deployment(), world.now(), &mut diagnosis);
        assert_eq!(diagnosis.state, State::Paused);
        assert!(commands(&diagnosis).contains("rollout resume deployment/web"), "{}", commands(&diagnosis));
    });
}

#[test]
fn deadlock_of_host_ports_is_resolved_by_unavailability() {
    simulate(async {
        let world = rolled_out(3).await;
        world.change(
            json!({ "spec": { "strategy": { "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } } } }),
        );
        world.change(template("app:2", &json!({})));
        world.advance(3).await;
        let mut snapshot = world.snapshot();
        let new: Vec<Value> = world.new_pods().iter().map(|pod| pod["metadata"]["uid"].clone()).collect();
        for pod in read(&mut snapshot.pods).iter_mut().filter(|pod| new.contains(&pod["metadata"]["uid"])) {
            pod["spec"].as_object_mut().unwrap().remove("nodeName");
            pod["status"] = json!({ "phase": "Pending", "conditions": [{
                "type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                "message": "0/2 nodes are available: 2 node(s) didn't have free ports for the requested pod ports.",
            }] });
        }
        let mut diagnosis = found(&world, &snapshot);
        try_commands(&snapshot, &world.deployment(), world.now(), &mut diagnosis);
        let patch =
            diagnosis.commands.iter().find(|command| command.command.contains("patch deployment/web"));
        let patch = patch.unwrap_or_else(|| panic!("{diagnosis:#?}"));
        assert_eq!(patch.purpose, "replace an old pod at a time; 2 of 3 pods are available meanwhile");
        assert!(patch.course.is_some(), "{patch:?}");
    });
}

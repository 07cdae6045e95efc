//! Notes, which do not hold a rollout.

use kcm_apiserver::Resource;
use kcm_rollouts::{Cause, Effect, Known};
use serde_json::json;

use crate::{
    rolled_out, stuck, template,
    world::{NAME, NAMESPACE, deployment, simulate},
};

#[test]
fn selector_overlap_and_autoscaler_are_notes() {
    simulate(async {
        let world = rolled_out(2).await;
        let mut other = deployment(1, "app:3");
        other["metadata"]["name"] = json!("other");
        world.create(Resource::DEPLOYMENTS, other);
        world.advance(60).await;
        let mut snapshot = world.snapshot();
        snapshot.autoscalers = Known::Read(vec![json!({
            "metadata": { "name": "web-hpa", "namespace": NAMESPACE },
            "spec": { "scaleTargetRef": { "kind": "Deployment", "name": NAME }, "minReplicas": 2, "maxReplicas": 9 },
        })]);
        let diagnosis = world.diagnose_as(&snapshot, &world.deployment());
        let notes: Vec<&str> = diagnosis.findings.iter().map(|finding| &*finding.message).collect();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].contains("Deployment other"), "{notes:?}");
        assert!(notes[1].contains("web-hpa writes spec.replicas (2 to 9)"), "{notes:?}");
    });
}

#[test]
fn writer_of_replicas_from_managed_fields() {
    simulate(async {
        let world = rolled_out(2).await;
        let note = |manager: &str, subresource: &str| {
            let mut object = world.deployment();
            // As kube-apiserver records a write of the scale.
            object["metadata"]["managedFields"] = json!([{
                "manager": manager, "operation": "Update", "subresource": subresource, "apiVersion": "apps/v1",
                "time": "2026-01-15T00:00:30Z", "fieldsType": "FieldsV1",
                "fieldsV1": { "f:spec": { "f:replicas": {} } },
            }]);
            let diagnosis = world.diagnose_as(&world.snapshot(), &object);
            diagnosis.findings.into_iter().find(|finding| finding.cause == Cause::ReplicasOverwritten)
        };
        assert_eq!(note("kubectl-scale", "scale"), None, "a person scales");
        assert_eq!(note("argocd-controller", ""), None, "a person changes the manifest");
        let note = note("keda-operator", "scale").unwrap();
        assert_eq!((note.effect, note.object.as_deref()), (Effect::Note, Some("keda-operator")));
        assert_eq!(note.message, "keda-operator writes spec.replicas through the scale subresource.");
    });
}

#[test]
fn disruption_budget_is_a_note_until_the_rollout_is_complete() {
    simulate(async {
        let world = rolled_out(4).await;
        let budget = json!({
            "metadata": { "name": "web" },
            "spec": { "minAvailable": 3, "selector": { "matchLabels": { "app": "web" } } },
        });
        world.create(Resource::POD_DISRUPTION_BUDGETS, budget);
        world.advance(5).await;
        let note = || {
            let findings = world.diagnose().findings;
            findings.into_iter().find(|finding| finding.cause == Cause::DisruptionBudget)
        };
        assert_eq!(note(), None, "one eviction is allowed");
        world.change(template("app:broken", &json!({})));
        world.advance(60).await;
        let diagnosis = stuck(&world, Cause::ImagePull, "cannot be pulled");
        assert!(
            diagnosis.commands.iter().any(|one| one.command.contains("describe poddisruptionbudget web"))
        );
        let note = note().unwrap();
        assert_eq!(
            (note.effect, &*note.message),
            (
                Effect::Note,
                "PodDisruptionBudget web refuses evictions, such as those of kubectl drain: 3 healthy, 3 required."
            )
        );
    });
}

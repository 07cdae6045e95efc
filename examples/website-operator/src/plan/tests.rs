use k8s_openapi::api::apps::v1::DeploymentStatus;
use serde::de::DeserializeOwned;

use super::*;

fn website(status: &Value, metadata: &Value) -> Website {
    let mut json = json!({
        "apiVersion": "example.org/v1",
        "kind": "Website",
        "metadata": {
            "namespace": "shop", "name": "web", "uid": "web-1", "generation": 3, "finalizers": [FINALIZER],
        },
        "spec": {"host": "shop.example.org", "image": "nginx:1", "replicas": 2},
        "status": status,
    });
    for (name, value) in metadata.as_object().unwrap() {
        json["metadata"][name] = value.clone();
    }
    serde_json::from_value(json).unwrap()
}

/// Website whose host is published.
fn published() -> Website {
    let condition = json!({
        "type": HOST_PUBLISHED, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reason": "Published", "message": "",
    });
    website(&json!({"host": "shop.example.org", "conditions": [condition]}), &json!({}))
}

fn stored<K: DeserializeOwned>(applied: Value) -> K {
    serde_json::from_value(applied).unwrap()
}

/// Returns the plan if all owned objects are as specified for `settled`.
fn plan_after(settled: &Website, website: &Website) -> Vec<Operation> {
    let (deployment, service, budget) =
        (stored(deployment(settled)), stored(service(settled)), stored(budget(settled)));
    let view =
        View { website, deployment: Some(&deployment), service: Some(&service), budget: Some(&budget) };
    plan(&view, at(1))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// Status before the host is published.
fn pending(view: &View<'_>) -> WebsiteStatus {
    let host = view.website.spec.host.as_str();
    status(view, HostState { recorded: Some(host), unpublished: Some("waiting for the provider") }, at(1))
}

fn empty(website: &Website) -> View<'_> {
    View { website, deployment: None, service: None, budget: None }
}

mod operations {
    use super::*;

    #[test]
    fn finalizer_comes_first() {
        let website = website(&Value::Null, &json!({"finalizers": []}));
        assert_eq!(plan(&empty(&website), at(1)), [Operation::AddFinalizer]);
    }

    #[test]
    fn missing_objects_are_applied_and_the_host_is_published() {
        let website = website(&Value::Null, &json!({}));
        let expected = [
            Operation::ApplyDeployment(deployment(&website)),
            Operation::ApplyService(service(&website)),
            Operation::ApplyBudget(budget(&website)),
            Operation::RecordHost(pending(&empty(&website))),
            Operation::PublishHost("shop.example.org".to_owned()),
        ];
        assert_eq!(plan(&empty(&website), at(1)), expected);
    }

    #[test]
    fn owned_objects_have_the_website_as_controller() {
        let owner = &deployment(&published())["metadata"]["ownerReferences"][0];
        let expected = json!({
            "apiVersion": "example.org/v1", "kind": "Website", "name": "web", "uid": "web-1", "controller": true,
        });
        assert!(contains(owner, &expected), "{owner}");
    }

    #[test]
    fn settled_website_needs_nothing() {
        assert_eq!(plan_after(&published(), &published()), []);
    }

    #[test]
    fn fields_of_others_are_ignored() {
        let website = published();
        let mut applied = deployment(&website);
        applied["metadata"]["annotations"] = json!({"a": "b"});
        applied["spec"]["strategy"] = json!({"type": "Recreate"});
        let deployment = stored(applied);
        let operations = plan(&View { deployment: Some(&deployment), ..empty(&website) }, at(1));
        assert!(!operations.iter().any(|operation| matches!(operation, Operation::ApplyDeployment(_))));
    }

    #[test]
    fn changed_specification_is_applied() {
        let mut changed = published();
        changed.spec.replicas = 5;
        assert_eq!(plan_after(&published(), &changed), [Operation::ApplyDeployment(deployment(&changed))]);
    }

    #[test]
    fn old_host_is_withdrawn_before_the_new_one_is_recorded_and_published() {
        let mut changed = published();
        changed.spec.host = "www.example.org".to_owned();
        let operations = plan_after(&published(), &changed);
        let [withdraw, Operation::RecordHost(status), publish] = operations.as_slice() else {
            panic!("{operations:?}")
        };
        assert_eq!(*withdraw, Operation::WithdrawHost("shop.example.org".to_owned()));
        assert_eq!(status.host.as_deref(), Some("www.example.org"));
        assert_eq!(*publish, Operation::PublishHost("www.example.org".to_owned()));
    }

    #[test]
    fn recorded_host_is_published_until_the_provider_accepts_it() {
        let mut interrupted = published();
        interrupted.status = Some(pending(&empty(&interrupted)));
        let publish = Operation::PublishHost("shop.example.org".to_owned());
        assert_eq!(plan_after(&published(), &interrupted), [publish]);
    }
}

mod deletion {
    use super::*;

    const DELETED: &str = "2026-01-01T00:00:00Z";

    #[test]
    fn withdraws_the_recorded_host_and_removes_the_finalizer() {
        let deleted = json!({"deletionTimestamp": DELETED});
        let unpublished = website(&Value::Null, &deleted);
        assert_eq!(plan(&empty(&unpublished), at(1)), [Operation::RemoveFinalizer]);
        let recorded = website(&json!({"host": "old.example.org"}), &deleted);
        let withdraw = Operation::WithdrawHost("old.example.org".to_owned());
        assert_eq!(plan(&empty(&recorded), at(1)), [withdraw, Operation::RemoveFinalizer]);
    }

    #[test]
    fn without_finalizer_needs_nothing() {
        let website = website(&Value::Null, &json!({"deletionTimestamp": DELETED, "finalizers": []}));
        assert_eq!(plan(&empty(&website), at(1)), []);
    }
}

mod conditions {
    use super::*;

    const PUBLISHED: HostState<'_> = HostState { recorded: Some("shop.example.org"), unpublished: None };

    fn summary(status: &WebsiteStatus) -> Vec<String> {
        let line = |condition: &Condition| {
            let since = condition.last_transition_time.0.as_second();
            format!("{}={} {} since {since}", condition.type_, condition.status, condition.reason)
        };
        status.conditions.iter().map(line).collect()
    }

    #[test]
    fn change_when_pods_become_available() {
        let mut website = published();
        let mut deployment: Deployment = stored(deployment(&website));
        let first = status(&View { deployment: Some(&deployment), ..empty(&website) }, PUBLISHED, at(1));
        assert_eq!((first.observed_generation, first.ready_replicas), (Some(3), 0));
        assert_eq!(
            summary(&first),
            ["Available=False Waiting since 1", "HostPublished=True Published since 1767225600"]
        );

        website.status = Some(first);
        deployment.status = Some(DeploymentStatus {
            available_replicas: Some(2),
            ready_replicas: Some(2),
            ..DeploymentStatus::default()
        });
        let second = status(&View { deployment: Some(&deployment), ..empty(&website) }, PUBLISHED, at(9));
        assert_eq!(second.ready_replicas, 2);
        assert_eq!(
            summary(&second),
            ["Available=True Available since 9", "HostPublished=True Published since 1767225600"]
        );
    }

    #[test]
    fn report_the_error_of_the_provider() {
        let website = published();
        let host = HostState { recorded: Some("old.example.org"), unpublished: Some("no quota") };
        let failed = status(&empty(&website), host, at(1));
        assert_eq!(failed.host.as_deref(), Some("old.example.org"));
        assert_eq!(failed.conditions[1].message, "no quota");
        assert_eq!(summary(&failed)[1], "HostPublished=False Unpublished since 1");
    }
}

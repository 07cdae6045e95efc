use super::*;

fn deployment(containers: &Value) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": "web", "namespace": "shop", "uid": "d" },
        "spec": { "replicas": 3, "template": { "spec": { "containers": containers } } },
    })
}

fn snapshot(deployment: Option<Value>) -> Snapshot {
    let (namespace, name) = ("shop".to_owned(), "web".to_owned());
    Snapshot { namespace, name, deployment, ..Snapshot::default() }
}

fn patch(change: &Change, snapshot: &Snapshot) -> Value {
    match change.request(snapshot).unwrap() {
        ChangeRequest::Patch { body, .. } => body,
        other => panic!("{other:?}"),
    }
}

mod apply {
    use super::*;

    #[test]
    fn creates_a_missing_deployment() {
        let manifest = deployment(&json!([]));
        let request = Change::Apply(manifest).request(&snapshot(None)).unwrap();
        let ChangeRequest::Create(created) = request else { panic!("{request:?}") };
        assert!(created["metadata"].get("uid").is_none());
    }

    #[test]
    fn deletes_what_was_applied_before() {
        let last = deployment(&json!([
            { "name": "app", "image": "web:1", "command": ["a"], "env": [{ "name": "A" }, { "name": "B" }] },
            { "name": "proxy" },
        ]));
        let mut live = last.clone();
        set(&mut live, &["metadata", "annotations", LAST_APPLIED], last.to_string().into());
        let mut manifest =
            deployment(&json!([{ "name": "app", "image": "web:2", "env": [{ "name": "B" }] }]));
        // `kubectl` adds it, and does not delete it.
        remove(&mut manifest, "/metadata", "namespace");
        let patch = patch(&Change::Apply(manifest), &snapshot(Some(live)));
        assert_eq!(patch["metadata"]["namespace"], "shop");
        let spec = &patch["spec"]["template"]["spec"];
        assert_eq!(spec["containers"][1], json!({ "$patch": "delete", "name": "proxy" }));
        assert_eq!(spec["$setElementOrder/containers"], json!([{ "name": "app" }]));
        let app = &spec["containers"][0];
        assert_eq!((&app["image"], app.get("command")), (&json!("web:2"), Some(&Value::Null)));
        assert_eq!(app["env"], json!([{ "name": "B" }, { "$patch": "delete", "name": "A" }]));
        assert_eq!(app["$setElementOrder/env"], json!([{ "name": "B" }]));
    }

    /// The API server rejects `rollingUpdate`, which it has set by default, with `Recreate`.
    #[test]
    fn changed_strategy_retains_the_keys_of_the_manifest() {
        let mut live = deployment(&json!([]));
        let rolling = json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%" } });
        set(&mut live, &["spec", "strategy"], rolling);
        let patch_of = |type_: &str| {
            let mut manifest = deployment(&json!([]));
            set(&mut manifest, &["spec", "strategy", "type"], type_.into());
            patch(&Change::Apply(manifest), &snapshot(Some(live.clone())))["spec"]["strategy"].clone()
        };
        assert_eq!(patch_of("Recreate"), json!({ "type": "Recreate", "$retainKeys": ["type"] }));
        assert_eq!(patch_of("RollingUpdate"), json!({ "type": "RollingUpdate" }));
    }

    #[test]
    fn changed_volume_retains_the_keys_of_the_manifest() {
        let with_volume = |volume: Value| {
            let mut deployment = deployment(&json!([]));
            set(&mut deployment, &["spec", "template", "spec", "volumes"], json!([volume]));
            deployment
        };
        let live = with_volume(json!({ "name": "v", "configMap": { "name": "a", "defaultMode": 420 } }));
        let manifest = with_volume(json!({ "name": "v", "emptyDir": {} }));
        let patch = patch(&Change::Apply(manifest), &snapshot(Some(live)));
        let volume = json!({ "name": "v", "emptyDir": {}, "$retainKeys": ["emptyDir", "name"] });
        assert_eq!(patch["spec"]["template"]["spec"]["volumes"], json!([volume]));
    }

    #[test]
    fn rejects_a_manifest_of_another_object() {
        let mut manifest = deployment(&json!([]));
        manifest["metadata"]["name"] = "api".into();
        let error = Change::Apply(manifest).request(&snapshot(None)).unwrap_err();
        assert_eq!(error.to_string(), "manifest is of Deployment shop/api, expected Deployment shop/web");
    }
}

mod image {
    use super::*;

    #[test]
    fn only_container_needs_no_name() {
        let change = Change::Image { container: None, image: "web:2".to_owned() };
        let patch = patch(&change, &snapshot(Some(deployment(&json!([{ "name": "app" }])))));
        let containers = json!([{ "name": "app", "image": "web:2" }]);
        assert_eq!(patch["spec"]["template"]["spec"]["containers"], containers);
    }

    #[test]
    fn one_of_several_containers_needs_a_name() {
        let live = deployment(&json!([{ "name": "app" }, { "name": "proxy" }]));
        for container in [None, Some("other".to_owned())] {
            let change = Change::Image { container, image: "web:2".to_owned() };
            let error = change.request(&snapshot(Some(live.clone()))).unwrap_err().to_string();
            assert!(error.ends_with("containers: app, proxy"), "{error}");
        }
    }

    #[test]
    fn init_containers_and_all_containers() {
        let mut live = deployment(&json!([{ "name": "app" }, { "name": "proxy" }]));
        live["spec"]["template"]["spec"]["initContainers"] = json!([{ "name": "init" }]);
        let live = snapshot(Some(live));
        let spec = |container: &str| {
            let change = Change::Image { container: Some(container.to_owned()), image: "web:2".to_owned() };
            patch(&change, &live)["spec"]["template"]["spec"].clone()
        };
        let named = |name: &str| json!({ "name": name, "image": "web:2" });
        assert_eq!(spec("init"), json!({ "initContainers": [named("init")] }));
        let all = json!({ "containers": [named("app"), named("proxy")], "initContainers": [named("init")] });
        assert_eq!(spec("*"), all);
    }

    #[test]
    fn several_images_and_replicas_are_one_patch() {
        let live = snapshot(Some(deployment(&json!([{ "name": "app" }, { "name": "proxy" }]))));
        let image = |container: &str| Change::Image {
            container: Some(container.to_owned()),
            image: "web:2".to_owned(),
        };
        let several = Change::Several(vec![image("app"), image("proxy"), Change::Replicas(7)]);
        let named = |name: &str| json!({ "name": name, "image": "web:2" });
        assert_eq!(
            patch(&several, &live),
            json!({ "spec": {
                "replicas": 7, "template": { "spec": { "containers": [named("app"), named("proxy")] } },
            } })
        );
        let error = Change::Several(vec![image("*"), image("app")]).request(&live).unwrap_err();
        assert!(error.to_string().starts_with("all containers are already specified by *"), "{error}");
        let error = Change::Several(vec![Change::Undo { revision: None }]).request(&live).unwrap_err();
        assert!(matches!(error, PreviewError::Revision { .. }), "{error}");
    }
}

mod undo {
    use super::*;

    fn history() -> Snapshot {
        let set = |revision: &str, image: &str| {
            json!({
                "metadata": {
                    "annotations": { REVISION: revision, "kubernetes.io/change-cause": image },
                    "ownerReferences": [{ "uid": "d", "controller": true }],
                },
                "spec": { "template": {
                    "metadata": { "labels": { "app": "web", kcm_api::POD_TEMPLATE_HASH_LABEL: image } },
                    "spec": { "containers": [{ "name": "app", "image": image }] },
                } },
            })
        };
        Snapshot {
            replica_sets: vec![set("10", "c"), set("9", "b"), set("2", "a")],
            ..snapshot(Some(deployment(&json!([]))))
        }
    }

    #[test]
    fn restores_template_and_annotations_of_the_previous_revision() {
        let patch = patch(&Change::Undo { revision: None }, &history());
        assert_eq!(patch[0]["value"]["spec"]["containers"][0]["image"], "b");
        assert_eq!(patch[0]["value"]["metadata"]["labels"], json!({ "app": "web" }));
        assert_eq!(patch[1]["value"], json!({ "kubernetes.io/change-cause": "b" }));
    }

    /// As `kubectl`, which skips the rollback.
    #[test]
    fn changes_nothing_if_the_template_is_equal() {
        let mut history = history();
        let template = &history.replica_sets[2]["spec"]["template"];
        let mut template = template.clone();
        remove(&mut template, "/metadata/labels", kcm_api::POD_TEMPLATE_HASH_LABEL);
        history.deployment.as_mut().unwrap()["spec"]["template"] = template;
        assert_eq!(patch(&Change::Undo { revision: Some(2) }, &history), json!({}));
    }

    #[test]
    fn restores_a_given_revision() {
        let patch = patch(&Change::Undo { revision: Some(2) }, &history());
        assert_eq!(patch[0]["value"]["spec"]["containers"][0]["image"], "a");
        let error = Change::Undo { revision: Some(3) }.request(&history()).unwrap_err();
        assert_eq!(error.to_string(), "revision 3 is not in the history of the Deployment");
    }
}

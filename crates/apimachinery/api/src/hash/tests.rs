use serde_json::json;

use super::*;
use crate::recorded;

impl Sink for String {
    fn put(&mut self, text: &str) {
        self.push_str(text);
    }
}

/// The text that is hashed.
fn rendered(template: &Value) -> String {
    let schema = Schema::of(Version::default());
    let decoded = Decoded::template(schema, template).unwrap();
    let mut text = String::new();
    Renderer { schema, sink: &mut text }.typed(schema.root(), &decoded).unwrap();
    text
}

/// The rendering of a container's resource limit.
fn rendered_quantity(text: &str) -> String {
    let text = rendered(&json!({"spec": {"overhead": {"x": text}}}));
    let (_, after) = text.split_once("map[x:").unwrap();
    after.split_once("] TopologySpreadConstraints:").unwrap().0.to_owned()
}

fn web(app: &str, image: &str) -> Value {
    json!({
        "metadata": {"labels": {"app": app}},
        "spec": {
            "containers": [{
                "name": "c", "image": image, "imagePullPolicy": "IfNotPresent",
                "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
            }],
            "restartPolicy": "Always", "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst",
            "securityContext": {}, "schedulerName": "default-scheduler",
        },
    })
}

#[test]
fn recorded_templates() {
    let wrong: Vec<_> = recorded::cases()
        .iter()
        .enumerate()
        .map(|(id, case)| (id, compute(&case.template, case.collision_count), Ok(case.hash.clone())))
        .filter(|(_, ours, recorded)| ours != recorded)
        .collect();
    assert!(wrong.is_empty(), "{} answers differ: {wrong:?}", wrong.len());
}

#[test]
fn text_and_value_have_equal_hashes() {
    for case in &recorded::cases()[..100] {
        let text = case.template.to_string();
        assert_eq!(compute_json(&text, case.collision_count), compute(&case.template, case.collision_count));
    }
}

#[test]
fn measured_templates() {
    struct Case {
        app: &'static str,
        image: &'static str,
        hash: &'static str,
        hash_after_collision: &'static str,
    }

    // US-3.5
    for Case { app, image, hash, hash_after_collision } in [
        Case { app: "web", image: "nginx:1.26", hash: "7988b68c98", hash_after_collision: "58bbc4b7dc" },
        Case { app: "web", image: "nginx:1.27", hash: "bfb6488d7", hash_after_collision: "6cb4f5b94" },
        Case { app: "web", image: "nginx:1.28", hash: "6f9546d86d", hash_after_collision: "7b5cd966bf" },
        Case { app: "web", image: "nginx:1.29", hash: "69f9fb7c8f", hash_after_collision: "56f68dcb96" },
        Case { app: "web", image: "nginx:1.30", hash: "75d4db79", hash_after_collision: "74ddd998d6" },
        Case { app: "web", image: "nginx:broken", hash: "559cfc55b", hash_after_collision: "69d5d8cd7c" },
        Case { app: "probe", image: "nginx:1.26", hash: "6d65d9c446", hash_after_collision: "59cbbccc4c" },
    ] {
        let template = web(app, image);
        assert_eq!(compute(&template, None).as_deref(), Ok(hash), "{app} {image}");
        assert_eq!(compute(&template, Some(1)).as_deref(), Ok(hash_after_collision), "{app} {image}");
        assert_ne!(compute(&template, Some(0)).as_deref(), Ok(hash), "none and zero differ");
    }
}

/// Upstream: TestComputeHash, both: the collision count is part of what is hashed.
#[test]
fn compute_hash_differs_by_collision_count() {
    let cases = [("simple", Some(1), Some(2)), ("using math.MaxInt64", None, Some(i32::MAX))];
    for (name, one, other) in cases {
        assert_ne!(compute(&json!({}), one).unwrap(), compute(&json!({}), other).unwrap(), "{name}");
    }
}

/// Upstream: TestPodTemplateSpecHash: 1000 templates that differ in one value, and each has its own hash.
#[test]
fn pod_template_spec_hash_is_unique() {
    let hash = |number: usize| compute(&web("web", &format!("nginx:{number}")), None).unwrap();
    let hashes: std::collections::BTreeSet<String> = (0..1000).map(hash).collect();
    assert_eq!(hashes.len(), 1000);
}

#[test]
fn rendered_length_is_as_measured() {
    assert_eq!(rendered(&web("web", "nginx:1.26")).chars().count(), 3445);
}

#[test]
fn types_are_rendered_except_in_lists_maps_and_pointers() {
    let text = rendered(&json!({
        "metadata": {"labels": {"b": "2", "a": "1"}, "annotations": {}, "finalizers": ["x", "y"]},
        "spec": {"priority": 0, "os": {"name": "linux"}, "hostIPC": true, "tolerations": []},
    }));
    for part in [
        "(v1.PodTemplateSpec){ObjectMeta:(v1.ObjectMeta){Name:(string) GenerateName:(string) ",
        " CreationTimestamp:(v1.Time){Time:(time.Time){wall:(uint64)0 ext:(int64)0 loc:(*time.Location)<nil>}} ",
        " DeletionTimestamp:(*v1.Time)<nil> ",
        " Labels:(map[string]string)map[a:1 b:2] Annotations:(map[string]string)map[] ",
        " Finalizers:([]string)[x y] ManagedFields:([]v1.ManagedFieldsEntry)<nil>} Spec:(v1.PodSpec){Volumes:",
        " Priority:(*int32)0 DNSConfig:(*v1.PodDNSConfig)<nil> ",
        " OS:(*v1.PodOS){Name:(v1.OSName)linux} ",
        " HostIPC:(bool)true ",
        " Tolerations:([]v1.Toleration)[] ",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}

#[test]
fn quantity_is_rendered_as_it_was_parsed() {
    let quick = |value: i64, scale: i32, text: &str, format: &str| {
        format!(
            "{{i:(resource.int64Amount){{value:(int64){value} scale:(resource.Scale){scale}}} \
             d:(resource.infDecAmount){{Dec:(*inf.Dec)<nil>}} s:(string){text} Format:(resource.Format){format}}}"
        )
    };
    assert_eq!(rendered_quantity("500m"), quick(500, -3, "500m", "DecimalSI"));
    assert_eq!(rendered_quantity("64Mi"), quick(64 << 20, 0, "", "BinarySI"));
    assert_eq!(rendered_quantity("1e3"), quick(1, 3, "1e3", "DecimalExponent"));
    assert_eq!(rendered_quantity("0"), quick(0, 0, "0", "DecimalSI"));
    let slow = |words: &str, scale: i32, format: &str| {
        format!(
            "{{i:(resource.int64Amount){{value:(int64)0 scale:(resource.Scale)0}} \
             d:(resource.infDecAmount){{Dec:(*inf.Dec){{unscaled:(big.Int){{neg:(bool)false abs:(big.nat){words}}} \
             scale:(inf.Scale){scale}}}}} s:(string) Format:(resource.Format){format}}}"
        )
    };
    assert_eq!(rendered_quantity("0.5Ki"), slow("[512000000000]", 9, "BinarySI"));
    assert_eq!(rendered_quantity("18446744073.709551616"), slow("[0 1]", 9, "DecimalSI"));
    assert_eq!(rendered_quantity("0.0000000000"), slow("<nil>", 10, "DecimalSI"));
}

#[test]
fn time_is_rendered_with_internal_fields() {
    let text = rendered(&json!({"metadata": {"creationTimestamp": "2026-01-02T03:04:05.5Z"}}));
    // 1767323045 seconds from 1970.
    assert!(
        text.contains(
            "{wall:(uint64)500000000 ext:(int64)63902919845 loc:(*time.Location){name:(string)UTC "
        )
    );
    let early = rendered(&json!({"metadata": {"deletionTimestamp": "1969-12-31T23:59:59.5Z"}}));
    assert!(early.contains("(*v1.Time){Time:(time.Time){wall:(uint64)500000000 ext:(int64)62135596799 loc:"));
}

#[test]
fn raw_json_is_rendered_as_bytes() {
    let text = rendered(&json!({"metadata": {"managedFields": [{"manager": "m", "fieldsV1": {}}]}}));
    assert!(text.contains("[{Manager:(string)m "), "{text}");
    assert!(text.contains(" FieldsV1:(*v1.FieldsV1){Raw:([]uint8)[123 125]} "), "{text}");
}

#[test]
fn unknown_fields_are_not_rendered() {
    let mut template = web("web", "nginx:1.26");
    template["spec"]["containers"][0]["future"] = json!({"x": 1});
    assert_eq!(compute(&template, None).as_deref(), Ok("7988b68c98"));
}

#[test]
fn null_is_unset_and_not_empty() {
    let with = |value: Value| compute(&json!({"spec": {"tolerations": value, "hostname": null}}), None);
    assert_eq!(with(Value::Null), compute(&json!({"spec": {}}), None));
    assert_ne!(with(json!([])), with(Value::Null));
}

#[test]
fn error_contains_the_path() {
    let problem = |template: Value| compute(&template, None).unwrap_err().to_string();
    assert_eq!(
        problem(json!({"spec": {"containers": [{}, {"image": 5}]}})),
        "cannot hash pod template: template.spec.containers[1].image: 5 is no string"
    );
    assert_eq!(
        problem(json!({"spec": {"volumes": [{"emptyDir": {"sizeLimit": "1x"}}]}})),
        r#"cannot hash pod template: template.spec.volumes[0].emptyDir.sizeLimit: "1x" is no resource.Quantity"#
    );
    assert_eq!(
        problem(json!({"metadata": {"labels": {"a": true}}})),
        "cannot hash pod template: template.metadata.labels[a]: true is no string"
    );
    assert_eq!(problem(json!([])), "cannot hash pod template: template: [] is no v1.PodTemplateSpec");
    assert!(compute(&json!({"spec": {"priority": 2_147_483_648_i64}}), None).is_err());
    assert!(compute(&json!({"metadata": {"creationTimestamp": "yesterday"}}), None).is_err());
    assert!(compute_json("{", None).is_err());
}

#[test]
fn duplicate_keys_count_as_in_go() {
    let twice = r#"{"spec": {"hostname": "a", "hostname": "b"}, "spec": {"subdomain": "c"}}"#;
    let merged = json!({"spec": {"hostname": "b", "subdomain": "c"}});
    assert_eq!(compute_json(twice, None), compute(&merged, None));
}

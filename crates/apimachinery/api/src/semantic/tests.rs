use proptest::{collection::vec, prelude::*, sample::Index};
use serde_json::json;

use super::*;
use crate::{POD_TEMPLATE_HASH_LABEL, PodTemplate, recorded};

fn digest_of(template: &Value) -> Digest {
    let digest = digest_with(Schema::of(Version::default()), template, POD_TEMPLATE_HASH_LABEL);
    assert_eq!(digest, digest_json(&template.to_string(), POD_TEMPLATE_HASH_LABEL));
    digest
}

#[track_caller]
fn assert_equal(a: &Value, b: &Value) {
    assert_eq!(digest_of(a), digest_of(b), "{a} should equal {b}");
}

#[track_caller]
fn assert_different(a: &Value, b: &Value) {
    assert_ne!(digest_of(a), digest_of(b), "{a} should differ from {b}");
}

#[expect(clippy::needless_pass_by_value, reason = "so that calls need no more signs than they have")]
fn spec(spec: Value) -> Value {
    json!({ "spec": spec })
}

#[test]
fn upstream_test_cases() {
    struct Case {
        are_equal: bool,
        a: Value,
        b: Value,
    }

    // TestEqualIgnoreHash, in both directions.
    let template = |name: &str, annotations: Value, labels: Value| json!({"metadata": {"name": name, "annotations": annotations, "labels": labels}});
    let hash = |value: &str| json!({"pod-template-hash": value, "something": "else"});
    let none = || json!({});
    for Case { are_equal, a, b } in [
        Case {
            are_equal: true,
            a: template("foo", none(), hash("value-1")),
            b: template("foo", none(), hash("value-1")),
        },
        Case {
            are_equal: true,
            a: template("foo", none(), hash("value-1")),
            b: template("foo", none(), hash("value-2")),
        },
        Case {
            are_equal: true,
            a: template("foo", none(), hash("value-1")),
            b: template("foo", none(), json!({"something": "else"})),
        },
        Case {
            are_equal: false,
            a: template("foo", none(), hash("value-1")),
            b: template("foo", none(), none()),
        },
        Case {
            are_equal: false,
            a: template("foo", none(), json!({"something": "else"})),
            b: template("foo", none(), json!({"pod-template-hash": "value-1"})),
        },
        Case {
            are_equal: false,
            a: template(
                "foo",
                none(),
                json!({"pod-template-hash": "value-1", "something": "else", "more": "x"}),
            ),
            b: template("foo", none(), hash("value-1")),
        },
        Case {
            are_equal: false,
            a: template("foo", json!({"a": "b"}), hash("1")),
            b: template("foo", json!({"a": "c"}), hash("1")),
        },
        Case {
            are_equal: false,
            a: template("foo", json!({"a": "b"}), hash("1")),
            b: template("foo", json!({"a": "c"}), hash("2")),
        },
        Case {
            are_equal: false,
            a: template("foo", none(), hash("value-1")),
            b: template("bar", none(), hash("value-1")),
        },
        Case {
            are_equal: false,
            a: template("foo", none(), hash("value-1")),
            b: template("bar", none(), hash("value-2")),
        },
    ] {
        let [a, b] = [a, b].map(|template| PodTemplate::from_value(&template).unwrap());
        assert_eq!(a.equal_ignore_hash(&b), are_equal, "{a:?} {b:?}");
        assert_eq!(b.equal_ignore_hash(&a), are_equal, "{b:?} {a:?}");
    }
}

#[test]
fn hash_label_alone_equals_no_labels() {
    let labelled = json!({"metadata": {"labels": {"pod-template-hash": "x"}}});
    for template in [json!({}), json!({"metadata": {"labels": null}}), json!({"metadata": {"labels": {}}})] {
        assert_equal(&template, &labelled);
    }
}

#[test]
fn hash_label_elsewhere_is_compared() {
    let claim = |labels: Value| {
        spec(json!({"volumes": [{"ephemeral": {"volumeClaimTemplate": {"metadata": {"labels": labels}}}}]}))
    };
    assert_different(&claim(json!({"pod-template-hash": "x"})), &claim(json!({})));
    let selected = |labels: Value| spec(json!({"nodeSelector": labels}));
    assert_different(&selected(json!({"pod-template-hash": "x"})), &selected(json!({})));
}

#[test]
fn unset_null_zero_and_empty_are_equal() {
    let nothing = json!({});
    for template in [
        json!(null),
        json!({"metadata": null, "spec": null}),
        json!({"metadata": {}, "spec": {}}),
        json!({"metadata": {"creationTimestamp": null, "annotations": {}, "finalizers": []}}),
        json!({"metadata": {"creationTimestamp": "0001-01-01T00:00:00Z", "generation": 0, "name": ""}}),
        spec(json!({"containers": [], "nodeSelector": {}, "hostname": "", "hostPID": false, "overhead": {}})),
    ] {
        assert_equal(&nothing, &template);
    }
    let container = |container: Value| spec(json!({ "containers": [container] }));
    assert_equal(&container(json!({})), &container(json!({"resources": {"limits": {}}, "stdin": false})));
    assert_equal(&container(json!(null)), &container(json!({"name": ""})));
    assert_equal(
        &container(json!({"livenessProbe": {"httpGet": {"port": 0}}})),
        &container(json!({"livenessProbe": {"httpGet": {}}})),
    );
}

#[test]
fn pointer_to_zero_is_set() {
    let unset = spec(json!({}));
    for field in [
        json!({"priority": 0}),
        json!({"automountServiceAccountToken": false}),
        json!({"runtimeClassName": ""}),
        json!({"securityContext": {}}),
        json!({"affinity": {}}),
        json!({"os": {}}),
    ] {
        assert_different(&unset, &spec(field));
    }
    let claim = |claim: Value| spec(json!({"volumes": [{"name": "v", "emptyDir": claim}]}));
    assert_different(&claim(json!({})), &claim(json!({"sizeLimit": "0"})));
    assert_different(&claim(json!(null)), &claim(json!({})));
}

#[test]
fn empty_item_is_an_item() {
    assert_different(&spec(json!({"containers": []})), &spec(json!({"containers": [{}]})));
    assert_different(&spec(json!({"containers": [{}]})), &spec(json!({"containers": [{}, {}]})));
    assert_different(&spec(json!({"nodeSelector": {"a": ""}})), &spec(json!({})));
    assert_different(&spec(json!({"overhead": {"cpu": "0"}})), &spec(json!({})));
    assert_equal(&spec(json!({"overhead": {"cpu": null}})), &spec(json!({"overhead": {"cpu": "0"}})));
}

#[test]
fn quantities_are_compared_by_value() {
    let limit = |limit: &str| spec(json!({"overhead": {"cpu": limit}}));
    assert_equal(&limit("1"), &limit("1000m"));
    assert_equal(&limit("1Gi"), &limit("1024Mi"));
    assert_equal(&limit("1e3"), &limit("1k"));
    assert_different(&limit("1"), &limit("1001m"));
    assert_different(&limit("1"), &limit("-1"));
}

#[test]
fn times_are_compared_by_instant() {
    let created = |time: &str| json!({"metadata": {"creationTimestamp": time}});
    assert_equal(&created("2026-01-02T03:04:05Z"), &created("2026-01-02T04:04:05+01:00"));
    assert_different(&created("2026-01-02T03:04:05Z"), &created("2026-01-02T03:04:06Z"));
    assert_different(&created("2026-01-02T03:04:05Z"), &json!({}));
}

#[test]
fn numeric_and_named_port_differ() {
    let port = |port: Value| spec(json!({"containers": [{"livenessProbe": {"tcpSocket": {"port": port}}}]}));
    assert_different(&port(json!(80)), &port(json!("80")));
    assert_different(&port(json!("")), &port(json!(0)));
    assert_equal(&port(json!(0)), &port(json!(null)));
}

#[test]
fn lists_are_ordered_and_keys_are_not() {
    assert_different(
        &spec(json!({"containers": [{"name": "a"}, {"name": "b"}]})),
        &spec(json!({"containers": [{"name": "b"}, {"name": "a"}]})),
    );
    let digest = |json| digest_json(json, POD_TEMPLATE_HASH_LABEL);
    assert_eq!(
        digest(r#"{"spec": {"x": {"a": 1, "b": 2}, "hostname": "h", "nodeSelector": {"a": "1", "b": "2"}}}"#),
        digest(r#"{"spec": {"nodeSelector": {"b": "2", "a": "1"}, "hostname": "h", "x": {"b": 2, "a": 1}}}"#),
    );
}

#[test]
fn unknown_fields_are_compared() {
    let base = spec(json!({"containers": [{"name": "a"}]}));
    for (path, value) in [
        ("", json!({"deep": [1, {"x": null}]})),
        ("/spec", json!(false)),
        ("/spec/containers/0", json!([])),
        ("/spec/containers/0", json!("")),
    ] {
        let mut changed = base.clone();
        changed.pointer_mut(path).unwrap()["future"] = value.clone();
        assert_different(&base, &changed);
        let mut nulled = base.clone();
        nulled.pointer_mut(path).unwrap()["future"] = Value::Null;
        assert_equal(&base, &nulled);
    }
    assert_equal(&spec(json!({"x": {"a": 1, "b": null}})), &spec(json!({"x": {"a": 1}})));
    assert_different(&spec(json!({"x": 1})), &spec(json!({"y": 1})));
    assert_different(&spec(json!({"x": 1})), &spec(json!({"x": "1"})));
}

#[test]
fn values_of_the_wrong_type_are_compared() {
    let wrong = [
        json!({"spec": 5}),
        json!({"spec": []}),
        json!({"spec": {"containers": {}}}),
        json!({"spec": {"hostname": 5}}),
        json!({"spec": {"hostname": {}}}),
        json!({"spec": {"hostPID": "true"}}),
        json!({"spec": {"priority": 2_147_483_648_i64}}),
        json!({"spec": {"priority": 0.5}}),
        json!({"spec": {"activeDeadlineSeconds": u64::MAX}}),
        json!({"spec": {"overhead": {"cpu": "1x"}}}),
        json!({"spec": {"overhead": {"cpu": [1]}}}),
        json!({"metadata": {"labels": {"a": 5}}}),
        json!({"metadata": {"labels": ["a"]}}),
        json!({"metadata": {"creationTimestamp": "yesterday"}}),
        json!([]),
        json!("template"),
        json!({}),
    ];
    for (index, a) in wrong.iter().enumerate() {
        for b in &wrong[..index] {
            assert_different(a, b);
        }
    }
}

#[test]
fn last_duplicate_key_is_used() {
    let digest = |json| digest_json(json, POD_TEMPLATE_HASH_LABEL);
    assert_eq!(
        digest(r#"{"spec": {"x": 1, "hostname": "a", "x": 2, "hostname": "b", "y": 1, "y": null}}"#),
        digest(r#"{"spec": {"hostname": "b", "x": 2}}"#),
    );
    assert_eq!(
        digest(r#"{"spec": {"nodeSelector": {"b": "2", "a": "1"}, "nodeSelector": {"a": "3"}}}"#),
        digest(r#"{"spec": {"nodeSelector": {"a": "3", "b": "2"}}}"#),
    );
    assert_eq!(digest(r#"{"spec": {"priority": 5, "priority": null}}"#), digest("{}"));
    assert_eq!(
        digest(r#"{"spec": {"hostname": "a", "hostname": null}}"#),
        digest(r#"{"spec": {"hostname": "a"}}"#)
    );
}

#[test]
fn malformed_text_has_its_own_digest() {
    assert_ne!(digest_json("{", "l"), digest_json("{}", "l"));
    assert_ne!(digest_json("{", "l"), digest_json("[", "l"));
}

#[test]
fn recorded_templates_all_differ() {
    // The templates are random; only trivial ones can be equal.
    let mut digests: Vec<_> =
        recorded::cases().iter().map(|case| (digest_of(&case.template), case)).collect();
    digests.sort_by_key(|(digest, _)| *digest);
    for pair in digests.windows(2) {
        let [(a, x), (b, y)] = pair else { unreachable!() };
        if a == b {
            assert_eq!(x.template, y.template);
        }
    }
}

/// Pointers to all leaves of `value`: what is no object and no list, or is an empty one.
fn leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    let under = |key: &str| format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"));
    match value {
        Value::Object(members) if !members.is_empty() => {
            members.iter().for_each(|(key, value)| leaves(value, &under(key), found));
        }
        Value::Array(items) if !items.is_empty() => {
            items
                .iter()
                .enumerate()
                .for_each(|(index, value)| leaves(value, &under(&index.to_string()), found));
        }
        _ => found.push(at.to_owned()),
    }
}

/// JSON text with the keys of every object in falling order, spaces, and a null for a field that is not there.
fn disguised(value: &Value) -> String {
    match value {
        Value::Object(members) => {
            let mut keys: Vec<_> = members.keys().collect();
            keys.sort();
            let members: Vec<_> = keys
                .into_iter()
                .rev()
                .map(|key| format!("{} :\t{}", Value::from(key.as_str()), disguised(&members[key])))
                .collect();
            format!("{{ {} }}", members.join(" ,\n"))
        }
        Value::Array(items) => format!("[ {} ]", items.iter().map(disguised).collect::<Vec<_>>().join(" , ")),
        leaf => leaf.to_string(),
    }
}

fn any_template() -> impl Strategy<Value = &'static Value> {
    any::<Index>().prop_map(|index| &index.get(recorded::cases()).template)
}

proptest! {
    #[test]
    fn digest_does_not_depend_on_order_and_spaces(template in any_template()) {
        prop_assert_eq!(digest_json(&disguised(template), POD_TEMPLATE_HASH_LABEL), digest_of(template));
    }

    #[test]
    fn digest_changes_with_every_leaf(template in any_template(), leaf: Index) {
        let mut pointers = Vec::new();
        leaves(template, "", &mut pointers);
        let mut changed = template.clone();
        let leaf = changed.pointer_mut(&pointers[leaf.index(pointers.len())]).unwrap();
        *leaf = match leaf.take() {
            Value::String(text) => Value::from(format!("{text}x")),
            Value::Bool(value) => Value::from(!value),
            Value::Number(number) => Value::from(number.as_i64().unwrap() ^ 1),
            // Empty values.
            _ => json!({"something": "else"}),
        };
        prop_assert_ne!(digest_of(&changed), digest_of(template));
    }

    #[test]
    fn digest_does_not_change_with_nulls(template in any_template(), places in vec(any::<Index>(), 1..8)) {
        // Names of known and of unknown fields. Not in maps, where every key counts.
        let mut changed = template.clone();
        let mut objects = Vec::new();
        structs(&changed, "", &mut objects);
        for place in places {
            let object = changed.pointer_mut(&objects[place.index(objects.len())]).and_then(Value::as_object_mut).unwrap();
            for name in ["name", "labels", "annotations", "securityContext", "resources", "future"] {
                object.entry(name).or_insert(Value::Null);
            }
        }
        prop_assert_eq!(digest_of(&changed), digest_of(template));
    }

    #[test]
    fn digest_does_not_change_with_empty_lists_and_maps(template in any_template()) {
        let mut changed = template.clone();
        for (object, name, value) in [
            ("/metadata", "labels", json!({})),
            ("/metadata", "annotations", json!({})),
            ("/metadata", "ownerReferences", json!([])),
            ("/spec", "volumes", json!([])),
            ("/spec", "initContainers", json!([])),
            ("/spec", "nodeSelector", json!({})),
            ("/spec", "overhead", json!({})),
            ("/spec", "readinessGates", json!([])),
        ] {
            let object = changed.pointer_mut(object).and_then(Value::as_object_mut).unwrap();
            object.entry(name).or_insert(value);
        }
        prop_assert_eq!(digest_of(&changed), digest_of(template));
    }
}

/// Pointers to all objects that are structs to Go.
fn structs(value: &Value, at: &str, found: &mut Vec<String>) {
    const MAPS: [&str; 10] = [
        "labels",
        "annotations",
        "matchLabels",
        "nodeSelector",
        "options",
        "volumeAttributes",
        "limits",
        "requests",
        "overhead",
        "userAnnotations",
    ];
    match value {
        Value::Object(members) => {
            found.push(at.to_owned());
            for (key, value) in members.iter().filter(|(key, _)| !MAPS.contains(&key.as_str())) {
                structs(value, &format!("{at}/{key}"), found);
            }
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| structs(item, &format!("{at}/{index}"), found));
        }
        _ => {}
    }
}

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{
    schema::{
        KINDS,
        arbitrary::{Arbitrary, cases},
    },
    strict,
};

fn defaulted(kind: &str, mut object: Value) -> Value {
    apply(kind, &mut object);
    object
}

#[derive(serde::Deserialize)]
struct Case {
    name: String,
    kind: String,
    object: Value,
    result: Option<Value>,
    #[serde(default)]
    at: BTreeMap<String, Value>,
}

#[test]
fn objects_have_defaults() {
    let cases: Vec<Case> = serde_saphyr::from_str(include_str!("tests/defaults.yaml")).unwrap();
    for Case { name, kind, object, result, at } in cases {
        let defaulted = defaulted(&kind, object);
        if let Some(result) = result {
            assert_eq!(defaulted, result, "{name}");
        }
        for (path, value) in at {
            assert_eq!(*defaulted.pointer(&path).unwrap_or(&Value::Null), value, "{name}: {path}");
        }
    }
}

#[test]
fn pull_policy_depends_on_tag() {
    for (image, policy) in [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1.27", "IfNotPresent"),
        ("localhost:5000/nginx", "Always"),
        ("localhost:5000/nginx:1", "IfNotPresent"),
        ("Registry.example.com/a/nginx", "Always"),
        ("nginx@sha256:0123", "IfNotPresent"),
        ("nginx:latest@sha256:0123", "Always"),
        ("nginx:1@sha256:0123", "IfNotPresent"),
        ("Nginx", "IfNotPresent"),
        ("", "IfNotPresent"),
    ] {
        assert_eq!(image::pull_policy(image), policy, "{image}");
    }
}

#[test]
fn non_objects_are_ignored() {
    for value in [json!(null), json!([]), json!({"spec": 1, "metadata": "x", "status": []})] {
        for (_, kind) in KINDS {
            apply(kind, &mut value.clone());
        }
    }
}

proptest! {
    #![proptest_config(cases(64))]

    #[test]
    fn defaulting_twice_is_defaulting_once(seed in any::<u64>()) {
        for (api_version, kind) in KINDS {
            let object = Arbitrary::new(seed).object(api_version, kind);
            let once = defaulted(kind, strict::decode_value(api_version, kind, object).unwrap().object);
            prop_assert_eq!(&defaulted(kind, once.clone()), &once, "{}", kind);
            // Clients send defaulted objects back.
            let again = strict::decode_value(api_version, kind, once.clone()).unwrap().object;
            prop_assert_eq!(&defaulted(kind, again), &once, "{}", kind);
        }
    }
}

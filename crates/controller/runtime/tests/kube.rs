//! Predicates on types of k8s-openapi.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use kcm_runtime::{Change, predicate};
use serde_json::{Value, json};

fn deployment(metadata: &Value) -> Arc<Deployment> {
    Arc::new(serde_json::from_value(json!({ "metadata": metadata })).unwrap())
}

#[test]
fn generation_and_labels_decide() {
    struct Case {
        new: Value,
        generation_changed: bool,
        labels_changed: bool,
    }
    let old = deployment(&json!({ "generation": 1, "labels": { "a": "b" } }));
    let cases = [
        Case {
            new: json!({ "generation": 1, "labels": { "a": "b" }, "resourceVersion": "2" }),
            generation_changed: false,
            labels_changed: false,
        },
        Case {
            new: json!({ "generation": 2, "labels": { "a": "b" } }),
            generation_changed: true,
            labels_changed: false,
        },
        Case {
            new: json!({ "generation": 1, "labels": { "a": "c" } }),
            generation_changed: false,
            labels_changed: true,
        },
    ];
    let (generation, labels) = (predicate::generation_changed(), predicate::labels_changed());
    for Case { new, generation_changed, labels_changed } in cases {
        let object = deployment(&new);
        let change = Change::Updated { old: &old, new: &object };
        assert_eq!((generation(&change), labels(&change)), (generation_changed, labels_changed), "{new}");
    }
    for change in [Change::Added(&old), Change::Deleted(&old)] {
        assert!(generation(&change) && labels(&change));
    }
}

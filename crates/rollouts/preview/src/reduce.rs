//! Reduction of the pods of other owners, so that a large namespace or cluster fits into memory.

use serde_json::{Map, Value};

use crate::json::{list, set};

/// Fields that quotas and the free capacity of nodes depend on.
const METADATA: [&str; 4] = ["name", "namespace", "uid", "ownerReferences"];
const SPEC: [&str; 5] = ["nodeName", "overhead", "resources", "priorityClassName", "activeDeadlineSeconds"];
const CONTAINER: [&str; 4] = ["name", "image", "resources", "restartPolicy"];

/// Returns the parts of a pod on which quotas and the free capacity of nodes depend.
///
/// [`Snapshot`](crate::Snapshot) needs no more of the pods that the Deployment does not own.
pub fn usage_of_pod(pod: &Value) -> Value {
    let mut spec = kept(&pod["spec"], &SPEC);
    for name in ["containers", "initContainers"] {
        let containers = list(&pod["spec"], &format!("/{name}")).iter();
        let containers: Vec<Value> = containers.map(|container| kept(container, &CONTAINER)).collect();
        if !containers.is_empty() {
            set(&mut spec, &[name], containers.into());
        }
    }
    let mut usage = Value::Object(Map::new());
    set(&mut usage, &["metadata"], kept(&pod["metadata"], &METADATA));
    set(&mut usage, &["spec"], spec);
    set(&mut usage, &["status"], kept(&pod["status"], &["phase"]));
    usage
}

fn kept(object: &Value, fields: &[&str]) -> Value {
    let field = |name: &&str| Some(((*name).to_owned(), object.get(name)?.clone()));
    Value::Object(fields.iter().filter_map(field).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keeps_requests_and_drops_the_rest() {
        let pod = json!({
            "metadata": { "name": "a", "namespace": "shop", "labels": { "app": "a" }, "managedFields": [{}] },
            "spec": {
                "nodeName": "n", "volumes": [{}],
                "containers": [{ "name": "c", "env": [{}], "resources": { "requests": { "cpu": "1" } } }],
            },
            "status": { "phase": "Running", "conditions": [{}] },
        });
        let expected = json!({
            "metadata": { "name": "a", "namespace": "shop" },
            "spec": {
                "nodeName": "n",
                "containers": [{ "name": "c", "resources": { "requests": { "cpu": "1" } } }],
            },
            "status": { "phase": "Running" },
        });
        assert_eq!(usage_of_pod(&pod), expected);
        assert_eq!(usage_of_pod(&json!({}))["spec"], json!({}));
    }
}

//! Results of the rules in CEL that the tests of `kcm-apiserver` compare, recorded from kube-apiserver.
//!
//! A line of the file is a schema with one rule, and objects. The server's errors for the objects are recorded.

use std::time::Duration;

use serde_json::{Map, Value, json};
use tokio::time::sleep;

use crate::stored_kinds::Send;

/// Number of rules in a definition, as in the tests of `kcm-apiserver`.
const GROUP: usize = 40;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// Returns the text with the errors of the server.
pub(crate) async fn record(text: &str, send: &impl Send) -> String {
    let mut lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (group, rules) in lines.chunks_mut(GROUP).enumerate() {
        let plural = format!("g{group}");
        let schemas =
            rules.iter().enumerate().map(|(index, rule)| (format!("r{index}"), rule["schema"].clone()));
        let definition = definition(&plural, &schemas.collect());
        let (code, created) = send("POST", DEFINITIONS, &definition.to_string()).await;
        assert_eq!(code, 201, "{created}");
        let path = format!("/apis/cel.example.com/v1/namespaces/default/{plural}");
        while send("GET", &path, "").await.0 != 200 {
            sleep(Duration::from_millis(100)).await;
        }
        for (index, rule) in rules.iter_mut().enumerate() {
            let object = |value: &Value| {
                json!({
                    "apiVersion": "cel.example.com/v1",
                    "kind": plural.to_uppercase(),
                    "metadata": {"name": "x"},
                    "spec": {format!("r{index}"): value},
                })
            };
            let own = rule["schema"]["x-kubernetes-validations"][0].clone();
            for case in rule["cases"].as_array_mut().unwrap() {
                let mut new = object(&case["value"]);
                let (_, status) = match case.get("old") {
                    None => send("POST", &format!("{path}?dryRun=All"), &new.to_string()).await,
                    Some(old) => {
                        let (code, old) = send("POST", &path, &object(old).to_string()).await;
                        assert_eq!(code, 201, "{old}");
                        new["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"].clone();
                        let updated = send("PUT", &format!("{path}/x?dryRun=All"), &new.to_string()).await;
                        send("DELETE", &format!("{path}/x"), "").await;
                        updated
                    }
                };
                let case = case.as_object_mut().unwrap();
                case.remove("error");
                if status["kind"] == "Status" {
                    case.insert(
                        "error".to_owned(),
                        error_of(&status, &own, &format!("spec.r{index}")).into(),
                    );
                }
            }
        }
        send("DELETE", &format!("{DEFINITIONS}/{plural}.cel.example.com"), "").await;
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

fn definition(plural: &str, properties: &Map<String, Value>) -> Value {
    let schema = json!({
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": properties}},
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.cel.example.com")},
        "spec": {
            "group": "cel.example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural.to_uppercase()},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}],
        },
    })
}

/// Causes of a Status, without what depends on the rule.
fn error_of(status: &Value, rule: &Value, field: &str) -> String {
    let text = |value: &Value, name: &str| value[name].as_str().unwrap_or_default().trim().to_owned();
    let causes = status["details"]["causes"].as_array().into_iter().flatten();
    let mut causes: Vec<String> =
        causes.map(|cause| format!("{}: {}", text(cause, "field"), text(cause, "message"))).collect();
    causes.sort();
    let mut error = causes.join("|").replace(field, "{field}");
    for (name, placeholder) in [("message", "{message}"), ("rule", "{rule}")] {
        let text = text(rule, name);
        if !text.is_empty() {
            error = error.replace(&text, placeholder);
        }
    }
    error
}

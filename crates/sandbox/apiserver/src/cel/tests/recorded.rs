//! Rules of public CRDs, with the results of kube-apiserver.
//!
//! A line of `rules.jsonl` is a schema with one rule, reduced to the fields that the rule reads, and objects with the error of
//! kube-apiserver, if it refuses them. With `old`, the object is an update of it. `{field}`, `{message}` and `{rule}` stand
//! for the path of the value, the message and the text of the rule.

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{ApiServer, ApiServerConfig, ApiStatus, Resource, WriteOptions};

const RULES: &str = include_str!("rules.jsonl");

/// Number of rules in a definition.
const GROUP: usize = 40;

#[derive(Deserialize)]
struct Recorded {
    source: String,
    schema: Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    old: Option<Value>,
    value: Value,
    error: Option<String>,
}

impl Recorded {
    fn rule(&self) -> &str {
        self.schema.pointer("/x-kubernetes-validations/0/rule").and_then(Value::as_str).unwrap()
    }

    /// Error of kube-apiserver for the value in `field`.
    fn expected(&self, case: &Case, field: &str) -> String {
        let rule = &self.schema["x-kubernetes-validations"][0];
        let text = |name: &str| rule[name].as_str().unwrap_or_default().trim();
        let error = case.error.clone().unwrap_or_default();
        error.replace("{field}", field).replace("{message}", text("message")).replace("{rule}", text("rule"))
    }
}

fn definition(plural: &str, rules: &[Recorded]) -> Value {
    let properties: serde_json::Map<String, Value> =
        rules.iter().enumerate().map(|(index, rule)| (format!("r{index}"), rule.schema.clone())).collect();
    json!({
        "metadata": {"name": format!("{plural}.cel.example.com")},
        "spec": {
            "group": "cel.example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": plural.to_uppercase()},
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object", "properties": properties}},
                }},
            }],
        },
    })
}

fn error_of(status: &ApiStatus) -> String {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    let mut causes: Vec<String> = causes.map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
    causes.sort();
    if causes.is_empty() { status.message.clone() } else { causes.join("|") }
}

#[test]
fn results_are_those_of_kube_apiserver() {
    let rules: Vec<Recorded> = RULES.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rules.len() >= 300, "{} rules", rules.len());
    let server = ApiServer::new(ApiServerConfig::default());
    let (options, dry_run) =
        (WriteOptions::default(), WriteOptions { dry_run: true, ..WriteOptions::default() });
    let mut differences = Vec::new();
    for (group, rules) in rules.chunks(GROUP).enumerate() {
        let plural = format!("g{group}");
        let created =
            server.create(Resource::CUSTOM_RESOURCE_DEFINITIONS, "", definition(&plural, rules), &options);
        created.unwrap_or_else(|error| panic!("{error:?}"));
        let resource = server.resource("cel.example.com", &plural).unwrap();
        for (index, rule) in rules.iter().enumerate() {
            let field = format!("r{index}");
            let object = |value: &Value| json!({"metadata": {"name": "x"}, "spec": {&field: value}});
            for case in &rule.cases {
                let result = match &case.old {
                    None => server.create(resource, "default", object(&case.value), &dry_run),
                    Some(old) => {
                        let old = server.create(resource, "default", object(old), &options).unwrap();
                        let mut new = object(&case.value);
                        new["metadata"]["resourceVersion"] = old.revision().to_string().into();
                        let result = server.update(resource, "default", new, &dry_run);
                        server.delete(resource, "default", "x", &crate::DeleteOptions::default()).unwrap();
                        result
                    }
                };
                let (found, expected) = (
                    result.err().map(|error| error_of(&error)).unwrap_or_default(),
                    rule.expected(case, &format!("spec.{field}")),
                );
                if found != expected {
                    let (source, rule, value) = (&rule.source, rule.rule(), &case.value);
                    differences
                        .push(format!("{source}: {rule}\n  of {value}\n  {found}\n  instead of {expected}"));
                }
            }
        }
    }
    assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
}

/// Rules that kube-apiserver refuses, and some that it accepts, on one schema, which is in the first line of `refused.jsonl`.
/// `{rule}` stands for the printed rule.
mod refused {
    use super::*;

    #[derive(Deserialize)]
    struct Refused {
        rule: Value,
        error: String,
    }

    #[test]
    fn errors_are_those_of_kube_apiserver() {
        let mut lines = include_str!("refused.jsonl").lines();
        let schema: Value = serde_json::from_str(lines.next().unwrap()).unwrap();
        let server = ApiServer::new(ApiServerConfig::default());
        let dry_run = WriteOptions { dry_run: true, ..WriteOptions::default() };
        let prefix = "spec.validation.openAPIV3Schema.properties[spec].properties[r0].";
        let mut differences = Vec::new();
        for line in lines {
            let Refused { rule, error } = serde_json::from_str(line).unwrap();
            let mut schema = schema["schema"].clone();
            schema["x-kubernetes-validations"] = json!([rule]);
            let recorded = Recorded { source: String::new(), schema, cases: Vec::new() };
            let definition = definition("refused", &[recorded]);
            let result = server.create(Resource::CUSTOM_RESOURCE_DEFINITIONS, "", definition, &dry_run);
            let found = result.err().map(|error| error_of(&error)).unwrap_or_default().replace(prefix, "");
            let end = found.split_once("\"OptionalOldSelf\":").and_then(|(start, rest)| {
                let (start, _) = start.split_once("{\"Rule\":")?;
                Some(format!("{start}{{rule}}{}", rest.split_once('}')?.1))
            });
            let found = end.unwrap_or(found);
            if found != error {
                differences.push(format!("{rule}\n  {found}\n  instead of {error}"));
            }
        }
        assert!(differences.is_empty(), "{} differences\n{}", differences.len(), differences.join("\n"));
    }
}

//! Rows of the kinds that `kcm-apiserver` only stores, recorded from kube-apiserver.
//!
//! `stored_kinds.json` has an object of each kind, with corrections where one object does not show the rule: defaults and
//! required fields that depend on other fields. The server's response to the object shows its defaults, and the responses
//! to the object without one of its fields, or with an invalid value, the required fields and the enumerations.

use serde_json::{Map, Value, json};

const SAMPLES: &str = include_str!("stored_kinds.json");

/// Metadata that the server sets.
const SERVER_METADATA: [&str; 6] =
    ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generation", "namespace"];

/// Requests to a server: method, path and body. Returns code and body.
pub(crate) trait Send: AsyncFn(&str, &str, &str) -> (u16, Value) {}
impl<F: AsyncFn(&str, &str, &str) -> (u16, Value)> Send for F {}

/// Records the table, with one row per line.
pub(crate) async fn record(send: &impl Send) -> String {
    let samples: Vec<Value> = serde_json::from_str(SAMPLES).unwrap();
    let mut rows = Vec::new();
    for sample in &samples {
        rows.push(Recorder::new(send, sample).await.row().await.to_string());
    }
    format!("[\n{}\n]\n", rows.join(",\n"))
}

struct Recorder<'a, S> {
    send: &'a S,
    sample: &'a Value,
    corrections: &'a Value,
    row: Map<String, Value>,
    /// Path of the objects. No other test uses the namespace.
    path: String,
    /// Name for invalid objects.
    other: &'a str,
}

impl<'a, S: Send> Recorder<'a, S> {
    async fn new(send: &'a S, sample: &'a Value) -> Self {
        let (sample, corrections) = (&sample["object"], &sample["corrections"]);
        let api_version = sample["apiVersion"].as_str().unwrap();
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let prefix = if group.is_empty() { "api" } else { "apis" };
        let (_, list) = send("GET", &format!("/{prefix}/{api_version}"), "").await;
        let resources = list["resources"].as_array().unwrap();
        let is_own = |resource: &&Value| {
            resource["kind"] == sample["kind"] && !resource["name"].as_str().unwrap().contains('/')
        };
        let resource = resources.iter().find(is_own).unwrap();
        let plural = resource["name"].as_str().unwrap();
        let mut row = json!({
            "group": group, "version": version, "kind": sample["kind"], "plural": plural,
            "singular": resource["singularName"], "namespaced": resource["namespaced"],
        });
        for field in ["shortNames", "categories"] {
            if let Some(names) = resource.get(field) {
                row[field] = names.clone();
            }
        }
        let parts = resources
            .iter()
            .filter_map(|part| part["name"].as_str()?.strip_prefix(plural)?.strip_prefix('/'));
        let parts: Vec<&str> = parts.collect();
        if !parts.is_empty() {
            row["subresources"] = json!(parts);
        }
        row.as_object_mut().unwrap().extend(corrections["row"].as_object().cloned().unwrap_or_default());
        let scope = if resource["namespaced"] == true { "/namespaces/kube-public" } else { "" };
        // The names of these kinds follow from their spec.
        let name = sample["metadata"]["name"].as_str().unwrap();
        let other = if name == "sample" { "other" } else { name };
        let path = format!("/{prefix}/{api_version}{scope}/{plural}");
        let Value::Object(row) = row else { unreachable!() };
        Self { send, sample, corrections, row, path, other }
    }

    async fn row(mut self) -> Value {
        let object_path = format!("{}/{}", self.path, self.sample["metadata"]["name"].as_str().unwrap());
        let (code, created) = (self.send)("POST", &self.path, &self.sample.to_string()).await;
        assert_eq!(code, 201, "{created}");
        if let Some(mut status) = created.get("status").cloned() {
            status.as_object_mut().unwrap().remove("lastPhaseTransitionTime");
            self.row.insert("status".to_owned(), status);
        }
        if created["metadata"]["generation"] == 1 {
            self.row.insert("generation".to_owned(), json!(true));
        }
        let mut unversioned = created.clone();
        unversioned["metadata"].as_object_mut().unwrap().remove("resourceVersion");
        unversioned["metadata"]["labels"]["a"] = json!("b");
        if (self.send)("PUT", &object_path, &unversioned.to_string()).await.0 != 200 {
            self.row.insert("conditional".to_owned(), json!(true));
        }
        let mut missing = self.sample.clone();
        missing["metadata"]["name"] = json!(self.other);
        let missing_path = format!("{}/{}?dryRun=All", self.path, self.other);
        if self.other != created["metadata"]["name"]
            && (self.send)("PUT", &missing_path, &missing.to_string()).await.0 == 201
        {
            self.row.insert("created".to_owned(), json!(true));
        }
        self.record_names().await;

        let mut rules = Map::new();
        let defaults = self.defaults(&created);
        if defaults.as_array().is_some_and(|trees| !trees.is_empty()) {
            rules.insert("defaults".to_owned(), defaults);
        }
        for (name, list) in [("required", self.required().await), ("values", self.values(&created).await)] {
            if !list.is_empty() {
                rules.insert(name.to_owned(), list.into());
            }
        }
        self.row.insert("rules".to_owned(), rules.into());
        Value::Object(self.row)
    }

    /// Records the rule for names.
    async fn record_names(&mut self) {
        for (name, rule, accepted) in [("a:b", "path", true), ("a.b", "label", false)] {
            let mut object = self.sample.clone();
            object["metadata"]["name"] = json!(name);
            let (code, _) = self.dry_run(&object).await;
            if (code == 201) == accepted && !self.row.contains_key("names") {
                self.row.insert("names".to_owned(), json!(rule));
            }
        }
    }

    async fn dry_run(&self, object: &Value) -> (u16, Value) {
        (self.send)("POST", &format!("{}?dryRun=All", self.path), &object.to_string()).await
    }

    fn defaults(&self, created: &Value) -> Value {
        if let Some(trees) = self.corrections.get("defaults") {
            return trees.clone();
        }
        let mut created = created.clone();
        created.as_object_mut().unwrap().remove("status");
        for field in SERVER_METADATA {
            created["metadata"].as_object_mut().unwrap().remove(field);
        }
        if let Some(template) = self.template() {
            let pointer = format!("/{}", template.replace('.', "/"));
            *created.pointer_mut(&pointer).unwrap() = self.sample.pointer(&pointer).unwrap().clone();
        }
        tree(self.sample, &created).into_iter().collect()
    }

    fn template(&self) -> Option<&str> {
        self.row.get("template").and_then(Value::as_str)
    }

    /// Calls the server with each variant of the sample. Returns the paths at which it reports `reason`, with the detail.
    async fn causes(&self, variants: Vec<(String, Value)>, reason: &str) -> Vec<(String, String)> {
        let mut found: Vec<(String, String)> = Vec::new();
        for (path, mut object) in variants {
            let in_template =
                self.template().is_some_and(|template| path.starts_with(&format!("{template}.")));
            let depends =
                self.corrections["conditional"].as_array().is_some_and(|list| list.contains(&json!(path)));
            if in_template
                || depends
                || ["apiVersion", "kind", "metadata"].iter().any(|part| path.starts_with(part))
            {
                continue;
            }
            object["metadata"]["name"] = json!(self.other);
            let (_, status) = self.dry_run(&object).await;
            for cause in status["details"]["causes"].as_array().into_iter().flatten() {
                let field = cause["field"].as_str().unwrap_or_default();
                let is_known = found.iter().any(|(known, _)| *known == path);
                if cause["reason"] == reason && without_indexes(field) == path && !is_known {
                    found.push((path.clone(), cause["message"].as_str().unwrap().to_owned()));
                }
            }
        }
        found
    }

    async fn required(&self) -> Vec<Value> {
        let paths = leaves(self.sample, "", &|_| true);
        let without = |path: String| {
            let object = changed(self.sample, &path, None)?;
            Some((path, object))
        };
        let causes = self.causes(paths.into_iter().filter_map(without).collect(), "FieldValueRequired").await;
        let detail =
            |text: &str| text.trim_start_matches("Required value").trim_start_matches(": ").to_owned();
        causes.into_iter().map(|(path, text)| json!([path, detail(&text)])).collect()
    }

    async fn values(&self, created: &Value) -> Vec<Value> {
        let paths = leaves(created, "", &Value::is_string);
        let invalid = |path: String| {
            let object = changed(self.sample, &path, Some(&json!("Bogus")))?;
            Some((path, object))
        };
        let variants = paths.into_iter().filter(|path| !path.starts_with("status.")).filter_map(invalid);
        let causes = self.causes(variants.collect(), "FieldValueNotSupported").await;
        let values = causes.into_iter().map(|(path, text)| {
            let (_, values) = text.split_once("supported values: ").unwrap();
            let values: Vec<&str> = values.split(", ").map(|value| value.trim_matches('"')).collect();
            json!([path, values])
        });
        values.chain(self.corrections["values"].as_array().cloned().unwrap_or_default()).collect()
    }
}

/// Returns the defaults that `created` has in addition to `given`, in the form of the table.
fn tree(given: &Value, created: &Value) -> Option<Value> {
    match (given, created) {
        (Value::Object(given), Value::Object(created)) => {
            let mut members = Map::new();
            for (name, value) in created {
                match given.get(name) {
                    None => drop(members.insert(name.clone(), value.clone())),
                    Some(given) => {
                        members.extend(tree(given, value).map(|below| (format!("?{name}"), below)));
                    }
                }
            }
            (!members.is_empty()).then_some(Value::Object(members))
        }
        (Value::Array(given), Value::Array(created)) => {
            let mut members = Map::new();
            for (given, created) in given.iter().zip(created).rev() {
                if let Some(Value::Object(below)) = tree(given, created) {
                    members.extend(below);
                }
            }
            (!members.is_empty()).then(|| json!([members]))
        }
        _ => None,
    }
}

/// Returns the paths of values that `include` selects, such as `spec.ports[].name`.
fn leaves(value: &Value, path: &str, include: &dyn Fn(&Value) -> bool) -> Vec<String> {
    let mut paths = Vec::new();
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                let dot = if path.is_empty() { "" } else { "." };
                let path = format!("{path}{dot}{name}");
                if include(value) {
                    paths.push(path.clone());
                }
                paths.extend(leaves(value, &path, include));
            }
        }
        Value::Array(items) => {
            for item in items {
                paths.extend(leaves(item, &format!("{path}[]"), include));
            }
        }
        _ => {}
    }
    paths.dedup();
    paths
}

/// Returns the object with another value in the first place of this path, or without it. `None` if there is no such place.
fn changed(object: &Value, path: &str, new: Option<&Value>) -> Option<Value> {
    let mut changed = object.clone();
    // All items of a list, so that a path that only some of them have is found.
    set(&mut changed, path, new).then_some(changed)
}

fn set(value: &mut Value, path: &str, new: Option<&Value>) -> bool {
    let (step, rest) = path.split_once('.').map_or((path, None), |(step, rest)| (step, Some(rest)));
    let (name, is_list) = step.strip_suffix("[]").map_or((step, false), |name| (name, true));
    let Value::Object(members) = value else { return false };
    match (rest, new) {
        (None, _) if is_list => false,
        (None, Some(new)) => {
            members.insert(name.to_owned(), new.clone());
            true
        }
        (None, None) => members.remove(name).is_some(),
        (Some(rest), _) => match members.get_mut(name) {
            Some(Value::Array(items)) if is_list => items.iter_mut().any(|item| set(item, rest, new)),
            Some(member) if !is_list => set(member, rest, new),
            Some(_) => false,
            None if is_list || new.is_none() => false,
            None => set(members.entry(name).or_insert_with(|| json!({})), rest, new),
        },
    }
}

/// Returns `spec.ports[].name` for `spec.ports[0].name`.
fn without_indexes(field: &str) -> String {
    let mut text = String::new();
    for part in field.split_inclusive('[') {
        text += part.trim_start_matches(|c: char| c.is_ascii_digit());
    }
    text
}

//! The schema file against another source of the same types: what it calls a field, k8s-openapi must know.

use k8s_openapi::api::core::v1::PodTemplateSpec;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

const SCHEMA: &str = include_str!("../schema/v1.36.txt");

/// Fields by struct: type and JSON name.
type Structs = HashMap<&'static str, Vec<(&'static str, &'static str)>>;

fn structs() -> Structs {
    let mut structs = Structs::new();
    let mut current = "";
    for line in SCHEMA.lines().filter(|line| !line.starts_with('#')) {
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            [_, type_, json] if line.starts_with(' ') => {
                structs.entry(current).or_default().push((type_, json));
            }
            [name] => current = name,
            _ => {}
        }
    }
    structs
}

/// A value of `type_` in which every field is set.
fn full(structs: &Structs, type_: &str) -> Value {
    if let Some(inner) = type_.strip_prefix('*') {
        return full(structs, inner);
    }
    if let Some(inner) = type_.strip_prefix("[]") {
        return json!([full(structs, inner)]);
    }
    if let Some(fields) = structs.get(type_) {
        let mut object = Map::new();
        for (type_, name) in fields {
            let value = full(structs, type_);
            match value {
                Value::Object(embedded) if *name == ",inline" => object.extend(embedded),
                value => drop(object.insert((*name).to_owned(), value)),
            }
        }
        return object.into();
    }
    match type_ {
        "bool" => json!(true),
        "int32" => json!(i32::MAX),
        "int64" => json!(i64::MAX),
        "intstr.IntOrString" => json!("http"),
        "map[string]string" => json!({"k": "v"}),
        "resource.Quantity" => json!("1500m"),
        "v1.ResourceList" => json!({"cpu": "1500m"}),
        "v1.Time" => json!("2026-01-02T03:04:05Z"),
        "v1.FieldsV1" => json!({"f:metadata": {}}),
        _ => json!("text"),
    }
}

#[test]
fn k8s_openapi_knows_every_field() {
    let full = full(&structs(), "v1.PodTemplateSpec");
    let known: PodTemplateSpec = serde_json::from_value(full.clone()).unwrap();
    let survivors = serde_json::to_value(&known).unwrap();
    assert_eq!(survivors, full);
    // No value has the wrong type.
    kcm_api::hash::compute(&full, None).unwrap();
}

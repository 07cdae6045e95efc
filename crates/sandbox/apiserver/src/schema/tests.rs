use std::{collections::HashMap, fmt::Write as _};

use super::{
    types::{Entry, Message, TYPES, parse},
    *,
};

mod trace;

fn field<'a>(package: &str, name: &str, field: &str) -> &'a Field {
    let found = SCHEMA.structs.iter().find(|s| s.package == package && s.name == name).unwrap();
    found.field(field).unwrap()
}

/// `UPDATE_SCHEMA=1` writes the types into the file. Numbers and flags are maintained by hand.
#[test]
fn types_are_those_of_k8s_openapi() {
    let structs = trace::all();
    let text = text(&structs);
    if std::env::var_os("UPDATE_SCHEMA").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/schema/types.txt"), text).unwrap();
        return;
    }
    assert_eq!(TYPES, text, "run this test with UPDATE_SCHEMA=1");
    let traced = SCHEMA.structs.iter().filter(|known| known.package != DOCUMENT_TYPES);
    assert_eq!(traced.count(), structs.len());
    for ((package, name), fields) in &structs {
        let known = SCHEMA.structs.iter().find(|known| known.package == *package && known.name == *name);
        let mut names: Vec<_> = known.unwrap().fields.iter().map(|field| field.name).collect();
        names.sort_unstable();
        assert!(names.iter().eq(fields.keys()), "{package} {name}: {names:?}");
    }
}

/// Returns `types.txt` with the types of `structs`.
fn text(structs: &trace::Structs) -> String {
    let messages = parse();
    let find = |package: &str, name: &str| messages.iter().find(|m| m.package == package && m.name == name);
    // Types of the fields of each message. Fields of embedded messages belong to the structs that embed them.
    let mut types = HashMap::new();
    for ((package, name), fields) in structs {
        let mut names = vec![*name];
        while let Some(name) = names.pop() {
            for (_, entry) in find(package, name).into_iter().flat_map(|message| &message.entries) {
                match *entry {
                    Entry::Inline(inlined) => names.push(inlined),
                    Entry::Field { name: field, .. } => {
                        types.insert((package.as_str(), name, field), &fields[field]);
                    }
                }
            }
        }
    }
    let mut text = TYPES.split_once("\n[").unwrap().0.to_owned();
    let mut last = "";
    for Message { package, name, entries } in &messages {
        if *package != last {
            write!(text, "\n[{package}]\n").unwrap();
            last = package;
        }
        let mut line = format!("{name}:");
        for (position, (number, entry)) in entries.iter().enumerate() {
            let separator = if position + 1 < entries.len() { "," } else { "" };
            let entry = match *entry {
                Entry::Inline(inlined) => format!("+{inlined}"),
                Entry::Field { name: field, presence, go_name, ty } => {
                    let flag = match presence {
                        Presence::NotEmpty => "",
                        Presence::Given => "*",
                        Presence::Always => "!",
                    };
                    let go_name = go_name.map_or_else(String::new, |name| format!(":{name}"));
                    let ty = match types.get(&(*package, *name, field)) {
                        Some(ty) => ty.replace(&format!("{package}."), ""),
                        None => ty.to_owned(),
                    };
                    let ty = if ty == "string" { String::new() } else { format!(" {ty}") };
                    format!("{field}{flag}{go_name}{ty}")
                }
            };
            let entry = format!(" {number} {entry}{separator}");
            if line.len() + entry.len() > 118 {
                text += &format!("{line}\n");
                line = " ".to_owned();
            }
            line += &entry;
        }
        text += &format!("{line}\n");
    }
    text
}

#[test]
fn types_match_fields() {
    assert_eq!(field("apps/v1", "DeploymentSpec", "replicas").ty, Type::Int32);
    assert_eq!(field("core/v1", "Secret", "data").ty, Type::Map(Box::new(Type::Bytes)));
    assert_eq!(field("core/v1", "Secret", "stringData").ty, Type::Map(Box::new(Type::Text)));
    assert_eq!(field("core/v1", "ResourceRequirements", "limits").ty, Type::Map(Box::new(Type::Quantity)));
    assert_eq!(field("core/v1", "HTTPGetAction", "port").ty, Type::IntOrString);
    assert_eq!(field("coordination/v1", "LeaseSpec", "renewTime").ty, Type::MicroTime);
    assert_eq!(field("meta/v1", "ObjectMeta", "creationTimestamp").ty, Type::Time);
    assert_eq!(field("meta/v1", "ManagedFieldsEntry", "fieldsV1").ty, Type::Any);
    assert_eq!(
        field("policy/v1", "PodDisruptionBudgetStatus", "disruptedPods").ty,
        Type::Map(Box::new(Type::Time))
    );
    let Type::List(element) = &field("core/v1", "PodSpec", "containers").ty else { panic!() };
    let Type::Struct(id) = **element else { panic!() };
    assert_eq!(SCHEMA.get(id).go_type(), "v1.Container");
}

#[test]
fn pointers_and_values_are_distinguished() {
    assert_eq!(field("apps/v1", "DeploymentSpec", "replicas").presence, Presence::Given);
    assert_eq!(field("apps/v1", "DeploymentSpec", "paused").presence, Presence::NotEmpty);
    assert_eq!(field("apps/v1", "DeploymentSpec", "strategy").presence, Presence::Always);
    assert_eq!(field("core/v1", "PodSpec", "restartPolicy").go_name, Some("RestartPolicy"));
    assert_eq!(field("core/v1", "Probe", "httpGet").presence, Presence::Given);
}

#[test]
fn types_of_two_versions_are_distinct() {
    let v1 = SCHEMA.get(SCHEMA.kind("autoscaling/v1", "HorizontalPodAutoscaler").unwrap());
    let v2 = SCHEMA.get(SCHEMA.kind("autoscaling/v2", "HorizontalPodAutoscaler").unwrap());
    assert_ne!(v1.field("spec").unwrap().ty, v2.field("spec").unwrap().ty);
    assert!(SCHEMA.kind("apps/v1", "Pod").is_none());
    assert!(SCHEMA.kind("apps/v1", "DeleteOptions").is_some());
}

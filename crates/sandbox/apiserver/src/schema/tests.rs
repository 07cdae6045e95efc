use super::*;

fn field<'a>(package: &str, name: &str, field: &str) -> &'a Field {
    let found = SCHEMA.structs.iter().find(|s| s.package == package && s.name == name).unwrap();
    found.field(field).unwrap()
}

#[test]
fn every_field_has_facts() {
    assert_eq!(SCHEMA.kinds.len(), kinds::ALL.len());
    for known in &SCHEMA.structs {
        assert!(!known.fields.is_empty(), "{}", known.name);
        let mut numbered = Vec::new();
        collect(&known.wire, &mut numbered);
        for (position, field) in known.fields.iter().enumerate() {
            let is_type_meta =
                matches!(field.name, "apiVersion" | "kind") && field.presence == Presence::NotEmpty;
            assert!(numbered.contains(&position) || is_type_meta, "{} {}", known.name, field.name);
        }
    }
}

fn collect(wire: &BTreeMap<u32, Wire>, into: &mut Vec<usize>) {
    for wire in wire.values() {
        match wire {
            Wire::Field(position) => into.push(*position),
            Wire::Inline(_, inner) => collect(inner, into),
        }
    }
}

#[test]
fn facts_refer_to_existing_fields() {
    // Embedded messages have no struct with their name, so only structs are checked here. The fields of embedded
    // messages are counted in `every_field_has_facts`.
    let mut checked = 0;
    for line in include_str!("facts.txt").lines().filter(|line| !line.starts_with(['#', '[', ' '])) {
        let Some((name, entries)) = line.split_once(": ") else { continue };
        let Some(known) = SCHEMA.structs.iter().find(|s| s.name == name) else { continue };
        for entry in entries.split(',').filter(|entry| !entry.contains('+') && entry.contains(' ')) {
            let field = entry.trim().split_once(' ').unwrap().1;
            let field = field.split([':', '*', '!']).next().unwrap();
            let elsewhere =
                SCHEMA.structs.iter().filter(|s| s.name == name).any(|s| s.field(field).is_some());
            assert!(known.field(field).is_some() || elsewhere, "{name}.{field}");
            checked += 1;
        }
    }
    assert!(checked > 500, "{checked}");
}

#[test]
fn traced_types_match_fields() {
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

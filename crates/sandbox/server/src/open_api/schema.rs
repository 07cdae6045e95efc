//! OpenAPI v3 schemas of the API types.
//!
//! The structure is that of [`SCHEMA`]. Upstream's required fields and enumerations are in tables here, descriptions in
//! `descriptions.txt`. Fields without description have none in the document.

use std::{
    collections::{BTreeSet, HashMap},
    sync::LazyLock,
};

use kcm_apiserver::{
    json::{bool_at, map_at_mut},
    schema::{Field, Presence, SCHEMA, Struct, StructId, Type},
};
use serde_json::{Map, Value, json};

/// Required fields that the rule of [`is_required`] does not find: type, fields. Sorted.
const REQUIRED: &[(&str, &[&str])] = &[
    ("Binding", &["target"]),
    ("CSIDriver", &["spec"]),
    ("CSINode", &["spec"]),
    ("CapacityRequestPolicyRange", &["min"]),
    ("CertificateSigningRequest", &["spec"]),
    ("CertificateSigningRequestSpec", &["request"]),
    ("ClusterRoleBinding", &["roleRef"]),
    ("Condition", &["lastTransitionTime"]),
    ("ContainerResourceMetricSource", &["target"]),
    ("ContainerResourceMetricStatus", &["current"]),
    ("ContainerRestartRule", &["action"]),
    ("ContainerRestartRuleOnExitCodes", &["operator"]),
    ("CounterSet", &["counters"]),
    ("CronJob", &["spec"]),
    ("CronJobSpec", &["jobTemplate"]),
    ("CustomResourceDefinition", &["spec"]),
    ("CustomResourceDefinitionSpec", &["names"]),
    ("DaemonSetSpec", &["selector", "template"]),
    ("DeploymentSpec", &["selector", "template"]),
    ("DeviceClass", &["spec"]),
    ("DeviceCounterConsumption", &["counters"]),
    ("EphemeralContainer", &["name"]),
    ("Event", &["eventTime", "involvedObject", "metadata"]),
    ("EventSeries", &["lastObservedTime"]),
    ("ExternalMetricSource", &["metric", "target"]),
    ("ExternalMetricStatus", &["current", "metric"]),
    ("FlowSchemaSpec", &["priorityLevelConfiguration"]),
    ("HTTPIngressPath", &["backend", "pathType"]),
    ("HorizontalPodAutoscaler", &["spec"]),
    ("HorizontalPodAutoscalerSpec", &["scaleTargetRef"]),
    ("IPAddress", &["spec"]),
    ("IPAddressSpec", &["parentRef"]),
    ("ImageVolumeStatus", &["imageRef"]),
    ("JobSpec", &["template"]),
    ("MutatingWebhook", &["clientConfig", "sideEffects"]),
    ("ObjectMetricSource", &["describedObject", "metric", "target"]),
    ("ObjectMetricStatus", &["current", "describedObject", "metric"]),
    ("OpaqueDeviceConfiguration", &["parameters"]),
    ("ParentReference", &["name", "resource"]),
    ("PersistentVolumeClaimTemplate", &["spec"]),
    ("PodCertificateProjection", &["keyType", "signerName"]),
    ("PodsMetricSource", &["metric", "target"]),
    ("PodsMetricStatus", &["current", "metric"]),
    ("PreferredSchedulingTerm", &["preference"]),
    ("ReplicaSetSpec", &["selector"]),
    ("ResourceClaim", &["spec"]),
    ("ResourceClaimTemplate", &["spec"]),
    ("ResourceClaimTemplateSpec", &["spec"]),
    ("ResourceMetricSource", &["target"]),
    ("ResourceMetricStatus", &["current"]),
    ("ResourceSlice", &["spec"]),
    ("ResourceSliceSpec", &["pool"]),
    ("RoleBinding", &["roleRef"]),
    ("ScaleIOPersistentVolumeSource", &["secretRef"]),
    ("ScaleIOVolumeSource", &["secretRef"]),
    ("SelfSubjectAccessReview", &["spec"]),
    ("StatefulSetSpec", &["selector", "template"]),
    ("SubjectAccessReview", &["spec"]),
    ("TokenReview", &["spec"]),
    ("TokenReviewSpec", &["token"]),
    ("ValidatingAdmissionPolicyBinding", &["spec"]),
    ("ValidatingAdmissionPolicyBindingSpec", &["policyName", "validationActions"]),
    ("ValidatingWebhook", &["clientConfig", "sideEffects"]),
    ("VolumeAttachment", &["spec"]),
    ("VolumeAttachmentSpec", &["source"]),
    ("WeightedPodAffinityTerm", &["podAffinityTerm"]),
];

/// Optional fields that Go always writes: type, fields. Sorted.
const OPTIONAL: &[(&str, &[&str])] = &[
    ("AllocatedDeviceStatus", &["conditions"]),
    ("CSINodeDriver", &["topologyKeys"]),
    ("ClusterRole", &["rules"]),
    ("ContainerImage", &["names"]),
    ("CustomResourceDefinitionStatus", &["conditions", "storedVersions"]),
    ("DeviceClaim", &["requests"]),
    ("EndpointSlice", &["endpoints", "ports"]),
    ("Event", &["reportingComponent", "reportingInstance"]),
    ("FlowSchemaSpec", &["matchingPrecedence"]),
    ("HorizontalPodAutoscalerStatus", &["currentMetrics"]),
    ("NodeRuntimeHandler", &["name"]),
    (
        "PodDisruptionBudgetStatus",
        &["currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"],
    ),
    ("PodFailurePolicyOnPodConditionsPattern", &["status"]),
    ("PriorityClass", &["value"]),
    ("ProjectedVolumeSource", &["sources"]),
    ("QueuingConfiguration", &["handSize", "queueLengthLimit", "queues"]),
    ("ResourceFieldSelector", &["divisor"]),
    ("ResourcePolicyRule", &["namespaces"]),
    ("Role", &["rules"]),
    ("RoleRef", &["apiGroup"]),
    ("ServicePort", &["targetPort"]),
    ("StatefulSetOrdinals", &["start"]),
    ("StatefulSetSpec", &["serviceName"]),
    ("StatefulSetStatus", &["availableReplicas"]),
];

/// Values of named string types.
const ENUMERATIONS: &[(&str, &[&str])] = &[
    ("DNSPolicy", &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]),
    ("DeploymentStrategyType", &["Recreate", "RollingUpdate"]),
    ("NamespacePhase", &["Active", "Terminating"]),
    ("PodPhase", &["Failed", "Pending", "Running", "Succeeded", "Unknown"]),
    ("PreemptionPolicy", &["Never", "PreemptLowerPriority"]),
    ("Protocol", &["SCTP", "TCP", "UDP"]),
    ("PullPolicy", &["Always", "IfNotPresent", "Never"]),
    ("RestartPolicy", &["Always", "Never", "OnFailure"]),
    ("ServiceType", &["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"]),
    ("TaintEffect", &["NoExecute", "NoSchedule", "PreferNoSchedule"]),
    ("TerminationMessagePolicy", &["FallbackToLogsOnError", "File"]),
    ("TolerationOperator", &["Equal", "Exists", "Gt", "Lt"]),
    ("URIScheme", &["HTTP", "HTTPS"]),
];

/// Descriptions of types and of fields (`Type.field`).
static DESCRIPTIONS: LazyLock<HashMap<&'static str, &'static str>> = LazyLock::new(|| {
    let lines = include_str!("descriptions.txt").lines();
    lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(": ")).collect()
});

const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";

/// Returns the schemas of these kinds and of all types that they use, by name.
pub(super) fn components<'a>(kinds: impl IntoIterator<Item = (&'a str, &'a str)>) -> Map<String, Value> {
    let mut schemas = Map::new();
    let mut roots = Vec::new();
    for (api_version, kind) in kinds {
        let Some(id) = SCHEMA.kind(api_version, kind) else { continue };
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        roots.push((id, json!([{"group": group, "kind": kind, "version": version}])));
    }
    let mut known: BTreeSet<StructId> = BTreeSet::new();
    let mut pending: Vec<StructId> = roots.iter().map(|(id, _)| *id).collect();
    while let Some(id) = pending.pop() {
        if known.insert(id) {
            let of = SCHEMA.get(id);
            schemas.insert(name_of(of), struct_schema(of, &mut pending));
        }
    }
    for (id, kind) in roots {
        if let Some(schema) = schemas.get_mut(&name_of(SCHEMA.get(id))) {
            schema["x-kubernetes-group-version-kind"] = kind;
        }
    }
    let text_or = |other: &str| json!({"oneOf": [{"type": other}, {"type": "string"}]});
    schemas.insert(INT_OR_STRING.to_owned(), text_or("integer"));
    schemas.insert(QUANTITY.to_owned(), text_or("number"));
    for (name, description) in [
        (INT_OR_STRING, "A number or a string, for example a count or a percentage."),
        (QUANTITY, "A number with an optional suffix: 500m is one half, 64Mi are 64 times 1024 times 1024."),
    ] {
        if let Some(schema) = schemas.get_mut(name) {
            schema["description"] = json!(description);
        }
    }
    schemas
}

/// Schema of a custom resource: that of its definition, with the type and metadata of every object.
pub(super) fn custom(definition: &Value) -> Value {
    let mut schema = definition.clone();
    add_object_fields(&mut schema, true);
    schema
}

/// Adds `apiVersion`, `kind` and `metadata` to the schema of an object and to those of resources embedded in it.
fn add_object_fields(schema: &mut Value, is_object: bool) {
    let Value::Object(members) = schema else { return };
    for field in ["items", "additionalProperties"] {
        if let Some(schema) = members.get_mut(field) {
            add_object_fields(schema, false);
        }
    }
    for schema in
        members.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(|p| p.values_mut())
    {
        add_object_fields(schema, false);
    }
    if is_object || bool_at(schema, &["x-kubernetes-embedded-resource"]) {
        let properties = map_at_mut(schema, &["properties"]);
        for field in ["apiVersion", "kind"] {
            let description = common_description(field);
            properties.insert(field.to_owned(), json!({"type": "string", "description": description}));
        }
        let description = common_description("metadata");
        let metadata = json!({"description": description, "allOf": [metadata_reference()]});
        properties.insert("metadata".to_owned(), metadata);
    }
}

/// Reference to the schema of the metadata of every kind.
fn metadata_reference() -> Value {
    let id = SCHEMA.kind("v1", "ConfigMap").and_then(|id| match SCHEMA.get(id).field("metadata")?.ty {
        Type::Struct(metadata) => Some(metadata),
        _ => None,
    });
    id.map_or_else(|| json!({"type": "object"}), |id| reference(&name_of(SCHEMA.get(id))))
}

/// Description of a field of every kind: `apiVersion`, `kind` or `metadata`.
fn common_description(field: &str) -> &'static str {
    DESCRIPTIONS.get(format!("*.{field}").as_str()).copied().unwrap_or_default()
}

/// Name of a type in the document, such as `io.k8s.api.apps.v1.Deployment`.
fn name_of(of: &Struct) -> String {
    let prefix = match of.package.split('/').next() {
        Some("meta") => "io.k8s.apimachinery.pkg.apis",
        Some("apiextensions") => "io.k8s.apiextensions-apiserver.pkg.apis",
        _ => "io.k8s.api",
    };
    format!("{prefix}.{}.{}", of.package.replace('/', "."), of.name)
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn struct_schema(of: &Struct, pending: &mut Vec<StructId>) -> Value {
    let mut properties = Map::new();
    let mut fields: Vec<&Field> = of.fields.iter().collect();
    fields.sort_by_key(|field| field.name);
    for field in &fields {
        let mut schema = type_schema(&field.ty, pending);
        if let Some(description) = description_of(of, field) {
            if schema.get("$ref").is_some() {
                // Siblings of a reference are ignored.
                schema = json!({"allOf": [schema]});
            }
            schema["description"] = json!(description);
        }
        if let Some(values) = field.go_name.and_then(values_of) {
            schema["enum"] = json!(values);
        }
        properties.insert(field.name.to_owned(), schema);
    }
    let mut schema = json!({"type": "object", "properties": properties});
    let required: Vec<&str> =
        fields.iter().filter(|field| is_required(of, field)).map(|field| field.name).collect();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    if let Some(description) = DESCRIPTIONS.get(of.name.as_str()) {
        schema["description"] = json!(description);
    }
    schema
}

fn description_of(of: &Struct, field: &Field) -> Option<&'static str> {
    let own = DESCRIPTIONS.get(format!("{}.{}", of.name, field.name).as_str());
    let is_kind = of.field("apiVersion").is_some() && of.field("metadata").is_some();
    let common = || DESCRIPTIONS.get(format!("*.{}", field.name).as_str()).filter(|_| is_kind);
    own.or_else(common).copied()
}

fn values_of(go_name: &str) -> Option<&'static [&'static str]> {
    ENUMERATIONS.iter().find(|(name, _)| *name == go_name).map(|(_, values)| *values)
}

/// Go always writes required fields, except for structs, which it always writes anyway.
fn is_required(of: &Struct, field: &Field) -> bool {
    let listed = |table: &[(&str, &[&str])]| {
        table.iter().any(|(name, fields)| *name == of.name && fields.contains(&field.name))
    };
    let is_written = field.presence == Presence::Always && !matches!(field.ty, Type::Struct(_));
    // The Event of core/v1 requires other fields than that of events.k8s.io.
    let in_this_package = match (of.name.as_str(), field.name) {
        ("Event", "eventTime") | ("EventSeries", _) => of.package == "events/v1",
        ("Event", "metadata") => of.package == "core/v1",
        _ => true,
    };
    (is_written && !listed(OPTIONAL)) || (listed(REQUIRED) && in_this_package)
}

fn type_schema(ty: &Type, pending: &mut Vec<StructId>) -> Value {
    match ty {
        Type::Bool => json!({"type": "boolean"}),
        Type::Int32 => json!({"type": "integer", "format": "int32"}),
        Type::Int64 => json!({"type": "integer", "format": "int64"}),
        Type::Text => json!({"type": "string"}),
        Type::Bytes => json!({"type": "string", "format": "byte"}),
        Type::Time | Type::MicroTime => json!({"type": "string", "format": "date-time"}),
        Type::Quantity => reference(QUANTITY),
        Type::IntOrString => reference(INT_OR_STRING),
        Type::Any => json!({"type": "object"}),
        Type::List(element) => json!({"type": "array", "items": type_schema(element, pending)}),
        Type::Map(element) => {
            json!({"type": "object", "additionalProperties": type_schema(element, pending)})
        }
        Type::Struct(id) => {
            pending.push(*id);
            reference(&name_of(SCHEMA.get(*id)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_refer_to_existing_fields() {
        for (name, fields) in REQUIRED.iter().chain(OPTIONAL) {
            for field in *fields {
                let found = SCHEMA.structs_named(name).any(|of| of.field(field).is_some());
                assert!(found, "{name}.{field}");
            }
        }
        assert!(REQUIRED.is_sorted() && OPTIONAL.is_sorted() && ENUMERATIONS.is_sorted());
    }

    #[test]
    fn descriptions_refer_to_existing_fields() {
        for key in DESCRIPTIONS.keys() {
            let (name, field) = key.split_once('.').unwrap_or((key, ""));
            let mut structs = SCHEMA.structs_named(name).peekable();
            let found = if name == "*" {
                true
            } else if field.is_empty() {
                structs.peek().is_some()
            } else {
                structs.any(|of| of.field(field).is_some())
            };
            assert!(found, "{key}");
        }
        assert!(DESCRIPTIONS.len() > 100, "{}", DESCRIPTIONS.len());
    }

    #[test]
    fn references_resolve() {
        let schemas = components([("apps/v1", "Deployment"), ("v1", "Node")]);
        let text = Value::Object(schemas.clone()).to_string();
        for reference in text.split("#/components/schemas/").skip(1) {
            let name = reference.split('"').next().unwrap();
            assert!(schemas.contains_key(name), "{name}");
        }
        let spec = &schemas["io.k8s.api.apps.v1.DeploymentSpec"];
        assert_eq!(spec["required"], json!(["selector", "template"]));
        assert_eq!(
            spec["properties"]["strategy"]["allOf"][0]["$ref"],
            "#/components/schemas/io.k8s.api.apps.v1.DeploymentStrategy"
        );
        let strategy = &schemas["io.k8s.api.apps.v1.DeploymentStrategy"]["properties"]["type"];
        assert_eq!(strategy["enum"], json!(["Recreate", "RollingUpdate"]));
    }
}

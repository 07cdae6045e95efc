//! Body of pod create requests.

use std::sync::{Arc, OnceLock};

use kcm_api::{
    Annotations, Labels, OwnerReference, PodTemplate,
    protobuf::{self, MessageBuilder},
    selector::is_dns_subdomain,
};
use serde::Serialize;
use serde_json::value::RawValue;
use thiserror::Error;

/// Body of a pod create request without the name. It is encoded once for all pods of a ReplicaSet.
///
/// Upstream counterpart: `controller.GetPodFromTemplate` (US-3.3).
#[derive(Debug, Clone)]
pub struct PodManifest {
    generate_name: Arc<str>,
    /// JSON body from the first field of the metadata to the end. Encoded on first use.
    tail: OnceLock<Arc<str>>,
    template: PodTemplate,
    owner: OwnerReference,
    /// Encoded on first use. `None` if protobuf cannot carry the template.
    protobuf: OnceLock<Option<Arc<ProtobufParts>>>,
}

/// Fields of the pod and of its metadata, without the name.
#[derive(Debug)]
struct ProtobufParts {
    metadata: MessageBuilder,
    pod: MessageBuilder,
}

/// Start of each body.
const HEAD: &str = r#"{"kind":"Pod","apiVersion":"v1","metadata":{"#;

/// A template or an owner cannot be converted to a pod.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ManifestError {
    /// The template has no labels, so that no selector can match its pods.
    #[error("unable to create pods, no labels")]
    NoLabels,
    /// The owner reference has no group and version.
    #[error("controllerRef has empty APIVersion")]
    NoApiVersion,
    /// The owner reference has no kind.
    #[error("controllerRef has empty Kind")]
    NoKind,
    /// The owner reference is not to a managing owner.
    #[error("controllerRef.Controller is not set to true")]
    NotController,
    /// The owner reference does not block the deletion of the owner.
    #[error("controllerRef.BlockOwnerDeletion is not set")]
    NotBlocking,
}

/// Fields in upstream's order, after kind and version.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Body<'a> {
    metadata: Metadata<'a>,
    spec: &'a RawValue,
    status: Empty,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Metadata<'a> {
    generate_name: &'a str,
    labels: &'a Labels,
    #[serde(skip_serializing_if = "Annotations::is_empty")]
    annotations: &'a Annotations,
    owner_references: [&'a OwnerReference; 1],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    finalizers: &'a [String],
}

#[derive(Serialize)]
struct Empty {}

impl PodManifest {
    /// Returns the manifest of a pod from `template` that `owner` manages. The `generateName` is the name of the owner and
    /// a dash.
    ///
    /// The spec of the template is copied as text, so that no field is lost. The namespace is part of the URL.
    ///
    /// # Errors
    ///
    /// If the template has no labels, or `owner` is not a reference to a managing owner.
    pub fn from_template(template: &PodTemplate, owner: &OwnerReference) -> Result<Self, ManifestError> {
        Self::with_generate_name(template, owner, &generate_name(&owner.name))
    }

    /// Returns the manifest with the given `generateName`.
    ///
    /// # Errors
    ///
    /// As [`from_template`](Self::from_template).
    pub fn with_generate_name(
        template: &PodTemplate,
        owner: &OwnerReference,
        generate_name: &str,
    ) -> Result<Self, ManifestError> {
        validate(owner)?;
        if template.labels().is_empty() {
            return Err(ManifestError::NoLabels);
        }
        Ok(Self {
            generate_name: generate_name.into(),
            tail: OnceLock::new(),
            template: template.clone(),
            owner: owner.clone(),
            protobuf: OnceLock::new(),
        })
    }

    /// Returns the JSON body from the first field of the metadata to the end.
    fn tail(&self) -> &str {
        self.tail.get_or_init(|| {
            let spec = self.template.spec_json();
            let body = Body {
                metadata: Metadata {
                    generate_name: &self.generate_name,
                    labels: self.template.labels(),
                    annotations: self.template.annotations(),
                    owner_references: [&self.owner],
                    finalizers: self.template.finalizers(),
                },
                // The spec was parsed before, so neither fails.
                spec: serde_json::from_str(&spec).unwrap_or(RawValue::NULL),
                status: Empty {},
            };
            let body = serde_json::to_string(&body).unwrap_or_default();
            body.strip_prefix(r#"{"metadata":{"#).unwrap_or_default().into()
        })
    }

    /// Returns `metadata.generateName`.
    pub fn generate_name(&self) -> &str {
        &self.generate_name
    }

    /// Returns the body of the request that creates the pod `name`.
    ///
    /// DEVIATION: in upstream, the API server generates the name, so that a repeated request creates another pod. With a
    /// name, the API server rejects a repeated request with `AlreadyExists`.
    pub fn to_json(&self, name: &str) -> String {
        format!("{HEAD}\"name\":{},{}", serde_json::Value::from(name), self.tail())
    }

    /// Returns the body in protobuf, as [`to_json`](Self::to_json). `None` if the template has a field or a value that this
    /// version does not define, which only JSON carries.
    ///
    /// The spec is encoded once for all pods.
    pub fn to_protobuf(&self, name: &str) -> Option<Vec<u8>> {
        let new = || ProtobufParts::new(&self.template, &self.owner, &self.generate_name).map(Arc::new);
        let parts = self.protobuf.get_or_init(new).as_ref()?;
        let mut metadata = MessageBuilder::default();
        metadata.bytes(1, name).fields(&parts.metadata);
        let mut pod = MessageBuilder::default();
        pod.bytes(1, &metadata).fields(&parts.pod);
        Some(protobuf::envelope("v1", "Pod", &pod))
    }
}

impl ProtobufParts {
    /// Field numbers are those of `ObjectMeta`, `OwnerReference` and `Pod`.
    fn new(template: &PodTemplate, owner: &OwnerReference, generate_name: &str) -> Option<Self> {
        // A field that this version does not define.
        if owner.extra.iter().next().is_some() {
            return None;
        }
        let mut metadata = MessageBuilder::default();
        metadata.bytes(2, generate_name);
        for (number, map) in [(11, template.labels()), (12, template.annotations())] {
            for (key, value) in map {
                let mut entry = MessageBuilder::default();
                entry.bytes(1, key).bytes(2, value);
                metadata.bytes(number, &entry);
            }
        }
        let mut reference = MessageBuilder::default();
        reference
            .bytes(1, &owner.kind)
            .bytes(3, &*owner.name)
            .bytes(4, &*owner.uid)
            .bytes(5, &owner.api_version);
        for (number, flag) in [(6, owner.controller), (7, owner.block_owner_deletion)] {
            if let Some(flag) = flag {
                reference.varint(number, u64::from(flag));
            }
        }
        metadata.bytes(13, &reference);
        for finalizer in template.finalizers() {
            metadata.bytes(14, finalizer);
        }
        let mut pod = MessageBuilder::default();
        pod.bytes(2, template.spec_protobuf()?);
        Some(Self { metadata, pod })
    }
}

/// Upstream counterpart: `validateControllerRef`.
fn validate(owner: &OwnerReference) -> Result<(), ManifestError> {
    if owner.api_version.is_empty() {
        return Err(ManifestError::NoApiVersion);
    }
    if owner.kind.is_empty() {
        return Err(ManifestError::NoKind);
    }
    if owner.controller != Some(true) {
        return Err(ManifestError::NotController);
    }
    if owner.block_owner_deletion != Some(true) {
        return Err(ManifestError::NotBlocking);
    }
    Ok(())
}

/// Returns `OWNER-`, or `OWNER` if the former is not a valid prefix of a pod name.
fn generate_name(owner: &str) -> String {
    // A prefix can end with a dash. Upstream replaces the last character and the dash by an "a" before it validates.
    let mut candidate = owner.to_owned();
    if candidate.pop().is_some() {
        candidate.push('a');
    }
    if is_dns_subdomain(&candidate) { format!("{owner}-") } else { owner.to_owned() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn owner(name: &str) -> OwnerReference {
        OwnerReference {
            api_version: "apps/v1".to_owned(),
            kind: "ReplicaSet".to_owned(),
            name: name.into(),
            uid: "u".into(),
            controller: Some(true),
            block_owner_deletion: Some(true),
            ..OwnerReference::default()
        }
    }

    fn template(value: &Value) -> PodTemplate {
        PodTemplate::from_value(value).unwrap()
    }

    /// Upstream: TestCreatePodsWithGenerateName: the default prefix, and an explicit prefix.
    #[test]
    fn create_pods_with_generate_name_matches_upstream() {
        let template = template(&json!({
            "metadata": {"labels": {"a": "b"}, "annotations": {"n": "x"}, "finalizers": ["f/g"], "name": "dropped"},
            "spec": {"containers": [{"name": "c", "futureField": 1}]},
        }));
        let default = PodManifest::from_template(&template, &owner("rs")).unwrap();
        assert_eq!(default.generate_name(), "rs-");
        assert_eq!(
            default.to_json("rs-x7k2p"),
            concat!(
                r#"{"kind":"Pod","apiVersion":"v1","metadata":{"name":"rs-x7k2p","generateName":"rs-","labels":{"a":"b"},"#,
                r#""annotations":{"n":"x"},"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","#,
                r#""name":"rs","uid":"u","controller":true,"blockOwnerDeletion":true}],"finalizers":["f/g"]},"#,
                r#""spec":{"containers":[{"futureField":1,"name":"c"}]},"status":{}}"#
            )
        );
        let explicit = PodManifest::with_generate_name(&template, &owner("rs"), "hello-").unwrap();
        let explicit: Value = serde_json::from_str(&explicit.to_json("\"x")).unwrap();
        assert_eq!(explicit["metadata"]["generateName"], "hello-");
        assert_eq!(explicit["metadata"]["name"], "\"x");
    }

    #[test]
    fn protobuf_has_the_fields_of_json() {
        let template = template(&json!({
            "metadata": {"labels": {"a": "b"}, "annotations": {"n": "x"}, "finalizers": ["f/g"], "name": "dropped"},
            "spec": {"containers": [{"name": "c"}]},
        }));
        let manifest = PodManifest::from_template(&template, &owner("rs")).unwrap();
        let body = manifest.to_protobuf("rs-x7k2p").unwrap();
        let mut decoded = kcm_apiserver::protobuf::decode(&body).unwrap();
        decoded["status"] = json!({});
        let json: Value = serde_json::from_str(&manifest.to_json("rs-x7k2p")).unwrap();
        assert_eq!(decoded, json);
    }

    #[test]
    fn templates_with_unknown_fields_have_no_protobuf() {
        let template = template(&json!({
            "metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "futureField": 1}]},
        }));
        let manifest = PodManifest::from_template(&template, &owner("rs")).unwrap();
        assert_eq!(manifest.to_protobuf("rs-x7k2p"), None);
    }

    #[test]
    fn rejects_templates_without_labels() {
        let error = PodManifest::from_template(&PodTemplate::default(), &owner("rs")).unwrap_err();
        assert_eq!(error.to_string(), "unable to create pods, no labels");
    }

    #[test]
    fn rejects_owners_that_do_not_manage() {
        let template = template(&json!({"metadata": {"labels": {"a": "b"}}}));
        let refused = |change: fn(&mut OwnerReference)| {
            let mut owner = owner("rs");
            change(&mut owner);
            PodManifest::from_template(&template, &owner).unwrap_err().to_string()
        };
        assert_eq!(refused(|o| o.api_version.clear()), "controllerRef has empty APIVersion");
        assert_eq!(refused(|o| o.kind.clear()), "controllerRef has empty Kind");
        assert_eq!(refused(|o| o.controller = None), "controllerRef.Controller is not set to true");
        assert_eq!(
            refused(|o| o.block_owner_deletion = Some(false)),
            "controllerRef.BlockOwnerDeletion is not set"
        );
    }

    #[test]
    fn generate_name_ends_with_a_dash_if_valid() {
        assert_eq!(generate_name("web"), "web-");
        assert_eq!(generate_name(&"a".repeat(253)).len(), 254);
        assert_eq!(generate_name(&"a".repeat(254)).len(), 254);
        assert_eq!(generate_name(""), "");
        assert_eq!(generate_name("Größe"), "Größe");
    }
}

//! Body of pod create requests.

use std::sync::Arc;

use kcm_api::{Annotations, Labels, OwnerReference, PodTemplate, selector::is_dns_subdomain};
use serde::Serialize;
use serde_json::value::RawValue;
use thiserror::Error;

/// Body of a pod create request without the name. It is serialized once for all pods of a ReplicaSet.
///
/// Upstream counterpart: `controller.GetPodFromTemplate` (US-3.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodManifest {
    generate_name: Arc<str>,
    /// Body from the first field of the metadata to the end.
    tail: Arc<str>,
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
    /// The pod cannot be serialized.
    #[error("failed to serialize the pod: {0}")]
    Json(#[from] serde_json::Error),
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
        let body = Body {
            metadata: Metadata {
                generate_name,
                labels: template.labels(),
                annotations: template.annotations(),
                owner_references: [owner],
                finalizers: template.finalizers(),
            },
            spec: serde_json::from_str(template.spec_json())?,
            status: Empty {},
        };
        let body = serde_json::to_string(&body)?;
        let tail = body.strip_prefix(r#"{"metadata":{"#).unwrap_or_default();
        Ok(Self { generate_name: generate_name.into(), tail: tail.into() })
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
        format!("{HEAD}\"name\":{},{}", serde_json::Value::from(name), self.tail)
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

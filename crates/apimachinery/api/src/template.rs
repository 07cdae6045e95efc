//! Pod templates.

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, LazyLock, OnceLock},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

mod cuts;
mod members;
pub(crate) mod metadata;
mod shared;

use members::Members;
use metadata::TemplateMeta;
use shared::Shared;

use crate::{
    Annotations, Labels, POD_TEMPLATE_HASH_LABEL, ProtobufError,
    hash::{self, HashError},
    intern::Interner,
    json::object_or_default,
    protobuf::pod_template,
    semantic::{self, Digest},
};

/// Pod template of a workload.
///
/// The JSON text or the protobuf message is kept as it was read, so no field is lost. Labels, annotations and finalizers are
/// decoded on first use, and so is the digest for comparisons. Clones share all of it, and so do templates that were read
/// from the same text or message. Templates that differ share the equal parts.
#[derive(Clone)]
pub struct PodTemplate(Arc<Inner>);

struct Inner {
    content: Content,
    metadata: OnceLock<Box<TemplateMeta>>,
    digest: OnceLock<Digest>,
}

impl From<Content> for Inner {
    fn from(content: Content) -> Self {
        Self { content, metadata: OnceLock::new(), digest: OnceLock::new() }
    }
}

enum Content {
    /// JSON text.
    Json(Shared),
    /// Message that has only fields that this version defines.
    Protobuf(Shared),
}

/// Templates in use.
static TEMPLATES: LazyLock<Interner<Inner>> = LazyLock::new(Interner::default);

#[derive(Default, Deserialize)]
#[serde(default)]
struct Parts<'a> {
    #[serde(deserialize_with = "object_or_default")]
    metadata: TemplateMeta,
    #[serde(borrow)]
    spec: Option<&'a RawValue>,
}

impl<'a> Parts<'a> {
    fn of(json: &'a str) -> Result<Self, serde_json::Error> {
        object_or_default(&mut serde_json::Deserializer::from_str(json))
    }
}

impl PodTemplate {
    /// Parses a template. Equal texts share one template.
    ///
    /// # Errors
    ///
    /// If `json` is not an object, or its metadata has the wrong type.
    pub fn new(json: &RawValue) -> Result<Self, serde_json::Error> {
        let json = json.get();
        let same =
            |found: &Inner| matches!(&found.content, Content::Json(content) if content.is(json.as_bytes()));
        let make = || {
            Parts::of(json)?;
            Ok(Arc::new(Content::Json(Shared::new(json.as_bytes(), cuts::of_json(json))).into()))
        };
        TEMPLATES.try_intern(json, same, make).map(Self)
    }

    /// Reads a `PodTemplateSpec`. Equal messages share one template.
    ///
    /// # Errors
    ///
    /// If `message` is malformed, or has a field or a value that this version does not define.
    pub fn from_protobuf(message: &[u8]) -> Result<Self, ProtobufError> {
        let same =
            |found: &Inner| matches!(&found.content, Content::Protobuf(content) if content.is(message));
        let make = || {
            pod_template::metadata(message)?;
            Ok(Arc::new(Content::Protobuf(Shared::new(message, cuts::of_message(message))).into()))
        };
        TEMPLATES.try_intern(message, same, make).map(Self)
    }

    /// Returns the message of the template. `None` if the template has a field or a value that this version does not
    /// define: only JSON carries it.
    pub fn to_protobuf(&self) -> Option<Vec<u8>> {
        match &self.0.content {
            Content::Json(json) => pod_template::encode(&json.text()),
            Content::Protobuf(message) => Some(message.bytes().into_owned()),
        }
    }

    /// Creates a template from a JSON value.
    ///
    /// # Errors
    ///
    /// Those of [`new`](Self::new).
    pub fn from_value(value: &Value) -> Result<Self, serde_json::Error> {
        Self::new(&to_raw_value(value)?)
    }

    /// Returns the template as a JSON value, to create a changed template with [`from_value`](Self::from_value).
    pub fn to_value(&self) -> Value {
        // The text was parsed before, so this does not fail.
        serde_json::from_str(&self.json()).unwrap_or_default()
    }

    /// Returns the JSON text, as it was read if it was read from JSON.
    pub fn json(&self) -> Cow<'_, str> {
        match &self.0.content {
            Content::Json(json) => json.text(),
            Content::Protobuf(message) => Cow::Owned(pod_template::to_json(&message.bytes())),
        }
    }

    /// Returns the number of bytes of the JSON text or of the protobuf message that is kept. Bytes that `n` templates share
    /// count `1/n`, clones included.
    pub fn size(&self) -> usize {
        let (Content::Json(content) | Content::Protobuf(content)) = &self.0.content;
        content.size() / Arc::strong_count(&self.0)
    }

    fn metadata(&self) -> &TemplateMeta {
        // The content was checked before, so decoding does not fail.
        self.0.metadata.get_or_init(|| match &self.0.content {
            Content::Json(json) => Box::new(Parts::of(&json.text()).unwrap_or_default().metadata),
            Content::Protobuf(message) => {
                Box::new(pod_template::metadata(&message.bytes()).unwrap_or_default())
            }
        })
    }

    /// Returns the labels of the pods.
    pub fn labels(&self) -> &Labels {
        &self.metadata().labels
    }

    /// Returns the annotations of the pods.
    pub fn annotations(&self) -> &Annotations {
        &self.metadata().annotations
    }

    /// Returns the finalizers of the pods.
    pub fn finalizers(&self) -> &[String] {
        &self.metadata().finalizers
    }

    /// Returns the JSON text of the pods' spec.
    pub fn spec_json(&self) -> Cow<'_, str> {
        fn spec(json: &str) -> &str {
            match Parts::of(json) {
                Ok(Parts { spec: Some(spec), .. }) => spec.get(),
                _ => "{}",
            }
        }
        match self.json() {
            Cow::Borrowed(json) => Cow::Borrowed(spec(json)),
            Cow::Owned(json) => Cow::Owned(spec(&json).to_owned()),
        }
    }

    /// Returns the protobuf message of the pods' spec. `None` if the spec has a field or a value that this version does not
    /// define: only the JSON text carries it.
    pub fn spec_protobuf(&self) -> Option<Vec<u8>> {
        match &self.0.content {
            Content::Json(json) => pod_template::encode_spec(&json.text()),
            Content::Protobuf(message) => Some(pod_template::spec(&message.bytes()).into_owned()),
        }
    }

    /// Returns the template with label `key` set to `value`, or removed. All other text is unchanged.
    ///
    /// # Errors
    ///
    /// If the template has the wrong type.
    pub fn with_label(&self, key: &str, value: Option<&str>) -> Result<Self, serde_json::Error> {
        let json = match &self.0.content {
            Content::Json(json) => json.text(),
            Content::Protobuf(message) => {
                let labelled = pod_template::with_label(&message.bytes(), key, value);
                return labelled
                    .and_then(|message| Self::from_protobuf(&message))
                    .map_err(serde::de::Error::custom);
            }
        };
        let template = Members::parse(&json)?;
        let metadata = Members::parse(template.get("metadata"))?;
        let labels = Members::parse(metadata.get("labels"))?;
        let value = value.map(to_raw_value).transpose()?;
        let labels = labels.with(key, value.as_deref())?;
        let metadata = metadata.with("labels", Some(&labels))?;
        Self::new(&template.with("metadata", Some(&metadata))?)
    }

    /// `true` if the templates are semantically equal, ignoring the label `pod-template-hash`.
    ///
    /// Unset equals empty, and `1000m` equals `1`. Unknown fields are compared as JSON, independent of the order of
    /// keys.
    ///
    /// Upstream counterpart: `EqualIgnoreHash` (US-4.8).
    pub fn equal_ignore_hash(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.digest() == other.digest()
    }

    /// Returns a digest of the semantic content, ignoring the label `pod-template-hash`.
    pub fn digest(&self) -> &Digest {
        self.0.digest.get_or_init(|| match &self.0.content {
            Content::Json(json) => semantic::digest_json(&json.text(), POD_TEMPLATE_HASH_LABEL),
            Content::Protobuf(message) => semantic::digest_message(&message.bytes(), POD_TEMPLATE_HASH_LABEL),
        })
    }

    /// Returns the value of the label `pod-template-hash`, which is also part of the ReplicaSet's name.
    ///
    /// Upstream counterpart: `controller.ComputeHash` (US-3.5).
    ///
    /// # Errors
    ///
    /// If a field has the wrong type.
    pub fn compute_hash(&self, collision_count: Option<i32>) -> Result<String, HashError> {
        match &self.0.content {
            Content::Json(json) => hash::compute_json(&json.text(), collision_count),
            Content::Protobuf(message) => hash::compute_message(&message.bytes(), collision_count),
        }
    }
}

impl Default for PodTemplate {
    fn default() -> Self {
        static EMPTY: OnceLock<PodTemplate> = OnceLock::new();
        EMPTY.get_or_init(|| Self(Arc::new(Content::Json(Shared::new(b"null", Vec::new())).into()))).clone()
    }
}

impl PartialEq for PodTemplate {
    /// Compares the JSON text, or the protobuf message. If only one of the two was read from JSON, compares all labels and
    /// the meaning. See [`equal_ignore_hash`](PodTemplate::equal_ignore_hash) for semantic equality.
    fn eq(&self, other: &Self) -> bool {
        match (&self.0.content, &other.0.content) {
            _ if Arc::ptr_eq(&self.0, &other.0) => true,
            (Content::Json(one), Content::Json(other))
            | (Content::Protobuf(one), Content::Protobuf(other)) => one == other,
            _ => self.labels() == other.labels() && self.equal_ignore_hash(other),
        }
    }
}

impl fmt::Debug for PodTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.json())
    }
}

impl Serialize for PodTemplate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let json = RawValue::from_string(self.json().into_owned()).map_err(serde::ser::Error::custom)?;
        json.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PodTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        Self::new(&json).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn template(json: &str) -> PodTemplate {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn writes_the_text_that_was_read() {
        let text = r#"{ "spec":{"x": 1.50, "big": 123456789012345678901234567890}, "metadata" : null}"#;
        assert_eq!(serde_json::to_string(&template(text)).unwrap(), text);
        assert_eq!(template(text).spec_json(), r#"{"x": 1.50, "big": 123456789012345678901234567890}"#);
    }

    #[test]
    fn metadata_of_pods() {
        let template = template(
            r#"{"metadata": {"labels": {"a": "b"}, "annotations": null, "finalizers": ["f"], "name": "ignored"}}"#,
        );
        assert_eq!(template.labels().get("a").map(String::as_str), Some("b"));
        assert!(template.annotations().is_empty());
        assert_eq!(template.finalizers(), ["f"]);
        assert_eq!(template.spec_json(), "{}");
    }

    #[test]
    fn with_label_changes_no_other_text() {
        let text = r#"{"spec":{"big":123456789012345678901234567890,"x":1.50},"metadata":{"labels":{"app":"web"},"name":"n"}}"#;
        let labelled = template(text).with_label("pod-template-hash", Some("abc")).unwrap();
        assert_eq!(labelled.json(), text.replace(r#""web""#, r#""web","pod-template-hash":"abc""#));
        let changed = labelled.with_label("pod-template-hash", Some("def")).unwrap();
        assert_eq!(changed.labels()["pod-template-hash"], "def");
        assert_eq!(changed.with_label("pod-template-hash", None).unwrap().json(), text);
    }

    #[test]
    fn with_label_adds_metadata() {
        for text in ["null", "{}", r#"{"metadata":null}"#, r#"{"metadata":{"labels":null}}"#] {
            let labelled = template(text).with_label("a", Some("b")).unwrap();
            assert_eq!(labelled.to_value(), json!({"metadata": {"labels": {"a": "b"}}}), "{text}");
        }
    }

    #[test]
    fn wrong_type_is_an_error() {
        for text in ["5", r#""x""#, "{\"metadata\": []}", r#"{"metadata": {"labels": "x"}}"#] {
            assert!(serde_json::from_str::<PodTemplate>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn shared_bytes_are_divided() {
        let text = r#"{"metadata":{"labels":{"test":"shared_bytes_are_divided"}},"spec":{"x":1}}"#;
        let one = template(text);
        let size = one.size();
        assert!(size >= text.len(), "{size}");
        let equal = template(text);
        assert_eq!((one.size(), equal.size()), (size / 2, size / 2));
        let spec_is_shared = template(&text.replace("divided\"", "divided, by a label\""));
        drop(equal);
        assert!(spec_is_shared.size() < size && one.size() < size);
    }

    #[test]
    fn default_equals_empty() {
        assert!(PodTemplate::default().equal_ignore_hash(&template("{}")));
        assert_eq!(PodTemplate::default().compute_hash(None), template("{}").compute_hash(None));
    }
}

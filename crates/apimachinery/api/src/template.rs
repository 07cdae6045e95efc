//! Pod templates: kept as text, compared and hashed by meaning.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error as _, MapAccess, Visitor},
};
use serde_json::{
    Value,
    value::{RawValue, to_raw_value},
};

use crate::{
    Annotations, Labels, POD_TEMPLATE_HASH_LABEL,
    hash::{self, HashError},
    json::{object_or_default, or_default},
    semantic::{self, Digest},
};

/// What pods are made from.
///
/// The text that came from the server is kept as it is, so nothing in it can be lost. What it *means* is
/// computed when first asked for and remembered: clones share it, so a template in the cache is compared many
/// times and understood once.
#[derive(Clone)]
pub struct PodTemplate(Arc<Inner>);

struct Inner {
    json: Box<RawValue>,
    metadata: TemplateMeta,
    digest: OnceLock<Digest>,
}

/// The metadata of a template, as far as pods get it from there.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TemplateMeta {
    #[serde(deserialize_with = "or_default")]
    labels: Labels,
    #[serde(deserialize_with = "or_default")]
    annotations: Annotations,
    #[serde(deserialize_with = "or_default")]
    finalizers: Vec<String>,
}

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
    /// The template that `json` spells.
    ///
    /// # Errors
    ///
    /// When it is no JSON object, or its metadata is not of the right shape.
    pub fn new(json: Box<RawValue>) -> Result<Self, serde_json::Error> {
        let metadata = Parts::of(json.get())?.metadata;
        Ok(Self(Arc::new(Inner { json, metadata, digest: OnceLock::new() })))
    }

    /// The template that `value` is.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn from_value(value: &Value) -> Result<Self, serde_json::Error> {
        Self::new(to_raw_value(value)?)
    }

    /// A tree to change and make another template [from](Self::from_value).
    pub fn to_value(&self) -> Value {
        // What was parsed once parses again; an empty template would only be refused by the server.
        serde_json::from_str(self.0.json.get()).unwrap_or_default()
    }

    /// The text as it came.
    pub fn json(&self) -> &str {
        self.0.json.get()
    }

    /// Labels that pods get.
    pub fn labels(&self) -> &Labels {
        &self.0.metadata.labels
    }

    /// Annotations that pods get.
    pub fn annotations(&self) -> &Annotations {
        &self.0.metadata.annotations
    }

    /// Finalizers that pods get.
    pub fn finalizers(&self) -> &[String] {
        &self.0.metadata.finalizers
    }

    /// The spec that pods get, as text.
    pub fn spec_json(&self) -> &str {
        match Parts::of(self.json()) {
            Ok(Parts { spec: Some(spec), .. }) => spec.get(),
            _ => "{}",
        }
    }

    /// The same template with label `key` set to `value`, or without it. All else stays to the letter.
    ///
    /// # Errors
    ///
    /// When the template is not of the right shape.
    pub fn with_label(&self, key: &str, value: Option<&str>) -> Result<Self, serde_json::Error> {
        let template = Members::parse(self.json())?;
        let metadata = Members::parse(template.get("metadata"))?;
        let labels = Members::parse(metadata.get("labels"))?;
        let value = value.map(to_raw_value).transpose()?;
        let labels = labels.with(key, value.as_deref())?;
        let metadata = metadata.with("labels", Some(&labels))?;
        Self::new(template.with("metadata", Some(&metadata))?)
    }

    /// Whether both ask for the same pods, the hash label aside.
    ///
    /// Upstream counterpart: `EqualIgnoreHash` (US-4.8). By meaning, not by text: unset equals empty, `1000m`
    /// equals `1`. A field that this version does not know counts, as text in canonical order.
    pub fn equal_ignore_hash(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.digest() == other.digest()
    }

    /// What the template means, the hash label aside.
    pub fn digest(&self) -> &Digest {
        self.0.digest.get_or_init(|| semantic::digest_json(self.json(), POD_TEMPLATE_HASH_LABEL))
    }

    /// The value of the hash label for this template, which is in the name of its ReplicaSet too.
    ///
    /// Upstream counterpart: `controller.ComputeHash` (US-3.5).
    ///
    /// # Errors
    ///
    /// When a field is not of the type that the API gives it.
    pub fn compute_hash(&self, collision_count: Option<i32>) -> Result<String, HashError> {
        hash::compute_json(self.json(), collision_count)
    }
}

/// The members of a JSON object, in their order, each as it came.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'a> Members<'a> {
    /// None for `null`.
    fn parse(json: &'a str) -> Result<Self, serde_json::Error> {
        Ok(serde_json::from_str::<Option<Self>>(json)?.unwrap_or(Self(Vec::new())))
    }

    fn get(&self, name: &str) -> &'a str {
        self.0.iter().rfind(|(key, _)| key == name).map_or("null", |(_, value)| value.get())
    }

    /// The object with `value` as its member `name`, or without one.
    fn with<'b>(mut self, name: &str, value: Option<&'b RawValue>) -> Result<Box<RawValue>, serde_json::Error>
    where
        'a: 'b,
    {
        let place = self.0.iter().position(|(key, _)| key == name).unwrap_or(self.0.len());
        self.0.retain(|(key, _)| key != name);
        let mut members: Members<'b> = self;
        if let Some(value) = value {
            members.0.insert(place, (name.to_owned(), value));
        }
        to_raw_value(&members)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

impl Serialize for Members<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|(key, value)| (key, value)))
    }
}

impl Default for PodTemplate {
    fn default() -> Self {
        static EMPTY: OnceLock<PodTemplate> = OnceLock::new();
        EMPTY
            .get_or_init(|| {
                let json = RawValue::NULL.to_owned();
                Self(Arc::new(Inner { json, metadata: TemplateMeta::default(), digest: OnceLock::new() }))
            })
            .clone()
    }
}

impl PartialEq for PodTemplate {
    /// To the letter. See [`equal_ignore_hash`](PodTemplate::equal_ignore_hash) for equality of meaning.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.json() == other.json()
    }
}

impl fmt::Debug for PodTemplate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.json())
    }
}

impl Serialize for PodTemplate {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.json.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PodTemplate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = Box::<RawValue>::deserialize(deserializer)?;
        Self::new(json).map_err(D::Error::custom)
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
    fn template_is_written_as_it_was_read() {
        let text = r#"{ "spec":{"x": 1.50, "big": 123456789012345678901234567890}, "metadata" : null}"#;
        assert_eq!(serde_json::to_string(&template(text)).unwrap(), text);
        assert_eq!(template(text).spec_json(), r#"{"x": 1.50, "big": 123456789012345678901234567890}"#);
    }

    #[test]
    fn template_metadata_is_what_pods_get() {
        let template = template(
            r#"{"metadata": {"labels": {"a": "b"}, "annotations": null, "finalizers": ["f"], "name": "ignored"}}"#,
        );
        assert_eq!(template.labels().get("a").map(String::as_str), Some("b"));
        assert!(template.annotations().is_empty());
        assert_eq!(template.finalizers(), ["f"]);
        assert_eq!(template.spec_json(), "{}");
    }

    #[test]
    fn template_with_a_label_set_and_taken_is_otherwise_the_same_to_the_letter() {
        let text = r#"{"spec":{"big":123456789012345678901234567890,"x":1.50},"metadata":{"labels":{"app":"web"},"name":"n"}}"#;
        let labelled = template(text).with_label("pod-template-hash", Some("abc")).unwrap();
        assert_eq!(labelled.json(), text.replace(r#""web""#, r#""web","pod-template-hash":"abc""#));
        let changed = labelled.with_label("pod-template-hash", Some("def")).unwrap();
        assert_eq!(changed.labels()["pod-template-hash"], "def");
        assert_eq!(changed.with_label("pod-template-hash", None).unwrap().json(), text);
    }

    #[test]
    fn template_without_metadata_gets_it_with_its_first_label() {
        for text in ["null", "{}", r#"{"metadata":null}"#, r#"{"metadata":{"labels":null}}"#] {
            let labelled = template(text).with_label("a", Some("b")).unwrap();
            assert_eq!(labelled.to_value(), json!({"metadata": {"labels": {"a": "b"}}}), "{text}");
        }
    }

    #[test]
    fn template_that_is_no_object_is_an_error() {
        for text in ["5", r#""x""#, "{\"metadata\": []}", r#"{"metadata": {"labels": "x"}}"#] {
            assert!(serde_json::from_str::<PodTemplate>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn default_template_equals_an_empty_one() {
        assert!(PodTemplate::default().equal_ignore_hash(&template("{}")));
        assert_eq!(PodTemplate::default().compute_hash(None), template("{}").compute_hash(None));
    }
}

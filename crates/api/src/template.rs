//! Pod templates: kept as text, compared and hashed by meaning.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use serde_json::{Value, value::RawValue};

use crate::{
    Annotations, Labels, POD_TEMPLATE_HASH_LABEL,
    hash::{self, HashError},
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
    #[serde(deserialize_with = "null_is_default")]
    labels: Labels,
    #[serde(deserialize_with = "null_is_default")]
    annotations: Annotations,
    #[serde(deserialize_with = "null_is_default")]
    finalizers: Vec<String>,
}

fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(d: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(d)?.unwrap_or_default())
}

#[derive(Deserialize)]
struct Parts<'a> {
    #[serde(default)]
    metadata: Option<TemplateMeta>,
    #[serde(default, borrow)]
    spec: Option<&'a RawValue>,
}

impl PodTemplate {
    /// The template that `json` spells.
    ///
    /// # Errors
    ///
    /// When it is no JSON object, or its metadata is not of the right shape.
    pub fn new(json: Box<RawValue>) -> Result<Self, serde_json::Error> {
        let parts: Parts<'_> = serde_json::from_str(json.get())?;
        let metadata = parts.metadata.unwrap_or_default();
        Ok(Self(Arc::new(Inner { json, metadata, digest: OnceLock::new() })))
    }

    /// The template that `value` is.
    ///
    /// # Errors
    ///
    /// As [`new`](Self::new).
    pub fn from_value(value: &Value) -> Result<Self, serde_json::Error> {
        Self::new(serde_json::value::to_raw_value(value)?)
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
        match serde_json::from_str::<Parts<'_>>(self.0.json.get()) {
            Ok(Parts { spec: Some(spec), .. }) => spec.get(),
            _ => "{}",
        }
    }

    /// The same template with label `key` set to `value`, or without it.
    ///
    /// # Errors
    ///
    /// When the template is not of the right shape.
    pub fn with_label(&self, key: &str, value: Option<&str>) -> Result<Self, serde_json::Error> {
        let mut tree = self.to_value();
        let object = |value: &mut Value| {
            if !value.is_object() {
                *value = Value::Object(serde_json::Map::new());
            }
        };
        object(&mut tree);
        let metadata = &mut tree["metadata"];
        object(metadata);
        let labels = &mut metadata["labels"];
        object(labels);
        if let Some(labels) = labels.as_object_mut() {
            match value {
                Some(value) => drop(labels.insert(key.to_owned(), Value::from(value))),
                None => drop(labels.remove(key)),
            }
        }
        Self::from_value(&tree)
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
        self.0
            .digest
            .get_or_init(|| semantic::digest_json(self.json(), POD_TEMPLATE_HASH_LABEL))
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

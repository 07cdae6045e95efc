//! Options of requests.

use kcm_api::protobuf::{self, MessageBuilder};
use kcm_informer::List;
use kcm_meta::Object;
use serde_json::{Value, json};

use crate::request::{Idempotency, Query};

/// Objects per page. A page is in memory as text and as objects at the same time, so this limits the peak.
const PAGE: u32 = 500;

/// Selection of objects, and options of lists and watches.
///
/// Upstream counterpart: `metav1.ListOptions`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListParams {
    /// Label selector, such as `app=web,tier!=cache`. Empty for all objects.
    pub labels: String,
    /// Field selector, such as `metadata.name=web`. Empty for all objects.
    pub fields: String,
    /// If `true`, the API server sends only the metadata of the objects, with the kind `PartialObjectMetadata`. For
    /// `DynamicObject` and own types; types of `k8s-openapi` do not accept another kind. Implied by types with metadata
    /// only, such as `PartialObjectMeta<Pod>`.
    pub metadata_only: bool,
    /// Freshness of a list. `None`: the newest state. `Some("0")`: any state that the server has cached. Otherwise: a state
    /// not older than this version. Watches and informers ignore it.
    pub resource_version: Option<String>,
    /// Maximum number of objects per page. 0 for one page with all objects. With a `resource_version`, lists have one
    /// page: API servers ignore the limit if they can respond from their cache. Default: 500.
    pub limit: u32,
}

impl Default for ListParams {
    fn default() -> Self {
        Self {
            labels: String::new(),
            fields: String::new(),
            metadata_only: false,
            resource_version: None,
            limit: PAGE,
        }
    }
}

impl ListParams {
    /// Selects objects by a label selector.
    pub fn labels(selector: impl Into<String>) -> Self {
        Self { labels: selector.into(), ..Self::default() }
    }

    /// Selects objects by a field selector.
    pub fn fields(selector: impl Into<String>) -> Self {
        Self { fields: selector.into(), ..Self::default() }
    }

    pub(crate) fn add_selectors(&self, query: &mut Query) {
        if !self.labels.is_empty() {
            query.add("labelSelector", &self.labels);
        }
        if !self.fields.is_empty() {
            query.add("fieldSelector", &self.fields);
        }
    }
}

/// Part of a list.
#[derive(Debug)]
pub struct Page<K> {
    /// Objects of the page.
    pub list: List<K>,
    /// Token of the next page. `None` on the last page.
    pub continue_token: Option<String>,
    /// Number of objects on the pages after this one, if the API server reports it.
    pub remaining_item_count: Option<u64>,
}

/// Options of all writes of an [`Api`](crate::Api).
///
/// Upstream counterparts: `metav1.CreateOptions`, `UpdateOptions` and `PatchOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WriteOptions {
    /// Name of the writer in `metadata.managedFields`. If `None`, the API server takes the program's name from the user agent.
    pub field_manager: Option<String>,
    /// If `true`, the API server checks the request and returns its result, but stores nothing.
    pub dry_run: bool,
    /// Handling of unknown and duplicate fields. If `None`, the API server's default, which is `Warn`.
    pub field_validation: Option<FieldValidation>,
    /// If `true`, the API server returns only the metadata of written objects, with the kind `PartialObjectMetadata`. For
    /// callers that do not read the rest, and types that accept another kind, see
    /// [`ListParams::metadata_only`](ListParams::metadata_only). API servers without this representation return whole
    /// objects.
    pub metadata_only: bool,
}

/// Handling of unknown and duplicate fields by the API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    /// Drop them.
    Ignore,
    /// Drop them and return a warning.
    Warn,
    /// Reject the request.
    Strict,
}

impl WriteOptions {
    /// Adds the options to a path.
    pub(super) fn add_to(&self, path: String, field_manager: Option<&str>) -> Query {
        let mut query = Query::new(path);
        if let Some(manager) = field_manager.or(self.field_manager.as_deref()) {
            query.add("fieldManager", manager);
        }
        if self.dry_run {
            query.add("dryRun", "All");
        }
        if let Some(validation) = self.field_validation {
            let value = match validation {
                FieldValidation::Ignore => "Ignore",
                FieldValidation::Warn => "Warn",
                FieldValidation::Strict => "Strict",
            };
            query.add("fieldValidation", value);
        }
        query
    }
}

/// Options of a deletion. By default, there is no precondition, and grace period and propagation are the defaults of the
/// kind.
///
/// Upstream counterpart: `metav1.DeleteOptions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeleteOptions {
    /// Conditions that the object must meet. If it does not, the request fails with a conflict.
    pub preconditions: Preconditions,
    /// Grace period in seconds. 0 deletes at once.
    pub grace_period_seconds: Option<i64>,
    /// Handling of dependents.
    pub propagation: Option<Propagation>,
}

/// Conditions that an object must meet to be deleted.
///
/// Upstream counterpart: `metav1.Preconditions`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// UID of the object. Protects an object that was created later with the same name.
    pub uid: Option<String>,
    /// Resource version of the object. Protects an object that was changed.
    pub resource_version: Option<String>,
}

impl Preconditions {
    /// Returns the precondition that the object is still the same: its UID.
    pub fn uid_of(object: &impl Object) -> Self {
        Self { uid: Some(object.uid_str().to_owned()), resource_version: None }
    }
}

/// Handling of the dependents of a deleted object.
///
/// Upstream counterpart: `metav1.DeletionPropagation`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// Remove the object from the owner references of its dependents.
    Orphan,
    /// Delete the object at once, its dependents afterwards.
    Background,
    /// Delete the dependents first.
    Foreground,
}

impl Propagation {
    fn as_str(self) -> &'static str {
        match self {
            Self::Orphan => "Orphan",
            Self::Background => "Background",
            Self::Foreground => "Foreground",
        }
    }
}

impl DeleteOptions {
    /// Effect of a second request.
    pub(super) fn idempotency(&self) -> Idempotency {
        let Preconditions { uid, resource_version } = &self.preconditions;
        if uid.is_some() || resource_version.is_some() {
            Idempotency::Idempotent
        } else {
            Idempotency::Change
        }
    }

    /// Returns the options as JSON. `dry_run` is that of the [`WriteOptions`].
    pub(super) fn to_json(&self, dry_run: bool) -> String {
        let Self {
            preconditions: Preconditions { uid, resource_version },
            grace_period_seconds,
            propagation,
        } = self;
        // As upstream, the fields are in this order.
        let mut json = String::from(r#"{"kind":"DeleteOptions","apiVersion":"v1""#);
        let mut add = |name: &str, value: Value| {
            json.push_str(&format!(",\"{name}\":{value}"));
        };
        if let Some(seconds) = grace_period_seconds {
            add("gracePeriodSeconds", json!(seconds));
        }
        let mut conditions = serde_json::Map::new();
        for (name, value) in [("uid", uid), ("resourceVersion", resource_version)] {
            if let Some(value) = value {
                conditions.insert(name.to_owned(), json!(value));
            }
        }
        if !conditions.is_empty() {
            add("preconditions", conditions.into());
        }
        if let Some(propagation) = propagation {
            add("propagationPolicy", json!(propagation.as_str()));
        }
        if dry_run {
            add("dryRun", json!(["All"]));
        }
        json.push('}');
        json
    }

    /// Returns the options as protobuf. `dry_run` is that of the [`WriteOptions`].
    pub(super) fn to_protobuf(&self, dry_run: bool) -> Vec<u8> {
        let Self {
            preconditions: Preconditions { uid, resource_version },
            grace_period_seconds,
            propagation,
        } = self;
        let mut message = MessageBuilder::default();
        if let Some(seconds) = grace_period_seconds {
            message.varint(1, seconds.cast_unsigned());
        }
        let mut conditions = MessageBuilder::default();
        for (number, value) in [(1, uid), (2, resource_version)] {
            if let Some(value) = value {
                conditions.bytes(number, value);
            }
        }
        if uid.is_some() || resource_version.is_some() {
            message.bytes(2, &conditions);
        }
        if let Some(propagation) = propagation {
            message.bytes(4, propagation.as_str());
        }
        if dry_run {
            message.bytes(5, "All");
        }
        protobuf::envelope("v1", "DeleteOptions", &message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delete_options_are_equal_in_both_encodings() {
        let some = |text: &str| Some(text.to_owned());
        let options = [
            DeleteOptions::default(),
            DeleteOptions {
                preconditions: Preconditions { uid: some("u"), resource_version: None },
                ..DeleteOptions::default()
            },
            DeleteOptions {
                preconditions: Preconditions { uid: some("u"), resource_version: some("7") },
                grace_period_seconds: Some(0),
                propagation: Some(Propagation::Foreground),
            },
            DeleteOptions { grace_period_seconds: Some(-1), ..DeleteOptions::default() },
        ];
        for options in options {
            for dry_run in [false, true] {
                let json: Value = serde_json::from_str(&options.to_json(dry_run)).unwrap();
                let expected = kcm_apiserver::protobuf::encode(&json).unwrap();
                let message = options.to_protobuf(dry_run);
                let open = protobuf::open_envelope;
                assert_eq!(open(&message).unwrap(), open(&expected).unwrap(), "{json}");
            }
        }
    }
}

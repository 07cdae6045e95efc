//! A resource in the version of a request.

use std::{borrow::Cow, fmt, sync::Arc};

use serde_json::Value;

use crate::{
    ApiStatus, Object, Resource, Subresource,
    admission::Admission,
    custom::{CustomVersion, WebhookConversion},
    defaults,
    stored_kind::StoredKind,
    strategy::Strategy,
    strict::{self, DecodeError, Decoded},
    validate::{self, FieldError},
};

/// A built-in resource, or a custom resource in one of its versions.
#[derive(Clone)]
pub(crate) struct Kind {
    pub(crate) resource: Resource,
    pub(crate) custom: Option<Arc<CustomVersion>>,
}

/// Formats a group, version and kind as Go does: `apps/v1, Kind=Deployment`, or `/v1, Kind=Pod`.
pub(crate) fn group_version_kind(api_version: &str, kind: &str) -> String {
    let separator = if api_version.contains('/') { "" } else { "/" };
    format!("{separator}{api_version}, Kind={kind}")
}

impl From<Resource> for Kind {
    /// `resource` is built in.
    fn from(resource: Resource) -> Self {
        Self { resource, custom: None }
    }
}

impl From<&Arc<CustomVersion>> for Kind {
    fn from(version: &Arc<CustomVersion>) -> Self {
        Self { resource: version.resource, custom: Some(Arc::clone(version)) }
    }
}

impl PartialEq for Kind {
    fn eq(&self, other: &Self) -> bool {
        self.resource == other.resource && self.api_version() == other.api_version()
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.api_version(), self.resource)
    }
}

impl Kind {
    /// Group and version; the storage version of a built-in kind.
    pub(crate) fn api_version(&self) -> &str {
        self.custom.as_ref().map_or(self.resource.api_version(), |custom| &custom.api_version)
    }

    /// Name of the kind.
    pub(crate) fn name(&self) -> &'static str {
        self.resource.kind()
    }

    /// Kind of a list of the objects.
    pub(crate) fn list_name(&self) -> String {
        self.custom.as_ref().map_or_else(|| format!("{}List", self.name()), |custom| custom.list_kind.clone())
    }

    /// `true` if the kind has this subresource.
    pub(crate) fn has(&self, subresource: Subresource) -> bool {
        match (&self.custom, subresource) {
            (None, _) => self.resource.has(subresource),
            (Some(custom), Subresource::Status) => custom.has_status,
            (Some(custom), Subresource::Scale) => custom.scale.is_some(),
            (Some(_), _) => false,
        }
    }

    fn stored(&self) -> Option<&'static StoredKind> {
        self.resource.definition().stored
    }

    /// Rules of the kind for creates and updates.
    pub(crate) fn strategy(&self) -> &dyn Strategy {
        match &self.custom {
            Some(custom) => &**custom,
            None => self.resource.strategy(),
        }
    }

    /// Brings an object into normal form.
    pub(crate) fn decode(&self, object: Value) -> Result<Decoded, DecodeError> {
        match &self.custom {
            Some(custom) => custom.decode(object),
            None => strict::decode_value(self.api_version(), self.name(), object),
        }
    }

    /// As [`decode`](Self::decode), of a JSON text.
    pub(crate) fn decode_text(&self, text: &[u8]) -> Result<Decoded, DecodeError> {
        match &self.custom {
            Some(custom) => strict::decode_untyped(self.name(), text).and_then(|(object, mut duplicates)| {
                let mut decoded = custom.decode(object)?;
                duplicates.append(&mut decoded.strict_errors);
                decoded.strict_errors = duplicates;
                Ok(decoded)
            }),
            None => strict::decode(self.api_version(), self.name(), text),
        }
    }

    /// Sets the defaults of a decoded object.
    pub(crate) fn apply_defaults(&self, object: &mut Value) {
        match (&self.custom, self.stored()) {
            (Some(custom), _) => custom.apply_defaults(object),
            (None, Some(stored)) => stored.apply_defaults(object),
            (None, None) => defaults::apply(self.name(), object),
        }
    }

    /// `true` if [`shown`](Self::shown) returns the object as it is stored.
    pub(crate) fn is_stored_form(&self, object: &Object) -> bool {
        self.custom.as_ref().is_none_or(|custom| custom.is_stored_form(object))
    }

    /// Returns a stored object in this version. A built-in object is returned in the storage version.
    pub(crate) fn shown<'a>(&self, object: &'a Object) -> Cow<'a, Value> {
        match &self.custom {
            Some(custom) => custom.shown(object),
            None => Cow::Borrowed(object.value()),
        }
    }

    /// As [`shown`](Self::shown), by the conversion webhook, if there is one.
    ///
    /// # Errors
    ///
    /// The webhook must be called first.
    pub(crate) fn shown_by<'a>(
        &self,
        object: &'a Object,
        admission: Option<&Admission<'_>>,
    ) -> Result<Cow<'a, Value>, ApiStatus> {
        match &self.custom {
            Some(custom) => custom.shown_by(object, admission),
            None => Ok(Cow::Borrowed(object.value())),
        }
    }

    /// Webhook that converts the objects of a custom resource.
    pub(crate) fn conversion(&self) -> Option<&Arc<WebhookConversion>> {
        self.custom.as_ref().and_then(|custom| custom.conversion())
    }

    /// Converts an object to the version in which it is stored.
    ///
    /// # Errors
    ///
    /// A conversion webhook must be called first.
    pub(crate) fn convert_to_storage(
        &self,
        object: &mut Value,
        admission: Option<&Admission<'_>>,
    ) -> Result<(), ApiStatus> {
        self.custom.as_ref().map_or(Ok(()), |custom| custom.convert_to_storage(object, admission))
    }

    pub(crate) fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        match (&self.custom, self.stored()) {
            (Some(custom), _) => custom.validate_create(object),
            (None, Some(stored)) => stored.validate_create(object),
            (None, None) => validate::create(self.name(), object),
        }
    }

    pub(crate) fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        match (&self.custom, self.stored()) {
            (Some(custom), _) => custom.validate_update(new, old),
            (None, Some(stored)) => stored.validate_update(new, old),
            (None, None) => validate::update(self.name(), new, old),
        }
    }

    pub(crate) fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        match &self.custom {
            Some(custom) => custom.validate_status_update(new, old),
            None => validate::update_status(self.name(), new, old),
        }
    }
}

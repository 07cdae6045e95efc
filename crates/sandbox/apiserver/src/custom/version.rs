//! A version of a custom resource.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{WebhookConversion, validate, values};
use crate::{
    ApiStatus, Object, Resource,
    admission::Admission,
    apply,
    field_error::FieldError,
    json::{at, bool_at, i64_at, list_at, set, str_at},
    label_selector::LabelSelector,
    strategy::Strategy,
    strict::{self, DecodeError, Decoded},
    structural_schema::Schema,
    validate::{custom_metadata, metadata_update},
};

/// A version of a custom resource: its schema, subresources and columns.
#[derive(Debug)]
pub(crate) struct CustomVersion {
    pub(crate) resource: Resource,
    /// Name of the version, such as `v1`.
    pub(crate) version: String,
    /// Group and version.
    pub(crate) api_version: String,
    /// Group and version in which objects are stored.
    storage_api_version: String,
    pub(crate) list_kind: String,
    pub(crate) schema: Arc<Schema>,
    /// Schemas of all versions.
    schemas: Arc<Schemas>,
    /// The schema as it is in the definition.
    pub(crate) definition_schema: Arc<Value>,
    /// `additionalPrinterColumns` of the definition.
    pub(crate) printer_columns: Value,
    /// Names of the fields that field selectors support, such as `spec.color`.
    pub(crate) selectable_fields: Vec<String>,
    pub(crate) has_status: bool,
    pub(crate) scale: Option<ScalePaths>,
    /// Warning for clients of a deprecated version.
    pub(crate) deprecation: Option<String>,
    /// Compiled when an object is first validated.
    #[cfg(feature = "cel")]
    rules: std::sync::OnceLock<Option<crate::cel::Rules>>,
    /// Objects written since this revision of the server have the defaults of this schema.
    since: u64,
    retired: CancellationToken,
    /// Webhook that converts between versions. `None` changes `apiVersion` only.
    conversion: Option<Arc<WebhookConversion>>,
}

/// Schemas of the versions of a resource, by group and version.
pub(super) type Schemas = BTreeMap<String, Arc<Schema>>;

/// Schema of a version in its definition.
fn definition_schema(version: &Value) -> Value {
    version.pointer("/schema/openAPIV3Schema").cloned().unwrap_or_else(|| json!({}))
}

/// Returns the schemas of the versions of a definition.
pub(super) fn schemas(resource: Resource, versions: &[Value]) -> Schemas {
    let schema = |version| {
        let api_version = format!("{}/{}", resource.group(), str_at(version, &["name"]));
        (api_version, Arc::new(Schema::parse(&definition_schema(version))))
    };
    versions.iter().map(schema).collect()
}

/// Paths of the fields that the scale subresource reads and writes, such as `.spec.replicas`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScalePaths {
    pub(crate) spec_replicas: String,
    pub(crate) status_replicas: String,
    pub(crate) label_selector: Option<String>,
}

impl ScalePaths {
    fn parse(scale: &Value) -> Self {
        let text = |field: &str| str_at(scale, &[field]).to_owned();
        Self {
            spec_replicas: text("specReplicasPath"),
            status_replicas: text("statusReplicasPath"),
            label_selector: Some(text("labelSelectorPath")).filter(|path| !path.is_empty()),
        }
    }

    /// Splits a path into its fields.
    pub(crate) fn fields(path: &str) -> Vec<&str> {
        path.trim_start_matches('.').split('.').collect()
    }
}

/// Order of versions in discovery: `v2` before `v1`, stable versions before beta before alpha, then other names.
///
/// Upstream counterpart: `version.CompareKubeAwareVersionStrings`.
pub(crate) fn priority(version: &str) -> (u8, u64, u64, std::cmp::Reverse<String>) {
    let name = std::cmp::Reverse(version.to_owned());
    let parse = || {
        let rest = version.strip_prefix('v')?;
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (major, rest) = rest.split_at(digits);
        let major = major.parse().ok()?;
        let stability = |name: &str| rest.strip_prefix(name).and_then(|minor| minor.parse().ok());
        match (rest, stability("beta"), stability("alpha")) {
            ("", ..) => Some((3, major, 0)),
            (_, Some(minor), _) => Some((2, major, minor)),
            (_, _, Some(minor)) => Some((1, major, minor)),
            _ => None,
        }
    };
    let (stability, major, minor) = parse().unwrap_or_default();
    (stability, major, minor, name)
}

impl CustomVersion {
    pub(super) fn new(
        resource: Resource,
        definition: &Object,
        version: &Value,
        storage: &str,
        schemas: &Arc<Schemas>,
        retired: CancellationToken,
    ) -> Self {
        let name = str_at(version, &["name"]);
        let api_version = format!("{}/{name}", resource.group());
        let warning = at(version, &["deprecationWarning"]).and_then(Value::as_str).map(str::to_owned);
        let deprecation = bool_at(version, &["deprecated"])
            .then(|| warning.unwrap_or_else(|| format!("{api_version} {} is deprecated", resource.kind())));
        Self {
            resource,
            version: name.to_owned(),
            storage_api_version: format!("{}/{storage}", resource.group()),
            list_kind: str_at(definition.value(), &["status", "acceptedNames", "listKind"]).to_owned(),
            schema: schemas.get(&api_version).cloned().unwrap_or_default(),
            schemas: Arc::clone(schemas),
            definition_schema: Arc::new(definition_schema(version)),
            printer_columns: Value::Array(list_at(version, &["additionalPrinterColumns"]).to_vec()),
            selectable_fields: list_at(version, &["selectableFields"])
                .iter()
                .map(|field| str_at(field, &["jsonPath"]).trim_start_matches('.').to_owned())
                .collect(),
            has_status: at(version, &["subresources", "status"]).is_some(),
            scale: at(version, &["subresources", "scale"]).map(ScalePaths::parse),
            deprecation,
            #[cfg(feature = "cel")]
            rules: std::sync::OnceLock::new(),
            since: definition.revision(),
            retired,
            api_version,
            conversion: None,
        }
    }

    pub(super) fn with_conversion(self, conversion: Option<Arc<WebhookConversion>>) -> Self {
        Self { conversion, ..self }
    }

    pub(crate) fn conversion(&self) -> Option<&Arc<WebhookConversion>> {
        self.conversion.as_ref()
    }

    /// Group and version of stored objects.
    pub(crate) fn storage_api_version(&self) -> &str {
        &self.storage_api_version
    }

    /// Cancelled when the definition changes.
    pub(crate) fn retired(&self) -> &CancellationToken {
        &self.retired
    }

    /// Brings an object into normal form: metadata is decoded, fields that the schema does not have are removed and
    /// reported.
    ///
    /// # Errors
    ///
    /// The object is of another kind, or its metadata has fields of another type.
    pub(crate) fn decode(&self, object: Value) -> Result<Decoded, DecodeError> {
        let kind = self.resource.kind();
        let Value::Object(mut members) = object else {
            let detail = "json: cannot unmarshal into Go value of type map[string]interface {}".to_owned();
            return Err(DecodeError::Type { kind: kind.to_owned(), version: self.version.clone(), detail });
        };
        let metadata = members.remove("metadata").unwrap_or(Value::Null);
        let (metadata, mut strict_errors) = self.decode_metadata(&metadata)?;
        members.insert("metadata".to_owned(), metadata);
        strict::check_type_meta(&mut members, &self.api_version, kind)?;
        let mut object = Value::Object(members);
        let unknown = values::prune(&mut object, &self.schema);
        strict_errors.extend(unknown.iter().map(|path| format!("unknown field {path:?}")));
        Ok(Decoded { object, strict_errors })
    }

    fn decode_metadata(&self, metadata: &Value) -> Result<(Value, Vec<String>), DecodeError> {
        // Every kind has the same metadata.
        let decoded = strict::decode_value("v1", "ConfigMap", json!({"metadata": metadata}));
        let mut decoded = decoded.map_err(|error| match error {
            DecodeError::Type { detail, .. } => {
                let kind = self.resource.kind().to_owned();
                let detail = detail
                    .replace("ConfigMap.", "ObjectMeta.")
                    .replace("ObjectMeta.metadata.", "ObjectMeta.");
                DecodeError::Type { kind, version: self.version.clone(), detail }
            }
            other => other,
        })?;
        Ok((decoded.object["metadata"].take(), decoded.strict_errors))
    }

    /// Sets defaults, and removes nulls of fields that are not nullable.
    pub(crate) fn apply_defaults(&self, object: &mut Value) {
        values::apply_defaults(object, &self.schema);
    }

    /// `true` if the object is shown in this version as it is stored.
    pub(crate) fn is_stored_form(&self, object: &Object) -> bool {
        object.api_version() == self.api_version && object.revision() > self.since
    }

    /// Returns a stored object in this version.
    ///
    /// As upstream, it has the defaults of the version in which it is stored, and the fields of this one. Without a webhook
    /// only `apiVersion` changes.
    pub(crate) fn shown<'a>(&self, object: &'a Object) -> Cow<'a, Value> {
        if self.is_stored_form(object) {
            return Cow::Borrowed(object.value());
        }
        let mut value = self.with_stored_defaults(object);
        self.set_version(&mut value);
        Cow::Owned(value)
    }

    /// As [`shown`](Self::shown), by the webhook.
    pub(crate) fn shown_by<'a>(
        &self,
        object: &'a Object,
        admission: Option<&Admission<'_>>,
    ) -> Result<Cow<'a, Value>, ApiStatus> {
        if self.conversion.is_none() || object.api_version() == self.api_version {
            return Ok(self.shown(object));
        }
        let mut value = convert(admission, self.with_stored_defaults(object), &self.api_version)?;
        self.set_version(&mut value);
        Ok(Cow::Owned(value))
    }

    /// `true` if a webhook converts the stored object to this version.
    pub(crate) fn is_converted(&self, object: &Object) -> bool {
        self.conversion.is_some() && object.api_version() != self.api_version
    }

    /// Returns a stored object with the defaults of the version in which it is stored.
    pub(crate) fn with_stored_defaults(&self, object: &Object) -> Value {
        let mut value = object.value().clone();
        if let Some(schema) = self.schemas.get(object.api_version()) {
            values::apply_defaults(&mut value, schema);
        }
        value
    }

    /// Sets `apiVersion` and removes fields that the version does not have.
    pub(crate) fn set_version(&self, object: &mut Value) {
        set(object, &["apiVersion"], self.api_version.as_str());
        values::prune(object, &self.schema);
    }

    /// Converts an object of this version to the storage version. Fields that the storage version does not have are removed,
    /// and its defaults are set.
    ///
    /// DEVIATION: upstream sets these defaults whenever it reads the object. They differ after a change of a default.
    pub(crate) fn convert_to_storage(
        &self,
        object: &mut Value,
        admission: Option<&Admission<'_>>,
    ) -> Result<(), ApiStatus> {
        if self.storage_api_version == self.api_version {
            return Ok(());
        }
        if self.conversion.is_some() {
            *object = convert(admission, object.take(), &self.storage_api_version)?;
        }
        set(object, &["apiVersion"], self.storage_api_version.as_str());
        if let Some(schema) = self.schemas.get(&self.storage_api_version) {
            values::prune(object, schema);
            values::apply_defaults(object, schema);
        }
        Ok(())
    }

    pub(crate) fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = custom_metadata(object, self.resource.is_namespaced());
        errors.extend(self.validate_content(object, None));
        self.evaluate_rules(object, None, &mut errors);
        errors
    }

    pub(crate) fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = metadata_update(new, old, false);
        errors.extend(self.validate_content(new, Some(old)));
        self.evaluate_rules(new, Some(old), &mut errors);
        errors
    }

    fn validate_content(&self, object: &Value, old: Option<&Value>) -> Vec<FieldError> {
        let mut errors = validate::against_schema(object, old, &self.schema, "");
        errors.extend(self.scale.iter().flat_map(|scale| validate::scale(object, scale, true)));
        errors.extend(validate::embedded_resources(object, &self.schema, ""));
        errors.extend(validate::new_duplicates(object, old, &self.schema, ""));
        errors
    }

    pub(crate) fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let mut errors = metadata_update(new, old, false);
        errors.extend(validate::status(new, old, &self.schema));
        errors.extend(self.scale.iter().flat_map(|scale| validate::scale(new, scale, false)));
        self.evaluate_rules(new, Some(old), &mut errors);
        errors
    }

    /// Evaluates the rules of the schema, unless `errors` contains errors that make their results unreliable.
    #[cfg(feature = "cel")]
    fn evaluate_rules(&self, object: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
        let rules = self.rules.get_or_init(|| crate::cel::Rules::compile(&self.definition_schema));
        let Some(rules) = rules else { return };
        if errors.iter().any(validate::blocks_rules) {
            let detail = "some validation rules were not checked because the object was invalid; correct the existing \
                          errors to complete validation";
            errors.push(validate::without_value(detail));
        } else {
            errors.extend(rules.validate(object, old, &self.schema));
        }
    }

    #[cfg(not(feature = "cel"))]
    fn evaluate_rules(&self, _: &Value, _: Option<&Value>, _: &mut Vec<FieldError>) {}

    /// Schema of the resource in another version.
    pub(crate) fn schema_of(&self, api_version: &str) -> Option<&Schema> {
        self.schemas.get(api_version).map(AsRef::as_ref)
    }

    /// Requested replicas, if the field is set.
    pub(crate) fn replicas(&self, object: &Value) -> Option<i64> {
        let scale = self.scale.as_ref()?;
        i64_at(object, &ScalePaths::fields(&scale.spec_replicas))
    }
}

/// Converts an object by a webhook.
fn convert(admission: Option<&Admission<'_>>, object: Value, to: &str) -> Result<Value, ApiStatus> {
    match admission {
        Some(admission) => admission.convert(object, to),
        None => Err(ApiStatus::internal("conversion webhooks are called for requests over HTTP only")),
    }
}

/// Returns warnings about the names of added finalizers.
///
/// Upstream counterpart: `validateKubeFinalizerName`.
fn finalizer_warnings(new: &Value, old: &Value) -> Vec<String> {
    const FINALIZERS: [&str; 2] = ["metadata", "finalizers"];
    const STANDARD: [&str; 3] = ["orphan", "foregroundDeletion", "kubernetes"];
    let before = list_at(old, &FINALIZERS);
    let added = list_at(new, &FINALIZERS).iter().filter(|finalizer| !before.contains(finalizer));
    added
        .filter_map(Value::as_str)
        .filter(|name| !name.contains('/') && !STANDARD.contains(name))
        .map(|name| {
            let path = if name.contains('.') { " including a path (/)" } else { "" };
            format!(
                "metadata.finalizers: {name:?}: prefer a domain-qualified finalizer name{path} to avoid accidental \
                 conflicts with other finalizer writers"
            )
        })
        .collect()
}

impl Strategy for CustomVersion {
    fn is_custom(&self) -> bool {
        true
    }

    fn has_status(&self) -> bool {
        self.has_status
    }

    fn has_generation(&self) -> bool {
        true
    }

    fn allows_unconditional_update(&self) -> bool {
        false
    }

    fn increments_generation(&self, new: &Value, old: &Value) -> bool {
        fn content(object: &Value) -> Vec<(&String, &Value)> {
            let members = object.as_object().into_iter().flatten();
            members.filter(|(name, _)| *name != "metadata").collect()
        }
        content(new) != content(old)
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        // Only the status changes, not even labels.
        let status = crate::json::remove(new, &["status"]);
        let managed = apply::take_managed_fields(new);
        *new = old.clone();
        crate::json::remove(new, &["status"]);
        if let Some(status) = status {
            set(new, &["status"], status);
        }
        apply::take_managed_fields(new);
        if let Some(managed) = managed {
            set(new, apply::MANAGED_FIELDS, managed);
        }
    }

    fn warnings(&self, object: &Value) -> Vec<String> {
        finalizer_warnings(object, &Value::Null)
    }

    fn update_warnings(&self, new: &Value, old: &Value) -> Vec<String> {
        finalizer_warnings(new, old)
    }

    fn scale_selector(&self, _: &Value) -> LabelSelector {
        LabelSelector::default()
    }
}

use std::sync::Arc;

use serde_json::Value;

use super::{
    Registry, Written, admission, check_address, check_size, deduplicate_owners, drop_server_fields,
    has_members,
};
use crate::{
    ApiStatus, FieldValidation, Object, PatchType, Resource, StatusReason, Subresource, WriteOptions,
    admission::{Admission, Operation},
    apply::{self, MANAGED_FIELDS, Writer},
    json::{at, copy, list_at, remove, set, str_at},
    kind::Kind,
    patch,
    resource::ServedVersion,
    store::{self, Commit, Decision, UpdateResult},
    strategy,
    strict::{self, DecodeError, Decoded},
    validate,
};

/// Part of an object that a write changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteScope {
    /// Everything but the status.
    Main,
    /// Status, and the metadata that upstream allows a status write to change.
    Status,
    /// As `Status`, through the subresource `approval`.
    Approval,
    /// A namespace's `spec.finalizers`.
    Finalize,
    /// A pod's `spec.ephemeralContainers`.
    EphemeralContainers,
    /// Resources of a pod's containers.
    Resize,
}

impl WriteScope {
    pub(super) fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Approval => "approval",
            Self::Finalize => "finalize",
            Self::EphemeralContainers => "ephemeralcontainers",
            Self::Resize => "resize",
        }
    }
}

/// Source of an object's managed fields.
#[derive(Debug, Clone, Copy)]
pub(super) enum ManagedFieldsOperation {
    /// Server-side apply: the written object contains its managed fields.
    Apply,
    /// Create, update or patch.
    Update {
        /// Subresource. `""` is the main resource.
        subresource: &'static str,
        /// Version of the request, if it is another than that of the kind.
        served_version: Option<ServedVersion>,
    },
}

impl ManagedFieldsOperation {
    /// Returns the writer. `None` for server-side apply.
    pub(super) fn writer<'a>(
        self,
        kind: &'a Kind,
        options: &'a WriteOptions,
        time: &'a str,
    ) -> Option<Writer<'a>> {
        match self {
            Self::Apply => None,
            Self::Update { subresource, served_version } => {
                let manager = options.field_manager.as_deref().unwrap_or(UNKNOWN_MANAGER);
                Some(Writer { kind, served_version, manager, subresource, time })
            }
        }
    }
}

/// Field manager of writes within the process that have none.
const UNKNOWN_MANAGER: &str = "unknown";
const CONDITIONS: &[&str] = &["status", "conditions"];

/// Part of an object that a request writes.
#[derive(Clone, Copy)]
pub(crate) struct WriteTarget<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) scope: WriteScope,
    /// Admission by policies and webhooks. `None` for writes within the process.
    pub(crate) admission: Option<&'a Admission<'a>>,
    /// Failure of a write that would create the object. `None` if the user may create it.
    pub(crate) creation_refused: Option<&'a ApiStatus>,
}

/// Media types of patches of custom resources.
pub(crate) const PATCHES_OF_CUSTOM_RESOURCES: &str =
    "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

/// A patch.
#[derive(Debug, Clone)]
pub struct Patch {
    /// Type of the patch.
    pub form: PatchType,
    /// The patch.
    pub body: Value,
}

impl Patch {
    /// JSON patch (RFC 6902).
    pub fn json(body: Value) -> Self {
        Self { form: PatchType::Json, body }
    }

    /// JSON merge patch (RFC 7396).
    pub fn merge(body: Value) -> Self {
        Self { form: PatchType::Merge, body }
    }

    /// Strategic merge patch.
    pub fn strategic(body: Value) -> Self {
        Self { form: PatchType::Strategic, body }
    }

    /// Rejects a strategic merge patch of a custom resource, whose fields have no merge keys.
    pub(super) fn check_form(&self, kind: &Kind) -> Result<(), ApiStatus> {
        if kind.custom.is_some() && self.form == PatchType::Strategic {
            return Err(ApiStatus::unsupported_media_type(PATCHES_OF_CUSTOM_RESOURCES));
        }
        Ok(())
    }

    /// `true` if the patch can change the managed fields.
    fn changes_managed_fields(&self) -> bool {
        let text = self.body.to_string();
        // A copy of the metadata contains them, too.
        text.contains("managedFields") || (self.form == PatchType::Json && text.contains("\"from\""))
    }

    /// Returns `target` with the patch applied.
    pub(crate) fn apply(&self, target: &Value, kind: &str) -> Result<Value, ApiStatus> {
        match self.form {
            PatchType::Json => Ok(patch::json_patch(target, &self.body)?),
            PatchType::Merge => Ok(patch::merge(target, &self.body)?),
            PatchType::Strategic => Ok(patch::strategic(target, &self.body, kind)?),
        }
    }

    /// Decodes a patched object. Returns warnings about unknown fields.
    pub(crate) fn decode(
        &self,
        decode: impl FnOnce(Value) -> Result<Decoded, DecodeError>,
        patched: Value,
        validation: FieldValidation,
    ) -> Result<(Value, Vec<String>), ApiStatus> {
        let invalid = |why: &str| {
            let text = Value::String(self.body.to_string());
            let message = format!("Invalid value: {text}: {why}");
            ApiStatus::invalid_field("", "", "", "patch", "FieldValueInvalid", &message)
        };
        let decoded = decode(patched).map_err(|error| invalid(&error.to_string()))?;
        match validation {
            FieldValidation::Strict if !decoded.strict_errors.is_empty() => {
                Err(invalid(&format!("strict decoding error: {}", decoded.strict_errors.join(", "))))
            }
            FieldValidation::Ignore => Ok((decoded.object, Vec::new())),
            FieldValidation::Strict | FieldValidation::Warn => Ok((decoded.object, decoded.strict_errors)),
        }
    }
}

impl Registry {
    /// Replaces a part of an object, which a client sent in `served_version`, or creates the object if its kind allows that.
    /// Returns `true` with the result if it was created.
    pub(crate) fn update(
        &self,
        target: WriteTarget<'_>,
        served_version: Option<ServedVersion>,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<(Written, bool), ApiStatus> {
        let WriteTarget { kind, namespace, name, scope, admission, creation_refused } = target;
        check_address(kind, namespace, Some(name), &mut object)?;
        kind.apply_defaults(&mut object);
        let operation = ManagedFieldsOperation::Update { subresource: scope.subresource(), served_version };
        let modify = || {
            self.modify(target, operation, options, |old, _| {
                check_uid(kind, name, &object, Some(old))?;
                Ok((object.clone(), Vec::new()))
            })
        };
        match modify() {
            Err(error)
                if error.is_not_found()
                    && kind.strategy().allows_create_on_update()
                    && self.is_missing(kind.resource, namespace, name) => {}
            written => return written.map(|written| (written, false)),
        }
        check_uid(kind, name, &object, None)?;
        creation_refused.cloned().map_or(Ok(()), Err)?;
        let mut created = object.clone();
        remove(&mut created, &["metadata", "resourceVersion"]);
        match self.create(kind, served_version, namespace, created, options, admission) {
            // Created concurrently.
            Err(error) if error.is_already_exists() => modify().map(|written| (written, false)),
            created => created.map(|created| (created, true)),
        }
    }

    pub(super) fn is_missing(&self, resource: Resource, namespace: &str, name: &str) -> bool {
        matches!(self.get(resource, namespace, name), Err(error) if error.is_not_found())
    }

    /// Patches a part of an object. The patch applies to the object in `served_version`.
    pub(crate) fn patch(
        &self,
        target: WriteTarget<'_>,
        served_version: Option<ServedVersion>,
        patch: &Patch,
        options: &WriteOptions,
    ) -> Result<Written, ApiStatus> {
        let WriteTarget { kind, namespace, name, scope, .. } = target;
        patch.check_form(kind)?;
        let operation = ManagedFieldsOperation::Update { subresource: scope.subresource(), served_version };
        self.modify(target, operation, options, |_, old| {
            let shown = served_version.map(|served_version| served_version.convert_from_storage(old));
            let shown = shown.as_ref().unwrap_or(old);
            let mut patched = patch.apply(shown, kind.name())?;
            if patch.form == PatchType::Strategic {
                // As upstream, where the patch applies to the fields of a type.
                for field in ["apiVersion", "kind"] {
                    copy(&mut patched, shown, &[field]);
                }
            }
            // Managed fields are large, and most patches leave them as they are.
            if at(old, MANAGED_FIELDS).is_some() && !patch.changes_managed_fields() {
                apply::take_managed_fields(&mut patched);
            }
            let decode = |object| match served_version {
                Some(version) => strict::decode_value(version.api_version(), kind.name(), object),
                None => kind.decode(object),
            };
            let (mut object, warnings) = patch.decode(decode, patched, options.field_validation)?;
            if let Some(served_version) = served_version {
                object = served_version.convert_to_storage(&object, kind.api_version());
            }
            check_address(kind, namespace, Some(name), &mut object)?;
            kind.apply_defaults(&mut object);
            Ok((object, warnings))
        })
    }

    /// Stores the result of `change`, which is called again if the object was changed concurrently.
    ///
    /// `change` receives the object as it is stored and in the version of `kind`.
    pub(super) fn modify(
        &self,
        target: WriteTarget<'_>,
        operation: ManagedFieldsOperation,
        options: &WriteOptions,
        mut change: impl FnMut(&Object, &Value) -> Result<(Value, Vec<String>), ApiStatus>,
    ) -> Result<Written, ApiStatus> {
        let WriteTarget { kind, namespace, name, admission, .. } = target;
        let resource = kind.resource;
        let mut warnings = Vec::new();
        let time = self.time(admission);
        let commit = if options.dry_run { Commit::Dry } else { Commit::Real };
        let outcome = self.store.update(
            resource,
            &store::key(namespace, name),
            commit,
            self.clock.now(),
            |old| {
                let old = old.ok_or_else(|| ApiStatus::not_found(resource, name))?;
                let shown = kind.shown_by(old, admission)?;
                let (mut new, found) = change(old, &shown)?;
                warnings = found;
                warnings.extend(deduplicate_owners(&mut new));
                warnings.extend(kind.strategy().update_warnings(&new, &shown));
                check_version(kind, old, &new)?;
                keep_metadata(&mut new, &shown);
                let mut managed = apply::take_managed_fields(&mut new);
                if let Some(writer) = operation.writer(kind, options, &time) {
                    managed = apply::track(&shown, &new, managed, false, writer);
                }
                next_state(target, old, &shown, new, managed, &mut warnings)
            },
            |_| Ok(()),
        )?;
        let is_removed = matches!(outcome, UpdateResult::Removed(_));
        if commit == Commit::Real && !matches!(outcome, UpdateResult::Unchanged(_)) {
            self.definitions_changed(resource);
            if is_removed {
                self.instance_removed(resource);
            }
        }
        let object = match outcome {
            UpdateResult::Put(object)
            | UpdateResult::Removed(object)
            | UpdateResult::Unchanged(Some(object)) => object,
            UpdateResult::Unchanged(None) => return Err(ApiStatus::not_found(resource, name)),
        };
        Ok(Written { object, warnings })
    }
}

/// Returns the change of `old` that results from a client's write of `new`.
///
/// Upstream counterpart: `rest.BeforeUpdate` and `registry.Store.Update`.
fn next_state(
    target: WriteTarget<'_>,
    old: &Arc<Object>,
    shown: &Value,
    mut new: Value,
    mut managed: Option<Value>,
    warnings: &mut Vec<String>,
) -> Result<Decision, ApiStatus> {
    let WriteTarget { kind, name, scope, admission, .. } = target;
    let resource = kind.resource;
    drop_server_fields(&mut new);
    // A webhook does not see the scale's object.
    let admission = admission.filter(|admission| admission.has_versions());
    if let Some(admission) = admission {
        if let Some(managed) = &managed {
            set(&mut new, MANAGED_FIELDS, managed.clone());
        }
        new = admission.mutate(Operation::Update, name, new, Some(shown))?;
        check_address(kind, target.namespace, Some(name), &mut new)?;
        keep_metadata(&mut new, shown);
        warnings.extend(restore_managed_fields(&mut new, managed));
        managed = apply::take_managed_fields(&mut new);
        drop_server_fields(&mut new);
        deduplicate_owners(&mut new);
    }
    prepare(target, old, shown, &mut new);
    let kept = at(shown, MANAGED_FIELDS);
    if let Some(managed) = managed {
        // An update of timestamps alone is not a change.
        let is_kept = |kept: &&Value| {
            apply::equal_but_managed_fields(&new, shown) && apply::equal_ignoring_times(kept, &managed)
        };
        let managed = kept.filter(is_kept).cloned().unwrap_or(managed);
        set(&mut new, MANAGED_FIELDS, managed);
    }
    // A converted or defaulted object is compared again after its conversion to the storage version.
    let is_stored_form = std::ptr::eq(shown, old.value());
    if is_stored_form && new == *shown && admission.is_none() {
        return Ok(Decision::Keep);
    }

    let errors = match scope {
        WriteScope::Main => kind.validate_update(&new, shown),
        WriteScope::Status => {
            let mut errors = kind.validate_status_update(&new, shown);
            if kind.has(Subresource::Approval) {
                errors.extend(validate::approval_unchanged(&new, shown));
            }
            errors
        }
        WriteScope::Approval => kind.validate_status_update(&new, shown),
        WriteScope::Finalize => validate::metadata_update(&new, shown, true),
        WriteScope::EphemeralContainers => validate::ephemeral_containers(&new, shown),
        WriteScope::Resize => validate::resize(&new, shown),
    };
    if !errors.is_empty() {
        return Err(ApiStatus::invalid(resource.kind(), resource.group(), name, &errors));
    }
    check_size(&mut new)?;
    if let Some(admission) = admission {
        admission.validate(Operation::Update, name, &new, Some(shown))?;
    }
    kind.convert_to_storage(&mut new, target.admission)?;
    if (!is_stored_form || admission.is_some()) && new == *old.value() {
        return Ok(Decision::Keep);
    }
    if should_delete_during_update(resource, old, &new) {
        Ok(Decision::Remove(new))
    } else {
        Ok(Decision::Put(new))
    }
}

/// Restores `managed` if a webhook made the managed fields invalid. Returns a warning then.
pub(super) fn restore_managed_fields(object: &mut Value, managed: Option<Value>) -> Option<String> {
    if at(object, MANAGED_FIELDS).is_none_or(apply::is_valid) {
        return None;
    }
    match managed {
        Some(managed) => set(object, MANAGED_FIELDS, managed),
        None => drop(apply::take_managed_fields(object)),
    }
    Some("metadata.managedFields of a mutating webhook are invalid and were ignored".to_owned())
}

/// Restores metadata that a write does not change. Other changes of it are validated.
///
/// Upstream counterpart: `rest.BeforeUpdate`.
fn keep_metadata(new: &mut Value, shown: &Value) {
    for field in ["resourceVersion", "creationTimestamp", "generation"] {
        copy(new, shown, &["metadata", field]);
    }
    let is_set = |object: &Value, field| at(object, &["metadata", field]).is_some_and(|value| value != "");
    if !is_set(new, "uid") {
        copy(new, shown, &["metadata", "uid"]);
    }
    if is_set(shown, "deletionTimestamp") {
        copy(new, shown, &["metadata", "deletionTimestamp"]);
    }
    if !is_set(new, "deletionGracePeriodSeconds") {
        copy(new, shown, &["metadata", "deletionGracePeriodSeconds"]);
    }
}

/// Restores the parts of an object that the write does not change, and sets those that the server sets.
fn prepare(target: WriteTarget<'_>, old: &Object, shown: &Value, new: &mut Value) {
    let strategy = target.kind.strategy();
    match target.scope {
        WriteScope::Main => {
            if target.kind.resource == Resource::PODS {
                admission::admit_pod_update(new, old);
            }
            strategy::prepare_update(strategy, new, shown);
        }
        WriteScope::Status => strategy::prepare_status_update(strategy, new, shown),
        WriteScope::Approval => {
            let conditions = at(new, CONDITIONS).cloned();
            for part in ["spec", "status"] {
                copy(new, shown, &[part]);
            }
            match conditions {
                Some(conditions) => set(new, CONDITIONS, conditions),
                None => drop(remove(new, CONDITIONS)),
            }
        }
        WriteScope::Finalize => {
            let finalizers = list_at(new, &["spec", "finalizers"]).to_vec();
            for part in ["spec", "status"] {
                copy(new, shown, &[part]);
            }
            set(new, &["spec", "finalizers"], finalizers);
        }
        WriteScope::EphemeralContainers => strategy::pod::prepare_ephemeral_containers(new, shown),
        WriteScope::Resize => strategy::pod::prepare_resize(new, shown),
    }
    // Those of the old version may have been restored.
    apply::take_managed_fields(new);
}

/// Checks the UID of an update against that of the object, or of no object.
pub(super) fn check_uid(kind: &Kind, name: &str, new: &Value, old: Option<&Object>) -> Result<(), ApiStatus> {
    let (given, actual) = (str_at(new, &["metadata", "uid"]), old.map_or("", Object::uid));
    if given.is_empty() || given == actual {
        return Ok(());
    }
    let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {actual}");
    Err(ApiStatus::conflict(kind.resource, name, why))
}

fn check_version(kind: &Kind, old: &Object, new: &Value) -> Result<(), ApiStatus> {
    let (resource, name) = (kind.resource, old.name());
    match str_at(new, &["metadata", "resourceVersion"]) {
        "" | "0" if kind.strategy().allows_unconditional_update() => Ok(()),
        "" | "0" => Err(ApiStatus::invalid_field(
            resource.plural(),
            resource.group(),
            name,
            "metadata.resourceVersion",
            "FieldValueInvalid",
            "Invalid value: 0: must be specified for an update",
        )),
        version => match version.parse::<u64>() {
            Ok(version) if version == old.revision() => Ok(()),
            Ok(_) => Err(ApiStatus::modified(resource, name)),
            // An untyped error upstream, so the status is 500.
            Err(_) => Err(ApiStatus::new(
                StatusReason::Unknown,
                format!("strconv.ParseUint: parsing {version:?}: invalid syntax"),
            )),
        },
    }
}

/// `true` if the write removes the last reason to keep a terminating object.
///
/// Upstream counterpart: `registry.ShouldDeleteDuringUpdate`.
fn should_delete_during_update(resource: Resource, old: &Object, new: &Value) -> bool {
    let grace =
        at(new, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or_default();
    old.is_deleting()
        && grace == 0
        && !has_members(new, &["metadata", "finalizers"])
        && !resource.strategy().has_own_finalizers(new)
}

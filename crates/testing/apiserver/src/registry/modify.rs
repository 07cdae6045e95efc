use std::sync::Arc;

use serde_json::Value;

use super::{
    Registry, Written, admission, check_address, check_size, deduplicate_owners, drop_server_fields,
    has_members, strategy,
};
use crate::{
    ApiStatus, FieldValidation, Object, PatchType, Reason, Resource, WriteOptions,
    apply::{self, Writer},
    defaults,
    json::{at, copy, list_at, set, str_at},
    patch,
    resource::Face,
    store::{self, Commit, Decision, Outcome},
    strict, validate,
};

/// Which part of an object a write can reach.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Everything but the status.
    Main,
    /// The status, and the metadata that upstream lets a status write change.
    Status,
    /// A namespace's `spec.finalizers`.
    Finalize,
}

impl Part {
    pub(super) fn subresource(self) -> &'static str {
        match self {
            Self::Main => "",
            Self::Status => "status",
            Self::Finalize => "finalize",
        }
    }
}

/// Whom the managed fields are to tell of.
#[derive(Debug, Clone, Copy)]
pub(super) enum By {
    /// Somebody who applies: what is written has the managed fields it is to have.
    Applier,
    /// Somebody who writes by way of this subresource, or with an empty text the object itself.
    Updater(&'static str),
}

/// Stands for a writer in this process that gave no name.
const UNKNOWN_MANAGER: &str = "unknown";
const MANAGED_FIELDS: &[&str] = &["metadata", "managedFields"];

/// A patch, as it came.
#[derive(Debug, Clone)]
pub(crate) struct Patch {
    pub(crate) form: PatchType,
    pub(crate) body: Value,
}

impl Patch {
    /// `target` with the patch applied.
    pub(crate) fn apply(&self, target: &Value, kind: &str) -> Result<Value, ApiStatus> {
        match self.form {
            PatchType::Json => Ok(patch::json_patch(target, &self.body)?),
            PatchType::Merge => Ok(patch::merge(target, &self.body)),
            PatchType::Strategic => Ok(patch::strategic(target, &self.body, kind)?),
        }
    }

    /// Decodes what came of the patch into the form of its types, with warnings about what they do not have.
    pub(crate) fn decode(
        &self,
        api_version: &str,
        kind: &str,
        patched: Value,
        validation: FieldValidation,
    ) -> Result<(Value, Vec<String>), ApiStatus> {
        let invalid = |why: &str| {
            let text = Value::String(self.body.to_string());
            let message = format!("Invalid value: {text}: {why}");
            ApiStatus::invalid_field("", "", "", "patch", "FieldValueInvalid", &message)
        };
        let decoded =
            strict::decode_value(api_version, kind, patched).map_err(|error| invalid(&error.to_string()))?;
        match validation {
            FieldValidation::Strict if !decoded.findings.is_empty() => {
                Err(invalid(&format!("strict decoding error: {}", decoded.findings.join(", "))))
            }
            FieldValidation::Ignore => Ok((decoded.object, Vec::new())),
            FieldValidation::Strict | FieldValidation::Warn => Ok((decoded.object, decoded.findings)),
        }
    }
}

impl Registry {
    /// Replaces an object, or the part of it that `part` reaches.
    pub(crate) fn update(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        part: Part,
        mut object: Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiStatus> {
        check_address(resource, namespace, Some(name), &mut object)?;
        defaults::apply(resource.kind(), &mut object);
        self.modify(resource, namespace, name, part, options, |_| Ok((object.clone(), Vec::new())))
    }

    /// Patches an object, or the part of it that `part` reaches. The patch is against the form `face`.
    #[expect(clippy::too_many_arguments, reason = "each is a part of the request's address")]
    pub(crate) fn patch(
        &self,
        resource: Resource,
        face: Option<Face>,
        namespace: &str,
        name: &str,
        part: Part,
        patch: &Patch,
        options: &WriteOptions,
    ) -> Result<Written, ApiStatus> {
        self.modify(resource, namespace, name, part, options, |old| {
            let shown = face.map(|face| face.present(old.value()));
            let patched = patch.apply(shown.as_ref().unwrap_or(old.value()), resource.kind())?;
            let api_version = face.map_or(resource.api_version(), Face::api_version);
            let (mut object, warnings) =
                patch.decode(api_version, resource.kind(), patched, options.field_validation)?;
            if let Some(face) = face {
                object = face.accept(&object, resource.api_version());
            }
            check_address(resource, namespace, Some(name), &mut object)?;
            defaults::apply(resource.kind(), &mut object);
            Ok((object, warnings))
        })
    }

    /// Stores what `change` makes of the present state, and asks it again if that changed meanwhile.
    pub(super) fn modify(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        part: Part,
        options: &WriteOptions,
        change: impl FnMut(&Object) -> Result<(Value, Vec<String>), ApiStatus>,
    ) -> Result<Written, ApiStatus> {
        let by = By::Updater(part.subresource());
        self.modify_by(by, resource, namespace, name, part, options, change)
    }

    /// [`modify`](Self::modify), with a say in whom the changes are put down to.
    #[expect(clippy::too_many_arguments, reason = "each is a part of the request's address")]
    pub(super) fn modify_by(
        &self,
        by: By,
        resource: Resource,
        namespace: &str,
        name: &str,
        part: Part,
        options: &WriteOptions,
        mut change: impl FnMut(&Object) -> Result<(Value, Vec<String>), ApiStatus>,
    ) -> Result<Written, ApiStatus> {
        let mut warnings = Vec::new();
        let time = self.now();
        let commit = if options.dry_run { Commit::Dry } else { Commit::Real };
        let outcome = self.store.update(
            resource,
            &store::key(namespace, name),
            commit,
            self.clock.now(),
            |old| {
                let old = old.ok_or_else(|| ApiStatus::not_found(resource, name))?;
                let (mut new, found) = change(old)?;
                warnings = found;
                warnings.extend(deduplicate_owners(&mut new));
                let manage = |new: &Value, sent: Option<Value>| match by {
                    By::Applier => sent,
                    By::Updater(subresource) => {
                        let manager = options.field_manager.as_deref().unwrap_or(UNKNOWN_MANAGER);
                        let writer = Writer { resource, manager, subresource, time: &time };
                        apply::track(old.value(), new, sent.as_ref(), writer)
                    }
                };
                next_state(resource, part, old, new, manage)
            },
            |_| Ok(()),
        )?;
        let object = match outcome {
            Outcome::Put(object) | Outcome::Removed(object) | Outcome::Kept(Some(object)) => object,
            Outcome::Kept(None) => return Err(ApiStatus::not_found(resource, name)),
        };
        Ok(Written { object, warnings })
    }
}

/// What becomes of `old` when a client writes `new`.
///
/// Upstream counterpart: `rest.BeforeUpdate` and `registry.Store.Update`.
fn next_state(
    resource: Resource,
    part: Part,
    old: &Arc<Object>,
    mut new: Value,
    manage: impl FnOnce(&Value, Option<Value>) -> Option<Value>,
) -> Result<Decision, ApiStatus> {
    let name = old.name();
    check_identity(resource, old, &new)?;
    // What no write can change.
    for field in [
        "uid",
        "resourceVersion",
        "creationTimestamp",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        copy(&mut new, old.value(), &["metadata", field]);
    }
    let sent = apply::take(&mut new);
    drop_server_fields(&mut new);

    let kind = resource.strategy();
    match part {
        Part::Main => {
            if resource == Resource::PODS {
                admission::complete_pod_update(&mut new, old);
            }
            strategy::prepare_update(kind, &mut new, old.value());
        }
        Part::Status => strategy::prepare_status_update(kind, &mut new, old.value()),
        Part::Finalize => {
            let finalizers = list_at(&new, &["spec", "finalizers"]).to_vec();
            new = old.value().clone();
            set(&mut new, &["spec", "finalizers"], finalizers);
        }
    }
    // Only those who finalize get this far with any.
    apply::take(&mut new);
    let kept = at(old.value(), MANAGED_FIELDS);
    match (kept, manage(&new, sent)) {
        (Some(kept), Some(managed)) if apply::same_but_times(kept, &managed) => {
            set(&mut new, MANAGED_FIELDS, kept.clone());
            // Times alone are no change, but with another change they count.
            if new != *old.value() {
                set(&mut new, MANAGED_FIELDS, managed);
            }
        }
        (_, Some(managed)) => set(&mut new, MANAGED_FIELDS, managed),
        (_, None) => {}
    }
    if new == *old.value() {
        return Ok(Decision::Keep);
    }

    let errors = match part {
        Part::Main => validate::update(resource.kind(), &new, old.value()),
        Part::Status => validate::update_status(resource.kind(), &new, old.value()),
        Part::Finalize => Vec::new(),
    };
    if !errors.is_empty() {
        return Err(ApiStatus::invalid(resource.kind(), resource.group(), name, &errors));
    }
    check_size(&new)?;
    if may_go(resource, old, &new) { Ok(Decision::Remove(new)) } else { Ok(Decision::Put(new)) }
}

fn check_identity(resource: Resource, old: &Object, new: &Value) -> Result<(), ApiStatus> {
    let name = old.name();
    let uid = str_at(new, &["metadata", "uid"]);
    if !uid.is_empty() && uid != old.uid() {
        let why =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {}", old.uid());
        return Err(ApiStatus::conflict(resource, name, why));
    }
    match str_at(new, &["metadata", "resourceVersion"]) {
        "" | "0" if resource.strategy().allows_unconditional_update() => Ok(()),
        "" | "0" => Err(ApiStatus::invalid_field(
            resource.kind(),
            resource.group(),
            name,
            "metadata.resourceVersion",
            "FieldValueInvalid",
            "Invalid value: 0: must be specified for an update",
        )),
        version => match version.parse::<u64>() {
            Ok(version) if version == old.revision() => Ok(()),
            Ok(_) => Err(ApiStatus::conflict(
                resource,
                name,
                "the object has been modified; please apply your changes to the latest version and try again",
            )),
            Err(_) => Err(ApiStatus::new(
                Reason::BadRequest,
                format!("invalid resource version {version:?}: it must be a number that the server gave out"),
            )),
        },
    }
}

/// Whether this write takes away the last thing that held an object whose deletion has begun.
///
/// Upstream counterpart: `registry.ShouldDeleteDuringUpdate`.
fn may_go(resource: Resource, old: &Object, new: &Value) -> bool {
    let grace =
        at(new, &["metadata", "deletionGracePeriodSeconds"]).and_then(Value::as_i64).unwrap_or_default();
    old.is_deleting()
        && grace == 0
        && !has_members(new, &["metadata", "finalizers"])
        && !resource.strategy().is_held(new)
}

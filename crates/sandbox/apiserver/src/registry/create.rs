use std::sync::Arc;

use kcm_clock::{Random, generate_name};
use serde_json::Value;

use super::{
    Registry, Written, admission, check_address, check_size, deduplicate_owners, definitions,
    drop_server_fields,
    modify::{ManagedFieldsOperation, restore_managed_fields},
    quota,
};
use crate::{
    ApiStatus, Object, Resource, StatusReason, WriteOptions,
    admission::{Admission, Operation},
    apply::{self, MANAGED_FIELDS},
    json::{remove, set, str_at},
    kind::Kind,
    resource::ServedVersion,
    store::{self, Commit, Decision, UpdateResult},
    strategy,
};

/// Maximum number of attempts to find an unused generated name.
const GENERATED_NAMES: usize = 8;

impl Registry {
    /// Creates an object, which a client sent in `served_version`.
    pub(crate) fn create(
        &self,
        kind: &Kind,
        served_version: Option<ServedVersion>,
        namespace: &str,
        object: Value,
        options: &WriteOptions,
        admission: Option<&Admission<'_>>,
    ) -> Result<Written, ApiStatus> {
        let operation = ManagedFieldsOperation::Update { subresource: "", served_version };
        self.create_by(operation, kind, namespace, object, options, admission)
    }

    /// As [`create`](Self::create), with another source of managed fields.
    pub(super) fn create_by(
        &self,
        operation: ManagedFieldsOperation,
        kind: &Kind,
        namespace: &str,
        mut object: Value,
        options: &WriteOptions,
        admission: Option<&Admission<'_>>,
    ) -> Result<Written, ApiStatus> {
        self.expire_batch();
        check_address(kind, namespace, None, &mut object)?;
        let version = str_at(&object, &["metadata", "resourceVersion"]).parse::<u64>();
        if version.is_ok_and(|version| version != 0) && !options.dry_run {
            // An untyped error in upstream's storage layer, so the status is 500.
            let message = "resourceVersion should not be set on objects to be created";
            return Err(ApiStatus::new(StatusReason::Unknown, message));
        }
        drop_metadata(&mut object);
        drop_server_fields(&mut object);
        let mut warnings: Vec<String> = deduplicate_owners(&mut object).into_iter().collect();
        let repeated = admission.map(Admission::random);
        let random = repeated.as_ref().map_or(&*self.random, |random| random as &dyn Random);
        let mut identity = Identity { uid: new_uid(random), time: self.time(admission), name: None };

        let prefix = str_at(&object, &["metadata", "generateName"]).to_owned();
        let generated = !prefix.is_empty() && str_at(&object, &["metadata", "name"]).is_empty();
        let attempts = if generated { GENERATED_NAMES } else { 1 };
        // Admission runs before name generation: its errors contain the requested name or prefix.
        let requested_name =
            if generated { prefix.clone() } else { str_at(&object, &["metadata", "name"]).to_owned() };
        let mut result = Err(ApiStatus::internal("no name was generated"));
        for _ in 0..attempts {
            identity.name = generated.then(|| generate_name(random, &prefix));
            let attempt = if generated { object.clone() } else { std::mem::take(&mut object) };
            let request = CreateRequest {
                operation,
                kind,
                namespace,
                requested_name: &requested_name,
                options,
                admission,
            };
            result = self.create_named(request, &identity, attempt, &mut warnings);
            if !matches!(&result, Err(error) if error.is_already_exists()) {
                break;
            }
        }
        if !options.dry_run {
            self.definitions_changed(kind.resource);
        }
        result.map(|object| Written { object, warnings }).map_err(|error| {
            if prefix.is_empty() || !error.is_already_exists() {
                return error;
            }
            let message = format!(
                "{}, the server was not able to generate a unique name for the object",
                error.message
            );
            ApiStatus { message, ..error }.with_retry_after(1)
        })
    }

    fn create_named(
        &self,
        request: CreateRequest<'_>,
        identity: &Identity,
        mut object: Value,
        warnings: &mut Vec<String>,
    ) -> Result<Arc<Object>, ApiStatus> {
        let CreateRequest { operation, kind, namespace, requested_name, options, admission } = request;
        let resource = kind.resource;
        let strategy = kind.strategy();
        kind.apply_defaults(&mut object);
        let sent = apply::take_managed_fields(&mut object);
        let managed = match operation.writer(kind, options, &identity.time) {
            Some(writer) => apply::track(&apply::empty(kind), &object, sent, self.managed_fields, writer),
            None => sent,
        };
        let before_admission = admission.and_then(|_| managed.clone());
        if let Some(managed) = managed {
            set(&mut object, MANAGED_FIELDS, managed);
        }
        self.store.read(|state| definitions::check_definition(state, resource))?;
        self.store
            .read(|state| admission::namespace_lifecycle(state, resource, namespace, requested_name))?;
        if resource == Resource::PODS {
            self.store.read(|state| admission::admit_pod(state, requested_name, &mut object))?;
        }
        if let Some(admission) = admission {
            let name = identity.name.as_ref().map_or(requested_name, |_| "");
            object = admission.mutate(Operation::Create, name, object, None)?;
            warnings.extend(restore_managed_fields(&mut object, before_admission));
            check_address(kind, namespace, None, &mut object)?;
            drop_metadata(&mut object);
            deduplicate_owners(&mut object);
        }
        identity.set(&mut object);
        let name = str_at(&object, &["metadata", "name"]).to_owned();
        strategy::prepare_create(strategy, &mut object, options.user.as_ref());
        let errors = kind.validate_create(&object);
        if !errors.is_empty() {
            return Err(ApiStatus::invalid(resource.kind(), resource.group(), &name, &errors));
        }
        check_size(&mut object)?;
        if let Some(admission) = admission {
            admission.validate(Operation::Create, &name, &object, None)?;
        }
        for warning in strategy.warnings(&object) {
            if !warnings.contains(&warning) {
                warnings.push(warning);
            }
        }

        kind.convert_to_storage(&mut object, admission)?;
        let commit = if options.dry_run { Commit::Dry } else { Commit::Real };
        let key = store::key(namespace, &name);
        let now = self.clock.now();
        let request =
            quota::Request::new(&self.store, resource, namespace, &object, now, self.charge_quota_status);
        let mut object = Some(object);
        let outcome = self.store.update(
            resource,
            &key,
            commit,
            now,
            |old| match (old, object.take()) {
                (None, Some(object)) => Ok(Decision::Put(object)),
                (old, _) => {
                    let error = ApiStatus::already_exists(resource, &name);
                    let deleting = if old.is_some_and(|old| old.is_deleting()) {
                        "object is being deleted: "
                    } else {
                        ""
                    };
                    Err(ApiStatus { message: format!("{deleting}{}", error.message), ..error })
                }
            },
            |state| {
                definitions::check_definition(state, resource)?;
                admission::namespace_lifecycle(state, resource, namespace, &name)?;
                request.as_ref().map_or(Ok(()), |request| request.admit(state, namespace, &name, now))
            },
        )?;
        match outcome {
            UpdateResult::Put(object) => Ok(object),
            UpdateResult::Unchanged(_) | UpdateResult::Removed(_) => {
                Err(ApiStatus::internal(format!("{resource} \"{name}\" could not be created")))
            }
        }
    }
}

/// Removes metadata that only the server sets.
fn drop_metadata(object: &mut Value) {
    for field in
        ["creationTimestamp", "uid", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"]
    {
        remove(object, &["metadata", field]);
    }
}

/// Parameters of a create.
#[derive(Clone, Copy)]
struct CreateRequest<'a> {
    operation: ManagedFieldsOperation,
    kind: &'a Kind,
    namespace: &'a str,
    /// Name, or prefix of the name to generate.
    requested_name: &'a str,
    options: &'a WriteOptions,
    admission: Option<&'a Admission<'a>>,
}

/// Metadata that the server sets, after webhooks have changed the object.
struct Identity {
    uid: String,
    time: String,
    /// Generated name.
    name: Option<String>,
}

impl Identity {
    fn set(&self, object: &mut Value) {
        set(object, &["metadata", "uid"], self.uid.as_str());
        set(object, &["metadata", "creationTimestamp"], self.time.as_str());
        if let Some(name) = self.name.as_deref().filter(|_| str_at(object, &["metadata", "name"]).is_empty())
        {
            set(object, &["metadata", "name"], name);
        }
    }
}

/// Returns a version 4 UUID.
pub(crate) fn new_uid(random: &dyn Random) -> String {
    let bytes = (u128::from(random.next_u64()) << 64) | u128::from(random.next_u64());
    uuid::Builder::from_random_bytes(bytes.to_be_bytes()).into_uuid().to_string()
}

#[cfg(test)]
mod tests {
    use kcm_clock::SeededRandom;

    use super::*;

    #[test]
    fn new_uid_is_version_4() {
        let uid = new_uid(&SeededRandom::new(1));
        assert_eq!(uid.len(), 36);
        assert_eq!(uid.as_bytes()[14], b'4');
    }
}

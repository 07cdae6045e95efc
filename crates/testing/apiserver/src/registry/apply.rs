use serde_json::Value;

use super::{
    Registry, Written, check_address,
    modify::{ManagedFieldsOperation, WriteScope},
};
use crate::{
    ApiStatus, FieldValidation, Resource, WriteOptions,
    apply::{self, Writer},
    defaults,
    json::{at, remove, set, str_at},
    resource::ServedVersion,
    strict,
};

impl Registry {
    /// Server-side apply. Creates the object if it does not exist. Returns `true` with the result if it was created.
    ///
    /// DEVIATION: managed fields of a kind with two served versions refer to the storage version, whichever was applied.
    #[expect(clippy::too_many_arguments, reason = "each is a part of the request's address")]
    pub(crate) fn apply(
        &self,
        resource: Resource,
        served_version: Option<ServedVersion>,
        namespace: &str,
        name: &str,
        scope: WriteScope,
        config: &Value,
        force: bool,
        options: &WriteOptions,
    ) -> Result<(Written, bool), ApiStatus> {
        let warnings = check_config(resource, served_version, config, options.field_validation)?;
        let mut config = match served_version {
            Some(served_version) => served_version.convert_to_storage(config, resource.api_version()),
            None => config.clone(),
        };
        // A missing name is taken from the URL.
        if str_at(&config, &["metadata", "name"]).is_empty() {
            set(&mut config, &["metadata", "name"], name);
        }
        check_address(resource, namespace, Some(name), &mut config)?;
        // Fields that the subresource does not change are not owned by the manager.
        match scope {
            WriteScope::Main if resource.strategy().initial_status(&config).is_some() => {
                remove(&mut config, &["status"]);
            }
            WriteScope::Status => drop(remove(&mut config, &["spec"])),
            WriteScope::Main | WriteScope::Finalize => {}
        }

        let time = self.now();
        let writer = Writer {
            resource,
            manager: options.field_manager.as_deref().unwrap_or_default(),
            subresource: scope.subresource(),
            time: &time,
        };
        let finish = |merged: Value| -> Result<Value, ApiStatus> {
            let decoded = strict::decode_value(resource.api_version(), resource.kind(), merged)
                .map_err(|error| ApiStatus::bad_request(error.to_string()))?;
            let mut object = decoded.object;
            check_address(resource, namespace, Some(name), &mut object)?;
            defaults::apply(resource.kind(), &mut object);
            Ok(object)
        };
        let absent = || {
            scope == WriteScope::Main
                && matches!(self.get(resource, namespace, name), Err(e) if e.is_not_found())
        };
        if absent() {
            let mut object = finish(apply::apply(&apply::empty(resource), &config, writer, force)?)?;
            let managed = apply::take_managed_fields(&mut object);
            match self.create_managed(resource, namespace, object, managed, options) {
                // Created concurrently.
                Err(error) if error.is_already_exists() => {}
                created => {
                    return created.map(|mut created| {
                        created.warnings.extend(warnings);
                        (created, true)
                    });
                }
            }
        }
        let written = self.modify_as(
            ManagedFieldsOperation::Apply,
            resource,
            namespace,
            name,
            scope,
            options,
            |old| {
                let object = finish(apply::apply(old.value(), &config, writer, force)?)?;
                Ok((object, warnings.clone()))
            },
        )?;
        Ok((written, false))
    }
}

/// Validates an applied configuration. Returns warnings about unknown fields.
fn check_config(
    resource: Resource,
    served_version: Option<ServedVersion>,
    config: &Value,
    validation: FieldValidation,
) -> Result<Vec<String>, ApiStatus> {
    if at(config, &["metadata", "managedFields"])
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty())
    {
        return Err(ApiStatus::bad_request("metadata.managedFields must be nil"));
    }
    if served_version.is_none() {
        apply::check(resource, config)?;
    }
    let api_version = served_version.map_or(resource.api_version(), ServedVersion::api_version);
    let decoded = strict::decode_value(api_version, resource.kind(), config.clone())
        .map_err(|error| ApiStatus::bad_request(error.to_string()))?;
    match validation {
        FieldValidation::Strict if !decoded.strict_errors.is_empty() => Err(ApiStatus::bad_request(
            strict::strict_message(api_version, resource.kind(), &decoded.strict_errors),
        )),
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict | FieldValidation::Warn => Ok(decoded.strict_errors),
    }
}

use serde_json::Value;

use super::{
    Registry, Written, check_address, check_name,
    modify::{ManagedFieldsOperation, WriteScope, WriteTarget},
};
use crate::{
    ApiStatus, FieldValidation, WriteOptions,
    apply::{self, Writer},
    json::{at, remove, set, str_at},
    kind::{Kind, group_version_kind},
    resource::ServedVersion,
    strict::{self, DecodeError, Decoded},
};

impl Registry {
    /// Server-side apply. Creates the object if it does not exist. Returns `true` with the result if it was created.
    pub(crate) fn apply(
        &self,
        target: WriteTarget<'_>,
        served_version: Option<ServedVersion>,
        config: &Value,
        force: bool,
        options: &WriteOptions,
    ) -> Result<(Written, bool), ApiStatus> {
        let WriteTarget { kind, namespace, name, scope, admission, creation_refused } = target;
        let warnings = check_config(kind, served_version, config, options.field_validation)?;
        let mut config = config.clone();
        // The name of an object that exists is optional.
        let is_unnamed = str_at(&config, &["metadata", "name"]).is_empty();
        if is_unnamed {
            set(&mut config, &["metadata", "name"], name);
        }
        check_name(kind, namespace, Some(name), &mut config)?;
        let time = self.time(admission);
        let writer = Writer {
            kind,
            served_version,
            manager: options.field_manager.as_deref().unwrap_or_default(),
            subresource: scope.subresource(),
            time: &time,
        };
        let finish = |merged: Value| -> Result<Value, ApiStatus> {
            let decoded = kind.decode(merged).map_err(|error| ApiStatus::bad_request(error.to_string()))?;
            let mut object = decoded.object;
            check_address(kind, namespace, Some(name), &mut object)?;
            kind.apply_defaults(&mut object);
            Ok(object)
        };
        if scope == WriteScope::Main && self.is_missing(kind.resource, namespace, name) {
            if is_unnamed {
                return Err(ApiStatus::bad_request(format!(
                    "the name of the object ({name} based on URL) was undeterminable: name must be provided"
                )));
            }
            creation_refused.cloned().map_or(Ok(()), Err)?;
            let mut object = finish(apply::apply(&apply::empty(kind), &config, writer, force)?)?;
            remove(&mut object, &["metadata", "resourceVersion"]);
            let operation = ManagedFieldsOperation::Apply;
            match self.create_by(operation, kind, namespace, object, options, admission) {
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
        let written = self.modify(target, ManagedFieldsOperation::Apply, options, |_, old| {
            let object = finish(apply::apply(old, &config, writer, force)?)?;
            Ok((object, warnings.clone()))
        })?;
        Ok((written, false))
    }
}

/// Validates an applied configuration. Returns warnings about unknown fields.
fn check_config(
    kind: &Kind,
    served_version: Option<ServedVersion>,
    config: &Value,
    validation: FieldValidation,
) -> Result<Vec<String>, ApiStatus> {
    let api_version = match served_version {
        Some(served_version) => served_version.api_version(),
        None => kind.api_version(),
    };
    let check = |config: &Value| apply::check(kind, api_version, config);
    let decode = || match served_version {
        Some(_) => strict::decode_value(api_version, kind.name(), config.clone()),
        None => kind.decode(config.clone()),
    };
    check_configuration((api_version, kind.name()), config, validation, check, decode)
}

/// As [`check_config`], for a kind with these checks.
pub(super) fn check_configuration(
    (api_version, kind): (&str, &str),
    config: &Value,
    validation: FieldValidation,
    check: impl FnOnce(&Value) -> Result<(), ApiStatus>,
    decode: impl FnOnce() -> Result<Decoded, DecodeError>,
) -> Result<Vec<String>, ApiStatus> {
    if at(config, apply::MANAGED_FIELDS).and_then(Value::as_array).is_some_and(|list| !list.is_empty()) {
        return Err(ApiStatus::bad_request("metadata.managedFields must be nil"));
    }
    let given = (str_at(config, &["apiVersion"]), str_at(config, &["kind"]));
    if given != (api_version, kind) {
        let given = group_version_kind(given.0, given.1);
        return Err(ApiStatus::bad_request(format!("invalid object type: {given}")));
    }
    check(config)?;
    let decoded = decode().map_err(|error| ApiStatus::bad_request(error.to_string()))?;
    match validation {
        FieldValidation::Strict if !decoded.strict_errors.is_empty() => {
            Err(ApiStatus::bad_request(strict::strict_message(api_version, kind, &decoded.strict_errors)))
        }
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict | FieldValidation::Warn => Ok(decoded.strict_errors),
    }
}

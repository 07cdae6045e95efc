use serde_json::Value;

use super::{
    Registry, Written, check_address,
    modify::{By, Part},
};
use crate::{
    ApiStatus, FieldValidation, Resource, WriteOptions,
    apply::{self, Writer},
    defaults,
    json::{at, remove, set, str_at},
    resource::Face,
    strict,
};

impl Registry {
    /// Server-side apply, which creates what is not there. Answers also whether it did.
    ///
    /// DEVIATION: a kind that is served in two forms is owned in the stored one, also by those who apply the
    /// other.
    #[expect(clippy::too_many_arguments, reason = "each is a part of the request's address")]
    pub(crate) fn apply(
        &self,
        resource: Resource,
        face: Option<Face>,
        namespace: &str,
        name: &str,
        part: Part,
        config: &Value,
        force: bool,
        options: &WriteOptions,
    ) -> Result<(Written, bool), ApiStatus> {
        let warnings = check_config(resource, face, config, options.field_validation)?;
        let mut config = match face {
            Some(face) => face.accept(config, resource.api_version()),
            None => config.clone(),
        };
        // The URL's name is as good as one in the configuration; another one is an error.
        if str_at(&config, &["metadata", "name"]).is_empty() {
            set(&mut config, &["metadata", "name"], name);
        }
        check_address(resource, namespace, Some(name), &mut config)?;
        // What this part of the object does not reach is nobody's by writing to it.
        match part {
            Part::Main if resource.strategy().initial_status(&config).is_some() => {
                remove(&mut config, &["status"]);
            }
            Part::Status => drop(remove(&mut config, &["spec"])),
            Part::Main | Part::Finalize => {}
        }

        let time = self.now();
        let writer = Writer {
            resource,
            manager: options.field_manager.as_deref().unwrap_or_default(),
            subresource: part.subresource(),
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
            part == Part::Main && matches!(self.get(resource, namespace, name), Err(e) if e.is_not_found())
        };
        if absent() {
            let mut object = finish(apply::apply(&apply::empty(resource), &config, writer, force)?)?;
            let managed = apply::take(&mut object);
            match self.create_managed(resource, namespace, object, managed, options) {
                // Somebody was faster; it is there now.
                Err(error) if error.is_already_exists() => {}
                created => {
                    return created.map(|mut created| {
                        created.warnings.extend(warnings);
                        (created, true)
                    });
                }
            }
        }
        let written = self.modify_by(By::Applier, resource, namespace, name, part, options, |old| {
            let object = finish(apply::apply(old.value(), &config, writer, force)?)?;
            Ok((object, warnings.clone()))
        })?;
        Ok((written, false))
    }
}

/// Refuses what is no configuration of this resource. Answers warnings about fields it does not have.
fn check_config(
    resource: Resource,
    face: Option<Face>,
    config: &Value,
    validation: FieldValidation,
) -> Result<Vec<String>, ApiStatus> {
    if at(config, &["metadata", "managedFields"])
        .and_then(Value::as_array)
        .is_some_and(|list| !list.is_empty())
    {
        return Err(ApiStatus::bad_request("metadata.managedFields must be nil"));
    }
    if face.is_none() {
        apply::check(resource, config)?;
    }
    let api_version = face.map_or(resource.api_version(), Face::api_version);
    let decoded = strict::decode_value(api_version, resource.kind(), config.clone())
        .map_err(|error| ApiStatus::bad_request(error.to_string()))?;
    match validation {
        FieldValidation::Strict if !decoded.findings.is_empty() => Err(ApiStatus::bad_request(
            strict::strict_message(api_version, resource.kind(), &decoded.findings),
        )),
        FieldValidation::Ignore => Ok(Vec::new()),
        FieldValidation::Strict | FieldValidation::Warn => Ok(decoded.findings),
    }
}

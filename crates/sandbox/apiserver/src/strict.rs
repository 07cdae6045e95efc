//! Strict decoding of JSON into the normalized form of the API types.
//!
//! The result is what upstream would write after decoding the input into its Go types:
//!
//! * Unknown fields are dropped and reported.
//! * Of duplicate fields the last is used, and the duplicates are reported.
//! * `null` equals absent.
//! * A zero or empty value is absent where Go has `omitempty` (`paused: false`, `args: []`). Behind a pointer it is kept
//!   (`replicas: 0`, `securityContext: {}`).
//! * Fields that Go always writes are present: `strategy: {}`, `resources: {}`, `status: {}`, a port's `containerPort: 0`.
//!   DEVIATION: where Go writes `null` (an unset list or time without `omitempty`) the field is absent, which decoders
//!   do not distinguish.
//! * Quantities are canonical (`1000m` becomes `1`). Times have whole seconds in UTC, micro times six digits.
//!
//! Decoding is idempotent, so equal objects are equal [`Value`]s.
//!
//! Upstream counterpart: `runtime/serializer/json` with `sigs.k8s.io/json`. Defaulting and validation are in
//! [`crate::defaults`] and [`crate::validate`].

use serde::de::DeserializeSeed;
use serde_json::{Map, Value};
use thiserror::Error;

use crate::{
    json::type_name,
    schema::{Presence, SCHEMA, Schema, StructId, Type},
    structural_schema,
};

mod scalar;
mod seed;
#[cfg(test)]
mod tests;
mod untyped;

use seed::{Context, Root};
use untyped::Untyped;

/// Decoded object with its strict decoding errors.
#[derive(Debug, Clone, PartialEq)]
pub struct Decoded {
    /// The object. `apiVersion` and `kind` are always set.
    pub object: Value,
    /// Unknown and duplicate fields in upstream's format, in order of occurrence: `unknown field "spec.repliccas"`.
    /// Without repetitions, at most 100.
    pub strict_errors: Vec<String>,
}

/// Failed decoding. The message is that of upstream's 400 response.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// Unknown kind.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// Requested group and version.
        api_version: String,
        /// Requested kind.
        kind: String,
    },
    /// Invalid JSON.
    #[error(
        "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse \
         error: {detail} ({summary})"
    )]
    Syntax {
        /// Requested kind.
        kind: String,
        /// Message of the parser.
        detail: String,
        /// Beginning of the text.
        summary: String,
    },
    /// The object's `apiVersion` is not the requested one.
    #[error("the API version in the data ({found}) does not match the expected API version ({expected})")]
    ApiVersion {
        /// The object's `apiVersion`.
        found: String,
        /// Requested group and version.
        expected: String,
    },
    /// The object's `kind` is not the requested one.
    #[error("{found} in version {version:?} cannot be handled as a {kind}: {detail}")]
    Kind {
        /// The object's `kind`.
        found: String,
        /// Requested kind.
        kind: String,
        /// Version of the object, without the group.
        version: String,
        /// Error message as printed by Go.
        detail: String,
    },
    /// A value does not have the type of its field.
    #[error("{kind} in version {version:?} cannot be handled as a {kind}: {detail}")]
    Type {
        /// Requested kind.
        kind: String,
        /// Version without the group.
        version: String,
        /// Error message as printed by Go.
        detail: String,
    },
}

/// Decodes a JSON text.
///
/// # Errors
///
/// The text is not JSON, a value does not have the type of its field, or the object is of another kind.
///
/// ```
/// # use kcm_apiserver::strict;
/// let decoded = strict::decode("apps/v1", "Deployment", br#"{"spec": {"repliccas": 2, "replicas": 0}}"#)?;
/// assert_eq!(decoded.strict_errors, [r#"unknown field "spec.repliccas""#]);
/// assert_eq!(decoded.object["spec"]["replicas"], 0);
/// # Ok::<(), strict::DecodeError>(())
/// ```
pub fn decode(api_version: &str, kind: &str, raw: &[u8]) -> Result<Decoded, DecodeError> {
    let root = find(api_version, kind)?;
    let mut context = Context::new(&SCHEMA);
    let mut deserializer = serde_json::Deserializer::from_slice(raw);
    let object = Root { id: root, context: &mut context }
        .deserialize(&mut deserializer)
        .and_then(|object| deserializer.end().map(|()| object));
    finish(api_version, kind, context, object, Some(raw))
}

/// Decodes a parsed value, such as the result of a patch. Duplicate fields are not detected, because parsing drops them.
pub fn decode_value(api_version: &str, kind: &str, object: Value) -> Result<Decoded, DecodeError> {
    let root = find(api_version, kind)?;
    let mut context = Context::new(&SCHEMA);
    let object = Root { id: root, context: &mut context }.deserialize(object);
    finish(api_version, kind, context, object, None)
}

/// Parses an object of no built-in type. Returns it with strict errors about duplicate fields.
pub(crate) fn decode_untyped(kind: &str, raw: &[u8]) -> Result<(Value, Vec<String>), DecodeError> {
    let (mut path, mut errors) = (String::new(), Vec::new());
    let mut deserializer = serde_json::Deserializer::from_slice(raw);
    let object = Untyped { path: &mut path, errors: &mut errors }
        .deserialize(&mut deserializer)
        .and_then(|object| deserializer.end().map(|()| object));
    match object {
        Ok(object @ (Value::Object(_) | Value::Null)) => Ok((object, errors)),
        Ok(other) => Err(DecodeError::Syntax {
            kind: kind.to_owned(),
            detail: seed::not_an_object(type_name(&other)),
            summary: summary(raw),
        }),
        Err(error) => Err(DecodeError::Syntax {
            kind: kind.to_owned(),
            detail: syntax_error(&error, raw),
            summary: summary(raw),
        }),
    }
}

/// Message of the 400 response for `strict_errors` with `fieldValidation=Strict`, as upstream.
pub fn strict_message(api_version: &str, kind: &str, strict_errors: &[String]) -> String {
    format!(
        "{kind} in version {:?} cannot be handled as a {kind}: strict decoding error: {}",
        version_of(api_version),
        strict_errors.join(", ")
    )
}

fn find(api_version: &str, kind: &str) -> Result<StructId, DecodeError> {
    SCHEMA.kind(api_version, kind).ok_or_else(|| DecodeError::UnknownKind {
        api_version: api_version.to_owned(),
        kind: kind.to_owned(),
    })
}

fn finish(
    api_version: &str,
    kind: &str,
    context: Context<'_>,
    object: Result<Value, serde_json::Error>,
    raw: Option<&[u8]>,
) -> Result<Decoded, DecodeError> {
    let summary = || raw.map(summary).unwrap_or_default();
    let has_type_meta = context.has_type_meta;
    let (mut strict_errors, type_error) = context.into_diagnostics();
    let mut object = match (object, type_error) {
        (_, Some(detail)) if !has_type_meta => {
            return Err(DecodeError::Syntax { kind: kind.to_owned(), detail, summary: summary() });
        }
        (_, Some(detail)) => {
            let version = version_of(api_version).to_owned();
            return Err(DecodeError::Type { kind: kind.to_owned(), version, detail });
        }
        (Err(error), None) => {
            let (detail, summary) = (syntax_error(&error, raw.unwrap_or_default()), summary());
            return Err(DecodeError::Syntax { kind: kind.to_owned(), detail, summary });
        }
        (Ok(object), None) => object,
    };
    if let Value::Object(fields) = &mut object {
        check_type_meta(fields, api_version, kind)?;
    }
    if kind == "CustomResourceDefinition" {
        let normalized = structural_schema::normalize_definition(&mut object, &mut strict_errors);
        normalized.map_err(|detail| DecodeError::Type {
            kind: kind.to_owned(),
            version: version_of(api_version).to_owned(),
            detail,
        })?;
    }
    Ok(Decoded { object, strict_errors })
}

/// Checks and sets `apiVersion` and `kind`.
pub(crate) fn check_type_meta(
    fields: &mut Map<String, Value>,
    api_version: &str,
    kind: &str,
) -> Result<(), DecodeError> {
    let found = |name: &str| fields.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let found_version = found("apiVersion").unwrap_or(api_version);
    let found_kind = found("kind").unwrap_or(kind);
    // DeleteOptions exists in every group, and clients send any of them.
    let is_version = found_version == api_version || kind == "DeleteOptions";
    if !is_version || found_kind != kind {
        let detail = match (SCHEMA.kind(found_version, found_kind), SCHEMA.kind(api_version, kind)) {
            // Custom resources, and versions of the same kind.
            (_, None) if !is_version => None,
            (Some(_), _) if found_kind == kind => None,
            (Some(found), Some(expected)) => {
                let (found, expected) = (SCHEMA.get(found), SCHEMA.get(expected));
                let group = expected.package.split('/').next().unwrap_or_default();
                Some(format!("converting ({}) to ({group}.{kind}): unknown conversion", found.go_type()))
            }
            (_, None) => Some(format!("converting ({found_kind}) to ({kind}): unknown conversion")),
            (None, _) => Some(format!(
                "no kind {found_kind:?} is registered for version {found_version:?} in scheme \
                 \"pkg/api/legacyscheme/scheme.go:30\""
            )),
        };
        return Err(match detail {
            Some(detail) => {
                let version = version_of(found_version).to_owned();
                DecodeError::Kind { found: found_kind.to_owned(), kind: kind.to_owned(), version, detail }
            }
            None => {
                let (found, expected) = (found_version.to_owned(), api_version.to_owned());
                DecodeError::ApiVersion { found, expected }
            }
        });
    }
    fields.insert("apiVersion".to_owned(), Value::from(api_version));
    fields.insert("kind".to_owned(), Value::from(kind));
    Ok(())
}

fn version_of(api_version: &str) -> &str {
    api_version.rsplit('/').next().unwrap_or(api_version)
}

/// Returns the message of a parser's error: Go's for the common errors, otherwise serde's.
pub(crate) fn syntax_error(error: &serde_json::Error, text: &[u8]) -> String {
    // Prefixes of serde_json's messages, with Go's.
    const CONTEXTS: [(&str, &str); 6] = [
        ("expected value", "looking for beginning of value"),
        ("trailing characters", "after top-level value"),
        ("expected `,` or `}`", "after object key:value pair"),
        ("expected `,` or `]`", "after array element"),
        ("key must be a string", "looking for beginning of object key string"),
        ("expected `:`", "after object key"),
    ];
    if error.is_eof() {
        return "unexpected end of JSON input".to_owned();
    }
    let message = error.to_string();
    let context = CONTEXTS.iter().find(|(prefix, _)| message.starts_with(prefix));
    let line = text.split(|byte| *byte == b'\n').nth(error.line().saturating_sub(1));
    let character = line.and_then(|line| line.get(error.column().saturating_sub(1)));
    match (context, character) {
        (Some((_, context)), Some(character)) => {
            format!("invalid character '{}' {context}", char::from(*character))
        }
        _ => message,
    }
}

/// Returns the beginning of a body for an error message.
fn summary(raw: &[u8]) -> String {
    const SHOWN: usize = 30;
    let start = raw.get(..SHOWN).unwrap_or(raw);
    let dots = if raw.len() > SHOWN { " ..." } else { "" };
    match raw.first() {
        None => "<empty>".to_owned(),
        Some(b'{') => format!("{}{dots}", String::from_utf8_lossy(start)),
        Some(_) => {
            let hex: String = start.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("{hex}{dots}")
        }
    }
}

/// Returns the zero value that Go writes for an unset field of this type, if any.
fn zero_value(schema: &Schema, ty: &Type) -> Option<Value> {
    match ty {
        Type::Bool => Some(Value::Bool(false)),
        Type::Int32 | Type::Int64 | Type::IntOrString => Some(Value::from(0)),
        Type::Text => Some(Value::String(String::new())),
        Type::Quantity => Some(Value::from("0")),
        Type::Struct(id) => {
            let mut fields = Map::new();
            add_always_written(schema, *id, &mut fields);
            Some(Value::Object(fields))
        }
        Type::Bytes | Type::Time | Type::MicroTime | Type::Any | Type::List(_) | Type::Map(_) => None,
    }
}

/// Adds the fields that Go always writes.
fn add_always_written(schema: &Schema, id: StructId, fields: &mut Map<String, Value>) {
    for field in schema.get(id).fields.iter().filter(|field| field.presence == Presence::Always) {
        if !fields.contains_key(field.name)
            && let Some(value) = zero_value(schema, &field.ty)
        {
            fields.insert(field.name.to_owned(), value);
        }
    }
}

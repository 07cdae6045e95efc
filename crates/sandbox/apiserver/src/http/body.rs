//! Request bodies.

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::Value;
use tower::BoxError;

use super::media::Encoding;
use crate::{ApiStatus, FieldValidation, StatusReason, json::type_name, kind::Kind, protobuf, strict};

/// Maximum size of a request body in bytes, as upstream.
const LIMIT: usize = 3 << 20;

/// A request body and its `Content-Type`.
#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    pub(super) content_type: String,
    pub(super) bytes: Bytes,
}

/// Reads a complete body.
///
/// # Errors
///
/// 413 if the body exceeds the limit, 400 if the client aborts.
pub(super) async fn read<B>(body: B) -> Result<Bytes, ApiStatus>
where
    B: http_body::Body,
    B::Error: Into<BoxError>,
{
    let announced = body.size_hint().lower();
    let too_large = || {
        let message = format!("Request entity too large: limit is {LIMIT}");
        ApiStatus::new(StatusReason::RequestEntityTooLarge, message)
    };
    if announced > LIMIT as u64 {
        return Err(too_large());
    }
    match Limited::new(body, LIMIT).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(error) => Err(ApiStatus::bad_request(format!("unable to read the body of the request: {error}"))),
    }
}

/// Decodes an object. Returns warnings about unknown and duplicate fields.
///
/// # Errors
///
/// 400 if the body is no such object, 415 if its media type is unsupported.
pub(super) fn decode_object(
    content: &Content,
    api_version: &str,
    kind: &str,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), ApiStatus> {
    checked(decode(content, api_version, kind)?, api_version, kind, validation)
}

/// Decodes an object with its strict errors.
///
/// # Errors
///
/// 415 for an unsupported media type, 400 for YAML or protobuf that cannot be parsed. The inner error is that of the
/// decoder.
pub(super) fn decode(
    content: &Content,
    api_version: &str,
    kind: &str,
) -> Result<Result<strict::Decoded, strict::DecodeError>, ApiStatus> {
    Ok(match Encoding::of(&content.content_type)? {
        Encoding::Json => strict::decode(api_version, kind, &content.bytes),
        encoding => strict::decode_value(api_version, kind, parse(encoding, &content.bytes)?),
    })
}

/// As [`decode_object`], of a parsed body.
pub(super) fn decode_value(
    body: Value,
    api_version: &str,
    kind: &str,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), ApiStatus> {
    checked(strict::decode_value(api_version, kind, body), api_version, kind, validation)
}

/// As [`decode_object`], of a kind that may be custom.
pub(super) fn decode_as(
    content: &Content,
    kind: &Kind,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), ApiStatus> {
    let decoded = match Encoding::of(&content.content_type)? {
        Encoding::Json => kind.decode_text(&content.bytes),
        Encoding::Protobuf if kind.custom.is_some() => {
            return Err(ApiStatus::unsupported_media_type("application/json, application/yaml"));
        }
        encoding => kind.decode(parse(encoding, &content.bytes)?),
    };
    checked(decoded, kind.api_version(), kind.name(), validation)
}

fn checked(
    decoded: Result<strict::Decoded, strict::DecodeError>,
    api_version: &str,
    kind: &str,
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), ApiStatus> {
    let decoded = decoded.map_err(|error| ApiStatus::bad_request(error.to_string()))?;
    let strict::Decoded { object, strict_errors } = decoded;
    match validation {
        FieldValidation::Strict if !strict_errors.is_empty() => {
            Err(ApiStatus::bad_request(strict::strict_message(api_version, kind, &strict_errors)))
        }
        FieldValidation::Ignore => Ok((object, Vec::new())),
        FieldValidation::Strict | FieldValidation::Warn => Ok((object, strict_errors)),
    }
}

/// Decodes an object of any kind.
pub(super) fn decode_any(content: &Content) -> Result<Value, ApiStatus> {
    parse(Encoding::of(&content.content_type)?, &content.bytes)
}

/// Decodes the configuration of a server-side apply. Returns it with warnings. JSON is a subset of YAML.
///
/// # Errors
///
/// The text is not YAML, or has a duplicate key and validation is strict.
pub(super) fn decode_configuration(
    bytes: &[u8],
    validation: FieldValidation,
) -> Result<(Value, Vec<String>), ApiStatus> {
    let bad = |error: &dyn std::fmt::Display| ApiStatus::bad_request(format!("error decoding YAML: {error}"));
    let error = match serde_saphyr::from_slice(bytes) {
        Ok(configuration @ (Value::Object(_) | Value::Null)) => return Ok((configuration, Vec::new())),
        Ok(other) => {
            let found = type_name(&other);
            return Err(bad(&format!(
                "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type \
                 map[string]interface {{}}"
            )));
        }
        Err(error) => error,
    };
    let serde_saphyr::Error::DuplicateMappingKey { key, location } = error.without_snippet() else {
        return Err(bad(&error));
    };
    let duplicate =
        format!("line {}: key {:?} already set in map", location.line(), key.as_deref().unwrap_or_default());
    let warnings = match validation {
        FieldValidation::Strict => {
            return Err(ApiStatus::bad_request(format!(
                "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {duplicate}"
            )));
        }
        FieldValidation::Warn => vec![duplicate],
        FieldValidation::Ignore => Vec::new(),
    };
    let last_wins = serde_saphyr::options! { duplicate_keys: serde_saphyr::DuplicateKeyPolicy::LastWins };
    let configuration =
        serde_saphyr::from_slice_with_options(bytes, last_wins).map_err(|error| bad(&error))?;
    Ok((configuration, warnings))
}

fn parse(encoding: Encoding, bytes: &[u8]) -> Result<Value, ApiStatus> {
    let unreadable = |error: &dyn std::fmt::Display| {
        ApiStatus::bad_request(format!("the object provided is unrecognized: {error}"))
    };
    match encoding {
        // Both parsers bound the depth of nesting.
        Encoding::Json => serde_json::from_slice(bytes).map_err(|error| unreadable(&error)),
        Encoding::Yaml => serde_saphyr::from_slice(bytes).map_err(|error| unreadable(&error)),
        Encoding::Protobuf => protobuf::decode(bytes).map_err(|error| unreadable(&error)),
    }
}

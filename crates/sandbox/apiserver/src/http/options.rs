//! Options in queries and in bodies of deletes.

use serde_json::Value;

use super::{
    body::{Content, decode_any},
    query::Query,
    route::Target,
};
use crate::{
    ApiStatus, DeleteOptions, DeletionPropagation, FieldSelector, FieldValidation, LabelSelector,
    ListOptions, Preconditions, ResourceVersionMatch, Selection, StatusReason, WatchStart, WriteOptions,
    json::{at, i64_at, list_at},
};

/// Options of a watch.
#[derive(Debug, Clone)]
pub(super) struct WatchOptions {
    pub(super) selection: Selection,
    pub(super) start: WatchStart,
    /// If `true`, a bookmark marks the end of the initial events.
    pub(super) mark_initial_end: bool,
    pub(super) bookmarks: bool,
    pub(super) timeout_seconds: Option<u64>,
}

fn invalid(kind: &str, field: &str, reason: &str, message: &str) -> ApiStatus {
    ApiStatus::invalid_field(kind, "meta.k8s.io", "", field, reason, message)
}

fn forbidden(kind: &str, field: &str, why: &str) -> ApiStatus {
    invalid(kind, field, "FieldValueForbidden", &format!("Forbidden: {why}"))
}

fn unsupported(kind: &str, field: &str, value: &str, supported: &[&str]) -> ApiStatus {
    let supported: Vec<String> = supported.iter().map(|value| format!("{value:?}")).collect();
    let message = format!("Unsupported value: {value:?}: supported values: {}", supported.join(", "));
    invalid(kind, field, "FieldValueNotSupported", &message)
}

/// Parses the options of a create, update or patch. `kind` is upstream's kind of options.
pub(super) fn write_options(query: &Query, kind: &str) -> Result<WriteOptions, ApiStatus> {
    let mut options =
        WriteOptions { dry_run: dry_run(query.all("dryRun"), kind)?, ..WriteOptions::default() };
    if let Some(manager) = query.get("fieldManager") {
        if manager.chars().count() > 128 {
            let message = "Too long: may not be more than 128 bytes";
            return Err(invalid(kind, "fieldManager", "FieldValueTooLong", message));
        }
        if manager.chars().any(char::is_control) {
            let message = format!("Invalid value: {manager:?}: should only contain printable characters");
            return Err(invalid(kind, "fieldManager", "FieldValueInvalid", &message));
        }
        options.field_manager = Some(manager.to_owned());
    }
    options.field_validation = match query.get("fieldValidation") {
        None | Some("Warn") => FieldValidation::Warn,
        Some("Ignore") => FieldValidation::Ignore,
        Some("Strict") => FieldValidation::Strict,
        Some(other) => {
            return Err(unsupported(kind, "fieldValidation", other, &["Ignore", "Strict", "Warn"]));
        }
    };
    Ok(options)
}

/// Parses the parameter `force` of a server-side apply.
pub(super) fn force(query: &Query, manager: Option<&str>) -> Result<bool, ApiStatus> {
    if manager.is_none() {
        let message = "Required value: is required for apply patch";
        return Err(invalid("PatchOptions", "fieldManager", "FieldValueRequired", message));
    }
    Ok(query.flag("force").unwrap_or_default())
}

/// Rejects options that are valid only for server-side apply.
pub(super) fn refuse_force(query: &Query) -> Result<(), ApiStatus> {
    if query.get("force").is_none() {
        return Ok(());
    }
    Err(forbidden("PatchOptions", "force", "may not be specified for non-apply patch"))
}

fn dry_run<'a>(values: impl Iterator<Item = &'a str>, kind: &str) -> Result<bool, ApiStatus> {
    let mut dry = false;
    for value in values {
        if value != "All" {
            return Err(unsupported(kind, "dryRun", value, &["All"]));
        }
        dry = true;
    }
    Ok(dry)
}

fn propagation(text: &str) -> Result<DeletionPropagation, ApiStatus> {
    match text {
        "Background" => Ok(DeletionPropagation::Background),
        "Foreground" => Ok(DeletionPropagation::Foreground),
        "Orphan" => Ok(DeletionPropagation::Orphan),
        other => {
            let supported = ["Background", "Foreground", "Orphan", "nil"];
            Err(unsupported("DeleteOptions", "propagationPolicy", other, &supported))
        }
    }
}

/// Parses the options of a delete from the body, or if it is empty from the query.
pub(super) fn delete_options(query: &Query, content: &Content) -> Result<DeleteOptions, ApiStatus> {
    if !content.bytes.is_empty() {
        return delete_options_in(&decode_any(content)?);
    }
    Ok(DeleteOptions {
        dry_run: dry_run(query.all("dryRun"), "DeleteOptions")?,
        grace_period_seconds: query.number("gracePeriodSeconds")?,
        preconditions: Preconditions::default(),
        propagation: query.get("propagationPolicy").map(propagation).transpose()?,
        orphan_dependents: query.flag("orphanDependents"),
    })
}

/// Parses a DeleteOptions object. Kind and version are optional.
pub(super) fn delete_options_in(object: &Value) -> Result<DeleteOptions, ApiStatus> {
    let of_kind = match at(object, &["kind"]).and_then(Value::as_str) {
        None => object.is_object(),
        Some(kind) => kind == "DeleteOptions",
    };
    if !of_kind {
        return Err(ApiStatus::bad_request("decoded object cannot be converted to DeleteOptions"));
    }
    let wrong = |field: &str, expected: &str| {
        ApiStatus::bad_request(format!(
            "DeleteOptions in version \"v1\" cannot be handled as a DeleteOptions: {field} must be of type {expected}"
        ))
    };
    let text = |path: &[&str]| match at(object, path) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(wrong(&path.join("."), "string")),
    };
    let grace_period_seconds = match at(object, &["gracePeriodSeconds"]) {
        None | Some(Value::Null) => None,
        Some(value) => Some(value.as_i64().ok_or_else(|| wrong("gracePeriodSeconds", "integer"))?),
    };
    let orphan_dependents = match at(object, &["orphanDependents"]) {
        None | Some(Value::Null) => None,
        Some(value) => Some(value.as_bool().ok_or_else(|| wrong("orphanDependents", "boolean"))?),
    };
    let dry = list_at(object, &["dryRun"]).iter().map(|value| value.as_str().unwrap_or_default());
    Ok(DeleteOptions {
        dry_run: dry_run(dry, "DeleteOptions")?,
        grace_period_seconds,
        preconditions: Preconditions {
            uid: text(&["preconditions", "uid"])?,
            resource_version: text(&["preconditions", "resourceVersion"])?,
        },
        propagation: text(&["propagationPolicy"])?.as_deref().map(propagation).transpose()?,
        orphan_dependents,
    })
}

fn selection(query: &Query, target: &Target) -> Result<Selection, ApiStatus> {
    let bad = |error: crate::SelectorError| ApiStatus::bad_request(error.to_string());
    let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default()).map_err(bad)?;
    let mut fields = query.get("fieldSelector").unwrap_or_default().to_owned();
    if let Some(served_version) = target.served_version {
        fields = served_version.stored_selector(&fields);
    }
    if let Some(name) = &target.name {
        // A watch of a single object by path.
        fields = if fields.is_empty() {
            format!("metadata.name={name}")
        } else {
            format!("{fields},metadata.name={name}")
        };
    }
    let fields = FieldSelector::parse_for(&fields, &target.kind).map_err(bad)?;
    Ok(Selection { labels, fields })
}

fn resource_version(query: &Query) -> Result<Option<u64>, ApiStatus> {
    let Some(text) = query.get("resourceVersion") else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        let why = format!("Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax");
        ApiStatus::new(StatusReason::Unknown, format!("resourceVersion: {why}"))
    })
}

fn version_match(query: &Query) -> Result<Option<ResourceVersionMatch>, ApiStatus> {
    match query.get("resourceVersionMatch") {
        None => Ok(None),
        Some("Exact") => Ok(Some(ResourceVersionMatch::Exact)),
        Some("NotOlderThan") => Ok(Some(ResourceVersionMatch::NotOlderThan)),
        Some(other) => {
            Err(unsupported("ListOptions", "resourceVersionMatch", other, &["Exact", "NotOlderThan", ""]))
        }
    }
}

/// Parses the options of a list.
pub(super) fn list_options(query: &Query, target: &Target) -> Result<ListOptions, ApiStatus> {
    const MATCH: &str = "resourceVersionMatch";
    let version_match = version_match(query)?;
    let resource_version = resource_version(query)
        .map_err(|error| ApiStatus::bad_request(format!("invalid resource version: {}", error.message)))?;
    let continue_token = query.get("continue").map(str::to_owned);
    if query.flag("sendInitialEvents").is_some() {
        return Err(forbidden("ListOptions", "sendInitialEvents", "sendInitialEvents is forbidden for list"));
    }
    match (version_match, resource_version) {
        (Some(_), None) => {
            let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
            return Err(forbidden("ListOptions", MATCH, why));
        }
        (Some(_), _) if continue_token.is_some() => {
            return Err(forbidden(
                "ListOptions",
                MATCH,
                "resourceVersionMatch is forbidden when continue is provided",
            ));
        }
        (Some(ResourceVersionMatch::Exact), Some(0)) => {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            return Err(forbidden("ListOptions", MATCH, why));
        }
        (_, Some(version)) if version > 0 && continue_token.is_some() => {
            return Err(ApiStatus::bad_request(
                "specifying resource version is not allowed when using continue",
            ));
        }
        _ => {}
    }
    let limit = query.number("limit")?.unwrap_or_default().max(0);
    Ok(ListOptions {
        selection: selection(query, target)?,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
        continue_token,
        resource_version,
        version_match,
    })
}

/// Parses the options of a watch.
pub(super) fn watch_options(query: &Query, target: &Target) -> Result<WatchOptions, ApiStatus> {
    const MATCH: &str = "resourceVersionMatch";
    let version_match = version_match(query)?;
    let version = resource_version(query)?;
    let send_initial = query.flag("sendInitialEvents");
    match (send_initial, version_match) {
        (None, Some(_)) => {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            return Err(forbidden("ListOptions", MATCH, why));
        }
        (Some(_), given) if given != Some(ResourceVersionMatch::NotOlderThan) => {
            let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
            return Err(forbidden("ListOptions", MATCH, why));
        }
        _ => {}
    }
    if query.get("continue").is_some() {
        return Err(forbidden("ListOptions", "continue", "continue is forbidden for watch"));
    }
    let start = match (send_initial, version.unwrap_or_default()) {
        (Some(true), _) | (None, 0) => WatchStart::Initial,
        (Some(false), 0) => WatchStart::Now,
        (_, version) => WatchStart::After(version),
    };
    let timeout = query.number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok());
    Ok(WatchOptions {
        selection: selection(query, target)?,
        start,
        mark_initial_end: send_initial == Some(true),
        bookmarks: query.flag("allowWatchBookmarks").unwrap_or_default(),
        timeout_seconds: timeout.filter(|seconds| *seconds > 0),
    })
}

/// Returns `sendInitialEvents` and `resourceVersion` of a watch, if the former is set and the latter is valid.
pub(super) fn send_initial_events(query: &Query) -> Option<(bool, Option<u64>)> {
    query.flag("sendInitialEvents").zip(resource_version(query).ok())
}

/// Returns the minimum revision of a watch with initial events.
pub(super) fn minimum_revision(query: &Query) -> Result<u64, ApiStatus> {
    Ok(resource_version(query)?.unwrap_or_default())
}

/// Parses the delete options of an eviction.
pub(super) fn eviction_options(eviction: &Value) -> Result<DeleteOptions, ApiStatus> {
    let Some(options) = at(eviction, &["deleteOptions"]).filter(|options| !options.is_null()) else {
        return Ok(DeleteOptions::default());
    };
    let mut parsed = delete_options_in(options)?;
    parsed.grace_period_seconds = i64_at(options, &["gracePeriodSeconds"]);
    Ok(parsed)
}

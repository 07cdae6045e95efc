//! Options in queries and in bodies of deletes.

use serde_json::{Value, json};

use super::{
    body::{self, Content},
    query::Query,
    route::Target,
};
use crate::{
    ApiStatus, DeleteOptions, DeletionPropagation, FieldSelector, FieldValidation, LabelSelector,
    ListOptions, Preconditions, ResourceVersionMatch, Selection, SelectorError, StatusReason, WatchStart,
    WriteOptions,
    json::{at, i64_at, list_at, set},
    store::check_continue,
    strict::DecodeError,
    validate::path::{Errors, Path},
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

fn check(kind: &str, errors: &Errors) -> Result<(), ApiStatus> {
    if errors.0.is_empty() { Ok(()) } else { Err(ApiStatus::invalid(kind, "meta.k8s.io", "", &errors.0)) }
}

/// Parses the options of a create or update. `kind` is upstream's kind of options.
pub(super) fn write_options(query: &Query, kind: &str) -> Result<WriteOptions, ApiStatus> {
    checked_write_options(query, kind, Errors::default())
}

/// Parses the options of a patch other than server-side apply.
pub(super) fn patch_options(query: &Query) -> Result<WriteOptions, ApiStatus> {
    let mut errors = Errors::default();
    if query.flag("force").is_some() {
        errors.forbidden(&Path::new("force"), "may not be specified for non-apply patch");
    }
    checked_write_options(query, "PatchOptions", errors)
}

/// Parses the options of a server-side apply: with `force`.
pub(super) fn apply_options(query: &Query) -> Result<(WriteOptions, bool), ApiStatus> {
    let mut errors = Errors::default();
    if query.get("fieldManager").is_none() {
        errors.required(&Path::new("fieldManager"), "is required for apply patch");
    }
    let options = checked_write_options(query, "PatchOptions", errors)?;
    Ok((options, query.flag("force").unwrap_or_default()))
}

fn checked_write_options(query: &Query, kind: &str, mut errors: Errors) -> Result<WriteOptions, ApiStatus> {
    let manager = query.get("fieldManager").unwrap_or_default();
    let path = Path::new("fieldManager");
    if manager.len() > 128 {
        errors.too_long(&path, 128);
    }
    for (position, c) in manager.char_indices().filter(|(_, c)| c.is_control()) {
        let detail = format!("invalid character U+{:04X} (at position {position})", u32::from(c));
        errors.invalid(&path, manager, detail);
    }
    let dry_run = dry_run(&query.all("dryRun").collect::<Vec<_>>(), &mut errors);
    let field_validation = match query.get("fieldValidation") {
        None | Some("Warn") => FieldValidation::Warn,
        Some("Ignore") => FieldValidation::Ignore,
        Some("Strict") => FieldValidation::Strict,
        Some(other) => {
            errors.not_supported(&Path::new("fieldValidation"), other, &["", "Ignore", "Strict", "Warn"]);
            FieldValidation::Warn
        }
    };
    check(kind, &errors)?;
    let field_manager = Some(manager.to_owned()).filter(|manager| !manager.is_empty());
    Ok(WriteOptions { dry_run, field_manager, field_validation, user: None })
}

fn dry_run(values: &[&str], errors: &mut Errors) -> bool {
    if values.iter().any(|value| *value != "All") {
        errors.not_supported(&Path::new("dryRun"), values, &["All"]);
    }
    !values.is_empty()
}

/// Parses the options of a delete from the body, or if it is empty from the query.
pub(super) fn delete_options(query: &Query, content: &Content) -> Result<DeleteOptions, ApiStatus> {
    if !content.bytes.is_empty() {
        return checked_delete_options(&decode_delete_options(content)?);
    }
    let mut options = json!({});
    let dry_run: Vec<&str> = query.all("dryRun").collect();
    if !dry_run.is_empty() {
        set(&mut options, &["dryRun"], dry_run);
    }
    if let Some(seconds) = query.number("gracePeriodSeconds")? {
        set(&mut options, &["gracePeriodSeconds"], seconds);
    }
    if let Some(policy) = query.get("propagationPolicy") {
        set(&mut options, &["propagationPolicy"], policy);
    }
    if let Some(orphan) = query.flag("orphanDependents") {
        set(&mut options, &["orphanDependents"], orphan);
    }
    checked_delete_options(&options)
}

/// Decodes a DeleteOptions object. Kind and version are optional.
fn decode_delete_options(content: &Content) -> Result<Value, ApiStatus> {
    const SCHEME: &str = "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme/register.go:27";
    let decoded = body::decode(content, "v1", "DeleteOptions")?;
    decoded.map(|decoded| decoded.object).map_err(|error| {
        ApiStatus::bad_request(match error {
            DecodeError::Kind { found, version, .. } => {
                format!("no kind {found:?} is registered for version {version:?} in scheme {SCHEME:?}")
            }
            DecodeError::Syntax { detail, .. } => {
                format!("couldn't get version/kind; json parse error: {detail}")
            }
            DecodeError::Type { detail, .. } => detail,
            other => other.to_string(),
        })
    })
}

/// Checks a decoded DeleteOptions object.
///
/// Upstream counterpart: `ValidateDeleteOptions`.
fn checked_delete_options(object: &Value) -> Result<DeleteOptions, ApiStatus> {
    let path = Path::new("propagationPolicy");
    let text = |path: &[&str]| at(object, path).and_then(Value::as_str).map(str::to_owned);
    let policy = text(&["propagationPolicy"]);
    let orphan_dependents = at(object, &["orphanDependents"]).and_then(Value::as_bool);
    let mut errors = Errors::default();
    if let (Some(policy), Some(_)) = (&policy, orphan_dependents) {
        let detail = "orphanDependents and deletionPropagation cannot be both set";
        errors.invalid(&path, policy.as_str(), detail);
    }
    let propagation = match policy.as_deref() {
        None => None,
        Some("Background") => Some(DeletionPropagation::Background),
        Some("Foreground") => Some(DeletionPropagation::Foreground),
        Some("Orphan") => Some(DeletionPropagation::Orphan),
        Some(other) => {
            errors.not_supported(&path, other, &["Foreground", "Background", "Orphan", "nil"]);
            None
        }
    };
    let dry_runs: Vec<&str> = list_at(object, &["dryRun"]).iter().filter_map(Value::as_str).collect();
    let dry_run = dry_run(&dry_runs, &mut errors);
    check("DeleteOptions", &errors)?;
    Ok(DeleteOptions {
        dry_run,
        grace_period_seconds: i64_at(object, &["gracePeriodSeconds"]),
        preconditions: Preconditions {
            uid: text(&["preconditions", "uid"]),
            resource_version: text(&["preconditions", "resourceVersion"]),
        },
        propagation,
        orphan_dependents,
    })
}

/// Parses the selectors. The inner error is that of an unknown field, which upstream checks after other options.
fn selectors(
    query: &Query,
    target: &Target,
) -> Result<(LabelSelector, Result<FieldSelector, ApiStatus>), ApiStatus> {
    let bad = |error: SelectorError| ApiStatus::bad_request(error.to_string());
    let labels = LabelSelector::parse(query.get("labelSelector").unwrap_or_default()).map_err(bad)?;
    let mut fields = query.get("fieldSelector").unwrap_or_default().to_owned();
    FieldSelector::check(&fields).map_err(bad)?;
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
    Ok((labels, FieldSelector::parse_for(&fields, &target.kind).map_err(bad)))
}

fn resource_version(query: &Query) -> Result<Option<u64>, ApiStatus> {
    let Some(text) = query.get("resourceVersion") else { return Ok(None) };
    text.parse().map(Some).map_err(|_| {
        let why = format!("Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax");
        ApiStatus::new(StatusReason::Unknown, format!("resourceVersion: {why}"))
    })
}

/// Parses the options of a list.
///
/// Upstream counterpart: `ValidateListOptions`.
pub(super) fn list_options(query: &Query, target: &Target) -> Result<ListOptions, ApiStatus> {
    let path = Path::new("resourceVersionMatch");
    query.number("timeoutSeconds")?;
    let limit = query.number("limit")?.unwrap_or_default().max(0);
    let (labels, fields) = selectors(query, target)?;
    let continue_token = query.get("continue").map(str::to_owned);
    let mut errors = Errors::default();
    let version_match = match query.get("resourceVersionMatch") {
        None => None,
        Some(given) => {
            if query.get("resourceVersion").is_none() {
                let why = "resourceVersionMatch is forbidden unless resourceVersion is provided";
                errors.forbidden(&path, why);
            }
            if continue_token.is_some() {
                errors.forbidden(&path, "resourceVersionMatch is forbidden when continue is provided");
            }
            match given {
                "NotOlderThan" => Some(ResourceVersionMatch::NotOlderThan),
                "Exact" => {
                    if query.get("resourceVersion") == Some("0") {
                        let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
                        errors.forbidden(&path, why);
                    }
                    Some(ResourceVersionMatch::Exact)
                }
                other => {
                    errors.not_supported(&path, other, &["Exact", "NotOlderThan", ""]);
                    None
                }
            }
        }
    };
    if query.flag("sendInitialEvents").is_some() {
        errors.forbidden(&Path::new("sendInitialEvents"), "sendInitialEvents is forbidden for list");
    }
    check("ListOptions", &errors)?;
    let selection = Selection { labels, fields: fields? };
    continue_token.as_deref().map_or(Ok(()), check_continue)?;
    let resource_version = resource_version(query)
        .map_err(|error| ApiStatus::bad_request(format!("invalid resource version: {}", error.message)))?;
    if resource_version.is_some_and(|version| version > 0) && continue_token.is_some() {
        return Err(ApiStatus::bad_request("specifying resource version is not allowed when using continue"));
    }
    Ok(ListOptions {
        selection,
        limit: usize::try_from(limit).unwrap_or(usize::MAX),
        continue_token,
        resource_version,
        version_match,
    })
}

/// Parses the options of a watch.
pub(super) fn watch_options(query: &Query, target: &Target) -> Result<WatchOptions, ApiStatus> {
    let path = Path::new("resourceVersionMatch");
    let timeout = query.number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok());
    let (labels, fields) = selectors(query, target)?;
    let send_initial = query.flag("sendInitialEvents");
    let mut errors = Errors::default();
    let given = query.get("resourceVersionMatch");
    if send_initial.is_some() && given != Some("NotOlderThan") {
        let why = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        errors.forbidden(&path, why);
    }
    if let Some(given) = given {
        if send_initial.is_none() {
            let why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            errors.forbidden(&path, why);
        }
        if given != "NotOlderThan" {
            errors.not_supported(&path, given, &["NotOlderThan"]);
        }
        if query.get("continue").is_some() {
            errors.forbidden(&path, "resourceVersionMatch is forbidden when continue is provided");
        }
    }
    check("ListOptions", &errors)?;
    let selection = Selection { labels, fields: fields? };
    let version = resource_version(query)?;
    let start = match (send_initial, version.unwrap_or_default()) {
        (Some(true), _) | (None, 0) => WatchStart::Initial,
        (Some(false), 0) => WatchStart::Now,
        (_, version) => WatchStart::After(version),
    };
    Ok(WatchOptions {
        selection,
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

/// Returns the minimum revision of a read, or of a watch with initial events.
pub(super) fn minimum_revision(query: &Query) -> Result<u64, ApiStatus> {
    Ok(resource_version(query)?.unwrap_or_default())
}

/// Parses the delete options of a decoded eviction.
pub(super) fn eviction_options(eviction: &Value) -> Result<DeleteOptions, ApiStatus> {
    at(eviction, &["deleteOptions"]).map_or_else(|| Ok(DeleteOptions::default()), checked_delete_options)
}

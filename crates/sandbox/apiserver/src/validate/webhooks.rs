//! Webhook configurations, and conversion webhooks of CustomResourceDefinitions.
//!
//! Upstream counterpart: `pkg/apis/admissionregistration/validation` and `apiserver/pkg/util/webhook`.

use http::Uri;
use serde_json::{Value, json};

use super::{
    label_selector::label_selector,
    names,
    path::{Errors, Path},
    read::{get, given, integer, list, text, texts},
};

/// Versions of reviews that the server sends.
const REVIEWS: [&str; 2] = ["v1", "v1beta1"];
const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

/// Validates a MutatingWebhookConfiguration or a ValidatingWebhookConfiguration.
pub(super) fn configuration(configuration: &Value, errors: &mut Errors) {
    let webhooks = Path::new("webhooks");
    let mut known: Vec<&str> = Vec::new();
    for (index, webhook) in list(configuration, "webhooks").iter().enumerate() {
        let path = webhooks.index(index);
        self::webhook(webhook, &path, errors);
        const VERSIONS: &str = "admissionReviewVersions";
        if list(webhook, VERSIONS).is_empty() {
            let detail = format!("must specify one of {}", REVIEWS.join(", "));
            errors.required(&path.child(VERSIONS), &detail);
        }
        review_versions(webhook, VERSIONS, &path, errors);
        let name = text(webhook, "name");
        if known.contains(&name) {
            errors.duplicate(&path.child("name"), name);
        } else if !name.is_empty() {
            known.push(name);
        }
    }
}

fn webhook(webhook: &Value, path: &Path<'_>, errors: &mut Errors) {
    qualified_name(text(webhook, "name"), &path.child("name"), errors);
    for (index, entry) in list(webhook, "rules").iter().enumerate() {
        rule(entry, &path.child("rules").index(index), errors);
    }
    supported(webhook, "failurePolicy", &["Fail", "Ignore"], path, errors);
    supported(webhook, "matchPolicy", &["Equivalent", "Exact"], path, errors);
    const SIDE_EFFECTS: &[&str] = &["None", "NoneOnDryRun"];
    if given(webhook, "sideEffects").is_none() {
        let detail = format!("must specify one of {}", SIDE_EFFECTS.join(", "));
        errors.required(&path.child("sideEffects"), &detail);
    }
    supported(webhook, "sideEffects", SIDE_EFFECTS, path, errors);
    if let Some(seconds) = integer(webhook, "timeoutSeconds").filter(|seconds| !(1..=30).contains(seconds)) {
        let detail = "the timeout value must be between 1 and 30 seconds";
        errors.invalid(&path.child("timeoutSeconds"), seconds, detail);
    }
    for field in ["namespaceSelector", "objectSelector"] {
        label_selector(get(webhook, field), &path.child(field), errors);
    }
    supported(webhook, "reinvocationPolicy", &["IfNeeded", "Never"], path, errors);
    client_config(get(webhook, "clientConfig"), &path.child("clientConfig"), errors);
}

/// Requires a field to have one of these values, if it is present.
fn supported(object: &Value, field: &str, values: &[&str], path: &Path<'_>, errors: &mut Errors) {
    if let Some(value) = given(object, field).and_then(Value::as_str).filter(|value| !values.contains(value))
    {
        errors.not_supported(&path.child(field), value, values);
    }
}

fn qualified_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    let wrong = names::dns_subdomain(name);
    if name.is_empty() {
        errors.required(path, "");
    } else if !wrong.is_empty() {
        errors.invalid(path, name, wrong.join(","));
    } else if name.split('.').count() < 3 {
        errors.invalid(path, name, "should be a domain with at least three segments separated by dots");
    }
}

/// Validates a `RuleWithOperations`.
fn rule(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    for (field, what) in
        [("operations", "operations"), ("apiGroups", "API groups"), ("apiVersions", "API versions")]
    {
        let values: Vec<&str> = texts(rule, field).collect();
        if values.is_empty() {
            errors.required(&path.child(field), "");
        }
        if values.len() > 1 && values.contains(&"*") {
            let detail = format!("if '*' is present, must not specify other {what}");
            errors.invalid(&path.child(field), json!(values), detail);
        }
        for (index, value) in values.into_iter().enumerate() {
            let path = path.child(field);
            match field {
                "operations" if !OPERATIONS.contains(&value) => {
                    errors.not_supported(&path.index(index), value, &OPERATIONS);
                }
                "apiVersions" => errors.present(&path.index(index), value),
                _ => {}
            }
        }
    }
    resources(rule, &path.child("resources"), errors);
    supported(rule, "scope", &["*", "Cluster", "Namespaced"], path, errors);
}

fn resources(rule: &Value, path: &Path<'_>, errors: &mut Errors) {
    let values: Vec<&str> = texts(rule, "resources").collect();
    if values.is_empty() {
        errors.required(path, "");
    }
    let (mut with_all_parts, mut parts_of_all) = (Vec::new(), Vec::new());
    let mut has_plain = false;
    for (index, value) in values.iter().enumerate() {
        if value.is_empty() {
            errors.required(&path.index(index), "");
            continue;
        }
        let Some((resource, part)) = value.split_once('/') else {
            has_plain = *value != "*";
            continue;
        };
        if with_all_parts.contains(&resource) {
            let detail = format!("if '{resource}/*' is present, must not specify {value}");
            errors.invalid(&path.index(index), *value, detail);
        }
        if parts_of_all.contains(&part) {
            let detail = format!("if '*/{part}' is present, must not specify {value}");
            errors.invalid(&path.index(index), *value, detail);
        }
        if part == "*" {
            with_all_parts.push(resource);
        }
        if resource == "*" {
            parts_of_all.push(part);
        }
    }
    if values.len() > 1 && values.contains(&"*/*") {
        errors.invalid(path, json!(values), "if '*/*' is present, must not specify other resources");
    }
    if values.contains(&"*") && has_plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        errors.invalid(path, json!(values), detail);
    }
}

/// Validates a list of versions of reviews. An absent list is reported by the caller.
pub(super) fn review_versions(object: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child(field);
    let versions: Vec<&str> = texts(object, field).collect();
    if versions.is_empty() {
        return;
    }
    for (index, version) in versions.iter().enumerate() {
        if versions[..index].contains(version) {
            errors.invalid(&path.index(index), *version, "duplicate version");
        } else {
            errors.rule(&path.index(index), version, names::dns_1035_label);
        }
    }
    if !versions.iter().any(|version| REVIEWS.contains(version)) {
        let detail = format!("must include at least one of {}", REVIEWS.join(", "));
        errors.invalid(&path, json!(versions), detail);
    }
}

/// Validates a `WebhookClientConfig`.
pub(super) fn client_config(config: &Value, path: &Path<'_>, errors: &mut Errors) {
    match (given(config, "url"), given(config, "service")) {
        (Some(url), None) => self::url(url.as_str().unwrap_or_default(), &path.child("url"), errors),
        (None, Some(service)) => self::service(service, &path.child("service"), errors),
        _ => errors.required(path, "exactly one of url or service is required"),
    }
}

fn url(url: &str, path: &Path<'_>, errors: &mut Errors) {
    const FORM: &str = "; desired format: https://host[/path]";
    let (address, fragment) = url.split_once('#').unwrap_or((url, ""));
    let scheme = address.split_once("://").map_or("", |(scheme, _)| scheme);
    if scheme != "https" {
        errors.invalid(path, scheme, format!("'https' is the only allowed URL scheme{FORM}"));
    }
    let parsed = address.parse::<Uri>().ok();
    let authority = parsed.as_ref().and_then(Uri::authority).map_or("", http::uri::Authority::as_str);
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if host.is_empty() {
        errors.invalid(path, host, format!("host must be specified{FORM}"));
    }
    let query = parsed.as_ref().and_then(Uri::query).unwrap_or_default();
    for (value, detail) in [
        (user, "user information is not permitted in the URL"),
        (fragment, "fragments are not permitted in the URL"),
        (query, "query parameters are not permitted in the URL"),
    ] {
        if !value.is_empty() {
            errors.invalid(path, value, detail);
        }
    }
}

fn service(service: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["name", "namespace"] {
        errors.present(&path.child(field), text(service, field));
    }
    if let Some(port) = integer(service, "port").filter(|port| !(1..=65535).contains(port)) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        errors.invalid(&path.child("port"), port, detail);
    }
    let segments = text(service, "path");
    if matches!(segments, "" | "/") {
        return;
    }
    let path = path.child("path");
    if segments == "//" {
        return errors.invalid(&path, segments, "segment[0] may not be empty");
    }
    if !segments.starts_with('/') {
        errors.invalid(&path, segments, "must start with a '/'");
    }
    let mut rest = segments.chars();
    rest.next();
    let rest = rest.as_str();
    for (index, segment) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if segment.is_empty() {
            errors.invalid(&path, segments, format!("segment[{index}] may not be empty"));
            continue;
        }
        for wrong in names::dns_subdomain(segment) {
            errors.invalid(&path, segments, format!("segment[{index}]: {wrong}"));
        }
    }
}

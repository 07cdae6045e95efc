//! Volumes.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    names,
    path::{Errors, Path},
    read::{get, given, integer, list, text},
};

/// Validates a pod's volumes and returns their names.
pub(super) fn volumes<'a>(volumes: &'a [Value], path: &Path<'_>, errors: &mut Errors) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    for (index, volume) in volumes.iter().enumerate() {
        let path = path.index(index);
        let (name, name_path) = (text(volume, "name"), path.child("name"));
        if name.is_empty() {
            errors.required(&name_path, "");
        } else {
            errors.rule(&name_path, name, names::dns_label);
            if !seen.insert(name) {
                errors.duplicate(&name_path, name);
            }
        }
        let mut sources = volume.as_object().into_iter().flatten().filter(|(field, _)| *field != "name");
        match sources.next() {
            None => errors.required(&path, "must specify a volume type"),
            Some((kind, details)) => source(kind, details, &path.child(kind), errors),
        }
        for (kind, _) in sources {
            errors.forbidden(&path.child(kind), "may not specify more than 1 volume type");
        }
    }
    seen
}

fn source(kind: &str, source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let required: &[&str] = match kind {
        "hostPath" => &["path"],
        "nfs" => &["server", "path"],
        "secret" => &["secretName"],
        "configMap" => &["name"],
        "persistentVolumeClaim" => &["claimName"],
        "csi" => &["driver"],
        "emptyDir" => {
            if text(source, "sizeLimit").starts_with('-') {
                let detail = "SizeLimit field must be a valid resource quantity";
                errors.forbidden(&path.child("sizeLimit"), detail);
            }
            &[]
        }
        "ephemeral" => {
            if given(source, "volumeClaimTemplate").is_none() {
                errors.required(&path.child("volumeClaimTemplate"), "");
            }
            &[]
        }
        "projected" => {
            projected(source, path, errors);
            &[]
        }
        _ => &[],
    };
    for field in required {
        errors.present(&path.child(field), text(source, field));
    }
    if matches!(kind, "hostPath" | "nfs") {
        let at = text(source, "path");
        if at.split('/').any(|part| part == "..") {
            errors.invalid(&path.child("path"), at, "must not contain '..'");
        }
        if kind == "nfs" && !at.is_empty() && !at.starts_with('/') {
            errors.invalid(&path.child("path"), at, "must be an absolute path");
        }
    }
    mode(source, "defaultMode", path, errors);
    items(source, path, errors);
}

fn projected(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("sources");
    for (index, projection) in list(source, "sources").iter().enumerate() {
        let path = path.index(index);
        let mut kinds = projection.as_object().into_iter().flatten();
        if let Some((kind, details)) = kinds.next() {
            let path = path.child(kind);
            if matches!(kind.as_str(), "secret" | "configMap") {
                errors.present(&path.child("name"), text(details, "name"));
            }
            if kind == "serviceAccountToken" {
                let seconds = integer(details, "expirationSeconds").filter(|seconds| *seconds < 600);
                if let Some(seconds) = seconds {
                    let detail = "may not specify a duration less than 10 minutes";
                    errors.invalid(&path.child("expirationSeconds"), seconds, detail);
                }
                errors.present(&path.child("path"), text(details, "path"));
            }
            items(details, &path, errors);
        }
        for (kind, _) in kinds {
            let detail = "may not specify more than 1 volume type";
            errors.forbidden(&path.child(kind), detail);
        }
    }
}

/// Validates the mapping of keys to files.
fn items(source: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("items");
    for (index, item) in list(source, "items").iter().enumerate() {
        let path = path.index(index);
        let is_field = given(item, "fieldRef").is_some() || given(item, "resourceFieldRef").is_some();
        if !is_field {
            errors.present(&path.child("key"), text(item, "key"));
        }
        let at = get(item, "path").as_str().unwrap_or_default();
        errors.present(&path.child("path"), at);
        if at.starts_with('/') {
            errors.invalid(&path.child("path"), at, "must be a relative path");
        }
        if at.split('/').any(|part| part == "..") {
            errors.invalid(&path.child("path"), at, "must not contain '..'");
        }
        mode(item, "mode", &path, errors);
    }
}

fn mode(within: &Value, field: &str, path: &Path<'_>, errors: &mut Errors) {
    if let Some(mode) = integer(within, field).filter(|mode| !(0..=0o777).contains(mode)) {
        let detail = "must be a number between 0 and 0777 (octal), both inclusive";
        errors.invalid(&path.child(field), mode, detail);
    }
}

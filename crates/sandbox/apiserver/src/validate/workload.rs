//! Deployments, ReplicaSets and ReplicationControllers.
//!
//! Upstream counterpart: `pkg/apis/apps/validation`, and of the last `pkg/apis/core/validation`.

use kcm_api::selector::{LabelSelector, Selector};
use serde_json::{Value, json};

use super::{
    label_selector::label_selector,
    names,
    path::{Errors, Path},
    pod,
    read::{entries, get, given, integer, list, map, text},
};

const SPEC: Path<'static> = Path::new("spec");
const STATUS: Path<'static> = Path::new("status");

/// Validates the spec of a Deployment.
pub(super) fn deployment(object: &Value, errors: &mut Errors) {
    let spec = get(object, "spec");
    errors.not_negative(&SPEC.child("replicas"), integer(spec, "replicas"));
    selector_and_template(spec, errors);
    strategy(get(spec, "strategy"), &SPEC.child("strategy"), errors);
    let ready = integer(spec, "minReadySeconds");
    errors.not_negative(&SPEC.child("minReadySeconds"), ready);
    errors.not_negative(&SPEC.child("revisionHistoryLimit"), integer(spec, "revisionHistoryLimit"));
    if let Some(deadline) = integer(spec, "progressDeadlineSeconds") {
        let path = SPEC.child("progressDeadlineSeconds");
        errors.not_negative(&path, Some(deadline));
        if deadline <= ready.unwrap_or(0) {
            errors.invalid(&path, deadline, "must be greater than minReadySeconds");
        }
    }
}

/// Validates the spec of a ReplicaSet.
pub(super) fn replica_set(object: &Value, errors: &mut Errors) {
    let spec = get(object, "spec");
    errors.not_negative(&SPEC.child("replicas"), integer(spec, "replicas"));
    errors.not_negative(&SPEC.child("minReadySeconds"), integer(spec, "minReadySeconds"));
    selector_and_template(spec, errors);
}

/// Validates the spec of a ReplicationController.
pub(super) fn replication_controller(object: &Value, errors: &mut Errors) {
    let spec = get(object, "spec");
    errors.not_negative(&SPEC.child("minReadySeconds"), integer(spec, "minReadySeconds"));
    let selector = map(spec, "selector");
    if selector.is_none_or(serde_json::Map::is_empty) {
        errors.required(&SPEC.child("selector"), "");
    }
    errors.not_negative(&SPEC.child("replicas"), integer(spec, "replicas"));
    if given(spec, "template").is_none() {
        errors.required(&SPEC.child("template"), "");
        return;
    }
    let labels = get(get(get(spec, "template"), "metadata"), "labels");
    let selected = selector.into_iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    template("ReplicationController", spec, selected, errors);
}

/// Rejects a change of the selector, which would orphan pods.
pub(super) fn selector_immutable(new: &Value, old: &Value, errors: &mut Errors) {
    let selector = |object| get(get(object, "spec"), "selector");
    errors.immutable(&SPEC.child("selector"), selector(new), selector(old));
}

fn selector_and_template(spec: &Value, errors: &mut Errors) {
    let path = SPEC.child("selector");
    let Some(selector) = given(spec, "selector") else {
        errors.required(&path, "");
        // Upstream continues with a selector that matches nothing, so the labels do not match.
        template("ReplicaSet", spec, false, errors);
        return;
    };
    let selected = selects_labels(selector, spec, "deployment", errors);
    if let Some(selected) = selected {
        template("ReplicaSet", spec, selected, errors);
    }
}

/// Validates the selector of a workload of another kind, which must match the labels of its template.
pub(super) fn selector_and_labels(spec: &Value, kind: &str, errors: &mut Errors) {
    if selects_labels(get(spec, "selector"), spec, kind, errors) == Some(false) {
        labels_do_not_match(spec, errors);
    }
}

/// Validates a selector. Returns `true` if it matches the labels of the template, `None` if it is invalid.
fn selects_labels(selector: &Value, spec: &Value, kind: &str, errors: &mut Errors) -> Option<bool> {
    let path = SPEC.child("selector");
    label_selector(selector, &path, errors);
    if map(selector, "matchLabels").is_none_or(serde_json::Map::is_empty)
        && list(selector, "matchExpressions").is_empty()
    {
        errors.invalid(&path, selector.clone(), format!("empty selector is invalid for {kind}"));
    }
    let declared: Option<LabelSelector> = serde_json::from_value(selector.clone()).ok();
    let Some(Ok(compiled)) = declared.map(|declared| Selector::new(Some(&declared))) else {
        errors.invalid(&path, selector.clone(), "invalid label selector");
        return None;
    };
    let labels = entries(get(get(spec, "template"), "metadata"), "labels");
    let labels = labels.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned()));
    Some(compiled.is_empty() || compiled.matches(&labels.collect()))
}

fn labels_do_not_match(spec: &Value, errors: &mut Errors) {
    let (template, path) = (get(spec, "template"), SPEC.child("template"));
    let labels = get(get(template, "metadata"), "labels").clone();
    let path = path.child("metadata");
    errors.invalid(&path.child("labels"), labels, "`selector` does not match template `labels`");
}

/// Validates the template in `spec`. `kind` appears in errors. `selected` is `true` if the selector matches its labels.
fn template(kind: &str, spec: &Value, selected: bool, errors: &mut Errors) {
    let (template, path) = (get(spec, "template"), SPEC.child("template"));
    let (pods, pods_path) = (get(template, "spec"), path.child("spec"));
    if !selected {
        labels_do_not_match(spec, errors);
    }
    pod::template(template, &path, errors);
    let policy = text(pods, "restartPolicy");
    if policy != "Always" {
        errors.not_supported(&pods_path.child("restartPolicy"), policy, &["Always"]);
    }
    if given(pods, "activeDeadlineSeconds").is_some() {
        let detail = format!("activeDeadlineSeconds in {kind} is not Supported");
        errors.forbidden(&pods_path.child("activeDeadlineSeconds"), &detail);
    }
}

fn strategy(strategy: &Value, path: &Path<'_>, errors: &mut Errors) {
    let rolling = given(strategy, "rollingUpdate");
    match (text(strategy, "type"), rolling) {
        ("Recreate", None) => {}
        ("Recreate", Some(_)) => errors.forbidden(
            &path.child("rollingUpdate"),
            "may not be specified when strategy `type` is 'Recreate'",
        ),
        ("RollingUpdate", None) => {
            errors.required(&path.child("rollingUpdate"), "this should be defaulted and never be nil");
        }
        ("RollingUpdate", Some(rolling)) => rolling_update(rolling, &path.child("rollingUpdate"), errors),
        // Upstream prints the whole strategy with Go's field names. (DEVIATION: in alphabetical order.)
        (other, rolling) => {
            let rolling = rolling.map(|rolling| {
                let of = |name| get(rolling, name);
                json!({ "MaxUnavailable": of("maxUnavailable"), "MaxSurge": of("maxSurge") })
            });
            let whole = json!({ "Type": other, "RollingUpdate": rolling });
            errors.not_supported(path, whole, &["Recreate", "RollingUpdate"]);
        }
    }
}

fn rolling_update(rolling: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (unavailable, surge) = (get(rolling, "maxUnavailable"), get(rolling, "maxSurge"));
    let unavailable_path = path.child("maxUnavailable");
    count_or_percent(unavailable, &unavailable_path, errors);
    count_or_percent(surge, &path.child("maxSurge"), errors);
    if is_zero(unavailable) && is_zero(surge) {
        errors.invalid(&unavailable_path, unavailable.clone(), "may not be 0 when `maxSurge` is 0");
    }
    if percentage(unavailable).is_some_and(|share| share > 100) {
        errors.invalid(&unavailable_path, unavailable.clone(), "must not be greater than 100%");
    }
}

fn count_or_percent(value: &Value, path: &Path<'_>, errors: &mut Errors) {
    match value {
        Value::String(share) => errors.rule(path, share, names::percent),
        value => errors.not_negative(path, value.as_i64()),
    }
}

/// Returns the number of a percentage. `i64::MAX` if it overflows.
fn percentage(value: &Value) -> Option<i64> {
    let share = value.as_str().filter(|share| names::percent(share).is_empty())?;
    Some(share.trim_end_matches('%').parse().unwrap_or(i64::MAX))
}

/// `true` if the value is 0 or 0%. An absent or invalid value counts as 0, as upstream.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::String(_) => percentage(value).unwrap_or(0) == 0,
        value => value.as_i64().unwrap_or(0) == 0,
    }
}

/// Validates the status of a Deployment.
pub(super) fn deployment_status(new: &Value, old: &Value, errors: &mut Errors) {
    let status = get(new, "status");
    let counts = ["updatedReplicas", "readyReplicas", "availableReplicas"];
    let others =
        ["observedGeneration", "replicas", "unavailableReplicas", "terminatingReplicas", "collisionCount"];
    counts_within_replicas(status, &counts, &others, errors);
    let collisions = |object| integer(get(object, "status"), "collisionCount");
    if let Some(before) = collisions(old)
        && collisions(new).is_none_or(|now| now < before)
    {
        let now = collisions(new).unwrap_or(0);
        errors.invalid(&STATUS.child("collisionCount"), now, "cannot be decremented");
    }
}

/// Validates the status of a ReplicaSet.
pub(super) fn replica_set_status(new: &Value, errors: &mut Errors) {
    let counts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    let others = ["observedGeneration", "replicas", "terminatingReplicas"];
    counts_within_replicas(get(new, "status"), &counts, &others, errors);
}

/// Requires counts that are not negative, `counts` that do not exceed `replicas`, and available replicas that are ready.
fn counts_within_replicas(status: &Value, counts: &[&str], others: &[&str], errors: &mut Errors) {
    for field in others.iter().chain(counts) {
        errors.not_negative(&STATUS.child(field), integer(status, field));
    }
    let count = |field: &str| integer(status, field).unwrap_or(0);
    for field in counts {
        if count(field) > count("replicas") {
            errors.invalid(&STATUS.child(field), count(field), "cannot be greater than status.replicas");
        }
    }
    if count("availableReplicas") > count("readyReplicas") {
        let available = count("availableReplicas");
        errors.invalid(&STATUS.child("availableReplicas"), available, "cannot be greater than readyReplicas");
    }
}

//! Server-side apply of the replicas of an object through its subresource `scale`.
//!
//! Upstream counterpart: `managedfields.ScaleHandler`, and server-side apply of its Scale.

use serde_json::{Value, json};

use super::{
    BEFORE_FIRST_APPLY, MANAGED_FIELDS, Managers, Set, Topology, Writer, check_fields, conflict_status,
    field_set, set, strip_fields,
};
use crate::{
    ApiStatus,
    json::{at, i64_at},
    schema::SCHEMA,
};

/// Version of a Scale, and its kind.
const SCALE: (&str, &str) = ("autoscaling/v1", "Scale");

fn topology() -> Option<Topology<'static>> {
    SCHEMA.kind(SCALE.0, SCALE.1).map(Topology::Struct)
}

/// Validates an applied Scale, as [`check`](super::check).
pub(crate) fn check_scale(config: &Value) -> Result<(), ApiStatus> {
    check_fields(topology(), SCALE, config)
}

/// Returns the Scale `current` after the apply of `config`, and the managed fields of its object `live`, whose replicas are
/// at `path`.
///
/// # Errors
///
/// 409 if other managers own the replicas and they would change, unless `force` is set.
pub(crate) fn apply_replicas(
    live: &Value,
    path: &[&str],
    mut scale: Value,
    config: &Value,
    writer: Writer<'_>,
    force: bool,
) -> Result<(Value, Option<Value>), ApiStatus> {
    let replicas = |scale| i64_at(scale, &["spec", "replicas"]);
    let (current, applied) = (replicas(&scale).unwrap_or_default(), replicas(config));
    let field = |path: &[&str]| -> Set {
        path.iter().rev().fold(Set::new(), |below, step| {
            let is_end = below.is_empty();
            let mut field = Set::new();
            set::insert(&mut field, set::field_step(step), is_end, below);
            field
        })
    };
    let owned = field(path);
    let mut managers = at(live, MANAGED_FIELDS).cloned().map(Managers::read).unwrap_or_default();
    let applier = writer.as_manager(true);
    let mut others = managers.owners_of(&owned);
    if others.is_empty() && current != 0 {
        others.push(Writer { manager: BEFORE_FIRST_APPLY, ..writer }.as_manager(false));
    }
    let was_owner = others.iter().any(|owner| owner.is(&applier));
    others.retain(|owner| !owner.is(&applier));
    let new = match applied {
        Some(applied) => applied,
        // Replicas that no manager applies any more are removed.
        None if was_owner && others.is_empty() => 0,
        None => current,
    };
    if new != current && !others.is_empty() {
        if !force {
            let mut conflicts: Vec<_> = others
                .into_iter()
                .map(|owner| (owner.in_version(SCALE.0), field(&["spec", "replicas"])))
                .collect();
            conflicts.sort_by(|(left, _), (right, _)| left.cmp(right));
            return Err(conflict_status(&conflicts));
        }
        others.clear();
    }
    let mut wanted = topology().map(|topology| field_set(topology, config)).unwrap_or_default();
    strip_fields(&mut wanted);
    // As upstream, an owner of replicas keeps them as long as it applies any field.
    if applied.is_some() || (was_owner && !wanted.is_empty()) {
        others.push(applier);
    }
    managers.give(&owned, others, writer.api_version());
    for (field, value) in config["metadata"].as_object().into_iter().flatten() {
        scale["metadata"][field] = value.clone();
    }
    scale["spec"] = json!({"replicas": new});
    Ok((scale, managers.encode()))
}

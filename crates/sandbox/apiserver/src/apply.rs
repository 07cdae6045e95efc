//! Server-side apply: ownership of fields and its conflicts.
//!
//! [`apply`] merges an applied configuration into an object. [`track`] records the changes of other writes. Both read
//! and write `metadata.managedFields` through [`Managers`]. Storage and HTTP are elsewhere.
//!
//! Managed fields exist from the first server-side apply on. The fields before it belong to `before-first-apply`.
//! Upstream does the same with a different default: its `ProbabilisticSkipNonAppliedManager` tracks objects from their
//! creation with probability 1, here 0. DEVIATION: objects that were never applied have no managedFields, which keeps
//! writes and watch events small.
//!
//! Upstream counterpart: `apimachinery/pkg/util/managedfields` with `structured-merge-diff/merge`.

mod managers;
mod set;
#[cfg(test)]
mod tests;
mod topology;
mod walk;

use serde_json::{Value, json};

use managers::{Manager, Managers};
use set::Set;
use topology::Topology;
pub(crate) use topology::associative_list;
use walk::{Comparison, compare, field_set, merge, remove_items, validation_error};

use crate::{
    ApiStatus, StatusCause, StatusDetails, StatusReason,
    json::{at, remove, set as put, str_at},
    kind::{Kind, group_version_kind},
    schema::SCHEMA,
};

const LAST_APPLIED: [&str; 3] =
    ["metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"];
/// Manager of the fields that existed before the first apply.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Fields without managers: the object's identity and server-controlled metadata.
const STRIPPED_FIELDS: [&[&str]; 11] = [
    &["f:apiVersion"],
    &["f:kind"],
    &["f:metadata", "f:name"],
    &["f:metadata", "f:namespace"],
    &["f:metadata", "f:creationTimestamp"],
    &["f:metadata", "f:selfLink"],
    &["f:metadata", "f:uid"],
    &["f:metadata", "f:generation"],
    &["f:metadata", "f:managedFields"],
    &["f:metadata", "f:resourceVersion"],
    &["f:metadata", "f:clusterName"],
];

fn strip_fields(mut set: Set) -> Set {
    set.members.remove("f:metadata");
    for path in STRIPPED_FIELDS {
        set.remove(path);
    }
    set
}

/// Manager, operation and resource of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) manager: &'a str,
    /// Subresource, or empty.
    pub(crate) subresource: &'a str,
    /// Current time in the format of objects.
    pub(crate) time: &'a str,
}

/// Returns the topology of the objects of a kind.
fn topology_of(kind: &Kind) -> Option<Topology<'_>> {
    match &kind.custom {
        Some(custom) => Some(Topology::Object(&custom.schema)),
        None => SCHEMA.kind(kind.api_version(), kind.name()).map(Topology::Struct),
    }
}

impl<'a> Writer<'a> {
    fn topology(&self) -> Option<Topology<'a>> {
        topology_of(self.kind)
    }

    fn as_manager(&self, applied: bool) -> Manager {
        Manager {
            name: self.manager.to_owned(),
            applied,
            api_version: self.kind.api_version().to_owned(),
            subresource: self.subresource.to_owned(),
        }
    }
}

/// Removes and returns `metadata.managedFields`.
pub(crate) fn take_managed_fields(object: &mut Value) -> Option<Value> {
    remove(object, &["metadata", "managedFields"])
}

/// Returns the managed fields after an Update from `old` to `new`, which has none. Returns `None` if the object has
/// none. `sent` is the list in the request.
pub(crate) fn track(old: &Value, new: &Value, sent: Option<&Value>, writer: Writer<'_>) -> Option<Value> {
    let kept = at(old, &["metadata", "managedFields"]);
    // Subresources cannot change the list. An empty or invalid list does not clear it, because older clients send
    // such lists. A list of one empty entry clears it.
    let sent = sent.filter(|_| writer.subresource.is_empty());
    if sent.is_some_and(|sent| *sent == json!([{}])) {
        return None;
    }
    let mut managers = sent
        .and_then(Managers::decode)
        .filter(|managers| !managers.is_empty())
        .or_else(|| kept.and_then(Managers::decode))
        .filter(|managers| !managers.is_empty())?;
    let comparison = compare(writer.topology()?, old, new);
    update(&mut managers, &comparison, &writer);
    managers.cap_updaters();
    managers.encode()
}

/// `true` if two lists of managed fields differ only in times.
pub(crate) fn equal_ignoring_times(left: &Value, right: &Value) -> bool {
    Managers::decode(left).is_some_and(|left| {
        Managers::decode(right).is_some_and(|right| left.without_times() == right.without_times())
    })
}

/// Records the changes of a writer: it owns the fields that it set; removed fields have no owner.
fn update(managers: &mut Managers, change: &Comparison, writer: &Writer<'_>) {
    let written = change.added.union(&change.modified);
    managers.remove_from_others(None, &written.union(&change.removed));
    let taken = strip_fields(written);
    if !taken.is_empty() {
        managers.add(writer.as_manager(false), &taken, writer.time);
    }
}

/// Validates a configuration: all fields must be known and list items must have distinct keys.
///
/// # Errors
///
/// 500, as upstream.
pub(crate) fn check(kind: &Kind, config: &Value) -> Result<(), ApiStatus> {
    let Some(defect) = topology_of(kind).and_then(|topology| validation_error(topology, config, "")) else {
        return Ok(());
    };
    let kind = group_version_kind(kind.api_version(), kind.name());
    let (namespace, name) =
        (str_at(config, &["metadata", "namespace"]), str_at(config, &["metadata", "name"]));
    Err(ApiStatus::new(
        StatusReason::Unknown,
        format!("failed to create typed patch object ({namespace}/{name}; {kind}): {defect}"),
    ))
}

/// Applies `config` to `live`. The result has managed fields and must be decoded and defaulted by the caller. A `live`
/// object without UID does not exist yet.
///
/// # Errors
///
/// 409 if other managers own fields that `config` would change, unless `force` is set.
pub(crate) fn apply(
    live: &Value,
    config: &Value,
    writer: Writer<'_>,
    force: bool,
) -> Result<Value, ApiStatus> {
    let Some(topology) = writer.topology() else {
        return Err(ApiStatus::internal(format!("{} has no known type", writer.kind.resource)));
    };
    let mut live = live.clone();
    let kept = take_managed_fields(&mut live)
        .and_then(|kept| Managers::decode(&kept))
        .filter(|kept| !kept.is_empty());
    let managers = kept.unwrap_or_else(|| {
        let mut managers = Managers::default();
        if at(&live, &["metadata", "uid"]).is_some() {
            let nothing = empty(writer.kind);
            let first = Writer { manager: BEFORE_FIRST_APPLY, subresource: "", ..writer };
            update(&mut managers, &compare(topology, &nothing, &live), &first);
        }
        managers
    });
    let outcome = merge_config(topology, &live, config, managers.clone(), &writer, force);
    let (mut merged, managers) = match outcome {
        Ok(done) => done,
        Err(conflicts) if is_last_applied_migration(topology, &live, &conflicts, &writer) => {
            merge_config(topology, &live, config, managers, &writer, true)
                .map_err(|left| conflict_status(&left))?
        }
        Err(conflicts) => return Err(conflict_status(&conflicts)),
    };
    // Keeps kubectl's last-applied annotation current, if the object has one.
    if writer.manager == "kubectl" && at(&merged, &LAST_APPLIED).is_some() {
        let mut note = config.clone();
        remove(&mut note, &LAST_APPLIED);
        put(&mut merged, &LAST_APPLIED, format!("{note}\n"));
    }
    if let Some(managed) = managers.encode() {
        put(&mut merged, &["metadata", "managedFields"], managed);
    }
    Ok(merged)
}

/// Returns an object of the kind with only the fields that are always present.
pub(crate) fn empty(kind: &Kind) -> Value {
    let nothing = json!({"apiVersion": kind.api_version(), "kind": kind.name()});
    kind.decode(nothing.clone()).map_or(nothing, |decoded| decoded.object)
}

type Conflicts = Vec<(Manager, Set)>;

fn merge_config(
    topology: Topology<'_>,
    live: &Value,
    config: &Value,
    mut managers: Managers,
    writer: &Writer<'_>,
    force: bool,
) -> Result<(Value, Managers), Conflicts> {
    let applier = writer.as_manager(true);
    let before = managers.fields(&applier).cloned();
    let wanted = strip_fields(field_set(topology, config));
    let mut merged = merge(topology, live, config);
    managers.replace(applier.clone(), wanted);
    if let Some(before) = before {
        // Fields that the manager no longer applies are removed unless other managers own them.
        let owned = managers.all_fields();
        let dropped =
            field_set(topology, &merged).intersection(&before).difference(&owned).without_parents_in(&owned);
        remove_items(topology, &mut merged, &dropped);
    }
    let change = compare(topology, live, &merged);
    let written = change.added.union(&change.modified);
    if !force {
        let conflicts = managers.owners(&applier, &written);
        if !conflicts.is_empty() {
            return Err(conflicts);
        }
    }
    managers.remove_from_others(Some(&applier), &written);
    managers.remove_from_others(Some(&applier), &change.removed);
    // Becoming a co-owner without changing the object does not update the time.
    if !written.is_empty() || !change.removed.is_empty() {
        managers.set_time(&applier, writer.time);
    }
    Ok((merged, managers))
}

/// `true` if all conflicts of kubectl are with its own client-side apply.
///
/// Upstream counterpart: `lastAppliedManager`.
fn is_last_applied_migration(
    topology: Topology<'_>,
    live: &Value,
    conflicts: &Conflicts,
    writer: &Writer<'_>,
) -> bool {
    let note = at(live, &LAST_APPLIED).and_then(Value::as_str);
    let Some(note) = note.and_then(|note| serde_json::from_str::<Value>(note).ok()) else { return false };
    let noted = field_set(topology, &note);
    writer.manager == "kubectl" && conflicts.iter().all(|(_, fields)| fields.difference(&noted).is_empty())
}

fn conflict_status(conflicts: &Conflicts) -> ApiStatus {
    let mut causes = Vec::new();
    let mut several = Vec::new();
    for (manager, fields) in conflicts {
        several.push(format!("conflicts with {manager}:"));
        for path in fields.paths() {
            several.push(format!("- {path}"));
            causes.push(StatusCause {
                reason: "FieldManagerConflict".to_owned(),
                message: format!("conflict with {manager}"),
                field: path,
            });
        }
    }
    let message = match causes.as_slice() {
        [only] => format!("Apply failed with 1 conflict: {}: {}", only.message, only.field),
        causes => format!("Apply failed with {} conflicts: {}", causes.len(), several.join("\n")),
    };
    let details = StatusDetails { causes, ..StatusDetails::default() };
    ApiStatus { details: Some(Box::new(details)), ..ApiStatus::new(StatusReason::Conflict, message) }
}

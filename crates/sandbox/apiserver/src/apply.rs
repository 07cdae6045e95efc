//! Ownership of fields, server-side apply and its conflicts.
//!
//! [`apply`] merges an applied configuration into an object. [`track`] records the changes of other writes. Both read
//! and write `metadata.managedFields` through [`Managers`]. Storage and HTTP are elsewhere.
//!
//! Objects have managed fields from their creation on. If [`ApiServerConfig::managed_fields`] is `false`, they have them
//! from their first server-side apply on, as with upstream's `SkipNonAppliedManager`. The fields before it belong to
//! `before-first-apply`.
//!
//! Upstream counterpart: `apimachinery/pkg/util/managedfields` with `structured-merge-diff/merge`.
//!
//! [`ApiServerConfig::managed_fields`]: crate::ApiServerConfig::managed_fields

mod managers;
mod reset;
mod scale;
mod set;
#[cfg(test)]
mod tests;
mod topology;
mod walk;

use std::{
    borrow::Cow,
    sync::{LazyLock, OnceLock},
};

use serde_json::{Value, json};

use managers::{Manager, Managers};
pub(crate) use reset::status_lacks_metadata;
pub(crate) use scale::{apply_replicas, check_scale};
use set::Set;
use topology::Topology;
pub(crate) use topology::associative_list;
use walk::{Comparison, compare, field_set, merge, remove_items, validation_error};

use crate::{
    ApiStatus, Resource, StatusCause, StatusDetails, StatusReason,
    json::{at, remove, set as put, str_at},
    kind::{Kind, group_version_kind},
    resource::ServedVersion,
    schema::SCHEMA,
};

const LAST_APPLIED: [&str; 3] =
    ["metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"];

/// Path of the managed fields of an object.
pub(crate) const MANAGED_FIELDS: &[&str] = &["metadata", "managedFields"];

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

fn strip_fields(set: &mut Set) {
    set::remove_end(set, "f:metadata");
    for path in STRIPPED_FIELDS {
        set::remove(set, path);
    }
}

/// Manager, operation and resource of a write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writer<'a> {
    pub(crate) kind: &'a Kind,
    /// Version of the request, if it is another than that of `kind`.
    pub(crate) served_version: Option<ServedVersion>,
    pub(crate) manager: &'a str,
    /// Subresource, or empty.
    pub(crate) subresource: &'a str,
    /// Current time in the format of objects.
    pub(crate) time: &'a str,
}

impl<'a> Writer<'a> {
    fn api_version(&self) -> &'a str {
        match self.served_version {
            Some(version) => version.api_version(),
            None => self.kind.api_version(),
        }
    }

    fn as_manager(&self, applied: bool) -> Manager {
        Manager {
            name: self.manager.to_owned(),
            applied,
            api_version: self.api_version().to_owned(),
            subresource: self.subresource.to_owned(),
        }
    }

    /// Removes the fields that the writer cannot own.
    fn filter(&self, set: &mut Set) {
        strip_fields(set);
        for path in reset::reset_fields(self.kind, self.subresource) {
            set::remove(set, path);
        }
    }
}

/// Returns the topology of a kind's objects in a version, and the version for a built-in kind if it is not that of `kind`.
/// Returns `None` if there is no such version.
fn version_of<'a>(kind: &'a Kind, api_version: &str) -> Option<(Topology<'a>, Option<ServedVersion>)> {
    if let Some(custom) = &kind.custom {
        return Some((Topology::Object(custom.schema_of(api_version)?), None));
    }
    let served =
        || kind.resource.definition().served_versions.iter().find(|v| v.api_version() == api_version);
    let version = if api_version == kind.api_version() { None } else { Some(*served()?) };
    SCHEMA.kind(api_version, kind.name()).map(|id| (Topology::Struct(id), version))
}

/// Changes of a write in the versions that managers have used. An object is in the version of the kind.
///
/// DEVIATION: for managers that wrote a custom resource in another version, it is not converted by a webhook.
struct Changes<'a> {
    writer: &'a Writer<'a>,
    old: &'a Value,
    new: &'a Value,
    known: Vec<(String, Option<Comparison>)>,
}

impl<'a> Changes<'a> {
    fn new(writer: &'a Writer<'a>, old: &'a Value, new: &'a Value) -> Self {
        Self { writer, old, new, known: Vec::new() }
    }

    /// Returns the changes in a version. Returns `None` if it does not exist.
    fn in_version(&mut self, api_version: &str) -> Option<&Comparison> {
        let position = self.known.iter().position(|(known, _)| known == api_version);
        let position = position.unwrap_or_else(|| {
            self.known.push((api_version.to_owned(), self.compare(api_version)));
            self.known.len() - 1
        });
        self.known.get(position).and_then(|(_, change)| change.as_ref())
    }

    fn compare(&self, api_version: &str) -> Option<Comparison> {
        let (topology, version) = version_of(self.writer.kind, api_version)?;
        let converted = |object: &'a Value| match version {
            Some(version) => Cow::Owned(version.convert_from_storage(object)),
            None => Cow::Borrowed(object),
        };
        let mut change = compare(topology, &converted(self.old), &converted(self.new));
        self.writer.filter(&mut change.written);
        self.writer.filter(&mut change.removed);
        Some(change)
    }

    /// The changes in the version of the writer.
    fn own(&mut self) -> Option<&Comparison> {
        self.in_version(self.writer.api_version())
    }

    fn into_own(mut self) -> Option<Comparison> {
        self.own();
        let api_version = self.writer.api_version();
        self.known.into_iter().find(|(known, _)| known == api_version).and_then(|(_, change)| change)
    }
}

/// Removes and returns `metadata.managedFields`.
pub(crate) fn take_managed_fields(object: &mut Value) -> Option<Value> {
    remove(object, MANAGED_FIELDS)
}

/// Members of a value except for one.
fn members_but<'a>(value: &'a Value, name: &'static str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    value.as_object().into_iter().flatten().filter(move |(member, _)| *member != name)
}

/// `true` if two objects differ at most in their managed fields.
pub(crate) fn equal_but_managed_fields(left: &Value, right: &Value) -> bool {
    members_but(left, "metadata").eq(members_but(right, "metadata"))
        && match (left.get("metadata"), right.get("metadata")) {
            (Some(left), Some(right)) => {
                members_but(left, "managedFields").eq(members_but(right, "managedFields"))
            }
            (left, right) => left == right,
        }
}

/// `true` if a list that a client sent resets the managed fields.
fn resets(sent: &Value) -> bool {
    *sent == json!([]) || *sent == json!([{}])
}

/// `true` if a list of managed fields is valid.
pub(crate) fn is_valid(list: &Value) -> bool {
    Managers::parse(list.clone()).is_some()
}

/// Returns the managed fields after a create or an Update from `old` to `new`, which has none. `sent` is the list in the
/// request. `is_tracked` is `true` if objects without managed fields get them.
pub(crate) fn track(
    old: &Value,
    new: &Value,
    sent: Option<Value>,
    is_tracked: bool,
    writer: Writer<'_>,
) -> Option<Value> {
    let kept = at(old, MANAGED_FIELDS);
    // Subresources cannot change the list. An invalid list does not change it.
    let sent = sent.filter(|_| writer.subresource.is_empty());
    if kept.is_none() && sent.is_none() && !is_tracked {
        return None;
    }
    let mut changes = Changes::new(&writer, old, new);
    let mut managers = match sent {
        Some(sent) if resets(&sent) => Managers::default(),
        Some(sent) if kept != Some(&sent) => {
            let sent = Managers::parse(sent).filter(|sent| !sent.is_empty());
            sent.or_else(|| kept.cloned().map(Managers::read)).unwrap_or_default()
        }
        _ if changes.own().is_none_or(Comparison::is_empty) => return kept.cloned(),
        Some(kept) => Managers::read(kept),
        None => kept.cloned().map(Managers::read).unwrap_or_default(),
    };
    if managers.is_empty() && !is_tracked {
        return None;
    }
    // As upstream, replicas without owner have none after a scale, and the entry of a scale has no time.
    let is_scale = writer.subresource == "scale";
    if is_scale && !changes.own().is_some_and(|change| managers.own_any(&change.written)) {
        return kept.cloned();
    }
    update(&mut managers, changes, if is_scale { "" } else { writer.time });
    managers.cap_updaters();
    managers.encode()
}

/// `true` if two lists of managed fields differ only in times.
pub(crate) fn equal_ignoring_times(left: &Value, right: &Value) -> bool {
    let (Value::Array(left), Value::Array(right)) = (left, right) else { return false };
    let equal = |(left, right)| members_but(left, "time").eq(members_but(right, "time"));
    left.len() == right.len() && left.iter().zip(right).all(equal)
}

/// Records the changes of a writer: it owns the fields that it set; removed fields have no owner.
fn update(managers: &mut Managers, mut changes: Changes<'_>, time: &str) {
    managers.remove_from_others(None, &mut changes);
    let manager = changes.writer.as_manager(false);
    if let Some(Comparison { written, .. }) = changes.into_own().filter(|change| !change.written.is_empty()) {
        managers.add(manager, written, time);
    }
}

/// Validates a configuration: all fields must be known and list items must have distinct keys.
///
/// # Errors
///
/// 500, as upstream.
pub(crate) fn check(kind: &Kind, api_version: &str, config: &Value) -> Result<(), ApiStatus> {
    let topology = version_of(kind, api_version).map(|(topology, _)| topology);
    check_fields(topology, (api_version, kind.name()), config)
}

fn check_fields(
    topology: Option<Topology<'_>>,
    (api_version, kind): (&str, &str),
    config: &Value,
) -> Result<(), ApiStatus> {
    let Some(defect) = topology.and_then(|topology| validation_error(topology, config, "")) else {
        return Ok(());
    };
    let kind = group_version_kind(api_version, kind);
    let (namespace, name) =
        (str_at(config, &["metadata", "namespace"]), str_at(config, &["metadata", "name"]));
    Err(ApiStatus::new(
        StatusReason::Unknown,
        format!("failed to create typed patch object ({namespace}/{name}; {kind}): {defect}"),
    ))
}

/// Applies `config`, which is in the version of the writer, to `live`. The result has managed fields and must be decoded
/// and defaulted by the caller. A `live` object without UID does not exist yet.
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
    let Some((topology, _)) = version_of(writer.kind, writer.api_version()) else {
        return Err(ApiStatus::internal(format!("{} has no known type", writer.kind.resource)));
    };
    let mut live = live.clone();
    let mut managers = take_managed_fields(&mut live).map(Managers::read).unwrap_or_default();
    if managers.is_empty() && at(&live, &["metadata", "uid"]).is_some() {
        let nothing = empty(writer.kind);
        let first = Writer { manager: BEFORE_FIRST_APPLY, ..writer };
        update(&mut managers, Changes::new(&first, &nothing, &live), first.time);
    }
    let merge = Merge { topology, live: &live, config, writer: &writer };
    let (mut merged, managers) = match merge.run(managers.clone(), force) {
        Ok(done) => done,
        Err(conflicts) => match merge.without_last_applied(conflicts) {
            conflicts if conflicts.is_empty() => {
                merge.run(managers, true).map_err(|left| conflict_status(&left))?
            }
            conflicts => return Err(conflict_status(&conflicts)),
        },
    };
    // Keeps kubectl's last-applied annotation current, if the object has one.
    if writer.manager == "kubectl" && at(&merged, &LAST_APPLIED).is_some() {
        let mut note = config.clone();
        remove(&mut note, &LAST_APPLIED);
        put(&mut merged, &LAST_APPLIED, format!("{note}\n"));
    }
    if let Some(managed) = managers.encode() {
        put(&mut merged, MANAGED_FIELDS, managed);
    }
    Ok(merged)
}

/// Returns an object of the kind with only the fields that are always present.
pub(crate) fn empty(kind: &Kind) -> Cow<'static, Value> {
    /// Objects of the built-in kinds, by the index of the resource.
    static EMPTY: LazyLock<Vec<OnceLock<Value>>> =
        LazyLock::new(|| Resource::all().map(|_| OnceLock::new()).collect());
    let decoded = || {
        let nothing = json!({"apiVersion": kind.api_version(), "kind": kind.name()});
        match kind.custom {
            Some(_) => nothing,
            None => kind.decode(nothing.clone()).map_or(nothing, |decoded| decoded.object),
        }
    };
    match EMPTY.get(kind.resource.index()) {
        Some(known) => Cow::Borrowed(known.get_or_init(decoded)),
        None => Cow::Owned(decoded()),
    }
}

type Conflicts = Vec<(Manager, Set)>;

/// Merge of a configuration into a live object.
struct Merge<'a> {
    /// Topology in the version of the writer.
    topology: Topology<'a>,
    live: &'a Value,
    config: &'a Value,
    writer: &'a Writer<'a>,
}

impl Merge<'_> {
    /// The live object in the version of the writer.
    fn shown(&self) -> Cow<'_, Value> {
        match self.writer.served_version {
            Some(version) => Cow::Owned(version.convert_from_storage(self.live)),
            None => Cow::Borrowed(self.live),
        }
    }

    fn run(&self, mut managers: Managers, force: bool) -> Result<(Value, Managers), Conflicts> {
        let Self { topology, live, config, writer } = *self;
        let applier = writer.as_manager(true);
        let before = managers.fields(&applier).cloned();
        let mut wanted = field_set(topology, config);
        writer.filter(&mut wanted);
        let mut merged = merge(topology, &self.shown(), config);
        managers.replace(applier.clone(), wanted);
        if let Some(before) = before {
            // Fields that the manager no longer applies are removed unless other managers own them.
            let owned = managers.all_fields();
            let mut dropped = set::intersection(&field_set(topology, &merged), &before);
            set::subtract(&mut dropped, &owned);
            set::remove_parents(&mut dropped, &owned);
            remove_items(topology, &mut merged, &dropped);
        }
        if let Some(version) = writer.served_version {
            merged = version.convert_to_storage(&merged, writer.kind.api_version());
        }
        let mut changes = Changes::new(writer, live, &merged);
        if !force {
            let conflicts = managers.owners(&applier, &mut changes);
            if !conflicts.is_empty() {
                return Err(conflicts);
            }
        }
        managers.remove_from_others(Some(&applier), &mut changes);
        // Becoming a co-owner without changing the object does not update the time.
        if changes.own().is_some_and(|change| !change.is_empty()) {
            managers.set_time(&applier, writer.time);
        }
        Ok((merged, managers))
    }

    /// Returns the conflicts of kubectl that are not with its own client-side apply.
    ///
    /// Upstream counterpart: `lastAppliedManager`.
    fn without_last_applied(&self, mut conflicts: Conflicts) -> Conflicts {
        let note = at(self.live, &LAST_APPLIED).and_then(Value::as_str);
        let note = note.and_then(|note| serde_json::from_str::<Value>(note).ok());
        if let Some(note) = note.filter(|note| {
            self.writer.manager == "kubectl" && str_at(note, &["apiVersion"]) == self.writer.api_version()
        }) {
            let mut applied = field_set(self.topology, &note);
            let change = compare(self.topology, &note, &self.shown());
            set::subtract(&mut applied, &change.written);
            set::subtract(&mut applied, &change.removed);
            conflicts.iter_mut().for_each(|(_, fields)| set::subtract(fields, &applied));
            conflicts.retain(|(_, fields)| !fields.is_empty());
        }
        conflicts
    }
}

fn conflict_status(conflicts: &Conflicts) -> ApiStatus {
    let mut causes = Vec::new();
    let mut several = Vec::new();
    for (manager, fields) in conflicts {
        several.push(format!("conflicts with {manager}:"));
        for path in set::paths(fields) {
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

//! Accepted names of CustomResourceDefinitions.
//!
//! Upstream counterpart: `NamingConditionController` and `EstablishingController`.

use std::{collections::BTreeSet, sync::Arc};

use serde_json::{Value, json};

use crate::{
    Object,
    json::{at, list_at, set, set_condition, str_at},
};

/// Names that definitions of a group have accepted.
#[derive(Debug, Default)]
struct Taken<'a> {
    resources: BTreeSet<&'a str>,
    kinds: BTreeSet<&'a str>,
}

/// Returns the definition with accepted names and conditions, or `None` if they are up to date. `all` are all
/// definitions.
pub(super) fn with_accepted_names(definition: &Value, all: &[Arc<Object>], now: &str) -> Option<Value> {
    let group = str_at(definition, &["spec", "group"]);
    let mut taken = Taken::default();
    for other in all.iter().filter(|other| str_at(other.value(), &["spec", "group"]) == group) {
        let accepted = |field: &str| str_at(other.value(), &["status", "acceptedNames", field]);
        let short_names = list_at(other.value(), &["status", "acceptedNames", "shortNames"]);
        taken.resources.extend([accepted("plural"), accepted("singular")]);
        taken.resources.extend(short_names.iter().filter_map(Value::as_str));
        taken.kinds.extend([accepted("kind"), accepted("listKind")]);
    }

    let mut new = definition.clone();
    let conflict = accept(&mut new, definition, &taken);
    let condition = match &conflict {
        None => json!({"type": "NamesAccepted", "status": "True", "reason": "NoConflicts",
            "message": "no conflicts found"}),
        Some((reason, message)) => {
            json!({"type": "NamesAccepted", "status": "False", "reason": reason, "message": message})
        }
    };
    set_condition(&mut new, condition, now);
    if !super::is_established(definition) {
        let condition = if conflict.is_none() {
            json!({"type": "Established", "status": "True", "reason": "InitialNamesAccepted",
                "message": "the initial names have been accepted"})
        } else {
            json!({"type": "Established", "status": "False", "reason": "NotAccepted",
                "message": "not all names are accepted"})
        };
        set_condition(&mut new, condition, now);
    }
    (new != *definition).then_some(new)
}

/// Accepts the requested names that are not taken. Returns reason and message of the last conflict.
fn accept(new: &mut Value, definition: &Value, taken: &Taken<'_>) -> Option<(&'static str, String)> {
    let requested = |field: &str| at(definition, &["spec", "names", field]);
    let accepted = |field: &str| at(definition, &["status", "acceptedNames", field]);
    let in_use = |name: &str| format!("{name:?} is already in use");
    let mut conflict = None;
    let mut accept_name = |new: &mut Value, field: &str, used: &BTreeSet<&str>, reason: &'static str| {
        let name = requested(field).and_then(Value::as_str).unwrap_or_default();
        if accepted(field).and_then(Value::as_str) == Some(name) || !used.contains(name) {
            set(new, &["status", "acceptedNames", field], name);
        } else {
            conflict = Some((reason, in_use(name)));
        }
    };
    accept_name(new, "plural", &taken.resources, "PluralConflict");
    accept_name(new, "singular", &taken.resources, "SingularConflict");
    let mut short_conflict = None;
    let own: Vec<&str> = list_at(definition, &["status", "acceptedNames", "shortNames"])
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let short_names = list_at(definition, &["spec", "names", "shortNames"]);
    let conflicts: Vec<String> = short_names
        .iter()
        .filter_map(Value::as_str)
        .filter(|name| !own.contains(name) && taken.resources.contains(name))
        .map(in_use)
        .collect();
    match conflicts.as_slice() {
        [] => copy_list(new, "shortNames", short_names),
        [only] => short_conflict = Some(("ShortNamesConflict", only.clone())),
        several => short_conflict = Some(("ShortNamesConflict", format!("[{}]", several.join(", ")))),
    }
    accept_name(new, "kind", &taken.kinds, "KindConflict");
    accept_name(new, "listKind", &taken.kinds, "ListKindConflict");
    copy_list(new, "categories", list_at(definition, &["spec", "names", "categories"]));
    conflict.or(short_conflict)
}

fn copy_list(new: &mut Value, field: &str, list: &[Value]) {
    let path = ["status", "acceptedNames", field];
    if list.is_empty() {
        crate::json::remove(new, &path);
    } else {
        set(new, &path, list.to_vec());
    }
}

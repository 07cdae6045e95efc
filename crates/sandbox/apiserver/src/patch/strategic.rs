//! Strategic merge patch.
//!
//! As in a JSON merge patch, maps are merged and `null` removes a field. In addition, lists are merged by key, and
//! directives change the behaviour:
//!
//! | directive | effect |
//! |---|---|
//! | `$patch: replace` in a map | replaces the map by the rest of the patch |
//! | `$patch: delete` in a map | empties the map |
//! | `$patch: delete` in an element | removes the element with the same merge key |
//! | `$patch: replace` in an element | replaces the list by the other elements of the patch |
//! | `$setElementOrder/LIST` | orders the listed elements; the others keep their place |
//! | `$deleteFromPrimitiveList/LIST` | removes these scalars |
//! | `$retainKeys` in a map | removes all keys that are not listed |
//!
//! The result contains no directives.

use serde_json::{Map, Value};

use super::{
    PatchError,
    merge_keys::{Strategy, strategy},
};
use crate::{
    json::type_name,
    schema::{SCHEMA, Struct, Type},
};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const SET_ELEMENT_ORDER: &str = "$setElementOrder/";
const DELETE_FROM_PRIMITIVE_LIST: &str = "$deleteFromPrimitiveList/";

type Fields = Map<String, Value>;

/// Applies a strategic merge patch to `target`, an object of `kind`, and returns the result.
///
/// # Errors
///
/// 400 if directives are contradictory or the patch does not match the type of the object, 422 if it has lists of
/// lists.
///
/// ```
/// # use {kcm_apiserver::patch::strategic, serde_json::json};
/// let pod = json!({"spec": {"containers": [{"name": "a", "image": "x:1"}, {"name": "b", "image": "y:1"}]}});
/// let patch = json!({"spec": {"containers": [{"name": "b", "image": "y:2"}]}});
/// let patched = strategic(&pod, &patch, "Pod")?;
/// assert_eq!(patched["spec"]["containers"][1]["image"], "y:2");
/// assert_eq!(patched["spec"]["containers"][0]["image"], "x:1");
/// # Ok::<(), kcm_apiserver::patch::PatchError>(())
/// ```
pub fn strategic(target: &Value, patch: &Value, kind: &str) -> Result<Value, PatchError> {
    let (Value::Object(target), Value::Object(patch)) = (target, patch) else {
        let found = type_name(patch);
        return Err(PatchError::bad_request(format!(
            "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        )));
    };
    let version = target.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    let id = SCHEMA.kind(version, kind).or_else(|| SCHEMA.kind_in_any_version(kind));
    let shape = MapSchema(id.map(|id| SCHEMA.get(id)));
    merge_map(target.clone(), patch.clone(), shape).map(Value::Object)
}

/// Schema of a map: the type of its fields, unless its keys are free.
#[derive(Clone, Copy)]
struct MapSchema(Option<&'static Struct>);

impl MapSchema {
    fn of(ty: &Type) -> Self {
        match ty {
            Type::Struct(id) => Self(Some(SCHEMA.get(*id))),
            Type::List(element) | Type::Map(element) => Self::of(element),
            _ => Self(None),
        }
    }

    /// Returns the schema of the field `name` (for a list, of its elements) and its merge strategy.
    fn field(self, name: &str) -> (Self, Option<Strategy>) {
        let Some(within) = self.0 else { return (Self(None), None) };
        let shape = within.field(name).map_or(Self(None), |field| Self::of(&field.ty));
        (shape, strategy(&within.name, name))
    }
}

fn merge_map(mut original: Fields, mut patch: Fields, shape: MapSchema) -> Result<Fields, PatchError> {
    if let Some(directive) = patch.remove(DIRECTIVE) {
        return match directive.as_str() {
            Some("replace") => Ok(without_directives(patch)),
            Some("delete") => Ok(Fields::new()),
            _ => Err(unknown_directive(&directive, &patch)),
        };
    }
    if let Some(retained) = patch.remove(RETAIN_KEYS) {
        retain_keys(&mut original, &patch, &retained)?;
    }
    merge_ordered_lists(&mut original, &mut patch, shape)?;
    for (key, value) in patch {
        if let Some(list) = key.strip_prefix(DELETE_FROM_PRIMITIVE_LIST) {
            if let (Some(Value::Array(from)), Value::Array(gone)) = (original.get_mut(list), &value) {
                from.retain(|element| !gone.contains(element));
            }
            continue;
        }
        merge_field(&mut original, key, value, shape)?;
    }
    Ok(original)
}

fn merge_field(original: &mut Fields, key: String, value: Value, shape: MapSchema) -> Result<(), PatchError> {
    let (shape, strategy) = shape.field(&key);
    let merged = match (original.remove(&key), value) {
        (_, Value::Null) => None,
        (Some(Value::Object(_)), Value::Object(patch)) if strategy == Some(Strategy::Replace) => {
            Some(Value::Object(without_directives(patch)))
        }
        (Some(Value::Object(original)), Value::Object(patch)) => {
            Some(Value::Object(merge_map(original, patch, shape)?))
        }
        (Some(Value::Array(original)), Value::Array(patch)) => {
            Some(Value::Array(merge_list(original, patch, shape, strategy)?))
        }
        // The target has no value to merge with.
        (_, value) => kept(value),
    };
    if let Some(merged) = merged {
        original.insert(key, merged);
    }
    Ok(())
}

/// Applies `$retainKeys`.
fn retain_keys(original: &mut Fields, patch: &Fields, retained: &Value) -> Result<(), PatchError> {
    let invalid = || PatchError::bad_request("invalid patch format of retainKeys");
    let retained = retained.as_array().ok_or_else(invalid)?;
    let is_retained = |key: &str| retained.iter().any(|name| name.as_str() == Some(key));
    let is_consistent = patch
        .iter()
        .filter(|(key, value)| {
            !value.is_null()
                && !key.starts_with(DELETE_FROM_PRIMITIVE_LIST)
                && !key.starts_with(SET_ELEMENT_ORDER)
        })
        .all(|(key, _)| is_retained(key));
    if !is_consistent {
        return Err(invalid());
    }
    original.retain(|key, _| is_retained(key));
    Ok(())
}

/// Merges the lists with `$setElementOrder` and removes them from the patch.
fn merge_ordered_lists(
    original: &mut Fields,
    patch: &mut Fields,
    shape: MapSchema,
) -> Result<(), PatchError> {
    let ordered: Vec<String> =
        patch.keys().filter(|key| key.starts_with(SET_ELEMENT_ORDER)).cloned().collect();
    for directive in ordered {
        let name = directive.trim_start_matches(SET_ELEMENT_ORDER);
        let order = as_list(patch.remove(&directive).unwrap_or_default())?;
        let (shape, strategy) = shape.field(name);
        let changes = match patch.get(name) {
            // The list is removed, so its order is irrelevant.
            Some(Value::Null) => continue,
            Some(_) => patch.remove(name).map(as_list).transpose()?,
            None => None,
        };
        let before = original.remove(name).map(as_list).transpose()?;
        if let Some(changes) = &changes {
            check_element_order(&order, changes, strategy)?;
        }
        let merged = match (before.clone(), changes) {
            (Some(list), None) => list,
            (None, Some(changes)) => as_list(kept(Value::Array(changes)).unwrap_or_default())?,
            (Some(list), Some(changes)) => merge_list(list, changes, shape, strategy)?,
            (None, None) => continue,
        };
        let sorted = match strategy {
            Some(Strategy::MergeBy(_) | Strategy::Union) => {
                reorder(merged, &order, &before.unwrap_or_default(), strategy)?
            }
            _ => merged,
        };
        original.insert(name.to_owned(), Value::Array(sorted));
    }
    Ok(())
}

/// Checks that the order contains every changed or added element, in the order of the patch.
fn check_element_order(
    order: &[Value],
    changes: &[Value],
    strategy: Option<Strategy>,
) -> Result<(), PatchError> {
    if order.is_empty() || changes.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for change in changes.iter().filter(|change| change.get(DIRECTIVE).is_none()) {
        let key = identity(change, strategy)?;
        let mut found = false;
        for named in rest.by_ref() {
            if identity(named, strategy)? == key {
                found = true;
                break;
            }
        }
        if !found {
            let (order, changes) = (Value::from(order), Value::from(changes));
            let message = format!(
                "The order in patch list:\n{changes}\n doesn't match $setElementOrder list:\n{order}\n"
            );
            return Err(PatchError::bad_request(message));
        }
    }
    Ok(())
}

fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    shape: MapSchema,
    strategy: Option<Strategy>,
) -> Result<Vec<Value>, PatchError> {
    match strategy {
        Some(Strategy::MergeBy(_) | Strategy::Union) if original.is_empty() && patch.is_empty() => {
            Ok(original)
        }
        Some(Strategy::MergeBy(key)) => {
            check_element_types(&original, &patch)?;
            merge_objects(original, patch, shape, key)
        }
        Some(Strategy::Union) => {
            check_element_types(&original, &patch)?;
            let mut union: Vec<Value> = Vec::with_capacity(original.len() + patch.len());
            for element in original.iter().chain(&patch) {
                if !union.contains(element) {
                    union.push(element.clone());
                }
            }
            reorder(union, &patch, &original, strategy)
        }
        Some(Strategy::Replace) | None => Ok(patch.into_iter().filter_map(kept).collect()),
    }
}

fn merge_objects(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    shape: MapSchema,
    key: &'static str,
) -> Result<Vec<Value>, PatchError> {
    let strategy = Some(Strategy::MergeBy(key));
    let mut changes = Vec::with_capacity(patch.len());
    let mut replaces = false;
    for mut element in patch {
        let directive = element.as_object_mut().and_then(|fields| fields.remove(DIRECTIVE));
        match directive.as_ref().map(|directive| directive.as_str()) {
            None => changes.push(element),
            Some(Some("delete")) => {
                let gone = identity(&element, strategy)?.clone();
                original.retain(|element| element.get(key) != Some(&gone));
            }
            Some(Some("replace")) => replaces = true,
            Some(Some("merge")) => {
                return Err(PatchError::bad_request("merging lists cannot yet be specified in the patch"));
            }
            Some(_) => {
                let fields = element.as_object().cloned().unwrap_or_default();
                return Err(unknown_directive(&directive.unwrap_or_default(), &fields));
            }
        }
    }
    if replaces {
        return Ok(changes.into_iter().filter_map(kept).collect());
    }
    let (order, before) = (changes.clone(), original.clone());
    for change in changes {
        let same = identity(&change, strategy)?;
        let found = original.iter().position(|element| element.get(key) == Some(same));
        match (found.and_then(|index| original.get_mut(index)), change) {
            (Some(Value::Object(fields)), Value::Object(change)) => {
                *fields = merge_map(std::mem::take(fields), change, shape)?;
            }
            (_, change) => original.extend(kept(change)),
        }
    }
    reorder(original, &order, &before, strategy)
}

/// Sorts `merged` by the order in the patch. Elements that are not in the patch keep their place relative to their
/// neighbours in `before`.
fn reorder(
    merged: Vec<Value>,
    order: &[Value],
    before: &[Value],
    strategy: Option<Strategy>,
) -> Result<Vec<Value>, PatchError> {
    let wanted = positions(order, &merged, strategy)?;
    let known = positions(before, &merged, strategy)?;
    let mut named = Vec::with_capacity(merged.len());
    let mut others = Vec::with_capacity(merged.len());
    for ((element, wanted), known) in merged.into_iter().zip(wanted).zip(known) {
        match wanted {
            Some(wanted) => named.push((wanted, known, element)),
            None => others.push((known.unwrap_or(usize::MAX), known, element)),
        }
    }
    named.sort_by_key(|(position, ..)| *position);
    others.sort_by_key(|(position, ..)| *position);
    let mut sorted = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (_, named_known, element) in named {
        while let Some((.., other)) = others.next_if(|(_, other_known, _)| {
            matches!((other_known, named_known), (Some(other), Some(named)) if *other < named)
        }) {
            sorted.push(other);
        }
        sorted.push(element);
    }
    sorted.extend(others.map(|(.., element)| element));
    Ok(sorted)
}

/// Returns the position of each of `elements` in `order`.
fn positions(
    order: &[Value],
    elements: &[Value],
    strategy: Option<Strategy>,
) -> Result<Vec<Option<usize>>, PatchError> {
    let order: Vec<&Value> = order.iter().map(|named| identity(named, strategy)).collect::<Result<_, _>>()?;
    elements
        .iter()
        .map(|element| {
            let key = identity(element, strategy)?;
            Ok(order.iter().position(|named| *named == key))
        })
        .collect()
}

/// Returns the identity of an element: the value of its merge key, or the element.
fn identity(element: &Value, strategy: Option<Strategy>) -> Result<&Value, PatchError> {
    let Some(Strategy::MergeBy(key)) = strategy else { return Ok(element) };
    element.get(key).ok_or_else(|| {
        PatchError::bad_request(format!("map: {element} does not contain declared merge key: {key}"))
    })
}

/// Checks that the elements of a merged list are all objects, or all scalars of one type.
fn check_element_types(original: &[Value], patch: &[Value]) -> Result<(), PatchError> {
    let mut elements = original.iter().chain(patch);
    let Some(first) = elements.next() else { return Ok(()) };
    if first.is_array() {
        return Err(PatchError::unprocessable());
    }
    if elements.any(|element| std::mem::discriminant(element) != std::mem::discriminant(first)) {
        let (original, patch) = (Value::from(original), Value::from(patch));
        let message = format!("list element types are not identical: [{original} {patch}]");
        return Err(PatchError::bad_request(message));
    }
    Ok(())
}

fn as_list(value: Value) -> Result<Vec<Value>, PatchError> {
    match value {
        Value::Array(list) => Ok(list),
        _ => Err(PatchError::bad_request("invalid patch format of setElementOrder list")),
    }
}

fn unknown_directive(directive: &Value, within: &Fields) -> PatchError {
    let directive = directive.as_str().map_or_else(|| directive.to_string(), ToOwned::to_owned);
    let within = Value::Object(within.clone());
    PatchError::bad_request(format!("unknown patch type: {directive} in map: {within}"))
}

/// Removes nulls and directives from a part of a patch that has no counterpart in the target. Returns `None` for a map
/// that consists only of directives.
fn kept(value: Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Object(fields) if fields.contains_key(DIRECTIVE) => None,
        Value::Object(fields) => Some(Value::Object(without_directives(fields))),
        Value::Array(list) => Some(
            list.into_iter()
                .filter_map(|element| if element.is_null() { Some(element) } else { kept(element) })
                .collect(),
        ),
        scalar => Some(scalar),
    }
}

fn without_directives(fields: Fields) -> Fields {
    let is_directive = |key: &str| {
        key == DIRECTIVE
            || key == RETAIN_KEYS
            || key.starts_with(SET_ELEMENT_ORDER)
            || key.starts_with(DELETE_FROM_PRIMITIVE_LIST)
    };
    fields
        .into_iter()
        .filter(|(key, _)| !is_directive(key))
        .filter_map(|(key, value)| Some((key, kept(value)?)))
        .collect()
}

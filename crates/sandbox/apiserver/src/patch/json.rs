//! JSON patch (RFC 6902), with the rules of the library that upstream uses.
//!
//! | Case | Result |
//! |---|---|
//! | An object does not have the member | It equals null for `test` and `copy`. `replace` adds it |
//! | The operation has no `value` | null |
//! | Index of a list is negative | It counts from the end; for `add`, from the position after the last element |
//! | The path does not begin with `/` | The text before the first `/` is skipped |
//! | The path is empty | `test` and `replace` apply to the whole document, others fail |
//!
//! DEVIATION: `test` compares values. Upstream compares texts of numbers and strings, so that `1.50` does not equal `1.5`, and
//! `"<"`, which Go escapes, does not equal itself.
//!
//! Upstream counterpart: `gopkg.in/evanphx/json-patch.v4`, `patch.go`.

use serde_json::Value;

use super::PatchError;
use crate::json::{estimated_len, type_name};

/// Maximum number of operations of a JSON patch.
const MAX_OPERATIONS: usize = 10_000;

/// Maximum total size in bytes of the values copied by the `copy` operations of a JSON patch. Equals the limit of a
/// request's body, as upstream (`jsonpatch.AccumulatedCopySizeLimit`).
const MAX_COPIED: usize = 3 << 20;

/// Maximum depth of a value after an operation of a JSON patch. Equals the limit of serde_json, and so of a request's body.
/// Values are dropped and written by recursion.
const MAX_DEPTH: usize = 128;

/// An operation. A member that is absent or null is `None`.
struct Operation<'a> {
    op: Option<&'a str>,
    path: Option<&'a str>,
    from: Option<&'a str>,
    value: &'a Value,
}

/// Applies a JSON patch to `target` and returns the result.
///
/// # Errors
///
/// 400 if the patch is malformed, 413 if it has more than 10,000 operations, 422 if an operation fails, the operations
/// copy more than 3 MiB in total, or values are nested more than 128 levels deep.
pub fn json_patch(target: &Value, patch: &Value) -> Result<Value, PatchError> {
    let operations = match patch {
        Value::Null => &Vec::new(),
        Value::Array(operations) => operations,
        other => return Err(mismatch(other, "value of type []handlers.jsonPatchOp")),
    };
    let count = operations.len();
    let operations = operations.iter().map(Operation::read).collect::<Result<Vec<_>, _>>()?;
    if count > MAX_OPERATIONS {
        return Err(PatchError {
            code: 413,
            reason: "RequestEntityTooLarge",
            message: format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got \
                 {count}"
            ),
        });
    }
    let (mut patched, mut copied) = (target.clone(), 0);
    for operation in &operations {
        // Operations before a failed one need no rollback: `patched` is dropped.
        operation.apply(&mut patched, &mut copied).ok_or_else(PatchError::unprocessable)?;
    }
    Ok(patched)
}

fn mismatch(value: &Value, expected: &str) -> PatchError {
    let found = type_name(value);
    PatchError::bad_request(format!(
        "error decoding patch: json: cannot unmarshal {found} into Go {expected}"
    ))
}

impl<'a> Operation<'a> {
    fn read(operation: &'a Value) -> Result<Self, PatchError> {
        if !operation.is_object() && !operation.is_null() {
            return Err(mismatch(operation, "value of type handlers.jsonPatchOp"));
        }
        let text = |name: &str| match operation.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.as_str())),
            Some(other) => Err(mismatch(other, &format!("struct field jsonPatchOp.{name} of type string"))),
        };
        let value = operation.get("value").unwrap_or(&Value::Null);
        Ok(Self { op: text("op")?, path: text("path")?, from: text("from")?, value })
    }

    /// Applies the operation. Returns `None` if it fails. `copied` is the size of the values copied so far.
    fn apply(&self, document: &mut Value, copied: &mut usize) -> Option<()> {
        let path = self.path?;
        match self.op? {
            "test" => {
                let found = if path.is_empty() { document } else { Place::find(document, path)?.get()? };
                (found == self.value).then_some(())
            }
            "replace" if path.is_empty() => {
                *document = Some(self.value).filter(|value| value.is_object() || value.is_array())?.clone();
                Some(())
            }
            "replace" => match Place::find(document, path)? {
                Place::Element(list, index) => {
                    let index = position(&index, list.len())?;
                    *list.get_mut(index)? = within_depth(path, self.value.clone())?;
                    Some(())
                }
                member @ Place::Member(..) => member.add(within_depth(path, self.value.clone())?),
            },
            "add" => Place::find(document, path)?.add(within_depth(path, self.value.clone())?),
            "remove" => Place::find(document, path)?.remove().map(drop),
            "move" => {
                let value = Place::find(document, self.from?)?.remove()?;
                Place::find(document, path)?.add(within_depth(path, value)?)
            }
            "copy" => {
                let value = Place::find(document, self.from?)?.get()?.clone();
                *copied += estimated_len(&value);
                Place::find(document, path)?
                    .add(within_depth(path, value)?)
                    .filter(|()| *copied <= MAX_COPIED)
            }
            _ => None,
        }
    }
}

/// End of a path in its parent, which exists.
enum Place<'a> {
    Member(&'a mut serde_json::Map<String, Value>, String),
    Element(&'a mut Vec<Value>, String),
}

impl<'a> Place<'a> {
    fn find(document: &'a mut Value, path: &str) -> Option<Self> {
        let (parents, last) = path.rsplit_once('/')?;
        let mut parent = document;
        for step in parents.split('/').skip(1) {
            parent = match parent {
                Value::Object(members) => members.get_mut(&unescape(step))?,
                Value::Array(list) => {
                    let index = position(step, list.len())?;
                    list.get_mut(index)?
                }
                _ => return None,
            };
        }
        match parent {
            Value::Object(members) => Some(Self::Member(members, unescape(last))),
            Value::Array(list) => Some(Self::Element(list, unescape(last))),
            _ => None,
        }
    }

    /// The value. An absent member is null.
    fn get(self) -> Option<&'a Value> {
        match self {
            Self::Member(members, name) => Some(members.get(&name).unwrap_or(&Value::Null)),
            Self::Element(list, index) => list.get(position(&index, list.len())?),
        }
    }

    fn add(self, value: Value) -> Option<()> {
        match self {
            Self::Member(members, name) => drop(members.insert(name, value)),
            Self::Element(list, index) if index == "-" => list.push(value),
            // The new element may follow the last one.
            Self::Element(list, index) => list.insert(position(&index, list.len() + 1)?, value),
        }
        Some(())
    }

    fn remove(self) -> Option<Value> {
        match self {
            Self::Member(members, name) => members.remove(&name),
            Self::Element(list, index) => Some(list.remove(position(&index, list.len())?)),
        }
    }
}

/// Parses an index of `length` positions. A negative index counts from the end.
fn position(index: &str, length: usize) -> Option<usize> {
    let index: i64 = index.parse().ok()?;
    let length = i64::try_from(length).ok()?;
    let position = if index < 0 { index + length } else { index };
    usize::try_from(position).ok().filter(|_| position < length)
}

fn unescape(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

/// Returns `value`, unless it would be nested too deeply at `path`.
fn within_depth(path: &str, value: Value) -> Option<Value> {
    let depth = path.bytes().filter(|byte| *byte == b'/').count() + depth(&value);
    (depth <= MAX_DEPTH).then_some(value)
}

/// Returns the nesting depth of arrays and objects in `value`.
fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

//! Operators.

use std::{cmp::Ordering, sync::Arc};

use kube_cel::cel::{ExecutionError, Value, common::ast::operators, objects::KeyRef};

use super::{
    eval::{EvalError, Outcome},
    value::{KeyedList, items},
};

pub(super) fn no_such_overload() -> EvalError {
    EvalError("no such overload".to_owned())
}

/// Converts an error of a function or an operator of the crate.
pub(super) fn converted(error: ExecutionError) -> EvalError {
    EvalError(match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::FunctionError { message, .. } => message,
        _ => return no_such_overload(),
    })
}

/// `==`. Values of different types are not equal, except numbers. The left list decides if the order of items matters, as
/// upstream.
pub(super) fn equal(left: &Value, right: &Value) -> bool {
    match (KeyedList::of(left), items(left)) {
        (Some(left), _) => items(right).is_some_and(|right| left.equals(right)),
        (None, Some(left)) => items(right).is_some_and(|right| left == right),
        (None, None) => left == right,
    }
}

/// Order of two values, if they have one.
pub(super) fn compare(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        (Value::Bytes(left), Value::Bytes(right)) => Some(left.cmp(right)),
        (Value::Null, Value::Null) => None,
        _ => left.partial_cmp(right),
    }
}

pub(super) fn add(left: Value, right: Value) -> Outcome {
    if let Some(keyed) = KeyedList::of(&left) {
        return Ok(keyed.merged(items(&right).ok_or_else(no_such_overload)?));
    }
    match (left, right) {
        (Value::Bytes(left), Value::Bytes(right)) => {
            Ok(Value::Bytes(Arc::new(left.iter().chain(right.iter()).copied().collect())))
        }
        (left, right) => {
            let right =
                items(&right).filter(|_| KeyedList::of(&right).is_some()).cloned().map_or(right, Value::List);
            (left + right).map_err(converted)
        }
    }
}

pub(super) fn arithmetic(name: &str, left: Value, right: Value) -> Outcome {
    let result = match name {
        operators::SUBSTRACT => left - right,
        operators::MULTIPLY => left * right,
        operators::DIVIDE => left / right,
        _ => left % right,
    };
    result.map_err(converted)
}

pub(super) fn negate(value: &Value) -> Outcome {
    match *value {
        Value::Int(value) => {
            value.checked_neg().map(Value::Int).ok_or_else(|| EvalError("integer overflow".to_owned()))
        }
        Value::Float(value) => Ok(Value::Float(-value)),
        Value::Duration(value) => Ok(Value::Duration(-value)),
        _ => Err(no_such_overload()),
    }
}

/// Element of a list or a map.
///
/// # Errors
///
/// The outer error is of the types, the inner one of a missing element.
pub(super) fn index(value: &Value, key: &Value) -> Result<Outcome, EvalError> {
    if let Value::Map(map) = value {
        let found = KeyRef::try_from(key).map_err(|_| no_such_overload())?;
        let absent = || EvalError(format!("no such key: {}", super::functions::text_of(key)));
        return Ok(map.get(&found).cloned().ok_or_else(absent));
    }
    let items = items(value).ok_or_else(no_such_overload)?;
    let position = match key {
        Value::Int(position) => *position,
        Value::UInt(position) => i64::try_from(*position).unwrap_or(i64::MAX),
        #[expect(clippy::cast_possible_truncation, reason = "the number is integral")]
        Value::Float(position) if position.fract() == 0.0 => *position as i64,
        _ => return Err(no_such_overload()),
    };
    let found = usize::try_from(position).ok().and_then(|position| items.get(position));
    Ok(found.cloned().ok_or_else(|| EvalError(format!("index out of bounds: {position}"))))
}

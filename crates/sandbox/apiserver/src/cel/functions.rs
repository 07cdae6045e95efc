//! Functions.
//!
//! The functions of CEL itself, of regular expressions and of URLs are here. Those of Kubernetes' other libraries are called
//! in `kube-cel`.
//!
//! Upstream counterpart: `cel-go/common/stdlib` and `apiserver/pkg/cel/library`.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use chrono::{DateTime, Datelike, FixedOffset, Timelike};
use kcm_api::GoDuration;
use kube_cel::{
    KubeCelExt,
    cel::{
        Context, ExecutionError, Value,
        common::ast::{CallExpr, Expr, IdedExpr},
        objects::{Key, Opaque, OptionalValue},
    },
};
use parking_lot::Mutex;
use regex::Regex;

use super::{
    as_text,
    eval::{EvalError, Evaluation, Outcome, Scope, as_optional, none, some},
    operators::{converted, equal, no_such_overload},
    urls,
    value::{KeyedList, items, length, plain},
};
use crate::go_regex;

/// Functions of `kube-cel`.
static LIBRARIES: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());

/// Maximum number of regular expressions that are kept compiled, and the maximum length of each in bytes.
const PATTERNS: usize = 256;
const PATTERN_LENGTH: usize = 1_000;

static REGEXES: LazyLock<Mutex<HashMap<String, Regex>>> = LazyLock::new(Mutex::default);

/// A type as a value.
#[derive(Debug, PartialEq, Eq)]
struct TypeValue(&'static str);

impl Opaque for TypeValue {
    fn runtime_type_name(&self) -> &'static str {
        "type"
    }
}

/// Returns the type with this name as a value.
pub(super) fn type_named(name: &str) -> Option<Value> {
    let types =
        ["bool", "bytes", "double", "dyn", "int", "list", "map", "null_type", "string", "type", "uint"];
    let found = types.into_iter().find(|known| *known == name)?;
    Some(Value::Opaque(Arc::new(TypeValue(found))))
}

fn type_of(value: &Value) -> Value {
    let name = match value {
        Value::List(_) => "list",
        Value::Map(_) => "map",
        Value::Int(_) => "int",
        Value::UInt(_) => "uint",
        Value::Float(_) => "double",
        Value::String(_) | Value::Function(..) => "string",
        Value::Bytes(_) => "bytes",
        Value::Bool(_) => "bool",
        Value::Duration(_) => "google.protobuf.Duration",
        Value::Timestamp(_) => "google.protobuf.Timestamp",
        Value::Null => "null_type",
        Value::Opaque(_) if KeyedList::of(value).is_some() => "list",
        Value::Opaque(opaque) if opaque.downcast_ref::<TypeValue>().is_some() => "type",
        Value::Opaque(opaque) if opaque.downcast_ref::<OptionalValue>().is_some() => "optional_type",
        Value::Opaque(_) => "object",
    };
    Value::Opaque(Arc::new(TypeValue(name)))
}

/// `true` for names that qualify functions.
pub(super) fn is_namespace(name: &str) -> bool {
    matches!(name, "optional" | "sets" | "format" | "ip" | "cidr" | "jsonpatch" | "lists" | "strings")
}

/// Number of elements of a list or map, of characters or of bytes.
pub(super) fn size(value: &Value) -> Option<usize> {
    Some(match value {
        Value::Map(map) => map.map.len(),
        Value::String(text) if text.is_ascii() => text.len(),
        Value::String(text) => text.chars().count(),
        Value::Bytes(bytes) => bytes.len(),
        list => items(list)?.len(),
    })
}

/// Items of a list, or keys of a map in their order.
pub(super) fn iterate(value: &Value) -> Option<Vec<Value>> {
    match value {
        Value::Map(map) => {
            let mut keys: Vec<&Key> = map.map.keys().filter(|key| !is_hidden(key)).collect();
            keys.sort();
            Some(keys.into_iter().map(Value::from).collect())
        }
        list => items(list).map(|items| Vec::clone(items)),
    }
}

fn is_hidden(key: &Key) -> bool {
    matches!(key, Key::String(name) if name.starts_with('\0'))
}

/// Pairs of index and item, or of key and value.
pub(super) fn pairs(value: &Value) -> Option<Vec<(Value, Value)>> {
    let keys = iterate(value)?;
    Some(match value {
        Value::Map(map) => keys
            .into_iter()
            .filter_map(|key| {
                let found: Key = key.clone().try_into().ok()?;
                Some((key, map.get(&found)?.clone()))
            })
            .collect(),
        _ => (0..).map(Value::Int).zip(keys).collect(),
    })
}

pub(super) fn parse_timestamp(text: &str) -> Option<DateTime<FixedOffset>> {
    let separated = text.as_bytes().get(10).is_some_and(|byte| matches!(byte, b'T' | b't'));
    DateTime::parse_from_rfc3339(text).ok().filter(|_| separated)
}

pub(super) fn parse_duration(text: &str) -> Result<chrono::Duration, String> {
    GoDuration::parse(text)
        .map(|duration| chrono::Duration::nanoseconds(duration.nanos()))
        .map_err(|error| error.to_string())
}

/// A number as Go's `strconv.FormatFloat(number, 'g', -1, 64)`.
fn double_text(number: f64) -> String {
    if number.is_nan() {
        return "NaN".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let text = format!("{number:e}");
    let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if number != 0.0 && !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    format!("{number}")
}

/// A value as text, as `string()` converts it.
pub(super) fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => String::clone(text),
        Value::Int(number) => number.to_string(),
        Value::UInt(number) => number.to_string(),
        Value::Bool(value) => value.to_string(),
        Value::Float(number) => double_text(*number),
        Value::Timestamp(time) => time.to_utc().to_rfc3339_opts(chrono::SecondsFormat::AutoSi, true),
        Value::Duration(duration) => {
            let nanoseconds = duration.num_nanoseconds().unwrap_or(i64::MAX);
            #[expect(clippy::cast_precision_loss, reason = "as upstream")]
            let seconds = nanoseconds as f64 / 1e9;
            format!("{seconds}s")
        }
        _ => String::new(),
    }
}

fn regex<T>(pattern: &str, with: impl FnOnce(&Regex) -> T) -> Result<T, EvalError> {
    let known = REGEXES.lock().get(pattern).cloned();
    let regex = match known {
        Some(known) => known,
        None => {
            let compiled = go_regex::compile(pattern).map_err(|error| EvalError(error.to_string()))?;
            if pattern.len() <= PATTERN_LENGTH {
                let mut regexes = REGEXES.lock();
                if regexes.len() >= PATTERNS {
                    regexes.clear();
                }
                regexes.insert(pattern.to_owned(), compiled.clone());
            }
            compiled
        }
    };
    Ok(with(&regex))
}

/// Calls a function or a macro that the parser does not expand.
pub(super) fn call(evaluation: &Evaluation<'_>, call: &CallExpr, scope: Option<&Scope<'_>>) -> Outcome {
    let name = call.func_name.as_str();
    let target = match call.target.as_deref() {
        None => None,
        Some(IdedExpr { expr: Expr::Ident(namespace), .. }) if evaluation.is_namespace(namespace, scope) => {
            return global(evaluation, &format!("{namespace}.{name}"), evaluation.arguments(call, scope)?);
        }
        Some(target) => Some(evaluation.eval(target, scope)?),
    };
    let Some(target) = target else { return global(evaluation, name, evaluation.arguments(call, scope)?) };
    if let Some(outcome) = evaluation.expand(name, &target, &call.args, scope) {
        return outcome;
    }
    let arguments = evaluation.arguments(call, scope)?;
    evaluation.charge(steps_of(evaluation, name, Some(&target), &arguments) / 10)?;
    method(name, target, arguments)
}

fn global(evaluation: &Evaluation<'_>, name: &str, arguments: Vec<Value>) -> Outcome {
    evaluation.charge(steps_of(evaluation, name, None, &arguments) / 10)?;
    qualified(name, arguments)
}

/// Number of elements and bytes that a function reads, or that its result has if it may be larger.
fn steps_of(evaluation: &Evaluation<'_>, name: &str, target: Option<&Value>, arguments: &[Value]) -> usize {
    let operands = || target.into_iter().chain(arguments);
    let sum = |sizes: &mut dyn Iterator<Item = usize>| sizes.fold(0, usize::saturating_add);
    let longest = || operands().map(length).max().unwrap_or_default();
    let weight = || sum(&mut operands().map(|operand| evaluation.weigh(operand)));
    match (name, arguments) {
        (
            "hasValue"
            | "value"
            | "or"
            | "orValue"
            | "first"
            | "last"
            | "type"
            | "dyn"
            | "optional.of"
            | "optional.none"
            | "optional.ofNonZeroValue",
            _,
        ) => 0,
        ("size" | "slice", _) => sum(&mut operands().map(length)),
        ("lists.range", [Value::Int(count)]) => usize::try_from(*count).unwrap_or_default(),
        ("replace", _) => {
            let of_target = target.map_or(0, length);
            sum(&mut arguments.iter().map(length)).saturating_add(1).saturating_mul(of_target + 1)
        }
        ("join", _) => {
            let separators = target.map_or(0, length).saturating_mul(arguments.first().map_or(0, length));
            weight().saturating_add(separators)
        }
        ("format", _) => {
            let precisions = target.and_then(as_text).map_or(0, |text| text.matches("%.").count());
            weight().saturating_add(precisions * MAX_COUNT)
        }
        ("distinct" | "sets.contains" | "sets.equivalent" | "sets.intersects", _) => {
            weight().saturating_mul(longest())
        }
        _ => weight(),
    }
}

/// Maximum length of a range of numbers, and precision of a format.
const MAX_COUNT: usize = 10_000;

/// Requires the counts in the arguments of functions to be small.
fn check_counts(name: &str, target: Option<&Value>, arguments: &[Value]) -> Result<(), EvalError> {
    let is_large = match (name, target, arguments) {
        ("lists.range", _, [Value::Int(count)]) => {
            usize::try_from(*count).is_ok_and(|count| count > MAX_COUNT)
        }
        ("format", Some(Value::String(text)), _) => text.split("%.").skip(1).any(|rest| {
            let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest[..digits].parse::<usize>().is_ok_and(|precision| precision > MAX_COUNT) || digits > 5
        }),
        _ => false,
    };
    if is_large { Err(EvalError(super::eval::OUT_OF_BUDGET.to_owned())) } else { Ok(()) }
}

impl Evaluation<'_> {
    fn arguments(&self, call: &CallExpr, scope: Option<&Scope<'_>>) -> Result<Vec<Value>, EvalError> {
        call.args.iter().map(|argument| self.eval(argument, scope)).collect()
    }
}

/// Calls a function without target.
fn qualified(name: &str, mut arguments: Vec<Value>) -> Outcome {
    match (name, arguments.as_slice()) {
        ("optional.none", []) => Ok(none()),
        ("optional.of", [value]) => Ok(some(value.clone())),
        ("optional.ofNonZeroValue", [value]) => {
            let is_zero = items(value).map_or_else(|| value.is_zero(), |items| items.is_empty());
            Ok(if is_zero { none() } else { some(value.clone()) })
        }
        ("type", [value]) => Ok(type_of(value)),
        ("dyn", [value]) => Ok(value.clone()),
        ("url", [Value::String(text)]) => urls::parse(text).map_err(EvalError),
        ("isURL", [Value::String(text)]) => Ok(Value::Bool(urls::parse(text).is_ok())),
        ("int" | "uint" | "double" | "string" | "bool" | "bytes" | "timestamp" | "duration", [_]) => {
            convert(name, arguments.remove(0))
        }
        ("size" | "matches", [_, ..]) => {
            let target = arguments.remove(0);
            method(name, target, arguments)
        }
        _ => library(name, None, arguments),
    }
}

/// Converts a value to a type.
fn convert(name: &str, value: Value) -> Outcome {
    let error = |message: &str| EvalError(message.to_owned());
    let overflow = || error("integer overflow");
    let unparsable = || {
        let ty = match name {
            "duration" => "google.protobuf.Duration",
            "timestamp" => "google.protobuf.Timestamp",
            name => name,
        };
        EvalError(format!("type conversion error from 'string' to '{ty}'"))
    };
    match (name, value) {
        ("int", Value::Float(number))
            if number > -9.223_372_036_854_775e18 && number < 9.223_372_036_854_775e18 =>
        {
            #[expect(clippy::cast_possible_truncation, reason = "in range")]
            Ok(Value::Int(number as i64))
        }
        ("int" | "uint", Value::Float(number)) => {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in range")]
            let converted = (name == "uint" && (0.0..1.844_674_407_370_955_1e19).contains(&number))
                .then_some(Value::UInt(number as u64));
            converted.ok_or_else(overflow)
        }
        ("int", value @ Value::Int(_))
        | ("uint", value @ Value::UInt(_))
        | ("double", value @ Value::Float(_))
        | ("string", value @ Value::String(_))
        | ("bool", value @ Value::Bool(_))
        | ("bytes", value @ Value::Bytes(_))
        | ("timestamp", value @ Value::Timestamp(_))
        | ("duration", value @ Value::Duration(_)) => Ok(value),
        ("int", Value::UInt(number)) => i64::try_from(number).map(Value::Int).map_err(|_| overflow()),
        ("int", Value::Timestamp(time)) => Ok(Value::Int(time.timestamp())),
        ("int", Value::String(text)) => text.parse().map(Value::Int).map_err(|_| unparsable()),
        ("uint", Value::Int(number)) => u64::try_from(number).map(Value::UInt).map_err(|_| overflow()),
        ("uint", Value::String(text)) => text.parse().map(Value::UInt).map_err(|_| unparsable()),
        #[expect(clippy::cast_precision_loss, reason = "as upstream")]
        ("double", Value::Int(number)) => Ok(Value::Float(number as f64)),
        #[expect(clippy::cast_precision_loss, reason = "as upstream")]
        ("double", Value::UInt(number)) => Ok(Value::Float(number as f64)),
        ("double", Value::String(text)) => text.parse().map(Value::Float).map_err(|_| unparsable()),
        ("bool", Value::String(text)) => match text.as_str() {
            "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(Value::Bool(true)),
            "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(Value::Bool(false)),
            _ => Err(unparsable()),
        },
        ("bytes", Value::String(text)) => Ok(Value::from(text.as_bytes().to_vec())),
        ("string", Value::Bytes(bytes)) => match std::str::from_utf8(&bytes) {
            Ok(text) => Ok(Value::from(text)),
            Err(_) => Err(error("invalid UTF-8 in bytes, cannot convert to string")),
        },
        ("string", value @ Value::Opaque(_)) => library("string", Some(value), Vec::new()),
        (
            "string",
            value @ (Value::Int(_)
            | Value::UInt(_)
            | Value::Float(_)
            | Value::Bool(_)
            | Value::Timestamp(_)
            | Value::Duration(_)),
        ) => Ok(Value::from(text_of(&value))),
        ("timestamp", Value::String(text)) => {
            parse_timestamp(&text).map(Value::Timestamp).ok_or_else(unparsable)
        }
        ("timestamp", Value::Int(seconds)) => {
            let time = DateTime::from_timestamp(seconds, 0).ok_or_else(overflow)?;
            Ok(Value::Timestamp(time.fixed_offset()))
        }
        ("duration", Value::String(text)) => {
            parse_duration(&text).map(Value::Duration).map_err(|_| unparsable())
        }
        _ => Err(no_such_overload()),
    }
}

/// Calls a function with a target.
fn method(name: &str, target: Value, arguments: Vec<Value>) -> Outcome {
    let int = |number: usize| Ok(Value::Int(i64::try_from(number).unwrap_or(i64::MAX)));
    match (name, &target, arguments.as_slice()) {
        ("size", value, []) => size(value).map_or_else(|| Err(no_such_overload()), int),
        ("contains", Value::String(text), [Value::String(part)]) => {
            Ok(Value::Bool(text.contains(part.as_str())))
        }
        ("startsWith", Value::String(text), [Value::String(part)]) => {
            Ok(Value::Bool(text.starts_with(part.as_str())))
        }
        ("endsWith", Value::String(text), [Value::String(part)]) => {
            Ok(Value::Bool(text.ends_with(part.as_str())))
        }
        ("contains" | "startsWith" | "endsWith", ..) => Err(no_such_overload()),
        ("matches", Value::String(text), [Value::String(pattern)]) => {
            regex(pattern, |regex| Value::Bool(regex.is_match(text)))
        }
        ("find", Value::String(text), [Value::String(pattern)]) => {
            regex(pattern, |regex| Value::from(regex.find(text).map_or("", |found| found.as_str())))
        }
        ("findAll", Value::String(text), [Value::String(pattern), limit @ ..]) => {
            let limit = match limit {
                [] => usize::MAX,
                [Value::Int(limit)] => usize::try_from(*limit).unwrap_or(usize::MAX),
                _ => return Err(no_such_overload()),
            };
            regex(pattern, |regex| {
                let found = regex.find_iter(text).take(limit).map(|found| Value::from(found.as_str()));
                Value::List(Arc::new(found.collect()))
            })
        }
        ("hasValue" | "value" | "or" | "orValue", ..) => {
            optional(name, as_optional(&target).ok_or_else(no_such_overload)?, &arguments)
        }
        ("distinct", list, []) if items(list).is_some() => {
            let mut found: Vec<Value> = Vec::new();
            for item in items(list).into_iter().flat_map(|items| items.iter()) {
                if !found.iter().any(|known| equal(known, item)) {
                    found.push(item.clone());
                }
            }
            Ok(Value::List(Arc::new(found)))
        }
        (_, Value::Timestamp(time), zone) if name.starts_with("get") => part_of_time(name, time, zone),
        (_, Value::Duration(duration), []) if name.starts_with("get") => {
            let milliseconds = duration.num_milliseconds();
            Ok(Value::Int(match name {
                "getHours" => duration.num_hours(),
                "getMinutes" => duration.num_minutes(),
                "getSeconds" => duration.num_seconds(),
                "getMilliseconds" => milliseconds % 1000,
                _ => return Err(no_such_overload()),
            }))
        }
        (_, Value::Opaque(_), []) if name.starts_with("get") => {
            urls::part(name, &target).ok_or_else(no_such_overload)
        }
        _ => library(name, Some(target), arguments),
    }
}

fn optional(name: &str, content: Option<&Value>, arguments: &[Value]) -> Outcome {
    match (name, content, arguments) {
        ("hasValue", content, []) => Ok(Value::Bool(content.is_some())),
        ("value", Some(content), []) | ("orValue", Some(content), [_]) => Ok(content.clone()),
        ("value", None, []) => Err(EvalError("optional.none() dereference".to_owned())),
        ("or", Some(content), [_]) => Ok(some(content.clone())),
        ("or" | "orValue", None, [other]) => Ok(other.clone()),
        _ => Err(no_such_overload()),
    }
}

/// Part of a time in UTC, or in a zone that is an offset such as `+02:00`.
fn part_of_time(name: &str, time: &DateTime<FixedOffset>, zone: &[Value]) -> Outcome {
    let offset = match zone {
        [] => Some(0),
        [Value::String(zone)] => offset_of(zone),
        _ => return Err(no_such_overload()),
    };
    let zone = offset.and_then(FixedOffset::east_opt);
    let time = time.with_timezone(&zone.ok_or_else(|| EvalError("unknown time zone".to_owned()))?);
    let number = match name {
        "getFullYear" => return Ok(Value::Int(i64::from(time.year()))),
        "getMonth" => time.month0(),
        "getDayOfYear" => time.ordinal0(),
        "getDayOfMonth" => time.day0(),
        "getDate" => time.day(),
        "getDayOfWeek" => time.weekday().num_days_from_sunday(),
        "getHours" => time.hour(),
        "getMinutes" => time.minute(),
        "getSeconds" => time.second(),
        "getMilliseconds" => time.timestamp_subsec_millis(),
        _ => return Err(no_such_overload()),
    };
    Ok(Value::Int(i64::from(number)))
}

fn offset_of(zone: &str) -> Option<i32> {
    if matches!(zone, "" | "UTC" | "Z") {
        return Some(0);
    }
    let (sign, rest) = match zone.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, zone.strip_prefix('+').unwrap_or(zone)),
    };
    let (hours, minutes) = rest.split_once(':')?;
    // Larger numbers are refused here, as the sum would overflow.
    let (hours, minutes): (u8, u8) = (hours.parse().ok()?, minutes.parse().ok()?);
    Some(sign * (i32::from(hours) * 3600 + i32::from(minutes) * 60))
}

/// Calls a function of `kube-cel`.
fn library(name: &str, target: Option<Value>, arguments: Vec<Value>) -> Outcome {
    check_counts(name, target.as_ref(), &arguments)?;
    let mut scope = LIBRARIES.new_inner_scope();
    let mut variable = |name: String, value: Value| {
        scope.add_variable_from_value(name.clone(), plain(value));
        IdedExpr { id: 0, expr: Expr::Ident(name) }
    };
    let target = target.map(|value| Box::new(variable("target".to_owned(), value)));
    let args = arguments.into_iter().enumerate();
    let args = args.map(|(index, value)| variable(format!("argument{index}"), value)).collect();
    let call = CallExpr { func_name: name.to_owned(), target, args };
    let call = IdedExpr { id: 0, expr: Expr::Call(call) };
    // Functions of the crate may panic, as on numbers that overflow. They keep no state.
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| scope.resolve(&call)));
    result.unwrap_or_else(|_| Err(ExecutionError::NoSuchOverload)).map_err(converted)
}

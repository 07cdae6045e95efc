//! Access to members of JSON objects.

use std::str::FromStr;

use kcm_api::{Time, quantity::Quantity};
use kcm_clock::Timestamp;
use serde_json::Value;

/// Text at `pointer`, or `""`.
pub fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Number at `pointer`.
pub fn number(value: &Value, pointer: &str) -> Option<i64> {
    value.pointer(pointer).and_then(Value::as_i64)
}

/// List at `pointer`, or an empty one.
pub fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// Members of the object at `pointer`.
pub fn members<'a>(
    value: &'a Value,
    pointer: &str,
) -> impl Iterator<Item = (&'a String, &'a Value)> + use<'a> {
    value.pointer(pointer).and_then(Value::as_object).into_iter().flatten()
}

/// Time at `pointer`.
pub fn time(value: &Value, pointer: &str) -> Option<Timestamp> {
    Time::from_str(text(value, pointer)).ok().map(Time::timestamp)
}

/// Condition of this type in `status.conditions`.
pub fn condition<'a>(value: &'a Value, type_: &str) -> Option<&'a Value> {
    list(value, "/status/conditions").iter().find(|condition| condition["type"] == type_)
}

/// Value of a quantity, such as `500m` or `1Gi`. Zero if it is absent or invalid.
pub fn amount(quantity: &Value) -> f64 {
    let parsed = match quantity {
        Value::String(text) => text.parse::<Quantity>(),
        number => number.to_string().parse(),
    };
    let Ok(number) = parsed.map(|quantity| quantity.number()) else { return 0.0 };
    let sign = if number.negative { "-" } else { "" };
    format!("{sign}0{}e{}", number.digits, number.exponent).parse().unwrap_or(0.0)
}

/// UID of the managing controller.
pub fn controller(object: &Value) -> Option<&str> {
    let owners = list(object, "/metadata/ownerReferences").iter();
    owners.filter(|owner| owner["controller"] == true).find_map(|owner| owner["uid"].as_str())
}

/// Names of the finalizers.
pub fn finalizers(object: &Value) -> Vec<&str> {
    list(object, "/metadata/finalizers").iter().filter_map(Value::as_str).collect()
}

/// `true` if the deletion of the object was requested.
pub fn is_terminating(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
}

mod recorded;

use std::cell::Cell;

use super::{eval::Outcome, *};

struct None;

impl Variables for None {
    fn get(&self, _: &str, _: &Cell<u64>) -> Option<Outcome> {
        Option::None
    }
}

/// Evaluates an expression without variables.
fn evaluated(source: &str) -> Result<Value, String> {
    let program = Program::compile(source)?;
    program.evaluate(&None, &Cell::new(OBJECT_BUDGET)).map_err(|error| error.to_string())
}

#[test]
fn expressions_that_are_true() {
    for source in include_str!("tests/true.txt").lines().filter(|line| !line.is_empty()) {
        assert_eq!(evaluated(source), Ok(Value::Bool(true)), "{source}");
    }
}

#[test]
fn errors() {
    for (source, message) in [
        ("{'a': 1}.b == 1", "no such key: b"),
        ("[1][1] == 1", "index out of bounds: 1"),
        ("1 / 0 == 1", "division by zero"),
        ("1 % 0 == 1", "modulus by zero"),
        ("9223372036854775807 + 1 == 1", "integer overflow"),
        ("'a' < 1", "no such overload"),
        ("optional.none().value() == 1", "optional.none() dereference"),
        ("[1, 2].all(x, x / 0 == 1)", "division by zero"),
    ] {
        assert_eq!(evaluated(source), Err(message.to_owned()), "{source}");
    }
}

#[test]
fn evaluation_ends_when_the_budget_is_exceeded() {
    let list = format!("[{}]", vec!["1"; 100].join(","));
    let nested = (0..5).fold("true".to_owned(), |body, level| format!("{list}.all(x{level}, {body})"));
    assert_eq!(evaluated(&nested), Err(OUT_OF_BUDGET.to_owned()));
}

#[test]
fn large_values_exceed_the_budget() {
    let doubled = |count: usize| format!("[1]{}", ".map(a, [a, a])".repeat(count));
    let text = "lists.range(10000).map(x, string(x)).join('')";
    for source in [
        format!("{} == {}", doubled(40), doubled(40)),
        format!("{}.flatten(41).size() > 0", doubled(40)),
        format!("[{text}].all(s, lists.range(10000).map(x, s).join('').size() > 0)"),
        format!("[{text}].all(s, lists.range(3000).map(x, '%s'.format([s])).size() > 0)"),
        "lists.range(3000).map(x, lists.range(10000)).size() > 0".to_owned(),
        "[lists.range(10000)].all(l, lists.range(3000).all(x, l.exists(y, true)))".to_owned(),
        "[lists.range(10000)].all(l, l.all(x, x in l))".to_owned(),
        "lists.range(10000).distinct().size() > 0".to_owned(),
        "[lists.range(10000)].all(l, sets.contains(l, l))".to_owned(),
    ] {
        assert_eq!(evaluated(&source), Err(OUT_OF_BUDGET.to_owned()), "{source}");
    }
}

#[test]
fn long_expressions_are_refused() {
    assert_eq!(evaluated(&format!("{}1", "1 in ".repeat(10_000))), Err(TOO_LONG.to_owned()));
    let error = "expression code point size exceeds limit: size: 100001, limit 100000";
    assert_eq!(evaluated(&"a".repeat(100_001)), Err(error.to_owned()));
    let error = evaluated(&"$".repeat(200)).unwrap_err();
    assert_eq!(error.matches("ERROR: ").count(), MAX_ERRORS);
}

#[test]
fn offsets_of_zones_do_not_overflow() {
    let source = "timestamp('2020-01-01T00:00:00Z').getHours('999999999:00') == 0";
    assert_eq!(evaluated(source), Err("unknown time zone".to_owned()));
}

#[test]
fn deep_expressions_are_refused() {
    assert!(evaluated(&"(".repeat(6_000)).is_err());
    assert_eq!(evaluated(&format!("1{} > 0", " + 1".repeat(4_900))), Err(TOO_LONG.to_owned()));
    assert_eq!(evaluated(&format!("1{} > 0", " + 1".repeat(140))), Ok(Value::Bool(true)));
    let nested = format!("{}true{}", "!(".repeat(90), ")".repeat(90));
    assert_eq!(evaluated(&nested), Ok(Value::Bool(true)));
    let calls = format!("{}'a'{} == 'a'", "string(".repeat(90), ")".repeat(90));
    assert_eq!(evaluated(&calls), Ok(Value::Bool(true)));
}

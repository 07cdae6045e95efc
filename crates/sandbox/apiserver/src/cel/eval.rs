//! Evaluation of expressions.
//!
//! As upstream, an error is a value: `&&`, `||` and the macros on them have a result if one operand decides, even if the
//! other is an error.
//!
//! Upstream counterpart: `cel-go/interpreter`.

use std::{cell::Cell, collections::HashMap, sync::Arc};

use kube_cel::cel::{
    Value,
    common::ast::{
        CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators,
    },
    objects::{Key, KeyRef, Map, OptionalValue},
};

use super::{
    functions,
    operators::{add, arithmetic, compare, equal, index, negate, no_such_overload},
    value::{KeyedList, items, length, weight},
};

/// Error of an evaluation, with upstream's message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct EvalError(pub(crate) String);

pub(super) type Outcome = Result<Value, EvalError>;

/// Message of an evaluation that exceeds its budget.
pub(crate) const OUT_OF_BUDGET: &str = "operation cancelled: actual cost limit exceeded";

/// Variables of an expression.
pub(crate) trait Variables {
    /// Returns the variable with this name. A name with a dot is a field of a variable whose fields are computed on demand.
    fn get(&self, name: &str, budget: &Cell<u64>) -> Option<Outcome>;
}

/// Variables of macros around an expression, the innermost first.
pub(super) struct Scope<'a> {
    parent: Option<&'a Self>,
    name: &'a str,
    value: Outcome,
}

impl<'a> Scope<'a> {
    fn find(scope: Option<&'a Self>, name: &str) -> Option<&'a Outcome> {
        let mut scope = scope;
        while let Some(found) = scope {
            if found.name == name {
                return Some(&found.value);
            }
            scope = found.parent;
        }
        None
    }
}

/// An evaluation of one expression.
pub(super) struct Evaluation<'a> {
    pub(super) variables: &'a dyn Variables,
    /// Steps that remain. Each node of the expression takes one, and an operand one for every ten elements or bytes in it.
    pub(super) budget: &'a Cell<u64>,
}

pub(super) fn some(value: Value) -> Value {
    Value::Opaque(Arc::new(OptionalValue::of(value)))
}

pub(super) fn none() -> Value {
    Value::Opaque(Arc::new(OptionalValue::none()))
}

/// Content of an optional value. `None` if the value is not optional.
pub(super) fn as_optional(value: &Value) -> Option<Option<&Value>> {
    let Value::Opaque(opaque) = value else { return None };
    opaque.downcast_ref::<OptionalValue>().map(OptionalValue::value)
}

fn bool_of(outcome: Outcome) -> Result<bool, EvalError> {
    match outcome? {
        Value::Bool(value) => Ok(value),
        _ => Err(no_such_overload()),
    }
}

impl Evaluation<'_> {
    pub(super) fn charge(&self, steps: usize) -> Result<(), EvalError> {
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        match self.budget.get().checked_sub(steps) {
            Some(rest) => {
                self.budget.set(rest);
                Ok(())
            }
            None => {
                self.budget.set(0);
                Err(EvalError(OUT_OF_BUDGET.to_owned()))
            }
        }
    }

    /// Number of elements and bytes in a value, as far as the budget permits to read them.
    pub(super) fn weigh(&self, value: &Value) -> usize {
        let limit = self.budget.get().saturating_add(1).saturating_mul(10);
        weight(value, usize::try_from(limit).unwrap_or(usize::MAX))
    }

    pub(super) fn eval(&self, expr: &IdedExpr, scope: Option<&Scope<'_>>) -> Outcome {
        self.charge(1)?;
        match &expr.expr {
            Expr::Literal(literal) => Ok(literal_value(literal)),
            Expr::Ident(name) => self.ident(name, scope),
            Expr::Select(select) => self.select(select, scope),
            Expr::Call(call) => self.call(call, scope),
            Expr::Comprehension(comprehension) => self.comprehension(comprehension, scope),
            Expr::List(list) => {
                let mut values = Vec::with_capacity(list.elements.len());
                for (position, element) in list.elements.iter().enumerate() {
                    let value = self.eval(element, scope)?;
                    match as_optional(&value).filter(|_| list.optional_indices.contains(&position)) {
                        Some(content) => values.extend(content.cloned()),
                        None => values.push(value),
                    }
                }
                Ok(Value::List(Arc::new(values)))
            }
            Expr::Map(map) => {
                let mut values = HashMap::with_capacity(map.entries.len());
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { return Err(no_such_overload()) };
                    let key: Key =
                        self.eval(&entry.key, scope)?.try_into().map_err(|_| no_such_overload())?;
                    let value = self.eval(&entry.value, scope)?;
                    match as_optional(&value).filter(|_| entry.optional) {
                        Some(content) => values.extend(content.cloned().map(|value| (key, value))),
                        None => drop(values.insert(key, value)),
                    }
                }
                Ok(Value::Map(Map { map: Arc::new(values) }))
            }
            Expr::Struct(_) | Expr::Unspecified => Err(no_such_overload()),
        }
    }

    /// Evaluates `expr` with one more variable.
    pub(super) fn with(
        &self,
        name: &str,
        value: Outcome,
        expr: &IdedExpr,
        scope: Option<&Scope<'_>>,
    ) -> Outcome {
        self.eval(expr, Some(&Scope { parent: scope, name, value }))
    }

    /// Evaluates `expr` with two more variables.
    pub(super) fn with_both(
        &self,
        names: [&str; 2],
        values: (Value, Value),
        expr: &IdedExpr,
        scope: Option<&Scope<'_>>,
    ) -> Outcome {
        let outer = Scope { parent: scope, name: names[0], value: Ok(values.0) };
        self.with(names[1], Ok(values.1), expr, Some(&outer))
    }

    fn ident(&self, name: &str, scope: Option<&Scope<'_>>) -> Outcome {
        if let Some(found) = Scope::find(scope, name) {
            return found.clone();
        }
        let name = name.trim_start_matches('.');
        let found = self.variables.get(name, self.budget).or_else(|| functions::type_named(name).map(Ok));
        found.unwrap_or_else(|| Err(EvalError(format!("no such attribute(s): {name}"))))
    }

    /// `true` if the name is a namespace of functions and no variable.
    pub(super) fn is_namespace(&self, name: &str, scope: Option<&Scope<'_>>) -> bool {
        Scope::find(scope, name).is_none() && functions::is_namespace(name)
    }

    fn select(&self, select: &SelectExpr, scope: Option<&Scope<'_>>) -> Outcome {
        let SelectExpr { operand, field, test } = select;
        if let Expr::Ident(name) = &operand.expr
            && Scope::find(scope, name).is_none()
            && let Some(found) = self.variables.get(&format!("{name}.{field}"), self.budget)
        {
            return if *test { Ok(Value::Bool(true)) } else { found };
        }
        let operand = self.eval(operand, scope)?;
        match (as_optional(&operand), *test) {
            (Some(content), false) => optional_field(content, field),
            (Some(content), true) => {
                let found = content.map(|content| field_of(content, field)).transpose()?.flatten();
                Ok(Value::Bool(found.is_some()))
            }
            (None, true) => Ok(Value::Bool(field_of(&operand, field)?.is_some())),
            (None, false) => {
                field_of(&operand, field)?.cloned().ok_or_else(|| EvalError(format!("no such key: {field}")))
            }
        }
    }

    fn call(&self, call: &CallExpr, scope: Option<&Scope<'_>>) -> Outcome {
        match (call.func_name.as_str(), call.args.as_slice()) {
            (operators::CONDITIONAL, [condition, yes, no]) => {
                let decided = bool_of(self.eval(condition, scope))?;
                self.eval(if decided { yes } else { no }, scope)
            }
            (operators::LOGICAL_AND, [left, right]) => self.logical(left, right, false, scope),
            (operators::LOGICAL_OR, [left, right]) => self.logical(left, right, true, scope),
            (operators::LOGICAL_NOT, [operand]) => Ok(Value::Bool(!bool_of(self.eval(operand, scope))?)),
            (operators::NOT_STRICTLY_FALSE, [operand]) => {
                Ok(Value::Bool(!matches!(self.eval(operand, scope), Ok(Value::Bool(false)))))
            }
            (operators::NEGATE, [operand]) => negate(&self.eval(operand, scope)?),
            (operators::OPT_SELECT, [operand, field]) => {
                let operand = self.eval(operand, scope)?;
                let Value::String(field) = self.eval(field, scope)? else { return Err(no_such_overload()) };
                optional_field(as_optional(&operand).unwrap_or(Some(&operand)), &field)
            }
            (name @ (operators::INDEX | operators::OPT_INDEX), [operand, key]) => {
                let operand = self.eval(operand, scope)?;
                let key = self.eval(key, scope)?;
                match as_optional(&operand) {
                    Some(None) => Ok(none()),
                    Some(Some(content)) => Ok(index(content, &key)?.map_or_else(|_| none(), some)),
                    None if name == operators::OPT_INDEX => {
                        Ok(index(&operand, &key)?.map_or_else(|_| none(), some))
                    }
                    None => index(&operand, &key)?,
                }
            }
            (name, [left, right]) if call.target.is_none() && is_binary(name) => {
                let left = self.eval(left, scope)?;
                self.binary(name, left, self.eval(right, scope)?)
            }
            _ => functions::call(self, call, scope),
        }
    }

    /// `&&` and `||`. `decisive` is the operand that decides.
    fn logical(
        &self,
        left: &IdedExpr,
        right: &IdedExpr,
        decisive: bool,
        scope: Option<&Scope<'_>>,
    ) -> Outcome {
        let left = bool_of(self.eval(left, scope));
        if left == Ok(decisive) {
            return Ok(Value::Bool(decisive));
        }
        let right = bool_of(self.eval(right, scope));
        if right == Ok(decisive) { Ok(Value::Bool(decisive)) } else { left.and(right).map(Value::Bool) }
    }

    fn binary(&self, name: &str, left: Value, right: Value) -> Outcome {
        let ordering = |left: &Value, right: &Value| compare(left, right).ok_or_else(no_such_overload);
        self.charge(self.steps_of(name, &left, &right) / 10)?;
        Ok(Value::Bool(match name {
            operators::EQUALS => equal(&left, &right),
            operators::NOT_EQUALS => !equal(&left, &right),
            operators::LESS => ordering(&left, &right)?.is_lt(),
            operators::LESS_EQUALS => ordering(&left, &right)?.is_le(),
            operators::GREATER => ordering(&left, &right)?.is_gt(),
            operators::GREATER_EQUALS => ordering(&left, &right)?.is_ge(),
            operators::IN => match &right {
                Value::Map(map) => KeyRef::try_from(&left).is_ok_and(|key| map.get(&key).is_some()),
                list => items(list).ok_or_else(no_such_overload)?.iter().any(|item| equal(item, &left)),
            },
            operators::ADD => return add(left, right),
            _ => return arithmetic(name, left, right),
        }))
    }

    /// Number of elements and bytes that an operator reads.
    fn steps_of(&self, name: &str, left: &Value, right: &Value) -> usize {
        let (left_length, right_length) = (length(left), length(right));
        let is_keyed = KeyedList::of(left).is_some();
        match name {
            operators::EQUALS | operators::NOT_EQUALS if left_length != right_length => 0,
            // Items of a list with an identity may be in another order.
            operators::EQUALS | operators::NOT_EQUALS if is_keyed => {
                let weight = self.weigh(left);
                let is_affordable = (weight / 10) as u64 <= self.budget.get();
                let is_reordered = is_affordable && items(left) != items(right);
                weight.saturating_add(if is_reordered { left_length.saturating_mul(left_length) } else { 0 })
            }
            operators::EQUALS | operators::NOT_EQUALS => self.weigh(left),
            operators::IN if items(right).is_some() => self.weigh(left).saturating_mul(right_length),
            operators::ADD if is_keyed => self.weigh(left).saturating_mul(right_length),
            _ => left_length.saturating_add(right_length),
        }
    }

    fn comprehension(&self, comprehension: &ComprehensionExpr, scope: Option<&Scope<'_>>) -> Outcome {
        let ComprehensionExpr {
            iter_range, iter_var, accu_var, accu_init, loop_cond, loop_step, result, ..
        } = comprehension;
        let range = self.eval(iter_range, scope)?;
        self.charge(length(&range) / 10)?;
        let items = functions::iterate(&range).ok_or_else(no_such_overload)?;
        if let Some((filter, element)) = appended(loop_step, accu_var) {
            let mut values = Vec::new();
            for item in items {
                let scope = Scope { parent: scope, name: iter_var, value: Ok(item) };
                if filter.map_or(Ok(true), |filter| bool_of(self.eval(filter, Some(&scope))))? {
                    values.push(self.eval(element, Some(&scope))?);
                }
            }
            return Ok(Value::List(Arc::new(values)));
        }
        let mut accumulated = Scope { parent: scope, name: accu_var, value: self.eval(accu_init, scope) };
        for item in items {
            if !bool_of(self.eval(loop_cond, Some(&accumulated)))? {
                break;
            }
            accumulated.value = self.with(iter_var, Ok(item), loop_step, Some(&accumulated));
        }
        self.eval(result, Some(&accumulated))
    }
}

/// `true` for operators with two operands that are always evaluated.
pub(super) fn is_binary(name: &str) -> bool {
    matches!(
        name,
        operators::EQUALS
            | operators::NOT_EQUALS
            | operators::LESS
            | operators::LESS_EQUALS
            | operators::GREATER
            | operators::GREATER_EQUALS
            | operators::IN
            | operators::ADD
            | operators::SUBSTRACT
            | operators::MULTIPLY
            | operators::DIVIDE
            | operators::MODULO
    )
}

/// Filter and element of a step of `map` or `filter`, which appends to the result.
pub(super) fn appended<'a>(
    step: &'a IdedExpr,
    accumulator: &str,
) -> Option<(Option<&'a IdedExpr>, &'a IdedExpr)> {
    let Expr::Call(call) = &step.expr else { return None };
    match (call.func_name.as_str(), call.args.as_slice()) {
        (operators::ADD, [target, list]) => match (&target.expr, &list.expr) {
            (Expr::Ident(name), Expr::List(list)) if name == accumulator => {
                Some((None, list.elements.first()?))
            }
            _ => None,
        },
        (operators::CONDITIONAL, [filter, step, _]) => {
            appended(step, accumulator).map(|(_, element)| (Some(filter), element))
        }
        _ => None,
    }
}

fn literal_value(literal: &LiteralValue) -> Value {
    match literal {
        LiteralValue::Boolean(value) => Value::Bool(*value.inner()),
        LiteralValue::Bytes(value) => Value::Bytes(Arc::new(value.inner().to_vec())),
        LiteralValue::Double(value) => Value::Float(*value.inner()),
        LiteralValue::Int(value) => Value::Int(*value.inner()),
        LiteralValue::Null => Value::Null,
        LiteralValue::String(value) => Value::from(value.inner()),
        LiteralValue::UInt(value) => Value::UInt(*value.inner()),
    }
}

/// Field of a map.
fn field_of<'a>(value: &'a Value, field: &str) -> Result<Option<&'a Value>, EvalError> {
    match value {
        Value::Map(map) => Ok(map.get(&KeyRef::String(field))),
        _ => Err(no_such_overload()),
    }
}

fn optional_field(value: Option<&Value>, field: &str) -> Outcome {
    let found = value.map(|value| field_of(value, field)).transpose()?.flatten();
    Ok(found.map_or_else(none, |found| some(found.clone())))
}

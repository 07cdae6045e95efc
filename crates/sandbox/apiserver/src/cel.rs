//! Expressions in CEL: validation rules of custom resources, and admission policies.
//!
//! The parser and most of Kubernetes' libraries are those of the crate `kube-cel` (`docs/adr/0015-cel.md`). Expressions are
//! compiled when a definition or a policy is first used, and evaluated within a budget.
//!
//! Upstream counterpart: `apiserver/pkg/cel` and `apiextensions-apiserver/pkg/apiserver/schema/cel`.

mod check;
mod eval;
mod functions;
mod macros;
mod operators;
mod rules;
mod signatures;
mod types;
mod urls;
mod value;

use std::cell::Cell;

use kube_cel::cel::{
    Value,
    common::ast::{EntryExpr, Expr, IdedExpr},
    parser::Parser,
};

pub(crate) use check::Declaration;
use eval::Evaluation;
pub(crate) use eval::{EvalError, OUT_OF_BUDGET, Variables};
pub(crate) use rules::Rules;
pub(crate) use value::untyped;

/// Steps that one expression may take.
///
/// Upstream counterpart: `PerCallLimit`, in other units.
const CALL_BUDGET: u64 = 1_000_000;

/// Steps that all expressions may take for one object.
///
/// Upstream counterpart: `RuntimeCELCostBudget`, in other units.
pub(crate) const OBJECT_BUDGET: u64 = 10_000_000;

/// Maximum number of operators and accesses in an expression, which limits the stack of the parser.
const MAX_OPERATORS: usize = 2_000;

/// Maximum length of an expression in characters, as upstream.
const MAX_LENGTH: usize = 100_000;

/// Maximum number of syntax errors that are reported, as upstream. Each contains its line.
const MAX_ERRORS: usize = 100;

/// Maximum depth of a parsed expression, which limits the stack of an evaluation.
///
/// DEVIATION: upstream limits the nesting by 250, but not the number of operators in a row.
const MAX_DEPTH: usize = 150;

/// Maximum length of an evaluated `messageExpression`, as upstream.
pub(crate) const MAX_MESSAGE: usize = 5 * 1024;

/// Stack of the parser, which descends through its grammar for each operator.
const PARSER_STACK: usize = 64 << 20;

const TOO_LONG: &str = "expression is too long";

/// A compiled expression.
#[derive(Debug)]
pub(crate) struct Program {
    expression: IdedExpr,
}

impl Program {
    /// Compiles an expression.
    ///
    /// # Errors
    ///
    /// The message of a syntax error, as upstream's compiler writes it.
    pub(crate) fn compile(source: &str) -> Result<Self, String> {
        let length = source.chars().count();
        if length > MAX_LENGTH {
            return Err(format!(
                "expression code point size exceeds limit: size: {length}, limit {MAX_LENGTH}"
            ));
        }
        let operators = source.chars().filter(|c| ".[({+-*/%?!&|<>=,".contains(*c)).count();
        if operators + source.matches("in").count() > MAX_OPERATORS {
            return Err(TOO_LONG.to_owned());
        }
        let source = without_double_negation(source);
        std::thread::scope(|scope| {
            let parser = std::thread::Builder::new().stack_size(PARSER_STACK);
            let thread = parser.spawn_scoped(scope, || parse(&source)).map_err(|error| error.to_string())?;
            thread.join().unwrap_or_else(|_| Err("expression could not be parsed".to_owned()))
        })
        .map(|expression| Self { expression })
    }

    /// Evaluates the expression. Its steps are taken from `budget`.
    ///
    /// # Errors
    ///
    /// The expression has no value, or the budget is exceeded.
    pub(crate) fn evaluate(&self, variables: &dyn Variables, budget: &Cell<u64>) -> Result<Value, EvalError> {
        let available = budget.get().min(CALL_BUDGET);
        let own = Cell::new(available);
        let outcome = Evaluation { variables, budget: &own }.eval(&self.expression, None);
        budget.set(budget.get() - (available - own.get()));
        if own.get() == 0 { Err(EvalError(OUT_OF_BUDGET.to_owned())) } else { outcome }
    }

    /// Evaluates a `messageExpression`. `None` if the result is no valid message.
    pub(crate) fn message(&self, variables: &dyn Variables, budget: &Cell<u64>) -> Option<String> {
        let value = self.evaluate(variables, budget).ok()?;
        let text = as_text(&value)?.trim();
        let is_valid = !text.is_empty() && !text.contains('\n') && text.len() <= MAX_MESSAGE;
        is_valid.then(|| text.to_owned())
    }

    /// `true` if the expression contains this variable.
    pub(crate) fn uses(&self, variable: &str) -> bool {
        let mut found = false;
        visit(&self.expression, &mut |expr| {
            found |= matches!(&expr.expr, Expr::Ident(name) if name == variable);
        });
        found
    }
}

fn parse(source: &str) -> Result<IdedExpr, String> {
    let parsed = Parser::new().enable_optional_syntax(true).parse(source.trim_end());
    let expression = parsed.map_err(|errors| {
        let errors =
            errors.errors.iter().take(MAX_ERRORS).map(|error| error.to_string().replace("\n|", "\n |"));
        errors.collect::<Vec<_>>().join("\n")
    })?;
    if is_deeper(&expression, MAX_DEPTH) { Err(TOO_LONG.to_owned()) } else { Ok(expression) }
}

fn is_deeper(expr: &IdedExpr, limit: usize) -> bool {
    let mut deeper = limit == 0;
    parts(expr, &mut |part| deeper = deeper || is_deeper(part, limit - 1));
    deeper
}

/// Calls `visitor` for an expression and those in it.
fn visit<'a>(expr: &'a IdedExpr, visitor: &mut dyn FnMut(&'a IdedExpr)) {
    visitor(expr);
    parts(expr, &mut |part| visit(part, visitor));
}

/// Calls `visitor` for the operands of an expression.
fn parts<'a>(expr: &'a IdedExpr, visitor: &mut dyn FnMut(&'a IdedExpr)) {
    match &expr.expr {
        Expr::Call(call) => call.target.iter().map(|target| &**target).chain(&call.args).for_each(visitor),
        Expr::Comprehension(parts) => {
            [&parts.iter_range, &parts.accu_init, &parts.loop_cond, &parts.loop_step, &parts.result]
                .into_iter()
                .for_each(visitor);
        }
        Expr::List(list) => list.elements.iter().for_each(visitor),
        Expr::Map(map) => map.entries.iter().for_each(|entry| match &entry.expr {
            EntryExpr::MapEntry(entry) => {
                visitor(&entry.key);
                visitor(&entry.value);
            }
            EntryExpr::StructField(field) => visitor(&field.value),
        }),
        Expr::Select(select) => visitor(&select.operand),
        Expr::Struct(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => {}
    }
}

/// Replaces `!!` outside of texts by blanks, because the parser reads it as one negation.
fn without_double_negation(source: &str) -> String {
    let mut bytes = source.as_bytes().to_vec();
    let mut position = 0;
    while let Some(byte) = bytes.get(position).copied() {
        match byte {
            b'"' | b'\'' => {
                let is_raw = position > 0 && matches!(bytes[position - 1], b'r' | b'R');
                position = end_of_text(&bytes, position, is_raw);
            }
            b'!' if bytes.get(position + 1) == Some(&b'!') => {
                bytes[position..position + 2].fill(b' ');
                position += 2;
            }
            _ => position += 1,
        }
    }
    String::from_utf8(bytes).unwrap_or_else(|_| source.to_owned())
}

/// Position after the text that begins at `start`.
fn end_of_text(bytes: &[u8], start: usize, is_raw: bool) -> usize {
    let quote = bytes[start];
    let length = if bytes[start..].starts_with(&[quote; 3]) { 3 } else { 1 };
    let mut position = start + length;
    while position < bytes.len() {
        if bytes[position] == b'\\' && !is_raw {
            position += 2;
        } else if bytes[position..].starts_with(&[quote; 3][..length]) {
            return position + length;
        } else {
            position += 1;
        }
    }
    position
}

/// Returns a value that later expressions may contain in others.
///
/// # Errors
///
/// The value is nested too deeply, or too large for the budget.
pub(crate) fn limited(value: Value, budget: &Cell<u64>) -> Result<Value, EvalError> {
    let limit = usize::try_from(budget.get()).unwrap_or(usize::MAX).saturating_mul(10);
    if value::weight(&value, limit) >= limit { Err(EvalError(OUT_OF_BUDGET.to_owned())) } else { Ok(value) }
}

/// Text of a value that is a text.
pub(crate) fn as_text(value: &Value) -> Option<&str> {
    match value {
        Value::String(text) => Some(text),
        _ => None,
    }
}

#[cfg(test)]
mod tests;

//! Types of rules in a schema.
//!
//! Known are the types of the schema, of operators and of the results of functions. Arguments of functions are not checked. An
//! unknown type is `dyn`, which is compatible with all types.
//!
//! Upstream counterpart: `cel-go/checker`.

use std::cell::RefCell;

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, SelectExpr, operators,
};

use super::{Program, eval::appended, functions, macros, signatures, types::Type, value::escape};
use crate::structural_schema::Schema;

/// Variables of a rule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Declaration<'a> {
    pub(crate) schema: &'a Schema,
    /// `true` for the root of a resource.
    pub(crate) is_root: bool,
    pub(crate) has_optional_old_self: bool,
}

/// Error in an expression.
pub(super) struct Problem {
    message: String,
    /// Text of the expression that contains the place of the error. The parser does not keep positions, so the error may name
    /// an earlier occurrence.
    place: String,
    /// Offset of the place in the text.
    offset: usize,
}

impl Problem {
    fn at(place: impl Into<String>, message: String) -> Self {
        Self { message, place: place.into(), offset: 0 }
    }

    /// Error at the parenthesis of a call.
    fn at_call(name: &str, is_method: bool, message: String) -> Self {
        let dot = if is_method { "." } else { "" };
        let place = format!("{dot}{name}(");
        Self { message, offset: place.len() - 1, place }
    }
}

pub(super) type Checked<'a> = Result<Type<'a>, Problem>;

impl Declaration<'_> {
    /// Compiles an expression whose result is a bool, or else a string. Returns `true` if it reads `oldSelf`.
    ///
    /// # Errors
    ///
    /// The detail of upstream's error.
    pub(crate) fn check(&self, source: &str, is_rule: bool) -> Result<bool, String> {
        let program = Program::compile(source).map_err(|error| format!("compilation failed: {error}"))?;
        let checker = Checker { declaration: self, scope: RefCell::default() };
        match (checker.infer(&program.expression), is_rule) {
            (Ok(Type::Dyn | Type::Bool), true) | (Ok(Type::Dyn | Type::Text), false) => {
                Ok(program.uses("oldSelf"))
            }
            (Ok(_), true) => Err("cel expression must evaluate to a bool".to_owned()),
            (Ok(_), false) => Err("must evaluate to a string".to_owned()),
            (Err(problem), _) => Err(format!("compilation failed: {}", located(source, &problem))),
        }
    }
}

/// Formats an error as upstream, with the line and the column of its place.
fn located(source: &str, problem: &Problem) -> String {
    let offset = source.find(&problem.place).map_or(0, |start| start + problem.offset);
    let before = &source[..offset];
    let line_start = before.rfind('\n').map_or(0, |end| end + 1);
    let (number, column) = (before.matches('\n').count() + 1, before[line_start..].chars().count());
    let line = source[line_start..].lines().next().unwrap_or_default();
    let dots = ".".repeat(column);
    format!("ERROR: <input>:{number}:{}: {}\n | {line}\n | {dots}^", column + 1, problem.message)
}

struct Checker<'a> {
    declaration: &'a Declaration<'a>,
    /// Variables of macros, the innermost last.
    scope: RefCell<Vec<(String, Type<'a>)>>,
}

fn no_overload(name: &str, types: &[&Type<'_>]) -> Problem {
    let types: Vec<String> = types.iter().map(ToString::to_string).collect();
    let message = format!("found no matching overload for '{name}' applied to '({})'", types.join(", "));
    match name {
        operators::IN => Problem { offset: 1, ..Problem::at(" in ", message) },
        operators::INDEX | operators::OPT_INDEX => Problem::at("[", message),
        _ => Problem::at(name.trim_matches('_'), message),
    }
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

/// Text of an operand in the expression, as far as it is known.
fn place_of(expr: &IdedExpr) -> String {
    match &expr.expr {
        Expr::Ident(name) => name.clone(),
        Expr::Select(select) => format!(".{}", select.field),
        _ => String::new(),
    }
}

impl<'a> Checker<'a> {
    fn infer(&self, expr: &IdedExpr) -> Checked<'a> {
        Ok(match &expr.expr {
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Type::Bool,
                LiteralValue::Bytes(_) => Type::Bytes,
                LiteralValue::Double(_) => Type::Double,
                LiteralValue::Int(_) => Type::Int,
                LiteralValue::Null => Type::Null,
                LiteralValue::String(_) => Type::Text,
                LiteralValue::UInt(_) => Type::Uint,
            },
            Expr::Ident(name) => self.ident(name)?,
            Expr::Select(select) => self.select(select)?,
            Expr::Call(call) => self.call(call)?,
            Expr::Comprehension(comprehension) => self.comprehension(comprehension)?,
            Expr::List(list) => {
                let types: Result<Vec<_>, _> =
                    list.elements.iter().map(|element| self.infer(element)).collect();
                let types = types?.into_iter().map(|ty| match ty {
                    Type::Optional(content) if !list.optional_indices.is_empty() => *content,
                    ty => ty,
                });
                Type::List(Box::new(types.reduce(Type::joined).unwrap_or(Type::Dyn)))
            }
            Expr::Map(map) => {
                let mut joined = None;
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                    let (key, value) = (self.infer(&entry.key)?, self.infer(&entry.value)?);
                    joined = Some(match joined {
                        None => (key, value),
                        Some((keys, values)) => (Type::joined(keys, key), Type::joined(values, value)),
                    });
                }
                let (keys, values) = joined.unwrap_or((Type::Dyn, Type::Dyn));
                // Others are no keys. Their types would double the size of the type of the map.
                let is_key = keys.is_number() || matches!(keys, Type::Bool | Type::Text);
                let keys = if is_key { keys } else { Type::Dyn };
                Type::Map(Box::new(keys), Box::new(values))
            }
            Expr::Struct(message) => {
                let name = &message.type_name;
                return Err(Problem::at(name, undeclared(name)));
            }
            Expr::Unspecified => Type::Dyn,
        })
    }

    fn ident(&self, name: &str) -> Checked<'a> {
        if let Some((_, found)) = self.scope.borrow().iter().rev().find(|(known, _)| known == name) {
            return Ok(found.clone());
        }
        let Declaration { schema, is_root, has_optional_old_self } = self.declaration;
        let own = || Type::of(schema, *is_root);
        match name.trim_start_matches('.') {
            "self" => Ok(own()),
            "oldSelf" if *has_optional_old_self => Ok(Type::Optional(Box::new(own()))),
            "oldSelf" => Ok(own()),
            name if functions::type_named(name).is_some() => Ok(Type::OfTypes),
            name => Err(Problem::at(name, undeclared(name))),
        }
    }

    /// Infers `expr` with more variables.
    fn with(&self, variables: Vec<(String, Type<'a>)>, expr: &IdedExpr) -> Checked<'a> {
        let before = self.scope.borrow().len();
        self.scope.borrow_mut().extend(variables);
        let found = self.infer(expr);
        self.scope.borrow_mut().truncate(before);
        found
    }

    fn select(&self, select: &SelectExpr) -> Checked<'a> {
        let found = field(&self.infer(&select.operand)?, &select.field);
        if select.test {
            // The place is that of the macro.
            let has = |problem: Problem| Problem { place: "has(".to_owned(), offset: 3, ..problem };
            return found.map(|_| Type::Bool).map_err(has);
        }
        found
    }

    /// Requires operands to be bools.
    fn bools(&self, operands: &[IdedExpr]) -> Result<(), Problem> {
        for operand in operands {
            let ty = self.infer(operand)?;
            if !ty.fits(&Type::Bool) {
                let message = format!("expected type 'bool' but found '{ty}'");
                return Err(Problem::at(place_of(operand), message));
            }
        }
        Ok(())
    }

    fn call(&self, call: &CallExpr) -> Checked<'a> {
        let name = call.func_name.as_str();
        match (name, call.args.as_slice()) {
            (operators::LOGICAL_AND | operators::LOGICAL_OR, operands) => {
                self.bools(operands).map(|()| Type::Bool)
            }
            (operators::LOGICAL_NOT, [operand]) => match self.infer(operand)? {
                ty if ty.fits(&Type::Bool) => Ok(Type::Bool),
                ty => Err(no_overload(name, &[&ty])),
            },
            (operators::NOT_STRICTLY_FALSE, _) => Ok(Type::Bool),
            (operators::CONDITIONAL, [condition, yes, no]) => {
                self.bools(std::slice::from_ref(condition))?;
                Ok(Type::joined(self.infer(yes)?, self.infer(no)?))
            }
            (operators::NEGATE, [operand]) => {
                let ty = self.infer(operand)?;
                if ty.is_number() || matches!(ty, Type::Dyn | Type::Duration) {
                    Ok(ty)
                } else {
                    Err(no_overload(name, &[&ty]))
                }
            }
            (operators::OPT_SELECT, [operand, selected]) => {
                let Expr::Literal(LiteralValue::String(selected)) = &selected.expr else {
                    return Ok(Type::Dyn);
                };
                let found = field(&self.infer(operand)?, selected.inner())?;
                Ok(found.optional())
            }
            (operators::INDEX | operators::OPT_INDEX, [operand, key]) => {
                let (operand, key) = (self.infer(operand)?, self.infer(key)?);
                let content = match &operand {
                    Type::Optional(content) => &**content,
                    operand => operand,
                };
                let element = match content {
                    Type::List(item) if key.is_number() || matches!(key, Type::Dyn) => (**item).clone(),
                    Type::Map(keys, value) if keys.fits(&key) => (**value).clone(),
                    Type::Dyn => Type::Dyn,
                    _ => return Err(no_overload(name, &[&operand, &key])),
                };
                let is_optional = name == operators::OPT_INDEX || matches!(operand, Type::Optional(_));
                Ok(if is_optional { element.optional() } else { element })
            }
            (_, [left, right]) if call.target.is_none() && super::eval::is_binary(name) => {
                let (left, right) = (self.infer(left)?, self.infer(right)?);
                let found = signatures::operator(name, &left, &right);
                found.ok_or_else(|| no_overload(name, &[&left, &right]))
            }
            _ => self.function(call),
        }
    }

    fn function(&self, call: &CallExpr) -> Checked<'a> {
        let name = call.func_name.as_str();
        let Some(target) = call.target.as_deref() else { return self.global(name, &call.args) };
        if let Expr::Ident(namespace) = &target.expr
            && functions::is_namespace(namespace)
            && !self.scope.borrow().iter().any(|(known, _)| known == namespace)
        {
            return self.global(&format!("{namespace}.{name}"), &call.args);
        }
        let target = self.infer(target)?;
        if let Some(found) = self.expanded(name, &target, &call.args) {
            return found;
        }
        let arguments: Result<Vec<_>, _> = call.args.iter().map(|argument| self.infer(argument)).collect();
        let arguments = arguments?;
        match signatures::method(name, &target, &arguments) {
            Some(Some(found)) => Ok(found),
            Some(None) => {
                let arguments: Vec<String> = arguments.iter().map(ToString::to_string).collect();
                let applied = format!("{target}.({})", arguments.join(", "));
                let message = format!("found no matching overload for '{name}' applied to '{applied}'");
                Err(Problem::at_call(name, true, message))
            }
            None => Err(Problem::at_call(name, true, undeclared(name))),
        }
    }

    fn global(&self, name: &str, arguments: &[IdedExpr]) -> Checked<'a> {
        let types: Result<Vec<_>, _> = arguments.iter().map(|argument| self.infer(argument)).collect();
        let types = types?;
        match signatures::global(name, &types) {
            Some(Some(found)) => Ok(found),
            Some(None) => {
                let overload = no_overload(name, &types.iter().collect::<Vec<_>>());
                Err(Problem::at_call(name, false, overload.message))
            }
            None => Err(Problem::at_call(name, false, undeclared(name))),
        }
    }

    /// Infers a macro that the parser does not expand. `None` if the name is a function's.
    fn expanded(&self, name: &str, target: &Type<'a>, args: &[IdedExpr]) -> Option<Checked<'a>> {
        let ident = |expr: &IdedExpr| match &expr.expr {
            Expr::Ident(name) => Some(name.clone()),
            _ => None,
        };
        match (name, args) {
            ("optMap" | "optFlatMap", [variable, body]) => {
                let content = match target {
                    Type::Optional(content) => (**content).clone(),
                    _ => Type::Dyn,
                };
                let found = self.with(vec![(ident(variable)?, content)], body);
                Some(found.map(Type::optional))
            }
            ("sortBy", [variable, key]) => {
                let found = self.with(vec![(ident(variable)?, target.element())], key);
                Some(found.map(|_| target.clone()))
            }
            (_, [first, second, .., body]) if macros::is_over_pairs(name) && args.len() <= 4 => {
                let key = match target {
                    Type::List(_) => Type::Int,
                    Type::Map(keys, _) => (**keys).clone(),
                    _ => Type::Dyn,
                };
                let value = match target {
                    Type::Map(_, values) => (**values).clone(),
                    target => target.element(),
                };
                let variables = vec![(ident(first)?, key.clone()), (ident(second)?, value)];
                Some(self.with(variables, body).map(|body| match name {
                    "transformList" => Type::List(Box::new(body)),
                    "transformMap" => Type::Map(Box::new(key), Box::new(body)),
                    "transformMapEntry" => body,
                    _ => Type::Bool,
                }))
            }
            _ => None,
        }
    }

    fn comprehension(&self, comprehension: &ComprehensionExpr) -> Checked<'a> {
        let ComprehensionExpr { iter_range, iter_var, accu_var, accu_init, loop_step, .. } = comprehension;
        let range = self.infer(iter_range)?;
        let item = match &range {
            Type::List(item) => (**item).clone(),
            Type::Map(keys, _) => (**keys).clone(),
            Type::Dyn => Type::Dyn,
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension (must be list, map, or dynamic)"
                );
                return Err(Problem::at(place_of(iter_range), message));
            }
        };
        let variable = (iter_var.clone(), item);
        if let Some((filter, element)) = appended(loop_step, accu_var) {
            if let Some(filter) = filter {
                let ty = self.with(vec![variable.clone()], filter)?;
                if !ty.fits(&Type::Bool) {
                    let message = format!("expected type 'bool' but found '{ty}'");
                    return Err(Problem::at(place_of(filter), message));
                }
            }
            let element = self.with(vec![variable], element)?;
            return Ok(Type::List(Box::new(element)));
        }
        let accumulated = self.infer(accu_init)?;
        self.with(vec![(accu_var.clone(), accumulated), variable], loop_step)?;
        // The accumulator of `exists_one` is a number, its result a bool.
        Ok(Type::Bool)
    }
}

/// Type of a field of a value.
fn field<'a>(ty: &Type<'a>, name: &str) -> Checked<'a> {
    let undefined = || Problem::at(format!(".{name}"), format!("undefined field '{name}'"));
    match ty {
        Type::Dyn => Ok(Type::Dyn),
        Type::Map(_, value) => Ok((**value).clone()),
        Type::Optional(content) => field(content, name).map(Type::optional),
        Type::Metadata if matches!(name, "name" | "generateName") => Ok(Type::Text),
        Type::Metadata => Err(undefined()),
        Type::Object(_, true) if name == "metadata" => Ok(Type::Metadata),
        Type::Object(_, true) if matches!(name, "apiVersion" | "kind") => Ok(Type::Text),
        Type::Object(schema, _) => {
            let mut properties = schema.properties.iter();
            let found = properties.find(|(property, _)| escape(property).as_deref() == Some(name));
            let found = found.map(|(_, schema)| Type::of(schema, schema.is_embedded_resource));
            // A field without a type cannot be read.
            found.filter(|found| !matches!(found, Type::Unknown)).ok_or_else(undefined)
        }
        other => {
            let message = format!("type '{other}' does not support field selection");
            Err(Problem::at(format!(".{name}"), message))
        }
    }
}

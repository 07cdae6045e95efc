//! Macros that the parser does not expand.
//!
//! Upstream counterpart: `cel-go/ext`.

use std::{cmp::Ordering, collections::HashMap, sync::Arc};

use kube_cel::cel::{
    Value,
    common::ast::{Expr, IdedExpr},
    objects::{Key, Map},
};

use super::{
    eval::{Evaluation, Outcome, Scope, as_optional, none, some},
    functions::pairs,
    operators::{compare, no_such_overload},
    value::{items, length},
};

impl Evaluation<'_> {
    /// Evaluates a macro. `None` if the name is a function's.
    pub(super) fn expand(
        &self,
        name: &str,
        target: &Value,
        args: &[IdedExpr],
        scope: Option<&Scope<'_>>,
    ) -> Option<Outcome> {
        let ident = |expr: &'_ IdedExpr| match &expr.expr {
            Expr::Ident(name) => Some(name.clone()),
            _ => None,
        };
        match (name, args) {
            ("optMap" | "optFlatMap", [variable, body]) => {
                let variable = ident(variable)?;
                Some(match as_optional(target) {
                    None => Err(no_such_overload()),
                    Some(None) => Ok(none()),
                    Some(Some(content)) => {
                        let outcome = self.with(&variable, Ok(content.clone()), body, scope);
                        if name == "optMap" { outcome.map(some) } else { outcome }
                    }
                })
            }
            ("sortBy", [variable, key]) => {
                let variable = ident(variable)?;
                Some(self.sort_by(target, &variable, key, scope))
            }
            (_, [first, second, rest @ ..]) if matches!(rest.len(), 1 | 2) => {
                let names = [ident(first)?, ident(second)?];
                self.over_pairs(name, target, [&names[0], &names[1]], rest, scope)
            }
            _ => None,
        }
    }

    fn sort_by(&self, list: &Value, variable: &str, key: &IdedExpr, scope: Option<&Scope<'_>>) -> Outcome {
        let items = items(list).ok_or_else(no_such_overload)?;
        self.charge(items.len() / 10)?;
        let keys: Result<Vec<_>, _> =
            items.iter().map(|item| self.with(variable, Ok(item.clone()), key, scope)).collect();
        let mut keyed: Vec<(Value, &Value)> = keys?.into_iter().zip(items.iter()).collect();
        keyed.sort_by(|(left, _), (right, _)| compare(left, right).unwrap_or(Ordering::Equal));
        Ok(Value::List(Arc::new(keyed.into_iter().map(|(_, item)| item.clone()).collect())))
    }

    /// Evaluates a macro with two variables. `rest` is an optional filter and the body.
    fn over_pairs(
        &self,
        name: &str,
        target: &Value,
        variables: [&str; 2],
        rest: &[IdedExpr],
        scope: Option<&Scope<'_>>,
    ) -> Option<Outcome> {
        let (filter, body) = match rest {
            [body] => (None, body),
            [filter, body] if name.starts_with("transform") => (Some(filter), body),
            _ => return None,
        };
        if !is_over_pairs(name) {
            return None;
        }
        if let Err(error) = self.charge(length(target) / 10) {
            return Some(Err(error));
        }
        let Some(pairs) = pairs(target) else { return Some(Err(no_such_overload())) };
        Some(self.fold(name, pairs, variables, filter, body, scope))
    }

    fn fold(
        &self,
        name: &str,
        pairs: Vec<(Value, Value)>,
        variables: [&str; 2],
        filter: Option<&IdedExpr>,
        body: &IdedExpr,
        scope: Option<&Scope<'_>>,
    ) -> Outcome {
        let truth = |outcome: Outcome| match outcome {
            Ok(Value::Bool(value)) => Ok(value),
            Ok(_) => Err(no_such_overload()),
            Err(error) => Err(error),
        };
        let (mut error, mut count, mut list, mut map) = (None, 0, Vec::new(), HashMap::new());
        for (key, value) in pairs {
            let values = (key.clone(), value);
            if let Some(filter) = filter
                && !truth(self.with_both(variables, values.clone(), filter, scope))?
            {
                continue;
            }
            let outcome = self.with_both(variables, values, body, scope);
            match name {
                "all" | "exists" => match truth(outcome) {
                    Ok(value) if value == (name == "exists") => return Ok(Value::Bool(value)),
                    Ok(_) => {}
                    Err(found) => error = Some(found),
                },
                "transformList" => list.push(outcome?),
                "transformMap" => {
                    let key: Key = key.try_into().map_err(|_| no_such_overload())?;
                    map.insert(key, outcome?);
                }
                "transformMapEntry" => match outcome? {
                    Value::Map(entries) => {
                        map.extend(entries.map.iter().map(|(key, value)| (key.clone(), value.clone())));
                    }
                    _ => return Err(no_such_overload()),
                },
                _ => count += usize::from(truth(outcome)?),
            }
        }
        match (error, name) {
            (Some(error), _) => Err(error),
            (None, "all") => Ok(Value::Bool(true)),
            (None, "exists") => Ok(Value::Bool(false)),
            (None, "transformList") => Ok(Value::List(Arc::new(list))),
            (None, "existsOne" | "exists_one") => Ok(Value::Bool(count == 1)),
            (None, _) => Ok(Value::Map(Map { map: Arc::new(map) })),
        }
    }
}

/// `true` for the macros with two variables.
pub(super) fn is_over_pairs(name: &str) -> bool {
    matches!(
        name,
        "all"
            | "exists"
            | "existsOne"
            | "exists_one"
            | "transformList"
            | "transformMap"
            | "transformMapEntry"
    )
}

//! Validation rules of custom resources: `x-kubernetes-validations`.
//!
//! Upstream counterpart: `apiextensions-apiserver/pkg/apiserver/schema/cel/validation.go`.

use std::{cell::Cell, collections::BTreeMap};

use kube_cel::cel::Value as CelValue;
use serde_json::Value;

use super::{
    EvalError, OBJECT_BUDGET, OUT_OF_BUDGET, Program, Variables,
    eval::{Outcome, none, some},
    value::{typed, without_identity},
};
use crate::{
    field_error::{ErrorType, FieldError},
    json::{at, bool_at, list_at, str_at},
    structural_schema::{Additional, ListType, Schema},
};

const EXHAUSTED: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

/// Compiled rules of a schema and of the schemas below it.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    own: Vec<Rule>,
    properties: BTreeMap<String, Self>,
    additional: Option<Box<Self>>,
    items: Option<Box<Self>>,
    all_of: Vec<Self>,
}

#[derive(Debug)]
struct Rule {
    program: Result<Program, String>,
    /// The rule as it is named in messages.
    text: String,
    message: String,
    message_expression: Option<Program>,
    reason: ErrorType,
    /// Path of the field that errors name, relative to that of the rule.
    field_path: String,
    has_optional_old_self: bool,
    uses_old_self: bool,
}

impl Rule {
    fn compile(rule: &Value) -> Self {
        let text = |field: &str| str_at(rule, &[field]).trim();
        let program = Program::compile(str_at(rule, &["rule"]));
        Self {
            uses_old_self: program.as_ref().is_ok_and(|program| program.uses("oldSelf")),
            program,
            text: if text("message").is_empty() { text("rule") } else { text("message") }.to_owned(),
            message: text("message").to_owned(),
            message_expression: Some(text("messageExpression"))
                .filter(|text| !text.is_empty())
                .and_then(|text| Program::compile(text).ok()),
            reason: match text("reason") {
                "FieldValueForbidden" => ErrorType::Forbidden,
                "FieldValueRequired" => ErrorType::Required,
                "FieldValueDuplicate" => ErrorType::Duplicate,
                _ => ErrorType::Invalid,
            },
            field_path: normalized_path(text("fieldPath")),
            has_optional_old_self: bool_at(rule, &["optionalOldSelf"]),
        }
    }
}

/// A path such as `.spec['a.b']` as `field.Path` prints it, without the first dot.
fn normalized_path(path: &str) -> String {
    let mut normalized = String::new();
    let mut rest = path;
    while let Some((start, after)) = rest.split_once("['") {
        let (name, after) = after.split_once("']").unwrap_or((after, ""));
        normalized.push_str(start);
        normalized.push('.');
        normalized.push_str(&name.replace("\\'", "'"));
        rest = after;
    }
    normalized.push_str(rest);
    normalized.trim_start_matches('.').to_owned()
}

impl Rules {
    /// Compiles the rules of a `JSONSchemaProps`. `None` if there are none.
    pub(crate) fn compile(schema: &Value) -> Option<Self> {
        let below =
            |field: &str| at(schema, &[field]).filter(|schema| schema.is_object()).and_then(Self::compile);
        let properties = at(schema, &["properties"]).and_then(Value::as_object).into_iter().flatten();
        let rules = Self {
            own: list_at(schema, &["x-kubernetes-validations"]).iter().map(Rule::compile).collect(),
            properties: properties
                .filter_map(|(name, schema)| Some((name.clone(), Self::compile(schema)?)))
                .collect(),
            additional: below("additionalProperties").map(Box::new),
            items: below("items").map(Box::new),
            all_of: list_at(schema, &["allOf"]).iter().filter_map(Self::compile).collect(),
        };
        let is_empty = rules.own.is_empty()
            && rules.properties.is_empty()
            && rules.additional.is_none()
            && rules.items.is_none()
            && rules.all_of.is_empty();
        (!is_empty).then_some(rules)
    }

    /// Returns the errors of an object. `old` is its previous state.
    ///
    /// DEVIATION: an error that the change does not cause is ignored without a warning.
    pub(crate) fn validate(&self, object: &Value, old: Option<&Value>, schema: &Schema) -> Vec<FieldError> {
        let mut validation = Validation { budget: Cell::new(OBJECT_BUDGET), errors: Vec::new() };
        let correlation = Correlation { current: old.map(|old| (object, old)), parent: None };
        let place = Place { value: object, old, schema, path: String::new(), is_root: true };
        // The error is that the budget is exhausted, and is in the list.
        let _ = validation.validate(self, &place, correlation);
        validation.errors
    }
}

/// Error of the end of a validation.
struct Exhausted;

/// A value in an object, and its old state if the schema identifies it.
struct Place<'a> {
    value: &'a Value,
    old: Option<&'a Value>,
    schema: &'a Schema,
    path: String,
    is_root: bool,
}

/// The new and the old state of a value and of the nearest value around it that has an old state.
#[derive(Debug, Clone, Copy)]
struct Correlation<'a> {
    current: Option<(&'a Value, &'a Value)>,
    parent: Option<(&'a Value, &'a Value)>,
}

impl<'a> Correlation<'a> {
    /// `true` if the value is unchanged, so that errors in it are ignored.
    fn is_unchanged(self) -> bool {
        self.current.or(self.parent).is_some_and(|(new, old)| new == old)
    }

    fn below(self, child: impl FnOnce(&'a Value, &'a Value) -> Option<(&'a Value, &'a Value)>) -> Self {
        match self.current {
            None => self,
            Some((new, old)) => Self { current: child(new, old), parent: self.current },
        }
    }

    fn key(self, name: &str) -> Self {
        self.below(|new, old| Some((new.get(name)?, old.get(name)?)))
    }
}

struct SelfVariables {
    value: CelValue,
    old: Option<CelValue>,
}

impl Variables for SelfVariables {
    fn get(&self, name: &str, _: &Cell<u64>) -> Option<Outcome> {
        match name {
            "self" => Some(Ok(self.value.clone())),
            "oldSelf" => self.old.clone().map(Ok),
            _ => None,
        }
    }
}

struct Validation {
    budget: Cell<u64>,
    errors: Vec<FieldError>,
}

impl Validation {
    fn validate(
        &mut self,
        rules: &Rules,
        place: &Place<'_>,
        correlation: Correlation<'_>,
    ) -> Result<(), Exhausted> {
        if place.value.is_null() {
            return Ok(());
        }
        if !rules.own.is_empty() {
            self.own_rules(rules, place, correlation)?;
        }
        for nested in &rules.all_of {
            self.validate(nested, place, Correlation { current: None, ..correlation })?;
        }
        match place.value {
            Value::Array(items) => {
                let Some((rules, schema)) = rules.items.as_deref().zip(place.schema.items.as_deref()) else {
                    return Ok(());
                };
                for (index, item) in items.iter().enumerate() {
                    let old = same_item(item, place.old, &place.schema.list_type);
                    let path = format!("{}[{index}]", place.path);
                    let correlation = correlation.below(|_, _| Some((item, old?)));
                    let is_root = schema.is_embedded_resource;
                    self.validate(rules, &Place { value: item, old, schema, path, is_root }, correlation)?;
                }
            }
            Value::Object(members) => {
                for (name, value) in members {
                    let additional = match &place.schema.additional {
                        Additional::Schema(schema) => rules.additional.as_deref().zip(Some(&**schema)),
                        Additional::None | Additional::Any => None,
                    };
                    let property = rules.properties.get(name).zip(place.schema.properties.get(name));
                    let Some((rules, schema)) = property.or(additional) else { continue };
                    let path = match (property.is_some(), place.path.as_str()) {
                        (true, "") => name.clone(),
                        (true, path) => format!("{path}.{name}"),
                        (false, path) => format!("{path}[{name}]"),
                    };
                    let old = place.old.and_then(|old| old.get(name));
                    let is_root = schema.is_embedded_resource;
                    let place = Place { value, old, schema, path, is_root };
                    self.validate(rules, &place, correlation.key(name))?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn own_rules(
        &mut self,
        rules: &Rules,
        place: &Place<'_>,
        correlation: Correlation<'_>,
    ) -> Result<(), Exhausted> {
        let ty = place.schema.ty.map_or("", |ty| ty.name());
        let value = typed(place.value, place.schema, place.is_root);
        let old = place.old.filter(|_| rules.own.iter().any(|rule| rule.uses_old_self));
        let old = old.map(|old| typed(old, place.schema, place.is_root));
        // As upstream, where the lists of an optional value are plain.
        let has_optional = rules.own.iter().any(|rule| rule.has_optional_old_self);
        let optional_old =
            has_optional.then(|| old.as_ref().map_or_else(none, |old| some(without_identity(old))));
        for rule in &rules.own {
            if rule.uses_old_self && old.is_none() && !rule.has_optional_old_self {
                continue;
            }
            let old = if rule.has_optional_old_self { &optional_old } else { &old }.clone();
            let variables = SelfVariables { value: value.clone(), old };
            let program = match &rule.program {
                Ok(program) => program,
                Err(error) => {
                    self.invalid(place, ty, format!("rule compile error: compilation failed: {error}"));
                    continue;
                }
            };
            match program.evaluate(&variables, &self.budget) {
                Ok(CelValue::Bool(true)) => continue,
                Ok(_) => {}
                Err(EvalError(error)) if error == OUT_OF_BUDGET => {
                    self.exhausted(place, ty, &error, &rule.text);
                    return Err(Exhausted);
                }
                Err(EvalError(error)) if error.starts_with("no such overload") => {
                    let detail = format!(
                        "'{error}': call arguments did not match a supported operator, function or macro signature \
                         for rule: {}",
                        rule.text
                    );
                    self.invalid(place, ty, detail);
                    continue;
                }
                Err(error) => {
                    self.invalid(place, ty, format!("{error} evaluating rule: {}", rule.text));
                    continue;
                }
            }
            if !rule.uses_old_self && correlation.is_unchanged() {
                continue;
            }
            let detail = self.message(rule, &variables);
            let shown = Some(place.value).filter(|_| !matches!(ty, "object" | "array")).cloned();
            let field = match (place.path.as_str(), rule.field_path.as_str()) {
                ("", "") => "<nil>".to_owned(),
                (path, "") => path.to_owned(),
                ("", path) => path.to_owned(),
                (place, path) => format!("{place}.{path}"),
            };
            let detail = if rule.reason == ErrorType::Duplicate { String::new() } else { detail };
            self.errors.push(FieldError { field, error_type: rule.reason, value: shown, detail });
        }
        Ok(())
    }

    fn message(&self, rule: &Rule, variables: &SelfVariables) -> String {
        let expression = rule.message_expression.as_ref();
        let evaluated = expression.and_then(|expression| expression.message(variables, &self.budget));
        evaluated.unwrap_or_else(|| {
            if rule.message.is_empty() { format!("failed rule: {}", rule.text) } else { rule.message.clone() }
        })
    }

    fn exhausted(&mut self, place: &Place<'_>, ty: &str, error: &str, rule: &str) {
        let detail = if self.budget.get() == 0 {
            EXHAUSTED.to_owned()
        } else {
            format!(
                "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {rule}"
            )
        };
        self.invalid(place, ty, detail);
    }

    fn invalid(&mut self, place: &Place<'_>, ty: &str, detail: String) {
        let field = if place.path.is_empty() { "<nil>" } else { &place.path }.to_owned();
        self.errors.push(FieldError {
            field,
            error_type: ErrorType::Invalid,
            value: Some(ty.into()),
            detail,
        });
    }
}

/// Returns the item of the old list with the same keys.
fn same_item<'a>(item: &Value, old: Option<&'a Value>, list_type: &ListType) -> Option<&'a Value> {
    let ListType::Map(keys) = list_type else { return None };
    let is_same = |other: &&Value| keys.iter().all(|key| other.get(key) == item.get(key));
    old?.as_array()?.iter().find(is_same)
}

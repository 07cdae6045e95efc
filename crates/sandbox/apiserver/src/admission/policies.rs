//! `ValidatingAdmissionPolicies` and their bindings.
//!
//! Upstream counterpart: `apiserver/pkg/admission/plugin/policy/validating`.

use std::{
    cell::{Cell, OnceCell, RefCell},
    collections::HashMap,
    sync::{Arc, LazyLock},
};

use kube_cel::cel::Value as CelValue;
use parking_lot::Mutex;
use serde_json::Value;

use super::{
    Attributes, GroupVersionResource,
    matching::{self, Criteria},
    review,
};
use crate::{
    ApiStatus, LabelSelector, Object, Resource, StatusReason,
    cel::{EvalError, MAX_MESSAGE, OBJECT_BUDGET, OUT_OF_BUDGET, Program, Variables, limited, untyped},
    json::{at, list_at, str_at},
    registry::Registry,
    store,
};

static POLICIES: LazyLock<Option<Resource>> =
    LazyLock::new(|| Resource::find("admissionregistration.k8s.io", "validatingadmissionpolicies"));
static BINDINGS: LazyLock<Option<Resource>> =
    LazyLock::new(|| Resource::find("admissionregistration.k8s.io", "validatingadmissionpolicybindings"));

/// Maximum number of policies, and of match conditions, that are kept compiled.
const MAX_COMPILED: usize = 1000;

/// Policies that were compiled, by UID.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    compiled: Mutex<HashMap<String, Arc<Policy>>>,
    /// Match conditions of webhooks that were compiled, by their text.
    conditions: Mutex<HashMap<String, Arc<Compiled>>>,
}

/// An expression, or the error of its compilation.
type Compiled = Result<Program, String>;

#[derive(Debug)]
struct Policy {
    /// Revision of the object that was compiled.
    revision: u64,
    conditions: Vec<Condition>,
    variables: Vec<(String, Compiled)>,
    validations: Vec<Validation>,
}

/// A match condition, with its text.
type Condition = (String, Arc<Compiled>);

fn conditions(rows: &[Value]) -> Vec<Condition> {
    let text = |row| str_at(row, &["expression"]);
    rows.iter().map(|row| (text(row).to_owned(), Arc::new(Program::compile(text(row))))).collect()
}

#[derive(Debug)]
struct Validation {
    expression: String,
    program: Compiled,
    message: String,
    message_expression: Option<Program>,
    reason: StatusReason,
}

/// A write that a policy denies.
struct Denial {
    message: String,
    reason: StatusReason,
}

impl Policy {
    fn compile(policy: &Object) -> Self {
        let spec = |field: &str| list_at(policy.value(), &["spec", field]);
        let compile = |row: &Value| Program::compile(str_at(row, &["expression"]));
        let validation = |row: &Value| Validation {
            expression: str_at(row, &["expression"]).trim().to_owned(),
            program: compile(row),
            message: str_at(row, &["message"]).trim().to_owned(),
            message_expression: at(row, &["messageExpression"])
                .and_then(|text| Program::compile(text.as_str()?).ok()),
            reason: match str_at(row, &["reason"]) {
                "Unauthorized" => StatusReason::Unauthorized,
                "Forbidden" => StatusReason::Forbidden,
                "RequestEntityTooLarge" => StatusReason::RequestEntityTooLarge,
                _ => StatusReason::Invalid,
            },
        };
        Self {
            revision: policy.revision(),
            conditions: conditions(spec("matchConditions")),
            variables: spec("variables")
                .iter()
                .map(|row| (str_at(row, &["name"]).to_owned(), compile(row)))
                .collect(),
            validations: spec("validations").iter().map(validation).collect(),
        }
    }
}

/// `true` if a binding of a policy exists.
pub(crate) fn exist(registry: &Registry) -> bool {
    BINDINGS.is_some_and(|resource| registry.store.read(|state| state.iter(resource, "").next().is_some()))
}

impl Policies {
    /// Validates a write. Returns the warnings of bindings with the action `Warn`.
    ///
    /// `equivalents` are the group-versions in which the resource is served.
    ///
    /// DEVIATION: expressions read the object in the version of the request. Upstream converts it to the version that a rule
    /// matches.
    /// `authorizer` is not defined, and audit annotations are not evaluated.
    ///
    /// # Errors
    ///
    /// A binding with the action `Deny` denies the write, or the policy fails.
    pub(crate) fn validate(
        &self,
        registry: &Registry,
        attributes: &Attributes<'_>,
        equivalents: &[GroupVersionResource<'_>],
    ) -> Result<Vec<String>, ApiStatus> {
        let all = |resource: &Option<Resource>| -> Vec<Arc<Object>> {
            resource
                .map(|resource| registry.store.read(|state| state.iter(resource, "").collect()))
                .unwrap_or_default()
        };
        let bindings = all(&BINDINGS);
        if bindings.is_empty() || matching::is_exempt(attributes) {
            return Ok(Vec::new());
        }
        let input = Input::new(registry, attributes, equivalents);
        let mut results = Results::default();
        for policy in all(&POLICIES) {
            let is_bound =
                |binding: &&Arc<Object>| str_at(binding.value(), &["spec", "policyName"]) == policy.name();
            let bindings: Vec<_> = bindings.iter().filter(is_bound).collect();
            if !bindings.is_empty() {
                self.validate_by(&input, &policy, &bindings, &mut results);
            }
        }
        match results.denials.into_iter().next() {
            None => Ok(results.warnings),
            Some(Denial { message, reason }) => Err(refusal(attributes, &message, reason)),
        }
    }

    /// Validates a write by a policy and its bindings.
    fn validate_by(
        &self,
        input: &Input<'_>,
        policy: &Object,
        bindings: &[&Arc<Object>],
        results: &mut Results,
    ) {
        let spec = &policy.value()["spec"];
        let fails = str_at(spec, &["failurePolicy"]) != "Ignore";
        match input.matches(at(spec, &["matchConstraints"])) {
            Ok(true) => {}
            Ok(false) => return,
            Err(why) => {
                if fails {
                    let message = format!("failed to configure policy: {why}");
                    results.deny(policy, None, &message, StatusReason::Invalid);
                }
                return;
            }
        }
        let compiled = self.compiled(policy);
        for binding in bindings {
            match input.evaluate_bound(&compiled, spec, binding.value(), fails) {
                Ok(failures) => {
                    for (message, reason) in failures {
                        results.add(policy, binding, &message, reason);
                    }
                }
                Err(why) if fails => {
                    let message = format!("failed to configure binding: {why}");
                    results.deny(policy, Some(binding), &message, StatusReason::Invalid);
                }
                Err(_) => {}
            }
        }
    }

    /// Returns the match conditions of a webhook.
    fn conditions(&self, rows: &[Value]) -> Vec<Condition> {
        let condition = |row: &Value| {
            let text = str_at(row, &["expression"]);
            if let Some(known) = self.conditions.lock().get(text) {
                return (text.to_owned(), Arc::clone(known));
            }
            let new = Arc::new(Program::compile(text));
            let mut conditions = self.conditions.lock();
            if conditions.len() >= MAX_COMPILED {
                conditions.clear();
            }
            conditions.insert(text.to_owned(), Arc::clone(&new));
            (text.to_owned(), new)
        };
        rows.iter().map(condition).collect()
    }

    fn compiled(&self, policy: &Object) -> Arc<Policy> {
        let is_current = |known: &&Arc<Policy>| known.revision == policy.revision();
        if let Some(known) = self.compiled.lock().get(policy.uid()).filter(is_current) {
            return Arc::clone(known);
        }
        // Without the lock, because other writes need it.
        let new = Arc::new(Policy::compile(policy));
        let mut compiled = self.compiled.lock();
        // Policies that no longer exist are not removed one by one.
        if compiled.len() >= MAX_COMPILED {
            compiled.clear();
        }
        compiled.insert(policy.uid().to_owned(), Arc::clone(&new));
        new
    }
}

/// Results of all policies for a write.
#[derive(Default)]
struct Results {
    denials: Vec<Denial>,
    warnings: Vec<String>,
}

impl Results {
    fn deny(&mut self, policy: &Object, binding: Option<&Object>, message: &str, reason: StatusReason) {
        let by = binding.map(|binding| format!(" with binding '{}'", binding.name())).unwrap_or_default();
        let message = format!("ValidatingAdmissionPolicy '{}'{by} denied request: {message}", policy.name());
        self.denials.push(Denial { message, reason });
    }

    /// Adds a validation that failed, as the actions of the binding require.
    fn add(&mut self, policy: &Object, binding: &Object, message: &str, reason: StatusReason) {
        let actions = list_at(binding.value(), &["spec", "validationActions"]);
        for action in actions.iter().filter_map(Value::as_str) {
            match action {
                "Deny" => self.deny(policy, Some(binding), message, reason),
                "Warn" => self.warnings.push(format!(
                    "Validation failed for ValidatingAdmissionPolicy '{}' with binding '{}': {message}",
                    policy.name(),
                    binding.name()
                )),
                _ => {}
            }
        }
    }
}

fn refusal(attributes: &Attributes<'_>, message: &str, reason: StatusReason) -> ApiStatus {
    let metadata = |field: &str| attributes.object.map_or("", |object| str_at(object, &["metadata", field]));
    let names = [attributes.name, metadata("name"), metadata("generateName"), "Unknown"];
    let name = names.into_iter().find(|name| !name.is_empty()).unwrap_or_default();
    let GroupVersionResource { group, resource, .. } = attributes.resource;
    let status = ApiStatus::forbidden_in(group, resource, name, message).with_cause("", message, "");
    ApiStatus { reason, ..status }
}

/// Returns the parameters of a binding. A binding without parameters has one that is `None`.
///
/// # Errors
///
/// The binding is wrong, or requires parameters and has none.
fn params(
    registry: &Registry,
    spec: &Value,
    binding: &Value,
    namespace: &str,
) -> Result<Vec<Option<Arc<Object>>>, String> {
    let (Some(kind), Some(reference)) = (at(spec, &["paramKind"]), at(binding, &["spec", "paramRef"])) else {
        return Ok(vec![None]);
    };
    let (api_version, name) = (str_at(kind, &["apiVersion"]), str_at(kind, &["kind"]));
    let resource = registry
        .resource_of_kind(api_version, name)
        .ok_or_else(|| format!("paramKind kind `{api_version}, Kind={name}` not known"))?;
    let given = str_at(reference, &["namespace"]);
    let namespace = match (resource.is_namespaced(), given) {
        (true, "") if namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                    .to_owned(),
            );
        }
        (true, "") => namespace,
        (true, given) => given,
        (false, "") => "",
        (false, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".to_owned());
        }
    };
    let found: Vec<_> = match (str_at(reference, &["name"]), at(reference, &["selector"])) {
        ("", None) => return Err("one of name or selector must be provided".to_owned()),
        ("", Some(selector)) => {
            let selector = LabelSelector::from_object(selector);
            let objects: Vec<_> = registry.store.read(|state| state.iter(resource, namespace).collect());
            objects
                .into_iter()
                .filter(|object: &Arc<Object>| selector.matches(object.value()))
                .map(Some)
                .collect()
        }
        (name, _) => {
            registry.store.get(resource, &store::key(namespace, name)).map(Some).into_iter().collect()
        }
    };
    if found.is_empty() && str_at(reference, &["parameterNotFoundAction"]) == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".to_owned());
    }
    Ok(found)
}

/// Variables of a write, which are converted when an expression first reads them.
struct Input<'a> {
    registry: &'a Registry,
    attributes: &'a Attributes<'a>,
    equivalents: &'a [GroupVersionResource<'a>],
    object: OnceCell<CelValue>,
    old_object: OnceCell<CelValue>,
    request: OnceCell<CelValue>,
    namespace: OnceCell<CelValue>,
}

impl<'a> Input<'a> {
    fn new(
        registry: &'a Registry,
        attributes: &'a Attributes<'a>,
        equivalents: &'a [GroupVersionResource<'a>],
    ) -> Self {
        Self {
            registry,
            attributes,
            equivalents,
            object: OnceCell::new(),
            old_object: OnceCell::new(),
            request: OnceCell::new(),
            namespace: OnceCell::new(),
        }
    }

    /// `true` if the write matches a `MatchResources`, or if there is none.
    fn matches(&self, resources: Option<&Value>) -> Result<bool, String> {
        let Some(resources) = resources else { return Ok(true) };
        let criteria = Criteria::of_match_resources(resources);
        let found = criteria.matches(self.attributes, self.equivalents, || self.stored_namespace());
        found.map(|found| found.is_some()).map_err(|error| error.message)
    }

    /// Returns message and reason of each validation that fails with the parameters of a binding.
    ///
    /// # Errors
    ///
    /// The binding is wrong.
    fn evaluate_bound(
        &self,
        policy: &Policy,
        spec: &Value,
        binding: &Value,
        fails: bool,
    ) -> Result<Vec<(String, StatusReason)>, String> {
        if !self.matches(at(binding, &["spec", "matchResources"]))? {
            return Ok(Vec::new());
        }
        let params = params(self.registry, spec, binding, self.attributes.namespace)?;
        Ok(params.iter().flat_map(|params| self.evaluate(policy, params.as_deref(), fails)).collect())
    }

    fn stored_namespace(&self) -> Option<Arc<Object>> {
        self.registry.store.get(Resource::NAMESPACES, &store::key("", self.attributes.namespace))
    }

    /// Returns message and reason of each validation that fails.
    fn evaluate(&self, policy: &Policy, params: Option<&Object>, fails: bool) -> Vec<(String, StatusReason)> {
        let variables = PolicyVariables {
            input: self,
            params: params.map_or(CelValue::Null, |params| untyped(params.value())),
            variables: &policy.variables,
            known: RefCell::default(),
            evaluates: Cell::new(false),
        };
        let budget = Cell::new(OBJECT_BUDGET);
        match meets(&policy.conditions, &variables, &budget) {
            Ok(true) => {}
            Ok(false) => return Vec::new(),
            Err(error) if fails => return vec![(error, StatusReason::Invalid)],
            Err(_) => return Vec::new(),
        }
        let mut failures = Vec::new();
        for validation in &policy.validations {
            let failure = match run(&validation.program, &variables, &budget) {
                Ok(CelValue::Bool(true)) => continue,
                Ok(_) => (validation.failure(&variables, &budget), validation.reason),
                Err(_) if !fails => continue,
                Err(Failure::Compilation(error)) => (format!("compilation error: {error}"), StatusReason::Invalid),
                Err(Failure::Evaluation(EvalError(error))) if error == OUT_OF_BUDGET => (
                    "validation failed due to running out of cost budget, no further validation rules will be run"
                        .to_owned(),
                    StatusReason::Invalid,
                ),
                Err(Failure::Evaluation(error)) => {
                    let message = format!("expression '{}' resulted in error: {error}", validation.expression);
                    (message, StatusReason::Invalid)
                }
            };
            failures.push(failure);
        }
        failures
    }
}

/// Error of an expression.
enum Failure {
    Compilation(String),
    Evaluation(EvalError),
}

fn run(program: &Compiled, variables: &dyn Variables, budget: &Cell<u64>) -> Result<CelValue, Failure> {
    let program = program.as_ref().map_err(|error| Failure::Compilation(error.clone()))?;
    program.evaluate(variables, budget).map_err(Failure::Evaluation)
}

/// `true` if no match condition is false.
///
/// # Errors
///
/// A condition fails, and none is false.
fn meets(conditions: &[Condition], variables: &dyn Variables, budget: &Cell<u64>) -> Result<bool, String> {
    let mut errors = Vec::new();
    for (text, program) in conditions {
        match run(program, variables, budget) {
            Ok(CelValue::Bool(true)) => {}
            Ok(_) => return Ok(false),
            Err(Failure::Compilation(error)) => errors.push(format!("compilation error: {error}")),
            Err(Failure::Evaluation(error)) => {
                errors.push(format!("expression '{text}' resulted in error: {error}"));
            }
        }
    }
    match errors.as_slice() {
        [] => Ok(true),
        [error] => Err(error.clone()),
        errors => Err(format!("[{}]", errors.join(", "))),
    }
}

/// `true` if a write meets the `matchConditions` of a webhook.
///
/// # Errors
///
/// A condition fails, and none is false. The failure policy of the webhook applies.
pub(crate) fn meets_conditions(
    registry: &Registry,
    attributes: &Attributes<'_>,
    rows: &[Value],
) -> Result<bool, String> {
    let input = Input::new(registry, attributes, &[]);
    let variables = PolicyVariables {
        input: &input,
        params: CelValue::Null,
        variables: &[],
        known: RefCell::default(),
        evaluates: Cell::new(false),
    };
    meets(&registry.policies.conditions(rows), &variables, &Cell::new(OBJECT_BUDGET))
}

impl Validation {
    /// Message of a validation that is false.
    fn failure(&self, variables: &dyn Variables, budget: &Cell<u64>) -> String {
        let expression = self.message_expression.as_ref();
        let evaluated = expression.and_then(|expression| expression.message(variables, budget));
        evaluated.unwrap_or_else(|| match self.message.as_str() {
            "" => format!("failed expression: {}", self.expression),
            message => message.to_owned(),
        })
    }
}

struct PolicyVariables<'a> {
    input: &'a Input<'a>,
    params: CelValue,
    variables: &'a [(String, Compiled)],
    /// Values of the first of `variables`, as far as they were read.
    known: RefCell<Vec<Result<CelValue, EvalError>>>,
    /// `true` while a variable is evaluated.
    evaluates: Cell<bool>,
}

impl Variables for PolicyVariables<'_> {
    fn get(&self, name: &str, budget: &Cell<u64>) -> Option<Result<CelValue, EvalError>> {
        let Input { attributes, object, old_object, request, namespace, .. } = self.input;
        let converted = |json: Option<&Value>| json.map_or(CelValue::Null, untyped);
        Some(Ok(match name {
            "object" => object.get_or_init(|| converted(attributes.object)).clone(),
            "oldObject" => old_object.get_or_init(|| converted(attributes.old_object)).clone(),
            "request" => request
                .get_or_init(|| untyped(&review::members(attributes.kind, attributes.resource, attributes)))
                .clone(),
            "params" => self.params.clone(),
            "namespaceObject" => {
                let is_of_cluster =
                    attributes.namespace.is_empty() || attributes.resource.resource == "namespaces";
                let read = || self.input.stored_namespace().filter(|_| !is_of_cluster);
                namespace
                    .get_or_init(|| read().map_or(CelValue::Null, |found| untyped(found.value())))
                    .clone()
            }
            _ => return self.variable(name.strip_prefix("variables.")?, budget),
        }))
    }
}

impl PolicyVariables<'_> {
    fn variable(&self, name: &str, budget: &Cell<u64>) -> Option<Result<CelValue, EvalError>> {
        let position = self.variables.iter().position(|(known, _)| known == name)?;
        // A variable reads earlier ones only. They are evaluated before it, so a long chain does not take the stack.
        while self.known.borrow().len() <= position {
            if self.evaluates.get() {
                return None;
            }
            let (name, program) = &self.variables[self.known.borrow().len()];
            self.evaluates.set(true);
            let value = match program {
                Ok(program) => program.evaluate(self, budget).and_then(|value| limited(value, budget)),
                Err(error) => Err(EvalError(format!("compilation error: {error}"))),
            };
            self.evaluates.set(false);
            // The error of a long chain does not contain those of all its variables.
            let failed = |error: EvalError| match error {
                error if error.0.len() > MAX_MESSAGE => error,
                error => EvalError(format!("composited variable {name:?} fails to evaluate: {error}")),
            };
            self.known.borrow_mut().push(value.map_err(failed));
        }
        self.known.borrow().get(position).cloned()
    }
}

#[cfg(test)]
mod tests;

//! Admission of the writes of a request by policies and webhooks.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use jiff::Timestamp;
use kcm_clock::SeededRandom;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::{
    Attributes, GroupVersionKind, GroupVersionResource, Operation,
    matching::{self, Criteria},
    policies,
    version::ServedForm,
};
use crate::{
    ApiServer, ApiStatus, Object, Resource, Subresource, User,
    custom::WebhookConversion,
    json::{list_at, str_at},
    kind::Kind,
    resource::ServedVersion,
    store,
    webhook::Webhooks,
};

/// Configurations of webhooks. Those of a kind are called in the order of their names.
static MUTATING: LazyLock<Option<Resource>> =
    LazyLock::new(|| Resource::find("admissionregistration.k8s.io", "mutatingwebhookconfigurations"));
static VALIDATING: LazyLock<Option<Resource>> =
    LazyLock::new(|| Resource::find("admissionregistration.k8s.io", "validatingwebhookconfigurations"));

/// Maximum duration of a request, as upstream (`requestTimeoutUpperBound`).
const TIMEOUT: Duration = Duration::from_secs(34);

/// Maximum number of answers that are kept. A write requires up to two conversions, a mutation and a validation, and again for
/// each generated name that exists.
const MAX_ANSWERS: usize = 16;

/// Maximum number of answers for a request for one object, which changes between the attempts if other clients write it.
const MAX_ATTEMPTS: usize = 100;

/// Maximum total length in bytes of the warnings of webhooks in a response, as upstream.
const MAX_WARNINGS: usize = 4096;

/// Request whose writes policies and webhooks admit, or whose objects a webhook converts.
///
/// Writes are synchronous, calls of webhooks are not. Where a write requires an answer that is not known yet, it records the
/// [question](Question) and fails. Nothing is stored, and no lock is held. The caller then gets the answer
/// ([`answer`](Self::answer)) and repeats the write, which comes to the same point with the same object. After a conflict
/// with another write the object differs, and webhooks are called again, as upstream.
///
/// A write that is repeated gets the same time and the same random numbers.
#[derive(Debug)]
pub(crate) struct Admission<'a> {
    pub(super) server: &'a ApiServer,
    /// `None` without a client of webhooks: none is called then.
    webhooks: Option<Webhooks>,
    pub(super) request: AdmittedRequest<'a>,
    pub(super) mutating: Vec<Arc<Object>>,
    pub(super) validating: Vec<Arc<Object>>,
    /// Group-versions in which the resource is served.
    pub(super) forms: Vec<ServedForm>,
    /// End of the request on the monotonic clock. `None` for the deletion of a collection.
    deadline: Option<Duration>,
    time: Timestamp,
    seed: u64,
    state: Mutex<State>,
}

/// Request of an [`Admission`].
#[derive(Debug, Clone)]
pub(crate) struct AdmittedRequest<'a> {
    pub(crate) kind: &'a Kind,
    pub(crate) served_version: Option<ServedVersion>,
    pub(crate) namespace: &'a str,
    pub(crate) subresource: Option<Subresource>,
    pub(crate) user: &'a User,
    /// Members of the options, such as `fieldManager`.
    pub(crate) options: Value,
    pub(crate) dry_run: bool,
    /// `true` for the deletion of a collection.
    pub(crate) is_collection: bool,
}

/// Object that is admitted, in the version of the request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Subject {
    pub(super) operation: Operation,
    pub(super) name: String,
    pub(super) object: Option<Value>,
    pub(super) old_object: Option<Value>,
}

/// Answer that a write waits for.
#[derive(Debug, Clone, PartialEq)]
enum Question {
    Mutate(Subject),
    Validate(Subject),
    Convert { object: Value, to: String },
}

/// Question that was answered.
#[derive(Debug)]
struct Answer {
    question: Question,
    /// The object after mutation or conversion.
    object: Option<Value>,
}

#[derive(Debug, Default)]
struct State {
    question: Option<Question>,
    answers: Vec<Answer>,
    attempts: usize,
    warnings: Vec<String>,
}

impl<'a> Admission<'a> {
    /// Returns the admission of a request. `None` if there are no policies, and no webhook may be called for it.
    pub(crate) fn new(server: &'a ApiServer, request: AdmittedRequest<'a>) -> Option<Self> {
        let webhooks = server.webhooks();
        let stored = |resource: Option<Resource>| -> Vec<Arc<Object>> {
            let read = |resource| server.registry.store.read(|state| state.iter(resource, "").collect());
            resource.filter(|_| webhooks.is_some()).map(read).unwrap_or_default()
        };
        let (mutating, validating) = (stored(*MUTATING), stored(*VALIDATING));
        let converts = webhooks.is_some() && request.kind.conversion().is_some();
        if mutating.is_empty() && validating.is_empty() && !converts && !policies::exist(&server.registry) {
            return None;
        }
        let clock = &server.config.clock;
        Some(Self {
            server,
            forms: ServedForm::all(server, request.kind),
            webhooks,
            mutating,
            validating,
            deadline: (!request.is_collection).then(|| clock.monotonic().saturating_add(TIMEOUT)),
            time: clock.now(),
            seed: server.config.random.next_u64(),
            state: Mutex::default(),
            request,
        })
    }

    /// Time of the write.
    pub(crate) fn time(&self) -> Timestamp {
        self.time
    }

    /// Random numbers of the write.
    pub(crate) fn random(&self) -> SeededRandom {
        SeededRandom::new(self.seed)
    }

    /// Warnings of the webhooks so far.
    pub(crate) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.state.lock().warnings)
    }

    pub(super) fn warn(&self, warnings: Vec<String>) {
        let given = &mut self.state.lock().warnings;
        // Upstream does not send empty warnings and those with control characters.
        let valid = |warning: &String| !warning.is_empty() && !warning.contains(char::is_control);
        for warning in warnings.into_iter().filter(valid) {
            let length: usize = given.iter().map(String::len).sum();
            if length + warning.len() <= MAX_WARNINGS && !given.contains(&warning) {
                given.push(warning);
            }
        }
    }

    /// Time that is left for a call of at most `timeout`.
    pub(super) fn time_left(&self, timeout: Duration) -> Result<Duration, ApiStatus> {
        let Some(deadline) = self.deadline else { return Ok(timeout) };
        match deadline.saturating_sub(self.server.config.clock.monotonic()) {
            Duration::ZERO => Err(ApiStatus::request_timeout()),
            left => Ok(left.min(timeout)),
        }
    }

    /// Returns a new object as the webhooks change it.
    pub(crate) fn mutate(
        &self,
        operation: Operation,
        name: &str,
        object: Value,
        old: Option<&Value>,
    ) -> Result<Value, ApiStatus> {
        let subject = self.subject(operation, name, Some(&object), old);
        if !self.is_selected(&self.mutating, &subject)? {
            return Ok(object);
        }
        let mutated = self.known(Question::Mutate(subject))?;
        let mutated = mutated.ok_or_else(|| ApiStatus::internal("the object has no new state"))?;
        Ok(match self.request.served_version {
            Some(served_version) if self.has_versions() => {
                served_version.convert_to_storage(&mutated, self.request.kind.api_version())
            }
            _ => mutated,
        })
    }

    /// Validates the final state of an object.
    pub(crate) fn validate(
        &self,
        operation: Operation,
        name: &str,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<(), ApiStatus> {
        self.validate_subject(self.subject(operation, name, Some(object), old))
    }

    fn validate_subject(&self, subject: Subject) -> Result<(), ApiStatus> {
        let is_selected = self.is_selected(&self.validating, &subject)?;
        let question = Question::Validate(subject);
        if is_selected && self.is_answered(&question) {
            // The policies have admitted it as well.
            return Ok(());
        }
        if let Question::Validate(subject) = &question {
            self.validate_by_policies(subject)?;
        }
        if is_selected {
            self.known(question)?;
        }
        Ok(())
    }

    /// # Errors
    ///
    /// A policy denies the write.
    fn validate_by_policies(&self, subject: &Subject) -> Result<(), ApiStatus> {
        let registry = &self.server.registry;
        let options = self.options(subject.operation);
        let equivalents: Vec<_> = self.forms.iter().map(ServedForm::group_version_resource).collect();
        let attributes = self.attributes(subject, &options);
        let warnings = registry.policies.validate(registry, &attributes, &equivalents)?;
        self.warn(warnings);
        Ok(())
    }

    /// Admits an object without an old state that is not changed afterwards: that of a subresource, or of a connection.
    pub(crate) fn admit(&self, operation: Operation, name: &str, object: Value) -> Result<Value, ApiStatus> {
        let object = self.mutate(operation, name, object, None)?;
        self.validate(operation, name, &object, None)?;
        Ok(object)
    }

    /// Admits the deletion of a stored object.
    pub(crate) fn admit_deletion(&self, old: &Object) -> Result<(), ApiStatus> {
        let shown = self.request.kind.shown_by(old, Some(self))?;
        // As upstream, there is no name if a collection is deleted.
        let name = if self.request.is_collection { "" } else { old.name() };
        let subject = self.subject(Operation::Delete, name, None, Some(&shown));
        if self.is_selected(&self.mutating, &subject)? {
            self.known(Question::Mutate(subject.clone()))?;
        }
        self.validate_subject(subject)
    }

    /// Returns an object as a webhook converts it.
    pub(crate) fn convert(&self, object: Value, to: &str) -> Result<Value, ApiStatus> {
        let converted = self.known(Question::Convert { object, to: to.to_owned() })?;
        converted.ok_or_else(|| ApiStatus::internal("the object was not converted"))
    }

    fn is_answered(&self, question: &Question) -> bool {
        self.state.lock().answers.iter().any(|answer| answer.question == *question)
    }

    /// Returns the answer to a question, or records the question.
    fn known(&self, question: Question) -> Result<Option<Value>, ApiStatus> {
        let mut state = self.state.lock();
        if let Some(answer) = state.answers.iter().find(|answer| answer.question == question) {
            return Ok(answer.object.clone());
        }
        state.question = Some(question);
        Err(ApiStatus::internal("a webhook was not called"))
    }

    /// `true` if the last attempt has recorded a question.
    pub(crate) fn has_question(&self) -> bool {
        self.state.lock().question.is_some()
    }

    /// Answers the question that the last attempt has recorded.
    ///
    /// # Errors
    ///
    /// A webhook denies the request or fails.
    pub(crate) async fn answer(&self) -> Result<(), ApiStatus> {
        let question = {
            let mut state = self.state.lock();
            state.attempts += 1;
            if state.attempts > MAX_ATTEMPTS && !self.request.is_collection {
                return Err(ApiStatus::internal("the object changes too often for its webhooks"));
            }
            let Some(question) = state.question.take() else { return Ok(()) };
            question
        };
        self.time_left(TIMEOUT)?;
        let object = match question.clone() {
            Question::Mutate(subject) => self.call_mutating(subject).await?,
            Question::Validate(subject) => {
                self.call_validating(&subject).await?;
                None
            }
            Question::Convert { object, to } => {
                let conversion = self.request.kind.conversion();
                let conversion = conversion.ok_or_else(|| ApiStatus::internal("no conversion webhook"))?;
                Some(self.convert_by(conversion, object, &to).await?)
            }
        };
        let mut state = self.state.lock();
        // Answers about the object before a conflict, and about other objects of a collection, are the oldest ones.
        if state.answers.len() == MAX_ANSWERS {
            state.answers.remove(0);
        }
        state.answers.push(Answer { question, object });
        Ok(())
    }

    pub(super) async fn convert_by(
        &self,
        conversion: &WebhookConversion,
        object: Value,
        to: &str,
    ) -> Result<Value, ApiStatus> {
        let converted = conversion.convert(self.client()?, &[object], to).await?;
        converted.into_iter().next().ok_or_else(|| ApiStatus::internal("the object was not converted"))
    }

    /// Returns the client of webhooks.
    pub(super) fn client(&self) -> Result<&Webhooks, ApiStatus> {
        self.webhooks.as_ref().ok_or_else(|| ApiStatus::internal("no client of webhooks is configured"))
    }

    /// `true` if the objects of the request are those of the resource, not those of a subresource.
    pub(crate) fn has_versions(&self) -> bool {
        self.request.subresource.is_none_or(|part| {
            !matches!(part, Subresource::Binding | Subresource::Eviction | Subresource::Scale)
                && part.connect_options("").is_none()
        })
    }

    fn subject(
        &self,
        operation: Operation,
        name: &str,
        object: Option<&Value>,
        old: Option<&Value>,
    ) -> Subject {
        let shown = |value: &Value| match self.request.served_version {
            Some(served_version) if self.has_versions() => served_version.convert_from_storage(value),
            _ => value.clone(),
        };
        Subject { operation, name: name.to_owned(), object: object.map(shown), old_object: old.map(shown) }
    }

    /// `true` if a webhook of `configurations` is called for `subject`.
    fn is_selected(&self, configurations: &[Arc<Object>], subject: &Subject) -> Result<bool, ApiStatus> {
        let options = self.options(subject.operation);
        let attributes = self.attributes(subject, &options);
        if matching::is_exempt(&attributes) {
            return Ok(false);
        }
        for webhook in webhooks_in(configurations) {
            if self.matches(webhook, &attributes)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Returns the resource in whose version a webhook is called, if it is called.
    pub(super) fn matches<'b>(
        &'b self,
        webhook: &'b Value,
        attributes: &Attributes<'b>,
    ) -> Result<Option<GroupVersionResource<'b>>, ApiStatus> {
        let equivalents: Vec<_> = self.forms.iter().map(ServedForm::group_version_resource).collect();
        let store = &self.server.registry.store;
        let namespace = || store.get(Resource::NAMESPACES, &store::key("", attributes.namespace));
        match Criteria::of_webhook(webhook).matches(attributes, &equivalents, namespace)? {
            Some(resource) if self.meets_conditions(webhook, attributes)? => Ok(Some(resource)),
            _ => Ok(None),
        }
    }

    /// `true` if the write meets the match conditions of a webhook.
    ///
    /// # Errors
    ///
    /// 403 if the evaluation fails and the failure policy is `Fail`. Otherwise the write does not meet the conditions.
    fn meets_conditions(&self, webhook: &Value, attributes: &Attributes<'_>) -> Result<bool, ApiStatus> {
        let conditions = list_at(webhook, &["matchConditions"]);
        if conditions.is_empty() {
            return Ok(true);
        }
        match policies::meets_conditions(&self.server.registry, attributes, conditions) {
            Ok(met) => Ok(met),
            Err(_) if str_at(webhook, &["failurePolicy"]) == "Ignore" => Ok(false),
            Err(why) => Err(ApiStatus::forbidden(self.request.kind.resource, attributes.name, why)),
        }
    }

    pub(super) fn attributes<'b>(&'b self, subject: &'b Subject, options: &'b Value) -> Attributes<'b> {
        let AdmittedRequest { kind, served_version, namespace, subresource, user, dry_run, .. } =
            &self.request;
        let api_version = served_version.map_or(kind.api_version(), |version| version.api_version());
        let (group, version) = split(api_version);
        let resource = GroupVersionResource { group, version, resource: kind.resource.plural() };
        let is_namespace = kind.resource == Resource::NAMESPACES;
        Attributes {
            operation: subject.operation,
            kind: self.subresource_kind().unwrap_or(GroupVersionKind { group, version, kind: kind.name() }),
            resource,
            subresource: subresource.map_or("", Subresource::name),
            namespace: if is_namespace { &subject.name } else { namespace },
            name: &subject.name,
            object: subject.object.as_ref(),
            old_object: subject.old_object.as_ref(),
            options,
            user,
            dry_run: *dry_run,
        }
    }

    /// Kind of the objects of a subresource, if it is another one than that of the resource.
    pub(super) fn subresource_kind(&self) -> Option<GroupVersionKind<'static>> {
        let (group, version, kind) = match self.request.subresource? {
            Subresource::Scale => ("autoscaling", "v1", "Scale"),
            Subresource::Binding => ("", "v1", "Binding"),
            Subresource::Eviction => ("policy", "v1", "Eviction"),
            Subresource::Token => ("authentication.k8s.io", "v1", "TokenRequest"),
            part => ("", "v1", part.connect_options(self.request.kind.name())?),
        };
        Some(GroupVersionKind { group, version, kind })
    }

    /// Returns the options of the request with their kind.
    pub(super) fn options(&self, operation: Operation) -> Value {
        let kind = match operation {
            Operation::Create => "CreateOptions",
            Operation::Update => "UpdateOptions",
            Operation::Delete => "DeleteOptions",
            Operation::Connect => return Value::Null,
        };
        let mut options = json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"});
        for (name, value) in self.request.options.as_object().into_iter().flatten() {
            options[name] = value.clone();
        }
        options
    }
}

/// Splits a group and version.
pub(super) fn split(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Webhooks of all configurations, in the order in which they are called.
pub(super) fn webhooks_in(configurations: &[Arc<Object>]) -> impl Iterator<Item = &Value> {
    configurations.iter().flat_map(|configuration| list_at(configuration.value(), &["webhooks"]))
}

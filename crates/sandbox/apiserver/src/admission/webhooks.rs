//! Calls of admission webhooks.
//!
//! Upstream counterpart: `admission/plugin/webhook/mutating` and `validating`.

use std::{collections::BTreeSet, time::Duration};

use futures_util::future::join_all;
use serde_json::Value;

use super::{
    GroupVersionKind, GroupVersionResource,
    request::{Admission, AdmittedRequest, Subject, webhooks_in},
    review::{self, Answer, Versioned},
    version::{self, ServedForm},
};
use crate::{
    ApiStatus,
    json::{at, i64_at, list_at, str_at, type_name},
    patch, webhook,
};

/// Timeout of a webhook without `timeoutSeconds`.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Failure of a webhook.
enum Failure {
    /// The call failed. `failurePolicy` decides.
    Call(String),
    /// The webhook denied the request, or must not be called for it.
    Denied(ApiStatus),
}

impl Failure {
    /// Returns the response to the request. `None` if the failure is ignored.
    fn status(self, webhook: &Value) -> Option<ApiStatus> {
        let name = str_at(webhook, &["name"]);
        match self {
            Self::Denied(status) => Some(status),
            Self::Call(reason) => {
                let error = format!("failed calling webhook {name:?}: {reason}");
                if str_at(webhook, &["failurePolicy"]) == "Ignore" {
                    tracing::warn!(error, "Failed calling webhook, failing open");
                    return None;
                }
                Some(ApiStatus::internal_error(&error))
            }
        }
    }
}

impl Admission<'_> {
    /// Calls the mutating webhooks one after the other, and those that are reinvocable a second time if a later one has
    /// changed the object. Returns the changed object.
    pub(super) async fn call_mutating(&self, mut subject: Subject) -> Result<Option<Value>, ApiStatus> {
        // Positions of webhooks: reinvocable ones that were called, and those that must be called again.
        let (mut called, mut again) = (BTreeSet::new(), BTreeSet::new());
        let mut is_changed = false;
        for round in 0..2 {
            for (position, webhook) in webhooks_in(&self.mutating).enumerate() {
                if round == 1 && !again.contains(&position) {
                    continue;
                }
                let options = self.options(subject.operation);
                let resource = self.matches(webhook, &self.attributes(&subject, &options))?;
                let Some(resource) = resource else { continue };
                match self.mutate_by(webhook, &subject, resource).await {
                    Ok(Some(object)) => {
                        is_changed = true;
                        subject.object = Some(object);
                        again.append(&mut called);
                    }
                    Ok(None) => {}
                    Err(failure) => {
                        if let Some(status) = failure.status(webhook) {
                            return Err(status);
                        }
                    }
                }
                if str_at(webhook, &["reinvocationPolicy"]) == "IfNeeded" {
                    called.insert(position);
                }
            }
            if !is_changed {
                break;
            }
        }
        Ok(subject.object)
    }

    /// Calls a mutating webhook. Returns the object if it changes.
    async fn mutate_by(
        &self,
        webhook: &Value,
        subject: &Subject,
        resource: GroupVersionResource<'_>,
    ) -> Result<Option<Value>, Failure> {
        let shown = self.shown_to(subject, resource).await?;
        let answer = self.ask(webhook, subject, &shown, true).await?;
        let Some(patch) = answer.patch else { return Ok(None) };
        let undecodable =
            |error| Failure::Call(format!("received undecodable patch in webhook response: {error}"));
        let patch: Value = serde_json::from_slice(&patch)
            .map_err(|error| undecodable(crate::strict::syntax_error(&error, &patch)))?;
        match patch.as_array() {
            Some(operations) if operations.is_empty() => return Ok(None),
            Some(_) => {}
            None => {
                let found = type_name(&patch);
                let error = format!("json: cannot unmarshal {found} into Go value of type jsonpatch.Patch");
                return Err(undecodable(error));
            }
        }
        let Some(object) = &shown.object else {
            let name = str_at(webhook, &["name"]);
            return Err(Failure::Denied(ApiStatus::internal_error(&format!(
                "admission webhook {name:?} attempted to modify the object, which is not supported for this operation"
            ))));
        };
        if answer.patch_type != review::JSON_PATCH {
            return Err(Failure::Call(format!("unsupported patch type {:?}", answer.patch_type)));
        }
        let patched = patch::json_patch(object, &patch)
            .map_err(|error| Failure::Denied(ApiStatus::internal_error(&error.message)))?;
        let normal = match (shown.form, self.subresource_kind()) {
            (Some(form), _) => form.normalize(patched),
            (None, Some(kind)) => {
                let api_version = str_at(object, &["apiVersion"]);
                version::normalize_subresource(api_version, kind.kind, patched)
            }
            (None, None) => Ok(patched),
        };
        let normal = normal.map_err(Failure::Denied)?;
        if normal == *object {
            return Ok(None);
        }
        self.converted(shown.form, self.own_form(), normal).await.map(Some).map_err(Failure::Denied)
    }

    /// Calls the validating webhooks at the same time.
    ///
    /// # Errors
    ///
    /// That of the first webhook that denies the request or fails.
    pub(super) async fn call_validating(&self, subject: &Subject) -> Result<(), ApiStatus> {
        let options = self.options(subject.operation);
        let attributes = self.attributes(subject, &options);
        let mut called = Vec::new();
        for webhook in webhooks_in(&self.validating) {
            if let Some(resource) = self.matches(webhook, &attributes)? {
                called.push((webhook, resource));
            }
        }
        let calls = called.into_iter().map(async |(webhook, resource)| {
            let shown = self.shown_to(subject, resource).await;
            let answer = match shown {
                Ok(shown) => self.ask(webhook, subject, &shown, false).await,
                Err(failure) => Err(failure),
            };
            answer.err().and_then(|failure| failure.status(webhook))
        });
        join_all(calls).await.into_iter().flatten().next().map_or(Ok(()), Err)
    }

    /// Sends the review of an object to a webhook. Returns the answer if the webhook allows the request.
    async fn ask(
        &self,
        webhook: &Value,
        subject: &Subject,
        shown: &Shown<'_>,
        is_mutating: bool,
    ) -> Result<Answer, Failure> {
        let name = str_at(webhook, &["name"]);
        if self.request.dry_run && !matches!(str_at(webhook, &["sideEffects"]), "None" | "NoneOnDryRun") {
            let message = format!("admission webhook {name:?} does not support dry run");
            return Err(Failure::Denied(ApiStatus::bad_request(message)));
        }
        let version = webhook::review_version(list_at(webhook, &["admissionReviewVersions"]));
        let version = version.ok_or_else(|| {
            let reason = "webhook does not accept known AdmissionReview versions (v1, v1beta1)";
            Failure::Call(format!("could not create admission objects: {reason}"))
        })?;
        let options = self.options(subject.operation);
        let attributes = self.attributes(subject, &options);
        let webhooks = self.client().map_err(Failure::Denied)?;
        let uid = webhooks.new_uid();
        let versioned = Versioned {
            kind: shown.kind,
            resource: shown.resource,
            object: shown.object.as_ref(),
            old_object: shown.old_object.as_ref(),
        };
        let request = review::request(version, &uid, &versioned, &attributes);
        let seconds = i64_at(webhook, &["timeoutSeconds"]).and_then(|seconds| seconds.try_into().ok());
        let timeout = seconds.map_or(DEFAULT_TIMEOUT, Duration::from_secs);
        let timeout = self.time_left(timeout).map_err(Failure::Denied)?;
        let config = at(webhook, &["clientConfig"]).unwrap_or(&Value::Null);
        let response = webhooks.call(config, timeout, &request).await;
        let failed = |error| Failure::Call(format!("failed to call webhook: {error}"));
        let response = response.map_err(|error| failed(error.to_string()))?;
        review::check_types(&response).map_err(failed)?;
        let mut answer = review::answer(version, &uid, is_mutating, &response)
            .map_err(|error| Failure::Call(format!("received invalid webhook response: {error}")))?;
        self.warn(std::mem::take(&mut answer.warnings));
        if answer.is_allowed {
            Ok(answer)
        } else {
            Err(Failure::Denied(review::denied(name, &answer.result)))
        }
    }

    /// Returns the objects in the version in which a webhook is called.
    async fn shown_to<'b>(
        &'b self,
        subject: &Subject,
        resource: GroupVersionResource<'b>,
    ) -> Result<Shown<'b>, Failure> {
        let Subject { object, old_object, .. } = subject;
        if let Some(kind) = self.subresource_kind() {
            let (object, old_object) = (object.clone(), old_object.clone());
            return Ok(Shown { form: None, kind, resource, object, old_object });
        }
        let form = self.forms.iter().find(|form| form.group_version_resource() == resource);
        let convert = async |object: &Option<Value>| match object {
            Some(object) => self.converted(self.own_form(), form, object.clone()).await.map(Some),
            None => Ok(None),
        };
        let object = convert(object).await.map_err(Failure::Denied)?;
        let old_object = convert(old_object).await.map_err(Failure::Denied)?;
        let GroupVersionResource { group, version, .. } = resource;
        let kind = GroupVersionKind { group, version, kind: self.request.kind.name() };
        Ok(Shown { form, kind, resource, object, old_object })
    }

    /// Version of the request.
    fn own_form(&self) -> Option<&ServedForm> {
        let AdmittedRequest { kind, served_version, .. } = &self.request;
        let own = served_version.map_or(kind.api_version(), |version| version.api_version());
        self.forms.iter().find(|form| form.api_version() == own)
    }

    /// Converts an object between two versions of the resource.
    async fn converted(
        &self,
        from: Option<&ServedForm>,
        to: Option<&ServedForm>,
        object: Value,
    ) -> Result<Value, ApiStatus> {
        let (Some(from), Some(to)) = (from, to) else { return Ok(object) };
        if from.api_version() == to.api_version() {
            return Ok(object);
        }
        let ServedForm::Custom(version) = to else { return Ok(to.convert_built_in(from, &object)) };
        let mut converted = match self.request.kind.conversion() {
            Some(conversion) => self.convert_by(conversion, object, &version.api_version).await?,
            None => object,
        };
        version.set_version(&mut converted);
        Ok(converted)
    }
}

/// Objects in the version in which a webhook is called.
struct Shown<'a> {
    /// `None` for the objects of a subresource.
    form: Option<&'a ServedForm>,
    kind: GroupVersionKind<'a>,
    resource: GroupVersionResource<'a>,
    object: Option<Value>,
    old_object: Option<Value>,
}

//! Requests of a story in one namespace, and the numbering of its objects.

use std::{collections::BTreeMap, time::Duration};

use kcm_api::ApiError;
use kcm_client::{ApiClient, Request};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::{
    step::PatchForm,
    target::{ObjectKind, Target, TargetName},
};

/// Error while executing a step.
#[derive(Debug, Error)]
pub enum StepError {
    /// The API server rejected a request.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The response is not valid JSON.
    #[error("failed to decode response to GET {path}: {source}")]
    Decode {
        /// Request path.
        path: String,
        /// Cause.
        source: serde_json::Error,
    },
    /// There is no object with this number.
    #[error("object {0} does not exist")]
    NoSuchNumber(Target),
    /// Objects of this kind cannot be created in stories.
    #[error("unsupported kind {0:?}")]
    UnknownKind(String),
    /// The Deployment has no such revision.
    #[error("revision not found for {0}")]
    NoSuchRevision(Target),
    /// The state is not as expected.
    #[error("{what}{}", after(.waited))]
    Mismatch {
        /// Mismatch.
        what: String,
        /// Time waited.
        waited: Duration,
    },
    /// Unknown placeholder.
    #[error("unknown placeholder ${{{0}}}")]
    Substitution(String),
}

fn after(waited: &Duration) -> String {
    if waited.is_zero() { String::new() } else { format!(" after {}s", waited.as_secs_f64()) }
}

/// Client of one namespace that resolves object numbers and placeholders.
pub(crate) struct StoryClient<'a> {
    api: &'a ApiClient,
    namespace: &'a str,
    /// Names of numbered objects.
    numbered: BTreeMap<ObjectKind, Vec<String>>,
    /// Current round of a [`Repeat`](crate::Repeat) step, from 1.
    pub(crate) round: Option<usize>,
}

impl<'a> StoryClient<'a> {
    pub(crate) fn new(api: &'a ApiClient, namespace: &'a str) -> Self {
        Self { api, namespace, numbered: BTreeMap::new(), round: None }
    }

    pub(crate) async fn create(&mut self, object: &Value) -> Result<(), StepError> {
        let object = self.substitute(object).await?;
        let kind = object["kind"].as_str().unwrap_or_default();
        let kind = ObjectKind::of_object(kind).ok_or_else(|| StepError::UnknownKind(kind.to_owned()))?;
        let request = Request::post(kind.path(self.namespace), object.to_string());
        self.api.send(&request).await?;
        Ok(())
    }

    pub(crate) async fn get(&mut self, target: &Target) -> Result<Value, StepError> {
        let path = self.path(target).await?;
        self.read(path).await
    }

    /// Objects of a kind, sorted by creation time and name.
    pub(crate) async fn list(&self, kind: ObjectKind) -> Result<Vec<Value>, StepError> {
        let mut list = self.read(kind.path(self.namespace)).await?;
        let mut items = match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        };
        let text =
            |item: &Value, field: &str| item["metadata"][field].as_str().unwrap_or_default().to_owned();
        items.sort_by_key(|item| (text(item, "creationTimestamp"), text(item, "name")));
        Ok(items)
    }

    pub(crate) async fn patch(
        &mut self,
        target: &Target,
        subresource: Option<&str>,
        form: PatchForm,
        body: &Value,
    ) -> Result<(), StepError> {
        let body = self.substitute(body).await?;
        let mut path = self.path(target).await?;
        if let Some(subresource) = subresource {
            path = format!("{path}/{subresource}");
        }
        let mut request = Request::strategic_merge_patch(path, body.to_string());
        match form {
            PatchForm::Strategic => {}
            PatchForm::Merge => request.content_type = "application/merge-patch+json",
            PatchForm::Json => request.content_type = "application/json-patch+json",
        }
        self.api.send(&request).await?;
        Ok(())
    }

    pub(crate) async fn delete(
        &mut self,
        target: &Target,
        options: &Map<String, Value>,
    ) -> Result<(), StepError> {
        let path = self.path(target).await?;
        self.api.send(&Request::delete(path, Value::from(options.clone()).to_string())).await?;
        Ok(())
    }

    /// Creates a subresource of an object.
    pub(crate) async fn post_below(
        &mut self,
        target: &Target,
        part: &str,
        body: &Value,
    ) -> Result<(), StepError> {
        let path = self.path(target).await?;
        self.api.send(&Request::post(format!("{path}/{part}"), body.to_string())).await?;
        Ok(())
    }

    /// Resolves the name of an object.
    pub(crate) async fn name(&mut self, target: &Target) -> Result<String, StepError> {
        let number = match &target.name {
            TargetName::Given(name) => return Ok(name.clone()),
            TargetName::Number(number) => *number,
        };
        let present = self.list(target.kind).await?;
        let names = self.numbered.entry(target.kind).or_default();
        for object in &present {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names.get(number).cloned().ok_or_else(|| StepError::NoSuchNumber(target.clone()))
    }

    async fn path(&mut self, target: &Target) -> Result<String, StepError> {
        Ok(format!("{}/{}", target.kind.path(self.namespace), self.name(target).await?))
    }

    async fn read(&self, path: String) -> Result<Value, StepError> {
        let answer = self.api.send(&Request::get(path.clone())).await?;
        serde_json::from_slice(&answer).map_err(|source| StepError::Decode { path, source })
    }

    /// Replaces all placeholders `${…}` in the strings of `value`.
    async fn substitute(&mut self, value: &Value) -> Result<Value, StepError> {
        Ok(match value {
            Value::String(text) => Value::String(self.substitute_text(text).await?),
            Value::Array(items) => {
                let mut replaced = Vec::with_capacity(items.len());
                for item in items {
                    replaced.push(Box::pin(self.substitute(item)).await?);
                }
                Value::Array(replaced)
            }
            Value::Object(members) => {
                let mut replaced = Map::new();
                for (key, member) in members {
                    replaced.insert(key.clone(), Box::pin(self.substitute(member)).await?);
                }
                Value::Object(replaced)
            }
            other => other.clone(),
        })
    }

    pub(crate) async fn substitute_text(&mut self, text: &str) -> Result<String, StepError> {
        let mut result = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let nothing = || StepError::Substitution(after.to_owned());
            let (what, after) = after.split_once('}').ok_or_else(nothing)?;
            result.push_str(before);
            result.push_str(&self.meaning(what).await?);
            rest = after;
        }
        result.push_str(rest);
        Ok(result)
    }

    async fn meaning(&mut self, what: &str) -> Result<String, StepError> {
        let nothing = || StepError::Substitution(what.to_owned());
        if what == "round" {
            return self.round.map(|round| round.to_string()).ok_or_else(nothing);
        }
        let (target, pointer) = what.split_once(' ').unwrap_or((what, ""));
        let target: Target = target.parse().map_err(|_| nothing())?;
        if pointer.is_empty() {
            return self.name(&target).await;
        }
        match self.get(&target).await?.pointer(pointer) {
            Some(Value::String(text)) => Ok(text.clone()),
            Some(other) if !other.is_null() => Ok(other.to_string()),
            _ => Err(nothing()),
        }
    }
}

//! The story's own hands: its requests, and the objects that it calls by number.

use std::{collections::BTreeMap, time::Duration};

use kcm_api::ApiError;
use kcm_client::{ApiClient, Request};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::step::{Kind, Name, PatchForm, Target};

/// Why a step cannot be taken.
#[derive(Debug, Error)]
pub enum StageError {
    /// The server refuses.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// The server answers with something that is no JSON.
    #[error("the answer to {path} is no object: {source}")]
    Answer {
        /// The address.
        path: String,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// There are fewer objects than that.
    #[error("there is no {0}")]
    NoSuchNumber(Target),
    /// An object to create is of a kind that stories do not know.
    #[error("an object of kind {0:?} cannot be created in a story")]
    UnknownKind(String),
    /// A Deployment cannot go back to where it never was.
    #[error("{0} has no such revision")]
    NoSuchRevision(Target),
    /// Something is not as the story has it.
    #[error("{what}{}", after(.waited))]
    NotSo {
        /// What is wrong.
        what: String,
        /// How long there was to become right.
        waited: Duration,
    },
    /// `${…}` stands for nothing.
    #[error("${{{0}}} stands for nothing")]
    Substitution(String),
}

fn after(waited: &Duration) -> String {
    if waited.is_zero() { String::new() } else { format!(", after {} s", waited.as_secs_f64()) }
}

/// One namespace of a server, and what is remembered of it.
pub(crate) struct Stage<'a> {
    api: &'a ApiClient,
    namespace: &'a str,
    /// The names of objects by their numbers.
    numbered: BTreeMap<Kind, Vec<String>>,
    /// The round that is being repeated, from 1.
    pub(crate) round: Option<usize>,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(api: &'a ApiClient, namespace: &'a str) -> Self {
        Self { api, namespace, numbered: BTreeMap::new(), round: None }
    }

    pub(crate) async fn create(&mut self, object: &Value) -> Result<(), StageError> {
        let object = self.substitute(object).await?;
        let kind = object["kind"].as_str().unwrap_or_default();
        let kind = Kind::of_object(kind).ok_or_else(|| StageError::UnknownKind(kind.to_owned()))?;
        let request = Request::post(kind.path(self.namespace), object.to_string());
        self.api.send(&request).await?;
        Ok(())
    }

    pub(crate) async fn get(&mut self, target: &Target) -> Result<Value, StageError> {
        let path = self.path(target).await?;
        self.read(path).await
    }

    /// The objects of a kind, oldest first, then by name.
    pub(crate) async fn list(&self, kind: Kind) -> Result<Vec<Value>, StageError> {
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
    ) -> Result<(), StageError> {
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
    ) -> Result<(), StageError> {
        let path = self.path(target).await?;
        self.api.send(&Request::delete(path, Value::from(options.clone()).to_string())).await?;
        Ok(())
    }

    /// Puts something at an address below an object's own.
    pub(crate) async fn post_below(
        &mut self,
        target: &Target,
        part: &str,
        body: &Value,
    ) -> Result<(), StageError> {
        let path = self.path(target).await?;
        self.api.send(&Request::post(format!("{path}/{part}"), body.to_string())).await?;
        Ok(())
    }

    /// The object's name.
    pub(crate) async fn name(&mut self, target: &Target) -> Result<String, StageError> {
        let number = match &target.name {
            Name::Given(name) => return Ok(name.clone()),
            Name::Number(number) => *number,
        };
        let present = self.list(target.kind).await?;
        let names = self.numbered.entry(target.kind).or_default();
        for object in &present {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names.get(number).cloned().ok_or_else(|| StageError::NoSuchNumber(target.clone()))
    }

    async fn path(&mut self, target: &Target) -> Result<String, StageError> {
        Ok(format!("{}/{}", target.kind.path(self.namespace), self.name(target).await?))
    }

    async fn read(&self, path: String) -> Result<Value, StageError> {
        let answer = self.api.send(&Request::get(path.clone())).await?;
        serde_json::from_slice(&answer).map_err(|source| StageError::Answer { path, source })
    }

    /// `value` with every `${…}` in its texts replaced by what it stands for.
    async fn substitute(&mut self, value: &Value) -> Result<Value, StageError> {
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

    pub(crate) async fn substitute_text(&mut self, text: &str) -> Result<String, StageError> {
        let mut result = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            let nothing = || StageError::Substitution(after.to_owned());
            let (what, after) = after.split_once('}').ok_or_else(nothing)?;
            result.push_str(before);
            result.push_str(&self.meaning(what).await?);
            rest = after;
        }
        result.push_str(rest);
        Ok(result)
    }

    async fn meaning(&mut self, what: &str) -> Result<String, StageError> {
        let nothing = || StageError::Substitution(what.to_owned());
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

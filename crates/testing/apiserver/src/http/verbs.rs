//! What can be done to resources and objects.

use std::sync::Arc;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    answer::{self, Answer},
    body::{Content, decode_any, decode_object},
    media::{Encoding, Form, is_apply, patch_type},
    options::{
        delete_options, eviction_options, force, least_revision, list_options, refuse_force, watch_options,
        write_options,
    },
    query::Query,
    route::Target,
    tables::View,
    watching::watch,
};
use crate::{
    ApiServer, ApiStatus, Details, Resource, Subresource, WriteOptions,
    json::{bool_at, list_at, str_at},
    registry::{Deleted, Part, Patch, Written, scale_of},
    store::WatchCache,
};

/// A request about a resource, in parts.
pub(super) struct Request<'a> {
    pub(super) server: &'a ApiServer,
    /// Watch cache that serves lists and watches. `None` if the store does.
    pub(super) cache: Option<Arc<WatchCache>>,
    pub(super) method: &'a Method,
    pub(super) target: &'a Target,
    pub(super) query: &'a Query,
    pub(super) accept: &'a str,
    pub(super) user_agent: &'a str,
    pub(super) content: Content,
    pub(super) shutdown: CancellationToken,
}

impl Request<'_> {
    /// Serves it.
    pub(super) fn serve(mut self) -> Result<Answer, ApiStatus> {
        let target = self.target;
        match (self.method, &target.name, target.subresource) {
            (&Method::GET, None, _) if self.wants_watch() => self.watch(),
            (&Method::GET, Some(_), None) if self.wants_watch() => self.watch(),
            (&Method::GET, None, _) => self.list(),
            (&Method::GET, Some(_), None | Some(Subresource::Status)) => self.get(),
            (&Method::GET, Some(_), Some(Subresource::Scale)) => self.get_scale(),
            (&Method::GET, Some(_), Some(Subresource::Log)) => self.log(),
            (&Method::POST, None, _) if self.is_in_its_scope() => self.create(),
            (&Method::POST, Some(_), Some(Subresource::Binding)) => self.bind(),
            (&Method::POST, Some(_), Some(Subresource::Eviction)) => self.evict(),
            (&Method::PUT, Some(_), Some(Subresource::Scale)) => self.update_scale(),
            (&Method::PUT, Some(_), part) => self.update(part_of(part)?),
            (&Method::PATCH, Some(_), Some(Subresource::Scale)) => self.patch_scale(),
            (&Method::PATCH, Some(_), part) => self.patch(part_of(part)?),
            (&Method::DELETE, None, _) if self.is_in_its_scope() => self.delete_collection(),
            (&Method::DELETE, Some(_), None) => self.delete(),
            _ => Err(ApiStatus::method_not_allowed()),
        }
    }

    fn wants_watch(&self) -> bool {
        self.query.flag("watch").unwrap_or_default()
    }

    /// Whether the path says which namespace, if the resource lives in namespaces.
    fn is_in_its_scope(&self) -> bool {
        !self.target.resource.is_namespaced() || !self.target.namespace.is_empty()
    }

    fn view(&self) -> Result<View, ApiStatus> {
        View::new(self.target, Form::negotiate(self.accept)?, self.query, self.server.config.clock.now())
    }

    fn get(&self) -> Result<Answer, ApiStatus> {
        let view = self.view()?;
        let object = self.server.get(self.target.resource, &self.target.namespace, self.target.name())?;
        Ok(answer::json_text(StatusCode::OK, view.object(&object)))
    }

    fn list(&self) -> Result<Answer, ApiStatus> {
        let view = self.view()?;
        let options = list_options(self.query, self.target)?;
        let Target { resource, namespace, .. } = self.target;
        let store = &self.server.registry.store;
        let list = store.list_from(self.cache.as_deref(), *resource, namespace, &options)?;
        Ok(answer::json_text(StatusCode::OK, view.list(&list)))
    }

    fn watch(&mut self) -> Result<Answer, ApiStatus> {
        let view = self.view()?;
        let options = watch_options(self.query, self.target)?;
        let least = least_revision(self.query)?;
        let (cache, shutdown) = (self.cache.take(), std::mem::take(&mut self.shutdown));
        watch(self.server, cache, view, options, least, shutdown)
    }

    /// Decodes the body as an object of the target's kind, in its stored form.
    fn object(&self, options: &WriteOptions) -> Result<(Value, Vec<String>), ApiStatus> {
        let Target { resource, face, .. } = self.target;
        let (object, warnings) = decode_object(
            &self.content,
            self.target.api_version(),
            resource.kind(),
            options.field_validation,
        )?;
        Ok(match face {
            Some(face) => (face.accept(&object, resource.api_version()), warnings),
            None => (object, warnings),
        })
    }

    fn create(&self) -> Result<Answer, ApiStatus> {
        let view = self.view()?;
        let options = self.write_options("CreateOptions")?;
        let (object, warnings) = self.object(&options)?;
        let written =
            self.server.registry.create(self.target.resource, &self.target.namespace, object, &options)?;
        Ok(written_answer(StatusCode::CREATED, &view, &written, warnings))
    }

    fn update(&self, part: Part) -> Result<Answer, ApiStatus> {
        let view = self.view()?;
        let options = self.write_options("UpdateOptions")?;
        let (object, warnings) = self.object(&options)?;
        let Target { resource, namespace, .. } = self.target;
        let written =
            self.server.registry.update(*resource, namespace, self.target.name(), part, object, &options)?;
        Ok(written_answer(StatusCode::OK, &view, &written, warnings))
    }

    /// The patch in the body.
    fn read_patch(&self) -> Result<Patch, ApiStatus> {
        let form = patch_type(&self.content.content_type)?;
        let body = serde_json::from_slice(&self.content.bytes)
            .map_err(|error| ApiStatus::bad_request(format!("error decoding patch: {error}")))?;
        Ok(Patch { form, body })
    }

    /// The options of a write. A client that does not say who it is goes by the name of its program.
    fn write_options(&self, kind: &str) -> Result<WriteOptions, ApiStatus> {
        let mut options = write_options(self.query, kind)?;
        if options.field_manager.is_none() {
            let program = self.user_agent.split('/').next().unwrap_or_default();
            let program: String = program.chars().filter(|c| !c.is_control()).take(128).collect();
            options.field_manager = Some(program).filter(|program| !program.is_empty());
        }
        Ok(options)
    }

    /// Server-side apply.
    fn apply(&self, part: Part) -> Result<Answer, ApiStatus> {
        let view = self.view()?;
        let options = write_options(self.query, "PatchOptions")?;
        let force = force(self.query, options.field_manager.as_deref())?;
        // JSON is YAML.
        let config = serde_saphyr::from_slice(&self.content.bytes)
            .map_err(|error| ApiStatus::bad_request(format!("error decoding YAML: {error}")))?;
        let Target { resource, face, namespace, .. } = self.target;
        let name = self.target.name();
        let (written, created) =
            self.server.registry.apply(*resource, *face, namespace, name, part, &config, force, &options)?;
        let code = if created { StatusCode::CREATED } else { StatusCode::OK };
        Ok(written_answer(code, &view, &written, Vec::new()))
    }

    fn patch(&self, part: Part) -> Result<Answer, ApiStatus> {
        if is_apply(&self.content.content_type) && part != Part::Finalize {
            return self.apply(part);
        }
        refuse_force(self.query)?;
        let patch = self.read_patch()?;
        let view = self.view()?;
        let options = self.write_options("PatchOptions")?;
        let Target { resource, face, namespace, .. } = self.target;
        let written = self.server.registry.patch(
            *resource,
            *face,
            namespace,
            self.target.name(),
            part,
            &patch,
            &options,
        )?;
        Ok(written_answer(StatusCode::OK, &view, &written, Vec::new()))
    }

    fn delete(&self) -> Result<Answer, ApiStatus> {
        let view = self.view()?;
        let options = delete_options(self.query, &self.content)?;
        let Target { resource, namespace, .. } = self.target;
        let deleted = self.server.registry.delete(*resource, namespace, self.target.name(), &options)?;
        Ok(match &deleted {
            Deleted::Gone(object) if !resource.strategy().deletion_returns_object() => {
                let details = Details {
                    name: object.name().to_owned(),
                    group: resource.group().to_owned(),
                    kind: resource.plural().to_owned(),
                    uid: object.uid().to_owned(),
                    ..Details::default()
                };
                answer::json(StatusCode::OK, &success(Some(&details)))
            }
            Deleted::Gone(object) => answer::json_text(StatusCode::OK, view.object(object)),
            Deleted::Marked(object) => {
                let accepted = options.orphan_dependents == Some(false);
                let code = if accepted { StatusCode::ACCEPTED } else { StatusCode::OK };
                answer::json_text(code, view.object(object))
            }
        })
    }

    fn delete_collection(&self) -> Result<Answer, ApiStatus> {
        let view = self.view()?;
        let options = delete_options(self.query, &self.content)?;
        let selected = list_options(self.query, self.target)?;
        let Target { resource, namespace, .. } = self.target;
        let items = self.server.registry.delete_collection(*resource, namespace, &selected, &options)?;
        let list =
            crate::ObjectList { revision: self.server.revision(), items, ..crate::ObjectList::default() };
        Ok(answer::json_text(StatusCode::OK, view.list(&list)))
    }

    fn get_scale(&self) -> Result<Answer, ApiStatus> {
        let object = self.server.get(self.target.resource, &self.target.namespace, self.target.name())?;
        Ok(answer::json(StatusCode::OK, &scale_of(&object)))
    }

    fn update_scale(&self) -> Result<Answer, ApiStatus> {
        let options = self.write_options("UpdateOptions")?;
        let (scale, warnings) =
            decode_object(&self.content, "autoscaling/v1", "Scale", options.field_validation)?;
        let Target { resource, namespace, .. } = self.target;
        let written =
            self.server.registry.update_scale(*resource, namespace, self.target.name(), &scale, &options)?;
        let mut answer = answer::json(StatusCode::OK, &scale_of(&written.object));
        answer::warn(&mut answer, &warnings);
        Ok(answer)
    }

    fn patch_scale(&self) -> Result<Answer, ApiStatus> {
        let patch = self.read_patch()?;
        let options = self.write_options("PatchOptions")?;
        let Target { resource, namespace, .. } = self.target;
        let written =
            self.server.registry.patch_scale(*resource, namespace, self.target.name(), &patch, &options)?;
        let mut answer = answer::json(StatusCode::OK, &scale_of(&written.object));
        answer::warn(&mut answer, &written.warnings);
        Ok(answer)
    }

    fn bind(&self) -> Result<Answer, ApiStatus> {
        let options = self.write_options("CreateOptions")?;
        let (binding, _) = decode_object(&self.content, "v1", "Binding", options.field_validation)?;
        let given = str_at(&binding, &["metadata", "name"]);
        if !given.is_empty() && given != self.target.name() {
            return Err(ApiStatus::bad_request("name in URL does not match name in Binding object"));
        }
        self.server.registry.bind(&self.target.namespace, self.target.name(), &binding, &options)?;
        Ok(answer::json(StatusCode::CREATED, &success(None)))
    }

    fn evict(&self) -> Result<Answer, ApiStatus> {
        let options = self.write_options("CreateOptions")?;
        // policy/v1 and policy/v1beta1 are the same here.
        let eviction = decode_any(&self.content)?;
        if str_at(&eviction, &["kind"]) != "Eviction" {
            return Err(ApiStatus::bad_request("the body of the request is not an Eviction"));
        }
        let given = str_at(&eviction, &["metadata", "name"]);
        if !given.is_empty() && given != self.target.name() {
            return Err(ApiStatus::bad_request("name in URL does not match name in Eviction object"));
        }
        let delete = eviction_options(&eviction)?;
        self.server.registry.evict(&self.target.namespace, self.target.name(), &delete, &options)?;
        Ok(answer::json(StatusCode::CREATED, &success(None)))
    }

    fn log(&self) -> Result<Answer, ApiStatus> {
        let name = self.target.name();
        let pod = self.server.get(Resource::PODS, &self.target.namespace, name)?;
        let names =
            |list| list_at(pod.value(), &["spec", list]).iter().map(|container| str_at(container, &["name"]));
        let containers: Vec<&str> = names("containers").collect();
        let container = match (self.query.get("container"), containers.as_slice()) {
            (Some(given), _)
                if containers.contains(&given) || names("initContainers").any(|name| name == given) =>
            {
                given
            }
            (Some(given), _) => {
                return Err(ApiStatus::bad_request(format!("container {given} is not valid for pod {name}")));
            }
            (None, [only]) => *only,
            (None, several) => {
                let choices = several.join(" ");
                return Err(ApiStatus::bad_request(format!(
                    "a container name must be specified for pod {name}, choose one of: [{choices}]"
                )));
            }
        };
        let statuses = ["containerStatuses", "initContainerStatuses"];
        let mut statuses = statuses.iter().flat_map(|list| list_at(pod.value(), &["status", list]));
        let status = statuses.find(|status| str_at(status, &["name"]) == container);
        let started = status.is_some_and(|status| {
            bool_at(status, &["started"])
                || ["running", "terminated"].iter().any(|state| !status["state"][state].is_null())
        });
        if !started {
            let reason = status
                .map(|status| str_at(status, &["state", "waiting", "reason"]))
                .filter(|why| !why.is_empty());
            let reason = reason.unwrap_or("ContainerCreating");
            return Err(ApiStatus::bad_request(format!(
                "container {container:?} in pod {name:?} is waiting to start: {reason}"
            )));
        }
        Ok(answer::text((self.server.config.logs)(&pod, container)))
    }
}

fn part_of(subresource: Option<Subresource>) -> Result<Part, ApiStatus> {
    match subresource {
        None => Ok(Part::Main),
        Some(Subresource::Status) => Ok(Part::Status),
        Some(Subresource::Finalize) => Ok(Part::Finalize),
        Some(_) => Err(ApiStatus::method_not_allowed()),
    }
}

fn written_answer(code: StatusCode, view: &View, written: &Written, mut warnings: Vec<String>) -> Answer {
    let mut answer = answer::json_text(code, view.object(&written.object));
    warnings.extend(written.warnings.iter().cloned());
    answer::warn(&mut answer, &warnings);
    answer
}

/// The Status that says that all went well.
pub(super) fn success(details: Option<&Details>) -> Value {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    if let Some(details) = details {
        status["details"] = details.to_value();
    }
    status
}

/// The object in a request's body, for the audit: as it is, whatever it is.
pub(super) fn audited_object(content: &Content) -> Option<Value> {
    if content.bytes.is_empty() {
        return None;
    }
    match Encoding::of(&content.content_type) {
        Ok(_) => decode_any(content).ok(),
        Err(_) => serde_json::from_slice(&content.bytes).ok(),
    }
}

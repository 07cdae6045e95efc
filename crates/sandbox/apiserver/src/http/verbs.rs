//! Verbs on resources and objects.

use std::sync::Arc;

use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::{
    admission::{Body, admit, options_of_delete},
    body::{Content, decode_any, decode_as, decode_configuration, decode_object, decode_value},
    list,
    media::{Encoding, Representation, check_acceptable, is_apply, patch_type},
    options::{
        apply_options, delete_options, eviction_options, list_options, minimum_revision, patch_options,
        watch_options, write_options,
    },
    query::Query,
    response::{self, ApiResponse},
    reviews::Caller,
    route::{Route, Target},
    view::View,
    watch::watch,
};
use crate::{
    ApiServer, ApiStatus, Object, PatchType, Resource, StatusDetails, Subresource, WriteOptions,
    admission::Admission,
    json::{i64_at, set, str_at},
    registry::{Deleted, Patch, WriteScope, WriteTarget, Written, check_namespace, scale_of},
    service_account::DEFAULT_EXPIRATION,
    store::WatchCache,
    strict::syntax_error,
};

/// Request for a resource.
pub(super) struct ResourceRequest<'a> {
    pub(super) server: &'a Arc<ApiServer>,
    /// Watch cache that serves lists and watches. `None` if the store does.
    pub(super) cache: Option<Arc<WatchCache>>,
    pub(super) method: &'a Method,
    pub(super) target: &'a Target,
    pub(super) query: &'a Query,
    pub(super) accept: &'a str,
    pub(super) user_agent: &'a str,
    pub(super) path: &'a str,
    pub(super) content: Content,
    pub(super) shutdown: CancellationToken,
    pub(super) caller: Caller<'a>,
}

impl ResourceRequest<'_> {
    /// Serves the request. Requests for a deprecated version of a custom resource cause a warning.
    pub(super) async fn serve(self) -> Result<ApiResponse, ApiStatus> {
        let custom = self.target.kind.custom.as_ref();
        let deprecation = custom.and_then(|custom| custom.deprecation.clone());
        let mut response = self.serve_verb().await?;
        response::warn(&mut response, deprecation.as_slice());
        Ok(response)
    }

    async fn serve_verb(mut self) -> Result<ApiResponse, ApiStatus> {
        let target = self.target;
        match (self.method, &target.name, target.subresource) {
            (&Method::GET, None, _) if self.is_watch() => self.watch(),
            (&Method::GET, Some(_), None) if self.is_watch() => self.watch(),
            (&Method::GET, None, _) => self.list().await,
            (&Method::GET, Some(_), part)
                if write_scope(part).is_ok_and(|scope| scope != WriteScope::Finalize) =>
            {
                self.get().await
            }
            (&Method::GET, Some(_), Some(Subresource::Scale)) => self.get_scale().await,
            (&Method::GET, Some(_), Some(Subresource::Log)) => self.log(),
            (&Method::POST, None, _) if self.has_required_namespace() => self.create().await,
            (&Method::POST, Some(_), Some(Subresource::Binding)) => self.bind().await,
            (&Method::POST, Some(_), Some(Subresource::Eviction)) => self.evict().await,
            (&Method::POST, Some(_), Some(Subresource::Token)) => self.create_token().await,
            (&Method::PUT, Some(_), Some(Subresource::Scale)) => self.update_scale().await,
            (&Method::PUT, Some(_), part) => self.update(write_scope(part)?).await,
            (&Method::PATCH, Some(_), Some(Subresource::Scale)) => self.patch_scale().await,
            (&Method::PATCH, Some(_), part) if part != Some(Subresource::Finalize) => {
                self.patch(write_scope(part)?).await
            }
            (&Method::DELETE, None, _)
                if self.has_required_namespace() && target.resource() != Resource::NAMESPACES =>
            {
                self.delete_collection().await
            }
            (&Method::DELETE, Some(_), None) => self.delete().await,
            (&Method::PATCH, None, _) if self.is_custom() => {
                let unnamed = ApiStatus::bad_request("name must be provided");
                Err(patch_type(&self.content.content_type, true).err().unwrap_or(unnamed))
            }
            (&Method::PUT, None, _) if self.is_custom() => {
                Err(ApiStatus::bad_request("name must be provided"))
            }
            (method, _, part) if self.is_custom() => {
                let verb = match *method {
                    Method::POST => "create",
                    Method::PUT => "update",
                    Method::PATCH => "patch",
                    Method::DELETE if part.is_none() => "deletecollection",
                    Method::DELETE => "delete",
                    _ => "",
                };
                Err(ApiStatus::method_not_supported(self.target.resource(), verb))
            }
            _ => Err(ApiStatus::method_not_allowed()),
        }
    }

    fn is_custom(&self) -> bool {
        self.target.resource().is_custom()
    }

    fn is_watch(&self) -> bool {
        self.query.flag("watch").unwrap_or_default()
    }

    /// `true` unless the resource is namespaced and the path has no namespace.
    fn has_required_namespace(&self) -> bool {
        !self.target.resource().is_namespaced() || !self.target.namespace.is_empty()
    }

    fn view(&self) -> Result<View, ApiStatus> {
        let tables = self.caller.program.tables;
        if !self.is_custom() {
            check_acceptable(self.accept, *self.method == Method::GET && self.target.name.is_none())?;
        }
        let representation = Representation::negotiate(self.accept, tables.is_some())?;
        View::new(self.target, representation, tables, self.query, self.server.config.clock.now())
    }

    /// Returns the object of the request in its version.
    async fn stored(&self) -> Result<Arc<Object>, ApiStatus> {
        let object = self.server.get(self.target.resource(), &self.target.namespace, self.target.name())?;
        self.converted(object).await
    }

    async fn get(&self) -> Result<ApiResponse, ApiStatus> {
        let view = self.view()?;
        minimum_revision(self.query)?;
        let object = self.stored().await?;
        Ok(response::json_text(StatusCode::OK, view.object(&object)))
    }

    async fn list(&self) -> Result<ApiResponse, ApiStatus> {
        let view = self.view()?;
        let mut options = list_options(self.query, self.target)?;
        if options.resource_version == Some(0) {
            // Upstream's watch cache, which serves these lists, has no limit.
            options.limit = 0;
        }
        let store = &self.server.registry.store;
        let (resource, namespace) = (self.target.resource(), &self.target.namespace);
        let mut list = store.list_from(self.cache.as_deref(), resource, namespace, &options)?;
        list.items = self.converted_all(list.items).await?;
        Ok(list::respond(view, list))
    }

    fn watch(&mut self) -> Result<ApiResponse, ApiStatus> {
        let view = self.view()?;
        let options = watch_options(self.query, self.target)?;
        let minimum = minimum_revision(self.query)?;
        let open = self.server.faults().open_watch(self.path, &self.shutdown);
        watch(self.server, self.cache.take(), view, options, minimum, open)
    }

    /// Adds warnings to the response, which may be a failure.
    fn warn(&self, warnings: Vec<String>) {
        if let Some(seat) = self.caller.seat {
            seat.warn(warnings);
        }
    }

    /// Decodes the body as an object of the target's kind and converts it to the storage version.
    fn object(&self, options: &WriteOptions) -> Result<Value, ApiStatus> {
        let Target { kind, served_version, .. } = self.target;
        let Some(served_version) = served_version else {
            let (object, warnings) = decode_as(&self.content, kind, options.field_validation)?;
            self.warn(warnings);
            return Ok(object);
        };
        let api_version = served_version.api_version();
        let (object, warnings) =
            decode_object(&self.content, api_version, kind.name(), options.field_validation)?;
        self.warn(warnings);
        Ok(served_version.convert_to_storage(&object, kind.api_version()))
    }

    async fn create(&self) -> Result<ApiResponse, ApiStatus> {
        let view = self.view()?;
        Encoding::of(&self.content.content_type)?;
        let options = self.write_options("CreateOptions")?;
        let mut object = self.object(&options)?;
        if let Some(admit) = &self.server.config.admission {
            admit(self.target.resource(), &mut object)?;
        }
        let mut object = Body(object);
        let Target { kind, served_version, namespace, .. } = self.target;
        let written = self
            .admitted(self.options_of_write(), options.dry_run, |admission| {
                let object = object.next(admission);
                self.server.registry.create(kind, *served_version, namespace, object, &options, admission)
            })
            .await?;
        self.write_response(true, &view, written).await
    }

    async fn update(&self, part: WriteScope) -> Result<ApiResponse, ApiStatus> {
        let view = self.view()?;
        Encoding::of(&self.content.content_type)?;
        let options = self.write_options("UpdateOptions")?;
        let object = self.object(&options)?;
        let mut object = Body(object);
        let (written, created) = self
            .admitted(self.options_of_write(), options.dry_run, |admission| {
                let object = object.next(admission);
                let target = self.written(part, admission);
                self.server.registry.update(target, self.target.served_version, object, &options)
            })
            .await?;
        self.write_response(created, &view, written).await
    }

    /// Decodes the body as a patch of an object that exists.
    fn read_patch(&self, form: PatchType) -> Result<Patch, ApiStatus> {
        let body = serde_json::from_slice(&self.content.bytes).or_else(|error| {
            self.server.get(self.target.resource(), &self.target.namespace, self.target.name())?;
            let prefix = if form == PatchType::Strategic { "" } else { "error decoding patch: " };
            Err(ApiStatus::bad_request(format!("{prefix}{}", syntax_error(&error, &self.content.bytes))))
        })?;
        Ok(Patch { form, body })
    }

    /// Parses the options of a create or update.
    fn write_options(&self, kind: &str) -> Result<WriteOptions, ApiStatus> {
        Ok(self.with_manager(write_options(self.query, kind)?))
    }

    /// Sets the default field manager, which is the program in `User-Agent`, as upstream.
    fn with_manager(&self, mut options: WriteOptions) -> WriteOptions {
        if options.field_manager.is_none() {
            let program = self.user_agent.split('/').next().unwrap_or_default();
            let program: String = program.chars().filter(|c| !c.is_control()).take(128).collect();
            options.field_manager = Some(program).filter(|program| !program.is_empty());
        }
        self.of_user(options)
    }

    /// Adds the user of the request.
    fn of_user(&self, options: WriteOptions) -> WriteOptions {
        WriteOptions { user: Some(self.caller.user.clone()), ..options }
    }

    /// The written part of the target.
    fn written<'b>(&'b self, scope: WriteScope, admission: Option<&'b Admission<'b>>) -> WriteTarget<'b> {
        let Target { kind, namespace, .. } = self.target;
        let creation_refused = self.caller.creation_refused;
        WriteTarget { kind, namespace, name: self.target.name(), scope, admission, creation_refused }
    }

    /// Server-side apply.
    async fn apply(&self, part: WriteScope) -> Result<ApiResponse, ApiStatus> {
        let view = self.view()?;
        let (options, force) = apply_options(self.query)?;
        let options = self.of_user(options);
        let (config, warnings) = decode_configuration(&self.content.bytes, options.field_validation)?;
        let version = self.target.served_version;
        let (written, created) = self
            .admitted(self.options_of_write(), options.dry_run, |admission| {
                let target = self.written(part, admission);
                self.server.registry.apply(target, version, &config, force, &options)
            })
            .await?;
        self.warn(warnings);
        self.write_response(created, &view, written).await
    }

    async fn patch(&self, part: WriteScope) -> Result<ApiResponse, ApiStatus> {
        if is_apply(&self.content.content_type) && part != WriteScope::Finalize {
            return self.apply(part).await;
        }
        let form = patch_type(&self.content.content_type, self.is_custom())?;
        let view = self.view()?;
        let options = self.with_manager(patch_options(self.query)?);
        let patch = self.read_patch(form)?;
        let version = self.target.served_version;
        let written = self
            .admitted(self.options_of_write(), options.dry_run, |admission| {
                self.server.registry.patch(self.written(part, admission), version, &patch, &options)
            })
            .await?;
        self.write_response(false, &view, written).await
    }

    async fn delete(&self) -> Result<ApiResponse, ApiStatus> {
        let view = self.view()?;
        let options = delete_options(self.query, &self.content)?;
        let (resource, namespace) = (self.target.resource(), &self.target.namespace);
        let deleted = self
            .admitted(options_of_delete(&options), options.dry_run, |admission| {
                self.server.registry.delete(resource, namespace, self.target.name(), &options, admission)
            })
            .await?;
        Ok(match &deleted {
            Deleted::Removed(object) if !resource.strategy().deletion_returns_object() => {
                let details = StatusDetails {
                    name: object.name().to_owned(),
                    group: resource.group().to_owned(),
                    kind: resource.plural().to_owned(),
                    uid: object.uid().to_owned(),
                    ..StatusDetails::default()
                };
                response::json(StatusCode::OK, &success(Some(&details)))
            }
            Deleted::Removed(object) => {
                let object = self.converted(Arc::clone(object)).await?;
                response::json_text(StatusCode::OK, view.object(&object))
            }
            Deleted::Marked(object) => {
                let object = self.converted(Arc::clone(object)).await?;
                let accepted = options.orphan_dependents == Some(false);
                let code = if accepted { StatusCode::ACCEPTED } else { StatusCode::OK };
                response::json_text(code, view.object(&object))
            }
        })
    }

    /// Deletes the selected objects in batches, so that other requests are served meanwhile.
    async fn delete_collection(&self) -> Result<ApiResponse, ApiStatus> {
        let view = self.view()?;
        let options = delete_options(self.query, &self.content)?;
        let selected = list_options(self.query, self.target)?;
        let (resource, namespace) = (self.target.resource(), &self.target.namespace);
        let registry = &self.server.registry;
        let admission = self.admission(options_of_delete(&options), options.dry_run, true);
        let admission = admission.as_ref();
        let mut deletion = registry.delete_collection(resource, namespace, &selected, &options, admission)?;
        while self.attempt(admission, |_| deletion.delete_batch()).await? {
            tokio::task::yield_now().await;
        }
        let mut list = deletion.into_deleted();
        list.items = self.converted_all(list.items).await?;
        Ok(list::respond(view, list))
    }

    async fn get_scale(&self) -> Result<ApiResponse, ApiStatus> {
        self.view()?;
        minimum_revision(self.query)?;
        let object = self.stored().await?;
        Ok(response::json(StatusCode::OK, &scale_of(&self.target.kind, &object)?))
    }

    async fn update_scale(&self) -> Result<ApiResponse, ApiStatus> {
        self.view()?;
        let options = self.write_options("UpdateOptions")?;
        let (scale, warnings) =
            decode_object(&self.content, "autoscaling/v1", "Scale", options.field_validation)?;
        self.warn(warnings);
        let written = self
            .admitted(self.options_of_write(), options.dry_run, |admission| {
                let target = self.written(WriteScope::Main, admission);
                self.server.registry.update_scale(target, &scale, &options)
            })
            .await?;
        self.scale_response(written).await
    }

    async fn patch_scale(&self) -> Result<ApiResponse, ApiStatus> {
        self.view()?;
        if is_apply(&self.content.content_type) {
            return self.apply_scale().await;
        }
        let form = patch_type(&self.content.content_type, self.is_custom())?;
        let options = self.with_manager(patch_options(self.query)?);
        let patch = self.read_patch(form)?;
        let written = self
            .admitted(self.options_of_write(), options.dry_run, |admission| {
                let target = self.written(WriteScope::Main, admission);
                self.server.registry.patch_scale(target, &patch, &options)
            })
            .await?;
        self.scale_response(written).await
    }

    async fn apply_scale(&self) -> Result<ApiResponse, ApiStatus> {
        let (options, force) = apply_options(self.query)?;
        let options = self.of_user(options);
        let (config, warnings) = decode_configuration(&self.content.bytes, options.field_validation)?;
        let version = self.target.served_version;
        let written = self
            .admitted(self.options_of_write(), options.dry_run, |admission| {
                let target = self.written(WriteScope::Main, admission);
                self.server.registry.apply_scale(target, version, &config, force, &options)
            })
            .await?;
        self.warn(warnings);
        self.scale_response(written).await
    }

    async fn scale_response(&self, written: Written) -> Result<ApiResponse, ApiStatus> {
        self.warn(written.warnings);
        let object = self.converted(written.object).await?;
        Ok(response::json(StatusCode::OK, &scale_of(&self.target.kind, &object)?))
    }

    async fn bind(&self) -> Result<ApiResponse, ApiStatus> {
        let options = self.write_options("CreateOptions")?;
        let (binding, _) = decode_object(&self.content, "v1", "Binding", options.field_validation)?;
        self.check_body(&binding)?;
        let (namespace, name) = (&self.target.namespace, self.target.name());
        self.admitted(self.options_of_write(), options.dry_run, |admission| {
            let binding = admit(admission, name, &binding)?;
            self.server.registry.bind(namespace, name, &binding, &options)
        })
        .await?;
        Ok(created())
    }

    async fn evict(&self) -> Result<ApiResponse, ApiStatus> {
        let options = self.write_options("CreateOptions")?;
        // policy/v1beta1 is equal.
        let body = decode_any(&self.content).ok();
        let beta = body.filter(|body| str_at(body, &["apiVersion"]) == "policy/v1beta1");
        let (eviction, _) = match beta {
            Some(mut eviction) => {
                set(&mut eviction, &["apiVersion"], "policy/v1");
                decode_value(eviction, "policy/v1", "Eviction", options.field_validation)?
            }
            None => decode_object(&self.content, "policy/v1", "Eviction", options.field_validation)?,
        };
        self.check_body(&eviction)?;
        let (namespace, name) = (&self.target.namespace, self.target.name());
        self.admitted(self.options_of_write(), options.dry_run, |admission| {
            let delete = eviction_options(&*admit(admission, name, &eviction)?)?;
            self.server.registry.evict(namespace, name, &delete, &options)
        })
        .await?;
        Ok(created())
    }

    async fn create_token(&self) -> Result<ApiResponse, ApiStatus> {
        let options = self.write_options("CreateOptions")?;
        let (api_version, kind) = ("authentication.k8s.io/v1", "TokenRequest");
        let (mut request, warnings) =
            decode_object(&self.content, api_version, kind, options.field_validation)?;
        check_namespace(&self.target.namespace, &request)?;
        if i64_at(&request, &["spec", "expirationSeconds"]).is_none() {
            set(&mut request, &["spec", "expirationSeconds"], DEFAULT_EXPIRATION);
        }
        let (namespace, name) = (&self.target.namespace, self.target.name());
        let answer = self
            .admitted(self.options_of_write(), options.dry_run, |admission| {
                self.server.issue_token(namespace, name, &*admit(admission, name, &request)?)
            })
            .await?;
        self.warn(warnings);
        Ok(response::json(StatusCode::CREATED, &answer))
    }

    async fn write_response(
        &self,
        created: bool,
        view: &View,
        written: Written,
    ) -> Result<ApiResponse, ApiStatus> {
        let code = if created { StatusCode::CREATED } else { StatusCode::OK };
        self.warn(written.warnings);
        let object = self.converted(written.object).await?;
        Ok(response::json_text(code, view.object(&object)))
    }

    /// Rejects the body of a subresource that names another object.
    fn check_body(&self, body: &Value) -> Result<(), ApiStatus> {
        check_namespace(&self.target.namespace, body)?;
        if str_at(body, &["metadata", "name"]) == self.target.name() {
            return Ok(());
        }
        let kind = str_at(body, &["kind"]);
        Err(ApiStatus::bad_request(format!("name in URL does not match name in {kind} object")))
    }
}

/// `true` if the request requires the permission to create although it is no creation: an update or patch that creates an
/// object if it does not exist, and streams of a pod.
pub(super) fn may_create(method: &Method, route: &Route, content: &Content) -> bool {
    let Route::Object(target) = route else { return false };
    match *method {
        Method::PUT => target.kind.strategy().allows_create_on_update(),
        Method::PATCH => is_apply(&content.content_type),
        Method::GET => target.is_stream(),
        _ => false,
    }
}

fn write_scope(subresource: Option<Subresource>) -> Result<WriteScope, ApiStatus> {
    match subresource {
        None => Ok(WriteScope::Main),
        Some(Subresource::Status) => Ok(WriteScope::Status),
        Some(Subresource::Approval) => Ok(WriteScope::Approval),
        Some(Subresource::Finalize) => Ok(WriteScope::Finalize),
        Some(Subresource::EphemeralContainers) => Ok(WriteScope::EphemeralContainers),
        Some(Subresource::Resize) => Ok(WriteScope::Resize),
        Some(_) => Err(ApiStatus::method_not_allowed()),
    }
}

/// The Status that says that all went well.
fn success(details: Option<&StatusDetails>) -> Value {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"});
    if let Some(details) = details {
        status["details"] = details.to_value();
    }
    status
}

/// Response to the creation of an object that is not stored.
pub(super) fn created() -> ApiResponse {
    let mut status = success(None);
    status["code"] = json!(201);
    response::json(StatusCode::CREATED, &status)
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

//! Requests whose writes policies and webhooks admit, or whose objects a webhook converts.

use std::{
    borrow::Cow,
    num::{IntErrorKind, ParseIntError},
    sync::Arc,
};

use serde_json::{Map, Value, json};

use super::{query::Query, reviews::Caller, route::Target, seat::Seat, verbs::ResourceRequest};
use crate::{
    ApiServer, ApiStatus, DeleteOptions, DeletionPropagation, Object, Subresource,
    admission::{Admission, AdmittedRequest, Operation},
    kind::Kind,
    webhook::Webhooks,
};

impl ResourceRequest<'_> {
    /// Performs a write. `write` is repeated as long as it requires answers of webhooks.
    pub(super) async fn admitted<T>(
        &self,
        options: Value,
        dry_run: bool,
        write: impl FnMut(Option<&Admission<'_>>) -> Result<T, ApiStatus>,
    ) -> Result<T, ApiStatus> {
        let admission = self.admission(options, dry_run, false);
        self.attempt(admission.as_ref(), write).await
    }

    /// Returns the admission of the request, if there are policies, or webhooks may be called for it.
    pub(super) fn admission(
        &self,
        options: Value,
        dry_run: bool,
        is_collection: bool,
    ) -> Option<Admission<'_>> {
        self.caller.seat?;
        let request = AdmittedRequest {
            kind: &self.target.kind,
            served_version: self.target.served_version,
            namespace: &self.target.namespace,
            subresource: self.target.subresource,
            user: self.caller.user,
            options,
            dry_run,
            is_collection,
        };
        Admission::new(self.server, request)
    }

    /// As [`admitted`](Self::admitted), with an admission that exists already.
    pub(super) async fn attempt<T>(
        &self,
        admission: Option<&Admission<'_>>,
        mut write: impl FnMut(Option<&Admission<'_>>) -> Result<T, ApiStatus>,
    ) -> Result<T, ApiStatus> {
        match (admission, self.caller.seat) {
            (Some(admission), Some(seat)) => repeat(admission, seat, || write(Some(admission))).await,
            _ => write(None),
        }
    }

    /// Options of a create, update or patch, as they are in the query.
    pub(super) fn options_of_write(&self) -> Value {
        let mut options = Map::new();
        for name in ["fieldManager", "fieldValidation"] {
            if let Some(value) = self.query.get(name) {
                options.insert(name.to_owned(), value.into());
            }
        }
        let dry_run: Vec<&str> = self.query.all("dryRun").collect();
        if !dry_run.is_empty() {
            options.insert("dryRun".to_owned(), dry_run.into());
        }
        Value::Object(options)
    }

    /// Returns objects in the version of the request. The write of the request, if it is one, is done.
    pub(super) async fn converted_all(
        &self,
        objects: Vec<Arc<Object>>,
    ) -> Result<Vec<Arc<Object>>, ApiStatus> {
        if let (Some(_), Some(seat)) = (self.target.kind.conversion(), self.caller.seat) {
            seat.leave();
        }
        convert_all(self.server.webhooks().as_ref(), &self.target.kind, objects).await
    }

    /// Returns an object in the version of the request.
    pub(super) async fn converted(&self, object: Arc<Object>) -> Result<Arc<Object>, ApiStatus> {
        let converted = self.converted_all(vec![object]).await?;
        converted.into_iter().next().ok_or_else(|| ApiStatus::internal("the object was not converted"))
    }
}

/// Returns the options of a connection to a pod or a Service.
///
/// # Errors
///
/// 400 if a port is invalid.
pub(super) fn options_of_connection(target: &Target, query: &Query, path: &str) -> Result<Value, ApiStatus> {
    let kind = target.subresource.and_then(|part| part.connect_options(target.kind.name()));
    let mut options = json!({"kind": kind, "apiVersion": "v1"});
    match target.subresource {
        Some(Subresource::Exec | Subresource::Attach) => {
            for name in
                ["stdin", "stdout", "stderr", "tty"].into_iter().filter(|name| query.flag(name) == Some(true))
            {
                options[name] = true.into();
            }
            if let Some(container) = query.get("container") {
                options["container"] = container.into();
            }
            let command: Vec<&str> = query.all("command").collect();
            if !command.is_empty() && target.subresource == Some(Subresource::Exec) {
                options["command"] = command.into();
            }
        }
        Some(Subresource::PortForward) => {
            let mut ports: Vec<u16> = Vec::new();
            for port in query.all("ports").flat_map(|ports| ports.split(',')) {
                ports.push(port.parse().map_err(|error: ParseIntError| {
                    let error = match error.kind() {
                        IntErrorKind::PosOverflow => "value out of range",
                        _ => "invalid syntax",
                    };
                    let message = format!("strconv.ParseUint: parsing {port:?}: {error}");
                    ApiStatus::bad_request(format!("cannot convert to []int32: {message}"))
                })?);
            }
            if !ports.is_empty() {
                options["ports"] = ports.into();
            }
        }
        _ => {
            if let Some((_, path)) = path.split_once("/proxy/") {
                options["path"] = format!("/{path}").into();
            }
        }
    }
    Ok(options)
}

/// Admits a connection to a pod or a Service. Returns its options, which webhooks may change.
pub(super) async fn admit_connection(
    server: &ApiServer,
    target: &Target,
    caller: Caller<'_>,
    options: Value,
) -> Result<Value, ApiStatus> {
    let Some(seat) = caller.seat else { return Ok(options) };
    let request = AdmittedRequest {
        kind: &target.kind,
        served_version: None,
        namespace: &target.namespace,
        subresource: target.subresource,
        user: caller.user,
        options: Value::Null,
        dry_run: false,
        is_collection: false,
    };
    let Some(admission) = Admission::new(server, request) else { return Ok(options) };
    let admit = || admission.admit(Operation::Connect, target.name(), options.clone());
    repeat(&admission, seat, admit).await
}

/// Calls `write` until no answer of a webhook is missing.
async fn repeat<T>(
    admission: &Admission<'_>,
    seat: &Seat,
    mut write: impl FnMut() -> Result<T, ApiStatus>,
) -> Result<T, ApiStatus> {
    loop {
        let result = write();
        seat.warn(admission.take_warnings());
        if !admission.has_question() {
            return result;
        }
        // Other writes are served meanwhile.
        seat.leave();
        let answered = admission.answer().await;
        seat.warn(admission.take_warnings());
        answered?;
        seat.take().await;
    }
}

/// Object in a request. It is copied only if the write may be repeated.
pub(super) struct Body(pub(super) Value);

impl Body {
    pub(super) fn next(&mut self, admission: Option<&Admission<'_>>) -> Value {
        if admission.is_some() { self.0.clone() } else { self.0.take() }
    }
}

/// Options of a delete.
pub(super) fn options_of_delete(options: &DeleteOptions) -> Value {
    let mut value = json!({});
    let mut insert = |name: &str, member: Option<Value>| {
        if let Some(member) = member {
            value[name] = member;
        }
    };
    insert("gracePeriodSeconds", options.grace_period_seconds.map(Value::from));
    insert("orphanDependents", options.orphan_dependents.map(Value::from));
    insert("dryRun", options.dry_run.then(|| json!(["All"])));
    insert(
        "propagationPolicy",
        options.propagation.map(|propagation| match propagation {
            DeletionPropagation::Background => "Background".into(),
            DeletionPropagation::Foreground => "Foreground".into(),
            DeletionPropagation::Orphan => "Orphan".into(),
        }),
    );
    let given = &options.preconditions;
    let preconditions = [("uid", &given.uid), ("resourceVersion", &given.resource_version)];
    let preconditions: Map<String, Value> = preconditions
        .into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), Value::from(value.clone()?))))
        .collect();
    insert("preconditions", Some(preconditions).filter(|map| !map.is_empty()).map(Value::Object));
    value
}

/// Admits the body of a subresource.
pub(super) fn admit<'a>(
    admission: Option<&Admission<'_>>,
    name: &str,
    body: &'a Value,
) -> Result<Cow<'a, Value>, ApiStatus> {
    match admission {
        Some(admission) => admission.admit(Operation::Create, name, body.clone()).map(Cow::Owned),
        None => Ok(Cow::Borrowed(body)),
    }
}

/// As [`convert_all`], for one object.
pub(super) async fn convert(
    webhooks: Option<&Webhooks>,
    kind: &Kind,
    object: Arc<Object>,
) -> Result<Arc<Object>, ApiStatus> {
    let converted = convert_all(webhooks, kind, vec![object]).await?;
    converted.into_iter().next().ok_or_else(|| ApiStatus::internal("the object was not converted"))
}

/// Returns objects in the version of `kind`, if a webhook converts them.
pub(super) async fn convert_all(
    webhooks: Option<&Webhooks>,
    kind: &Kind,
    objects: Vec<Arc<Object>>,
) -> Result<Vec<Arc<Object>>, ApiStatus> {
    let (Some(custom), Some(conversion)) = (&kind.custom, kind.conversion()) else { return Ok(objects) };
    let stored: Vec<Value> = objects
        .iter()
        .filter(|object| custom.is_converted(object))
        .map(|object| custom.with_stored_defaults(object))
        .collect();
    if stored.is_empty() {
        return Ok(objects);
    }
    let webhooks = webhooks.ok_or_else(|| ApiStatus::internal("no client of webhooks is configured"))?;
    let converted = conversion.convert(webhooks, &stored, &custom.api_version).await?;
    let mut converted = converted.into_iter();
    let objects = objects.into_iter().map(|object| {
        if !custom.is_converted(&object) {
            return Some(object);
        }
        let mut value = converted.next()?;
        custom.set_version(&mut value);
        Some(Arc::new(object.with_content(value)))
    });
    objects.collect::<Option<_>>().ok_or_else(|| ApiStatus::internal("the objects were not converted"))
}

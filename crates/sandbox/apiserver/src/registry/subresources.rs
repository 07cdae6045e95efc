//! `/scale`, `/binding` and `/eviction`.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{
    Patch, Registry, WriteTarget, Written,
    apply::check_configuration,
    check_namespace,
    modify::{ManagedFieldsOperation, check_uid},
};
use crate::{
    ApiStatus, DeleteOptions, LabelSelector, Object, Resource, StatusReason, WriteOptions,
    admission::Operation,
    apply::{self, Writer},
    custom::ScalePaths,
    json::{at, condition, copy, i64_at, map_at_mut, set, set_condition, str_at},
    kind::Kind,
    resource::ServedVersion,
    store::{self, Commit, Decision, UpdateResult},
    strict,
};

/// Owner of the fields that an update or a patch of a Scale changes.
const UPDATE: ManagedFieldsOperation =
    ManagedFieldsOperation::Update { subresource: "scale", served_version: None };

/// Path of the replicas in a Scale and in built-in kinds.
const REPLICAS: &[&str] = &["spec", "replicas"];

/// Replicas in the Scale of a custom resource that has none, as upstream.
const NO_REPLICAS: i64 = -2_147_483_648;

/// Returns the `autoscaling/v1` Scale of an object.
///
/// # Errors
///
/// The object is a custom resource without replicas.
pub(crate) fn scale_of(kind: &Kind, object: &Object) -> Result<Value, ApiStatus> {
    let value = object.value();
    if let Some((custom, paths)) =
        kind.custom.as_ref().and_then(|custom| Some((custom, custom.scale.as_ref()?)))
    {
        let Some(replicas) = custom.replicas(value) else {
            return Err(ApiStatus::internal(format!(
                "the spec replicas field {:?} does not exist",
                paths.spec_replicas
            )));
        };
        return Ok(custom_scale(value, paths, replicas));
    }
    Ok(built_in_scale(object))
}

/// Returns the Scale of a custom resource.
fn custom_scale(value: &Value, paths: &ScalePaths, replicas: i64) -> Value {
    let at_path = |path: &str| at(value, &ScalePaths::fields(path));
    let status = at_path(&paths.status_replicas).and_then(Value::as_i64).unwrap_or_default();
    let mut scale = scale_with(value, replicas, status);
    let selector = paths.label_selector.as_deref().and_then(at_path).and_then(Value::as_str);
    if let Some(selector) = selector.filter(|selector| !selector.is_empty()) {
        set(&mut scale, &["status", "selector"], selector);
    }
    scale
}

/// Returns a Scale without selector.
fn scale_with(value: &Value, replicas: i64, status: i64) -> Value {
    let mut scale = json!({
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {},
        "spec": {},
        "status": {"replicas": status},
    });
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        copy(&mut scale, value, &["metadata", field]);
    }
    if replicas != 0 {
        set(&mut scale, &["spec", "replicas"], replicas);
    }
    scale
}

fn built_in_scale(object: &Object) -> Value {
    let value = object.value();
    let replicas = |part| i64_at(value, &[part, "replicas"]).unwrap_or_default();
    let mut scale = scale_with(value, replicas("spec"), replicas("status"));
    let selector = object.resource().strategy().scale_selector(value).to_string();
    if !selector.is_empty() {
        set(&mut scale, &["status", "selector"], selector);
    }
    scale
}

impl Registry {
    /// Changes the replica count. `change` maps the current Scale to the new Scale, and may change managed fields of the
    /// object.
    fn modify_scale(
        &self,
        target: WriteTarget<'_>,
        options: &WriteOptions,
        operation: ManagedFieldsOperation,
        mut change: impl FnMut(Value, &mut Value) -> Result<(Value, Vec<String>), ApiStatus>,
    ) -> Result<Written, ApiStatus> {
        let WriteTarget { kind, namespace, name, admission, .. } = target;
        self.modify(target, operation, options, |old, shown| {
            let paths = kind.custom.as_ref().and_then(|custom| custom.scale.as_ref());
            let current = match (paths, &kind.custom) {
                (Some(paths), Some(custom)) => {
                    custom_scale(shown, paths, custom.replicas(shown).unwrap_or(NO_REPLICAS))
                }
                _ => built_in_scale(old),
            };
            let before = admission.map(|_| current.clone());
            let mut object = shown.clone();
            let (mut scale, warnings) = change(current, &mut object)?;
            if let Some(admission) = admission {
                scale = admission.mutate(Operation::Update, name, scale, before.as_ref())?;
                admission.validate(Operation::Update, name, &scale, before.as_ref())?;
            }
            check_namespace(namespace, &scale)?;
            let given = str_at(&scale, &["metadata", "name"]);
            if !given.is_empty() && given != name {
                return Err(ApiStatus::bad_request(format!(
                    "the name of the object ({given}) does not match the name on the URL ({name})"
                )));
            }
            let replicas = i64_at(&scale, REPLICAS).unwrap_or_default();
            if let (NO_REPLICAS, Some(paths)) = (replicas, paths) {
                let path = &paths.spec_replicas;
                return Err(ApiStatus::bad_request(format!(
                    "the spec replicas field {path:?} cannot be empty"
                )));
            }
            if replicas < 0 {
                return Err(ApiStatus::invalid_field(
                    "Scale",
                    "autoscaling",
                    name,
                    "spec.replicas",
                    "FieldValueInvalid",
                    &format!("Invalid value: {replicas}: must be greater than or equal to 0"),
                ));
            }
            match paths {
                Some(paths) => set(&mut object, &ScalePaths::fields(&paths.spec_replicas), replicas),
                None => set(&mut object, REPLICAS, replicas),
            }
            // Preconditions of the Scale apply to the object.
            for field in ["uid", "resourceVersion"] {
                if !str_at(&scale, &["metadata", field]).is_empty() {
                    copy(&mut object, &scale, &["metadata", field]);
                }
            }
            check_uid(kind, name, &object, Some(old))?;
            Ok((object, warnings))
        })
    }

    /// Sets the replica count from `scale`.
    pub(crate) fn update_scale(
        &self,
        target: WriteTarget<'_>,
        scale: &Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiStatus> {
        self.modify_scale(target, options, UPDATE, |_, _| Ok((scale.clone(), Vec::new())))
    }

    /// Patches the Scale of an object.
    pub(crate) fn patch_scale(
        &self,
        target: WriteTarget<'_>,
        patch: &Patch,
        options: &WriteOptions,
    ) -> Result<Written, ApiStatus> {
        patch.check_form(target.kind)?;
        self.modify_scale(target, options, UPDATE, |scale, _| {
            let patched = patch.apply(&scale, "Scale")?;
            let decode = |scale| strict::decode_value("autoscaling/v1", "Scale", scale);
            patch.decode(decode, patched, options.field_validation)
        })
    }

    /// Applies a Scale to an object.
    pub(crate) fn apply_scale(
        &self,
        target: WriteTarget<'_>,
        served_version: Option<ServedVersion>,
        config: &Value,
        force: bool,
        options: &WriteOptions,
    ) -> Result<Written, ApiStatus> {
        let WriteTarget { kind, admission, .. } = target;
        let (api_version, name) = ("autoscaling/v1", "Scale");
        let decode = || strict::decode_value(api_version, name, config.clone());
        let types = (api_version, name);
        let warnings =
            check_configuration(types, config, options.field_validation, apply::check_scale, decode)?;
        let time = self.time(admission);
        let writer = Writer {
            kind,
            served_version,
            manager: options.field_manager.as_deref().unwrap_or_default(),
            subresource: "scale",
            time: &time,
        };
        let paths = kind.custom.as_ref().and_then(|custom| custom.scale.as_ref());
        let path = paths.map_or_else(|| REPLICAS.to_vec(), |paths| ScalePaths::fields(&paths.spec_replicas));
        self.modify_scale(target, options, ManagedFieldsOperation::Apply, |scale, object| {
            let (scale, managed) = apply::apply_replicas(object, &path, scale, config, writer, force)?;
            apply::take_managed_fields(object);
            if let Some(managed) = managed {
                set(object, apply::MANAGED_FIELDS, managed);
            }
            Ok((scale, warnings.clone()))
        })
    }

    /// Assigns a pod to a node.
    ///
    /// Upstream counterpart: `BindingREST.Create`.
    pub(crate) fn bind(
        &self,
        namespace: &str,
        name: &str,
        binding: &Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiStatus> {
        let target = str_at(binding, &["target", "name"]);
        let kind = str_at(binding, &["target", "kind"]);
        // Untyped errors upstream, so the status is 500.
        let mut errors = Vec::new();
        if !matches!(kind, "" | "Node") {
            errors.push(format!(
                "target.kind: Unsupported value: {kind:?}: supported values: \"Node\", \"<empty>\""
            ));
        }
        if target.is_empty() {
            errors.push("target.name: Required value".to_owned());
        }
        match errors.as_slice() {
            [] => {}
            [error] => return Err(ApiStatus::new(StatusReason::Unknown, error.as_str())),
            errors => {
                return Err(ApiStatus::new(StatusReason::Unknown, format!("[{}]", errors.join(", "))));
            }
        }
        let conflict = |why: String| ApiStatus::conflict_on("pods/binding", Resource::PODS, name, why);
        let now = self.now();
        self.modify_unchecked(Resource::PODS, namespace, name, options, |old| {
            check_preconditions(old, binding, &conflict)?;
            if old.is_deleting() {
                return Err(conflict(format!("pod {name} is being deleted, cannot be assigned to a host")));
            }
            let bound = str_at(old.value(), &["spec", "nodeName"]);
            if !bound.is_empty() {
                return Err(conflict(format!("pod {name} is already assigned to node {bound:?}")));
            }
            let mut pod = old.value().clone();
            set(&mut pod, &["spec", "nodeName"], target);
            for map in ["annotations", "labels"] {
                for (key, value) in
                    at(binding, &["metadata", map]).and_then(Value::as_object).into_iter().flatten()
                {
                    map_at_mut(&mut pod, &["metadata", map]).insert(key.clone(), value.clone());
                }
            }
            let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null});
            set_condition(&mut pod, condition, &now);
            Ok(pod)
        })
    }

    /// Deletes a pod unless a disruption budget forbids it.
    ///
    /// Upstream counterpart: `EvictionREST.Create`.
    pub(crate) fn evict(
        &self,
        namespace: &str,
        name: &str,
        delete: &DeleteOptions,
        options: &WriteOptions,
    ) -> Result<(), ApiStatus> {
        let pod = self.get(Resource::PODS, namespace, name)?;
        let delete = DeleteOptions { dry_run: options.dry_run || delete.dry_run, ..delete.clone() };
        let options = WriteOptions { dry_run: delete.dry_run, ..options.clone() };
        let phase = str_at(pod.value(), &["status", "phase"]);
        // Upstream's canIgnorePDB: deleting such a pod is no disruption.
        if !pod.is_deleting() && !matches!(phase, "Succeeded" | "Failed" | "Pending") {
            self.check_and_decrement(&pod, &options)?;
        }
        let now = self.now();
        let condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastProbeTime": null,
        });
        let written = self.modify_unchecked(Resource::PODS, namespace, name, &options, |old| {
            let mut pod = old.value().clone();
            set_condition(&mut pod, condition.clone(), &now);
            Ok(pod)
        })?;
        let mut delete = delete;
        delete.preconditions.uid.get_or_insert_with(|| written.object.uid().to_owned());
        self.delete(Resource::PODS, namespace, name, &delete, None).map(drop)
    }

    /// Decrements `disruptionsAllowed` of the PodDisruptionBudget that selects `pod`, if there is one.
    fn check_and_decrement(&self, pod: &Object, options: &WriteOptions) -> Result<(), ApiStatus> {
        let budgets: Vec<Arc<Object>> = self.store.read(|state| {
            let budgets = state.iter(Resource::POD_DISRUPTION_BUDGETS, pod.namespace());
            let covers = |budget: &Object| {
                at(budget.value(), &["spec", "selector"])
                    .is_some_and(|selector| LabelSelector::from_object(selector).matches(pod.value()))
            };
            budgets.filter(|budget| covers(budget)).collect()
        });
        let budget = match budgets.as_slice() {
            [] => return Ok(()),
            [budget] => budget,
            _ => {
                let message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does \
                               not support.";
                return Err(ApiStatus::new(StatusReason::Unknown, message));
            }
        };
        let name = budget.name();
        let refuse = |cause: String, after| {
            ApiStatus::new(
                StatusReason::TooManyRequests,
                "Cannot evict pod as it would violate the pod's disruption budget.",
            )
            .with_cause("DisruptionBudget", cause, "")
            .with_retry_after(after)
        };
        if !is_ready(pod) && may_evict_unready(budget.value()) {
            return Ok(());
        }
        let now = self.now();
        let resource = Resource::POD_DISRUPTION_BUDGETS;
        self.modify_unchecked(resource, budget.namespace(), name, options, |old| {
            let status = |field| i64_at(old.value(), &["status", field]).unwrap_or_default();
            if status("observedGeneration") < old.generation() {
                return Err(refuse(
                    format!("The disruption budget {name} is still being processed by the server."),
                    10,
                ));
            }
            let allowed = status("disruptionsAllowed");
            if allowed <= 0 {
                let (desired, current) = (status("desiredHealthy"), status("currentHealthy"));
                let cause = format!(
                    "The disruption budget {name} needs {desired} healthy pods and has {current} currently"
                );
                return Err(refuse(cause, 0));
            }
            let mut new = old.value().clone();
            set(&mut new, &["status", "disruptionsAllowed"], allowed - 1);
            set(&mut new, &["status", "disruptedPods", pod.name()], now.as_str());
            Ok(new)
        })
        .map(drop)
    }

    /// As [`modify`](Self::modify), for writes of the server itself: without strategy and validation. The generation stays
    /// the same, even for a bound pod.
    fn modify_unchecked(
        &self,
        resource: Resource,
        namespace: &str,
        name: &str,
        options: &WriteOptions,
        mut change: impl FnMut(&Object) -> Result<Value, ApiStatus>,
    ) -> Result<Written, ApiStatus> {
        let commit = if options.dry_run { Commit::Dry } else { Commit::Real };
        let key = store::key(namespace, name);
        let outcome = self.store.update(
            resource,
            &key,
            commit,
            self.clock.now(),
            |old| {
                let old = old.ok_or_else(|| ApiStatus::not_found(resource, name))?;
                let new = change(old)?;
                Ok(if new == *old.value() { Decision::Keep } else { Decision::Put(new) })
            },
            |_| Ok(()),
        )?;
        match outcome {
            UpdateResult::Put(object)
            | UpdateResult::Unchanged(Some(object))
            | UpdateResult::Removed(object) => Ok(Written { object, warnings: Vec::new() }),
            UpdateResult::Unchanged(None) => Err(ApiStatus::not_found(resource, name)),
        }
    }
}

fn is_ready(pod: &Object) -> bool {
    condition(pod.value(), "Ready").is_some_and(|ready| str_at(ready, &["status"]) == "True")
}

/// `true` if a pod that is not ready is evicted without a change of the budget.
fn may_evict_unready(budget: &Value) -> bool {
    let status = |field| i64_at(budget, &["status", field]).unwrap_or_default();
    let desired = status("desiredHealthy");
    str_at(budget, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow"
        || (desired > 0 && status("currentHealthy") >= desired)
}

fn check_preconditions(
    old: &Object,
    binding: &Value,
    conflict: &impl Fn(String) -> ApiStatus,
) -> Result<(), ApiStatus> {
    let current = old.revision().to_string();
    for (what, given, found) in [
        ("UID", str_at(binding, &["metadata", "uid"]), old.uid()),
        ("ResourceVersion", str_at(binding, &["metadata", "resourceVersion"]), current.as_str()),
    ] {
        if !given.is_empty() && given != found {
            return Err(conflict(format!(
                "Precondition failed: {what} in precondition: {given}, {what} in object meta: {found}"
            )));
        }
    }
    Ok(())
}

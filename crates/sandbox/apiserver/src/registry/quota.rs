//! Resource quotas: usage of a namespace, and enforcement on creation.
//!
//! Upstream counterpart: `k8s.io/apiserver/pkg/quota`, `pkg/quota/v1/evaluator/core` and the admission plugin
//! ResourceQuota.
//!
//! DEVIATION: upstream charges new objects to the status of the quota. Here, the objects are counted under the lock of
//! the write, so a quota is exact and is enforced before its status is set. With `charge_quota_status`, usage that the
//! status still contains is charged, too, as upstream does until the quota controller has updated the status. Updates are
//! not refused. Amounts are read from the objects before the lock is taken.

mod amount;
mod pod;

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use self::amount::Amount;
pub use self::pod::pod_resources;
use crate::{
    ApiStatus, Object, Resource,
    json::{at, bool_at, list_at, str_at},
    store::{State, Store},
};

/// Amounts by name of the quota's resource.
type Amounts = BTreeMap<String, Amount>;

/// Amounts of objects in the scopes of a quota, by revision. `None` for objects in no scope.
type Measured = HashMap<u64, Option<Amounts>>;

/// Number of objects that may be created while a request is measured, without measuring under the lock.
const CONCURRENT: usize = 200;

/// Quotas on kinds that are not served. Nothing is used.
const UNSERVED: [&str; 3] = ["persistentvolumeclaims", "requests.storage", "count/persistentvolumeclaims"];

/// An object to be created, as far as quotas concern it.
pub(super) struct Request {
    resource: Resource,
    object: Value,
    /// Quotas of the namespace, by revision, with the amounts of the existing objects.
    quotas: HashMap<u64, (Arc<Object>, Measured)>,
    /// If `true`, usage in the status of a quota is charged even if the objects do not exist any more.
    charge_status: bool,
}

impl Request {
    /// Returns `None` if no quota can apply to the object. Reads the amounts of the existing objects if necessary.
    pub(super) fn new(
        store: &Store,
        resource: Resource,
        namespace: &str,
        object: &Value,
        now: Timestamp,
        charge_status: bool,
    ) -> Option<Self> {
        if !resource.is_namespaced() {
            return None;
        }
        let quotas = store.scan(Resource::RESOURCE_QUOTAS, namespace, None, usize::MAX);
        if quotas.is_empty() {
            return None;
        }
        let mut request = Self { resource, object: object.clone(), quotas: HashMap::new(), charge_status };
        let count = store.read(|state| state.iter(resource, namespace).count());
        for quota in quotas {
            let spec = &quota.value()["spec"];
            let reached: Vec<String> = request.limits(spec, count + CONCURRENT).into_keys().collect();
            let mut measured = Measured::new();
            if !is_counted(resource, spec, &reached) {
                let names: Vec<String> = request.all_limits(spec).into_keys().collect();
                // Decoded one after the other, because a decoded object takes ten times the memory.
                for object in store.scan(resource, namespace, None, usize::MAX) {
                    measured.insert(object.revision(), measure(&object, spec, &names, now));
                }
            }
            request.quotas.insert(quota.revision(), (quota, measured));
        }
        Some(request)
    }

    /// Rejects the object if it exceeds a quota of its namespace.
    pub(super) fn admit(
        &self,
        state: &State,
        namespace: &str,
        name: &str,
        now: Timestamp,
    ) -> Result<(), ApiStatus> {
        for quota in state.iter(Resource::RESOURCE_QUOTAS, namespace) {
            self.check(state, &quota, now).map_err(|why| ApiStatus::forbidden(self.resource, name, why))?;
        }
        Ok(())
    }

    fn check(&self, state: &State, quota: &Object, now: Timestamp) -> Result<(), String> {
        let (quota, measured) = match self.quotas.get(&quota.revision()) {
            Some((quota, measured)) => (&**quota, Some(measured)),
            None => (quota, None),
        };
        let spec = &quota.value()["spec"];
        if self.resource == Resource::PODS
            && let Some(missing) = pod::missing_amounts(&self.object, &self.all_limits(spec))
        {
            return Err(format!("failed quota: {}: {missing}", quota.name()));
        }
        let hard = if self.charge_status {
            self.all_limits(spec)
        } else {
            self.limits(spec, state.iter(self.resource, quota.namespace()).count())
        };
        let names: Vec<String> = hard.keys().cloned().collect();
        let requested = amounts(self.resource, &self.object, &names, now);
        if requested.values().all(Amount::is_zero) {
            return Ok(());
        }
        let known = |object: &Object| measured.and_then(|measured| measured.get(&object.revision()).cloned());
        // Decodes only objects that were written since the others were measured.
        let amounts = |object: &Object| known(object).unwrap_or_else(|| measure(object, spec, &names, now));
        let mut used =
            usage_of(self.resource, state.iter(self.resource, quota.namespace()), spec, &names, amounts);
        for (name, amount) in used.iter_mut().filter(|_| self.charge_status) {
            let charged = Amount::parse(&quota.value()["status"]["used"][name]);
            *amount = charged.filter(|charged| charged > amount).unwrap_or(*amount);
        }
        let exceeds = |name: &&String| {
            let (requested, used) = (&requested[*name], &used[*name]);
            !requested.is_zero() && used.plus(requested) > hard[*name]
        };
        let exceeded: Vec<&String> = hard.keys().filter(exceeds).collect();
        if exceeded.is_empty() {
            return Ok(());
        }
        let list = |amounts: &Amounts| {
            let pairs = exceeded.iter().map(|name| format!("{name}={}", amounts[*name]));
            pairs.collect::<Vec<_>>().join(",")
        };
        let (requested, used, limited) = (list(&requested), list(&used), list(&hard));
        let quota = quota.name();
        Err(format!("exceeded quota: {quota}, requested: {requested}, used: {used}, limited: {limited}"))
    }

    /// Returns the limits that apply to the object. Empty if it is not in the scopes of the quota.
    fn all_limits(&self, spec: &Value) -> Amounts {
        if !is_in_scope(self.resource, &self.object, spec) {
            return Amounts::new();
        }
        hard(spec)
            .filter(|(name, _)| resource_of(name, Resource::find) == Some(self.resource) || self.counts(name))
            .filter_map(|(name, limit)| Some((name.clone(), Amount::parse(limit)?)))
            .collect()
    }

    /// Returns the limits that one more than `objects` objects may exceed.
    fn limits(&self, spec: &Value, objects: usize) -> Amounts {
        // An object uses at most one of these, so no object is decoded while their number is below the limit.
        let is_below = |name: &str, limit: &Amount| {
            (name == "pods" || is_count(self.resource, name)) && Amount::from(objects as u64 + 1) <= *limit
        };
        let mut limits = self.all_limits(spec);
        limits.retain(|name, limit| !is_below(name, limit));
        limits
    }

    /// `true` if `name` is the object count of the request's resource.
    fn counts(&self, name: &str) -> bool {
        name.strip_prefix("count/").is_some_and(|counted| counted == count_name(self.resource))
    }
}

/// Returns `status.used` of a quota. `find` returns the served resource of a group and a plural.
pub(crate) fn usage(
    store: &Store,
    quota: &Object,
    now: Timestamp,
    find: impl Fn(&str, &str) -> Option<Resource>,
) -> Map<String, Value> {
    let spec = &quota.value()["spec"];
    let mut names: BTreeMap<usize, (Resource, Vec<String>)> = BTreeMap::new();
    let mut used = Map::new();
    for (name, _) in hard(spec) {
        if let Some(resource) = resource_of(name, &find) {
            let entry = names.entry(resource.index()).or_insert_with(|| (resource, Vec::new()));
            entry.1.push(name.clone());
        } else if UNSERVED.contains(&name.as_str()) || name.contains(".storageclass.storage.k8s.io/") {
            used.insert(name.clone(), json!("0"));
        }
    }
    for (resource, names) in names.into_values() {
        let objects = store.scan(resource, quota.namespace(), None, usize::MAX).into_iter();
        let amounts = usage_of(resource, objects, spec, &names, |object| measure(object, spec, &names, now));
        used.extend(amounts.into_iter().map(|(name, amount)| (name, json!(amount.to_string()))));
    }
    used
}

fn hard(spec: &Value) -> impl Iterator<Item = (&String, &Value)> {
    spec.get("hard").and_then(Value::as_object).into_iter().flatten()
}

/// Name of a resource after `count/`.
fn count_name(resource: Resource) -> String {
    match resource.group() {
        "" => resource.plural().to_owned(),
        group => format!("{}.{group}", resource.plural()),
    }
}

/// Returns the resource that the name in `hard` limits.
fn resource_of(name: &str, find: impl Fn(&str, &str) -> Option<Resource>) -> Option<Resource> {
    if let Some(counted) = name.strip_prefix("count/") {
        let (plural, group) = counted.split_once('.').unwrap_or((counted, ""));
        return find(group, plural).filter(|resource| resource.is_namespaced());
    }
    Some(match name {
        "configmaps" => Resource::CONFIG_MAPS,
        "secrets" => Resource::SECRETS,
        "replicationcontrollers" => Resource::REPLICATION_CONTROLLERS,
        "resourcequotas" => Resource::RESOURCE_QUOTAS,
        "services" | "services.loadbalancers" | "services.nodeports" => Resource::SERVICES,
        name if pod::is_measured(name) => Resource::PODS,
        _ => return None,
    })
}

/// Returns the amounts that the objects in the scopes of the quota use. `amounts` returns those of one object.
fn usage_of(
    resource: Resource,
    objects: impl Iterator<Item = Arc<Object>>,
    spec: &Value,
    names: &[String],
    amounts: impl Fn(&Object) -> Option<Amounts>,
) -> Amounts {
    if is_counted(resource, spec, names) {
        let count = objects.count() as u64;
        return names.iter().map(|name| (name.clone(), Amount::from(count))).collect();
    }
    let mut used: Amounts = names.iter().map(|name| (name.clone(), Amount::default())).collect();
    for object in objects {
        for (name, amount) in amounts(&object).into_iter().flatten() {
            if let Some(total) = used.get_mut(&name) {
                *total = total.plus(&amount);
            }
        }
    }
    used
}

/// `true` if the usage is the number of objects.
fn is_counted(resource: Resource, spec: &Value, names: &[String]) -> bool {
    let has_scopes = has(spec, &["scopes"]) || has(spec, &["scopeSelector"]);
    !has_scopes && names.iter().all(|name| is_count(resource, name))
}

/// Returns the amounts that an object uses if it is in the scopes of the quota.
fn measure(object: &Object, spec: &Value, names: &[String], now: Timestamp) -> Option<Amounts> {
    let resource = object.resource();
    is_in_scope(resource, object.value(), spec).then(|| amounts(resource, object.value(), names, now))
}

/// `true` if every object uses 1 of `name`.
fn is_count(resource: Resource, name: &str) -> bool {
    name.starts_with("count/") || resource.plural() == name && resource != Resource::PODS
}

/// Returns the amounts that one object uses.
fn amounts(resource: Resource, object: &Value, names: &[String], now: Timestamp) -> Amounts {
    let amount = |name: &str| match name {
        name if is_count(resource, name) => Amount::from(1),
        "services.loadbalancers" => Amount::from(u64::from(service_type(object) == "LoadBalancer")),
        "services.nodeports" => Amount::from(node_ports(object)),
        name if resource == Resource::PODS => pod::amount(name, object, now),
        _ => Amount::from(1),
    };
    names.iter().map(|name| (name.clone(), amount(name))).collect()
}

fn service_type(service: &Value) -> &str {
    str_at(service, &["spec", "type"])
}

fn node_ports(service: &Value) -> u64 {
    let ports = list_at(service, &["spec", "ports"]).len();
    match service_type(service) {
        "NodePort" => ports as u64,
        "LoadBalancer" if bool_at(service, &["spec", "allocateLoadBalancerNodePorts"]) => ports as u64,
        _ => 0,
    }
}

/// `true` if the object is in all scopes of the quota. Only pods have scopes.
fn is_in_scope(resource: Resource, object: &Value, spec: &Value) -> bool {
    let scopes =
        list_at(spec, &["scopes"]).iter().map(|scope| (scope.as_str().unwrap_or(""), "Exists", &[][..]));
    let expressions = list_at(spec, &["scopeSelector", "matchExpressions"]).iter();
    let selectors = expressions.map(|expression| {
        let text = |name| str_at(expression, &[name]);
        (text("scopeName"), text("operator"), list_at(expression, &["values"]))
    });
    let is_pod = resource == Resource::PODS;
    scopes
        .chain(selectors)
        .all(|(scope, operator, values)| is_pod && pod::is_in_scope(object, scope, operator, values))
}

/// `true` if the object has the field.
fn has(object: &Value, path: &[&str]) -> bool {
    at(object, path).is_some_and(|value| !value.is_null())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ApiServer, ApiServerConfig, WriteOptions};

    /// Reading the amounts of all pods under the lock would delay all other requests.
    #[test]
    fn existing_pods_are_measured_before_the_write() {
        struct Case {
            limit: (&'static str, &'static str),
            measured: usize,
        }
        for Case { limit: (name, limit), measured } in [
            Case { limit: ("requests.cpu", "10"), measured: 3 },
            Case { limit: ("pods", "10"), measured: 3 },
            Case { limit: ("pods", "1000"), measured: 0 },
            Case { limit: ("count/pods", "10"), measured: 0 },
            Case { limit: ("configmaps", "10"), measured: 0 },
        ] {
            let server = ApiServer::new(ApiServerConfig::default());
            let create = |resource, object| {
                server.create(resource, "default", object, &WriteOptions::default()).unwrap()
            };
            let resources = json!({"requests": {"cpu": "1"}});
            let spec = json!({"containers": [{"name": "c", "image": "nginx:1", "resources": resources}]});
            let pod = |name| json!({"metadata": {"name": name}, "spec": spec});
            let quota = json!({"metadata": {"name": "few"}, "spec": {"hard": {name: limit}}});
            create(Resource::RESOURCE_QUOTAS, quota);
            for name in ["a", "b", "c"] {
                create(Resource::PODS, pod(name));
            }
            let (store, now) = (&server.registry.store, server.config.clock.now());
            let request = Request::new(store, Resource::PODS, "default", &pod("d"), now, false).unwrap();
            let amounts: Vec<usize> = request.quotas.values().map(|(_, measured)| measured.len()).collect();
            assert_eq!(amounts, [measured], "{name}");
        }
    }
}

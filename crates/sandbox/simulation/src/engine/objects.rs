//! Hashes of the stored objects: of the members on which the next steps depend.
//!
//! The steps of the controllers of the manager do not depend on all of an object: of times, for example, only their order may
//! matter. See `docs/simulation.md`.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
    time::Duration,
};

use http::request::Parts;
use jiff::{SignedDuration, Timestamp};
use kcm_apiserver::Object;
use kcm_runtime::{ControllerState, ObjectKey};
use serde_json::Value;

use super::{
    fingerprint::{RESOLUTION, bucket, hash},
    step::verb_and_resource,
};

/// Members of metadata that steps depend on.
const METADATA: [&str; 4] = ["labels", "ownerReferences", "deletionGracePeriodSeconds", "finalizers"];

/// Members of metadata on which the steps of the controllers depend in part.
const PARTIAL_METADATA: [&str; 3] = ["annotations", "creationTimestamp", "generation"];

/// Members that differ between runs, and on which no step depends.
const IDENTITIES: [&str; 3] = ["podIP", "podIPs", "containerID"];

/// Members of the specification and status of a pod that follow from its node. The node matters when pods are chosen for deletion,
/// or when it is lost.
const OF_NODE: [&str; 3] = ["nodeName", "hostIP", "hostIPs"];

/// Annotations with sizes. Of a ReplicaSet without pods, only a desired size of 0 matters.
const DESIRED_REPLICAS: &str = "deployment.kubernetes.io/desired-replicas";
const MAX_REPLICAS: &str = "deployment.kubernetes.io/max-replicas";

/// Reasons of the condition `Progressing` with which no deadline is checked. Upstream reads the time with the first of them,
/// too, and then adds the Deployment to its queue again.
const WITHOUT_DEADLINE: [&str; 3] =
    ["NewReplicaSetAvailable", "ProgressDeadlineExceeded", "DeploymentPaused"];

/// Resource with its API group, such as `replicasets.apps`, and key of an object.
type ObjectId = (Box<str>, ObjectKey);

/// All objects that have existed, except those with drawn names that were deleted.
#[derive(Debug, Default)]
pub(super) struct Objects {
    all: BTreeMap<ObjectId, TracedObject>,
    /// Number of each object among those of its name that have existed, by UID.
    numbers: HashMap<Box<str>, u32>,
}

#[derive(Debug, Default)]
struct TracedObject {
    /// Number of objects of this name that have existed.
    objects: u32,
    /// `None` after the deletion.
    stored: Option<StoredObject>,
}

#[derive(Debug)]
struct StoredObject {
    /// Number among the objects of this name. Objects refer to owners by it.
    number: u32,
    /// Name without its drawn part.
    written: String,
    version: String,
    hashes: Hashes,
    /// Time of the creation of a pod, or of the last change of a Lease, since the start.
    time: Option<Duration>,
    /// Time at which the deletion began.
    deletion: Option<Duration>,
    times: Times,
}

/// Version of an object that an update requires.
#[derive(Debug)]
pub(super) struct ObjectVersion {
    id: ObjectId,
    version: String,
}

impl ObjectVersion {
    /// Version that an update requires. `None` for other requests, and for updates of any version.
    pub(super) fn of_update(request: &Parts, body: &[u8]) -> Option<Self> {
        let ("update", resource) = verb_and_resource(&request.method, request.uri.path())? else {
            return None;
        };
        let object: Value = serde_json::from_slice(body).ok()?;
        let member = |name: &str| object["metadata"][name].as_str().filter(|text| !text.is_empty());
        let key = ObjectKey::new(member("namespace")?, member("name")?);
        let resource = resource.split('/').next()?;
        let group = request.uri.path().strip_prefix("/apis/").and_then(|path| path.split('/').next());
        let resource = group.map_or_else(|| resource.to_owned(), |group| format!("{resource}.{group}"));
        Some(Self { id: (resource.into(), key), version: member("resourceVersion")?.to_owned() })
    }
}

/// Hashes of an object without [`IDENTITIES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hashes {
    /// Hash of all members that steps may depend on.
    pub(super) exact: u64,
    /// Hash of what the steps of the controllers depend on, without [`Times`].
    pub(super) content: u64,
    /// The same, without the node of a pod.
    pub(super) without_node: u64,
}

/// A change of an object.
#[derive(Debug)]
pub(super) struct Change {
    /// Name of the object, without its drawn part.
    pub(super) written: String,
    /// Place of the object in the order of names.
    pub(super) place: usize,
    /// Hashes before the change. `None` if the object did not exist.
    pub(super) before: Option<Hashes>,
    /// Hashes of the object of the event.
    pub(super) after: Hashes,
}

/// Times of an object of which only the order or the age matters.
#[derive(Debug, Clone, Default)]
struct Times {
    /// Creation of a pod or ReplicaSet.
    creation: Option<Timestamp>,
    /// Time since which a pod is ready.
    ready: Option<Timestamp>,
    /// Last progress of a Deployment with a deadline.
    progress: Option<Timestamp>,
    /// `minReadySeconds`.
    min_ready: SignedDuration,
}

/// Members of the objects that a hash contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Scope {
    /// All that steps may depend on.
    All,
    /// Those on which the steps of the controllers and of users depend.
    Steps,
    /// Those on which the steps of the controllers depend after the end of the scenario.
    End,
}

impl Objects {
    /// Applies a change of an object, or its deletion, that happened at `now`. `None` for events, which are ignored.
    pub(super) fn changed(&mut self, object: &Object, is_gone: bool, now: Duration) -> Option<Change> {
        let resource = object.resource().plural();
        if resource == "events" {
            return None;
        }
        let id = id(object);
        let traced = self.all.entry(id.clone()).or_default();
        let number = *self.numbers.entry(object.uid().into()).or_insert_with(|| {
            traced.objects += 1;
            traced.objects
        });
        let value = object.value();
        let is_drawn = value["metadata"]["generateName"].is_string();
        let written = if is_drawn { written_name(resource, object.name()) } else { object.name() }.to_owned();
        let hashes = hashes(resource, value, &self.numbers);
        let before = traced.stored.as_ref();
        let time = match resource {
            "pods" => before.map_or(Some(now), |before| before.time),
            "leases" => Some(now),
            _ => None,
        };
        let deletion = before.and_then(|before| before.deletion);
        let deletion = object.is_deleting().then(|| deletion.unwrap_or(now));
        let (version, times) = (object.revision().to_string(), Times::of(resource, value));
        let old = before.map(|before| before.hashes);
        traced.stored = (!is_gone).then_some(StoredObject {
            number,
            written: written.clone(),
            version,
            hashes,
            time,
            deletion,
            times,
        });
        let before = self.all.range(..&id).rev().take_while(|((of, _), _)| *of == id.0);
        let place = before.filter(|(_, object)| object.stored.is_some()).count();
        if is_gone && is_drawn {
            self.all.remove(&id);
        }
        Some(Change { written, place, before: old, after: hashes })
    }

    /// Replaces all objects.
    pub(super) fn replace(&mut self, objects: &[Arc<Object>], now: Duration) {
        let kept: BTreeSet<ObjectId> = objects.iter().map(|object| id(object)).collect();
        for (_, gone) in self.all.iter_mut().filter(|(id, _)| !kept.contains(id)) {
            gone.stored = None;
        }
        for object in objects {
            self.changed(object, false, now);
        }
    }

    /// `true` if an object has this version.
    pub(super) fn has(&self, version: &ObjectVersion) -> bool {
        let object = self.all.get(&version.id).and_then(|object| object.stored.as_ref());
        object.is_some_and(|object| object.version == version.version)
    }

    /// Keys of the objects in the record.
    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.all.keys().map(|(_, key)| key)
    }

    fn stored(&self) -> impl Iterator<Item = (&ObjectId, &StoredObject)> {
        self.all.iter().filter_map(|(id, object)| Some((id, object.stored.as_ref()?)))
    }

    /// `true` if a Deployment must make progress within a deadline.
    pub(super) fn have_deadline(&self) -> bool {
        self.stored().any(|(_, object)| object.times.progress.is_some())
    }

    /// Hash of the objects. Times are those since `origin`, and ages those at the time `wall`.
    pub(super) fn hash(&self, scope: Scope, origin: Duration, wall: Timestamp) -> u64 {
        let since = |time: &Duration| bucket(*time, origin);
        let units = |time: SignedDuration| time.as_millis() / RESOLUTION.as_millis().cast_signed();
        let age = |time: Timestamp| units(wall.duration_since(time));
        let min_ready = self.stored().map(|(_, object)| object.times.min_ready).max().unwrap_or_default();
        let stored: Vec<_> = self.stored().collect();
        let mut all: Vec<u64> = Vec::with_capacity(stored.len());
        for of_group in stored.chunk_by(|(one, _), (next, _)| group(one) == group(next)) {
            let times = || of_group.iter().map(|(_, object)| &object.times);
            let creations = Order::new(times().map(|times| times.creation));
            let ready = Order::new(times().map(|times| times.ready));
            for ((resource, key), object) in of_group {
                let StoredObject { number, written, hashes, time, deletion, times, .. } = object;
                let (time, deletion) = (time.as_ref().map(since), deletion.as_ref().map(since));
                let of_scope = if scope == Scope::All {
                    hash((hashes.exact, time))
                } else {
                    let is_pod = **resource == *"pods";
                    // After the end, no user chooses pods by their ages and names, and no rule compares the ages. It does not
                    // matter which of several pods is deleted, either.
                    let order = (scope == Scope::Steps || !is_pod)
                        .then(|| (creations.of(times.creation), ready.of(times.ready)));
                    // The kubelet does nothing more for a ready pod.
                    let time = time.filter(|_| times.ready.is_none() || deletion.is_some());
                    let until_available = times.ready.filter(|_| !min_ready.is_zero());
                    let until_available = until_available.map(|ready| age(ready).min(units(min_ready)));
                    let content = if scope == Scope::End { hashes.without_node } else { hashes.content };
                    hash((content, time, order, until_available, times.progress.map(age)))
                };
                all.push(hash((resource, &*key.namespace, written, number, of_scope, deletion)));
            }
        }
        if scope == Scope::End {
            all.sort_unstable();
        }
        hash(all)
    }

    /// `true` if the caches of a controller contain all that the store contains.
    pub(super) fn are_cached(&self, controller: &ControllerState) -> bool {
        controller.cached_versions().all(|(informer, cached)| {
            // The name of an informer may lack the group.
            let resource = plural(informer);
            let stored = self.stored().filter(|((of, _), _)| plural(of) == resource);
            let stored = stored.map(|((_, key), object)| (key, &*object.version));
            let mut cached: Vec<_> = cached.iter().map(|(key, version)| (key, &**version)).collect();
            cached.sort_unstable();
            stored.eq(cached)
        })
    }
}

fn id(object: &Object) -> ObjectId {
    (object.resource().to_string().into(), ObjectKey::new(object.namespace(), object.name()))
}

/// Plural name of a resource that may be followed by its group.
fn plural(resource: &str) -> &str {
    resource.split('.').next().unwrap_or_default()
}

/// Resource and namespace of an object.
fn group((resource, key): &ObjectId) -> (&str, &str) {
    (resource, &key.namespace)
}

/// The part of a name that is not drawn. The order of drawn names matters: users and controllers choose among pods of the same
/// age by it.
pub(super) fn written_name<'a>(resource: &str, name: &'a str) -> &'a str {
    match name.rsplit_once('-') {
        Some((written, _)) if resource == "pods" => written,
        _ => name,
    }
}

/// Distinct times of the objects of a group, in ascending order.
struct Order(Vec<Option<Timestamp>>);

impl Order {
    fn new(times: impl Iterator<Item = Option<Timestamp>>) -> Self {
        let mut all: Vec<_> = times.collect();
        all.sort_unstable();
        all.dedup();
        Self(all)
    }

    /// Number of times before `time`.
    fn of(&self, time: Option<Timestamp>) -> usize {
        self.0.partition_point(|one| *one < time)
    }
}

impl Times {
    fn of(resource: &str, value: &Value) -> Self {
        let time = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
        let condition = |of: &str| {
            let mut conditions = value["status"]["conditions"].as_array().into_iter().flatten();
            conditions.find(|condition| condition["type"] == of)
        };
        let creation = time(&value["metadata"]["creationTimestamp"]);
        let min_ready = value["spec"]["minReadySeconds"].as_i64().unwrap_or_default();
        let min_ready = SignedDuration::from_secs(min_ready.max(0));
        let times = Self { min_ready, ..Self::default() };
        match resource {
            "replicasets" => Self { creation, ..times },
            "pods" => {
                let ready = condition("Ready").filter(|condition| condition["status"] == "True");
                let ready = ready.and_then(|condition| time(&condition["lastTransitionTime"]));
                Self { creation, ready, ..times }
            }
            "deployments" => {
                let has_deadline = |condition: &&Value| {
                    let reason = condition["reason"].as_str();
                    !reason.is_some_and(|reason| WITHOUT_DEADLINE.contains(&reason))
                };
                let progress = condition("Progressing").filter(has_deadline);
                let progress = progress.and_then(|condition| time(&condition["lastUpdateTime"]));
                Self { progress, ..times }
            }
            _ => times,
        }
    }
}

/// Hashes of an object. Of a Lease, only the holder matters. `numbers` replace UIDs.
fn hashes(resource: &str, value: &Value, numbers: &HashMap<Box<str>, u32>) -> Hashes {
    if resource == "leases" {
        let holder = hash(value["spec"]["holderIdentity"].as_str());
        return Hashes { exact: holder, content: holder, without_node: holder };
    }
    let is_pod = resource == "pods";
    let (all, partial) =
        (MemberHasher { numbers, is_exact: true }, MemberHasher { numbers, is_exact: false });
    let node = value["spec"]["nodeName"].as_str().filter(|_| is_pod);
    let left_out = if is_pod { &OF_NODE[..] } else { &[] };
    let mut common = DefaultHasher::new();
    let metadata = &value["metadata"];
    metadata["deletionTimestamp"].is_string().hash(&mut common);
    for member in METADATA {
        all.hash(&metadata[member], &mut common);
    }
    for (name, member) in value.as_object().into_iter().flatten() {
        if !["metadata", "status"].contains(&&**name) {
            name.hash(&mut common);
            all.hash_without(left_out, member, &mut common);
        }
    }
    let mut exact = common.clone();
    for member in PARTIAL_METADATA {
        all.hash(&metadata[member], &mut exact);
    }
    all.hash(&value["status"], &mut exact);
    node.hash(&mut exact);

    let number = |value: &Value| value.as_i64().unwrap_or_default();
    let observed = number(&value["status"]["observedGeneration"]);
    (number(&metadata["generation"]) - observed, observed == 0).hash(&mut common);
    let is_empty =
        resource == "replicasets" && value["spec"]["replicas"] == 0 && value["status"]["replicas"] == 0;
    for (name, annotation) in metadata["annotations"].as_object().into_iter().flatten() {
        match &**name {
            DESIRED_REPLICAS if is_empty => (name, annotation == "0").hash(&mut common),
            MAX_REPLICAS if is_empty => {}
            name => (name, annotation.as_str()).hash(&mut common),
        }
    }
    partial.hash_without(left_out, &value["status"], &mut common);
    let without_node = common.finish();
    node.hash(&mut common);
    Hashes { exact: exact.finish(), content: common.finish(), without_node }
}

/// Hasher of a member of an object with all its members.
struct MemberHasher<'a> {
    numbers: &'a HashMap<Box<str>, u32>,
    /// `false` if times, observed generations and the order of conditions do not matter.
    is_exact: bool,
}

impl MemberHasher<'_> {
    fn hash(&self, value: &Value, hasher: &mut DefaultHasher) {
        self.hash_without(&[], value, hasher);
    }

    /// Hashes a value without these of its members.
    fn hash_without(&self, left_out: &[&str], value: &Value, hasher: &mut DefaultHasher) {
        match value {
            Value::Object(members) => {
                let matters = |name: &str| self.matters(name) && !left_out.contains(&name);
                for (name, member) in members.iter().filter(|(name, _)| matters(name)) {
                    name.hash(hasher);
                    match member.as_str().filter(|_| name == "uid").and_then(|uid| self.numbers.get(uid)) {
                        Some(number) => number.hash(hasher),
                        None if name == "conditions" && !self.is_exact => {
                            self.hash_conditions(member, hasher);
                        }
                        None => self.hash(member, hasher),
                    }
                }
                // The end of the members.
                hasher.write_u8(0xff);
            }
            Value::Array(items) => {
                items.len().hash(hasher);
                items.iter().for_each(|item| self.hash(item, hasher));
            }
            Value::String(text) if !self.is_exact && is_time(text) => {}
            scalar => scalar.hash(hasher),
        }
    }

    fn hash_conditions(&self, conditions: &Value, hasher: &mut DefaultHasher) {
        let mut hashes = Vec::new();
        for condition in conditions.as_array().into_iter().flatten() {
            let mut hasher = DefaultHasher::new();
            self.hash(condition, &mut hasher);
            hashes.push(hasher.finish());
        }
        hashes.sort_unstable();
        hashes.hash(hasher);
    }

    fn matters(&self, name: &str) -> bool {
        !IDENTITIES.contains(&name) && (self.is_exact || name != "observedGeneration")
    }
}

/// `true` if the text is a time such as `2026-01-01T00:00:00Z`.
fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.ends_with('Z') && text.as_bytes().get(10) == Some(&b'T')
}

#[cfg(test)]
mod tests;

//! Objects of the store in the state of a run: hashes of all of them that the next steps depend on.
//!
//! The steps of the controllers of the manager do not depend on all of an object: of times, for example, only their order may
//! matter. [`Objects::hash`] contains only that on which they depend, unless there are other controllers, and
//! [`Objects::exact_hash`] all. See `docs/simulation.md`.

use std::{
    collections::{BTreeMap, HashMap},
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use jiff::Timestamp;
use kcm_apiserver::{Object, WatchEvent};
use kcm_runtime::{ControllerState, ObjectKey};
use serde_json::Value;

use super::fingerprint::{bucket, hash};

/// Members of metadata that steps depend on.
const METADATA: [&str; 4] = ["labels", "ownerReferences", "deletionGracePeriodSeconds", "finalizers"];

/// Members of metadata on which the steps of the controllers depend in part.
const IN_PART: [&str; 3] = ["annotations", "creationTimestamp", "generation"];

/// Members that differ between runs, and on which no step depends.
const IDENTITIES: [&str; 3] = ["podIP", "podIPs", "containerID"];

/// Annotations of a ReplicaSet that do not matter if it has no pods. They are written when it is scaled.
const SIZES: [&str; 2] =
    ["deployment.kubernetes.io/desired-replicas", "deployment.kubernetes.io/max-replicas"];

/// Reasons of the condition `Progressing` with which its time does not matter.
const DECIDED: [&str; 2] = ["NewReplicaSetAvailable", "ProgressDeadlineExceeded"];

/// Resource and key of an object.
type ObjectId = (Box<str>, ObjectKey);

/// All objects that have existed.
#[derive(Debug, Default)]
pub(super) struct Objects {
    all: BTreeMap<ObjectId, TracedObject>,
    /// Number of each object among those of its name that have existed, by UID.
    numbers: HashMap<Box<str>, u32>,
}

#[derive(Debug, Default)]
struct TracedObject {
    /// Number of objects of this name that have existed.
    number: u32,
    /// `None` after the deletion.
    stored: Option<StoredObject>,
}

#[derive(Debug)]
struct StoredObject {
    version: String,
    hashes: Hashes,
    /// Time of the creation of a pod, or of the last change of a Lease, since the start.
    time: Option<Duration>,
    /// Time at which the deletion began.
    deletion: Option<Duration>,
    times: Times,
}

/// Hashes of an object without [`IDENTITIES`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hashes {
    /// Hash of all members that steps may depend on.
    pub(super) exact: u64,
    /// Hash of what the steps of the controllers depend on, without [`Times`].
    pub(super) content: u64,
}

/// Times of an object of which the order matters.
#[derive(Debug, Clone, Default)]
struct Times {
    /// Hash of the owner of a pod.
    owner: u64,
    /// Creation of a pod or ReplicaSet.
    creation: Option<Timestamp>,
    /// Time since which a pod is ready.
    ready: Option<Timestamp>,
    /// `true` if more than the order matters, because pods are not available at once.
    has_delay: bool,
}

impl Objects {
    /// Applies a change at a time. Returns the object and its hashes, unless it is an event.
    pub(super) fn changed<'e>(
        &mut self,
        event: &'e WatchEvent,
        now: Duration,
    ) -> Option<(&'e Object, Hashes)> {
        let object = event.object().filter(|object| object.resource().plural() != "events")?;
        let resource = object.resource().plural();
        let key = ObjectKey::new(object.namespace(), object.name());
        let traced = self.all.entry((resource.into(), key)).or_default();
        if traced.stored.is_none() {
            traced.number += 1;
            self.numbers.insert(object.uid().into(), traced.number);
        }
        let value = object.value();
        let hashes = hashes(resource, value, &self.numbers);
        let before = traced.stored.as_ref();
        let time = match resource {
            "pods" => before.map_or(Some(now), |before| before.time),
            "leases" => Some(now),
            _ => None,
        };
        let deletion = before.and_then(|before| before.deletion).or(object.is_deleting().then_some(now));
        let (version, times) = (object.revision().to_string(), Times::of(resource, value));
        let is_gone = matches!(event, WatchEvent::Deleted(_));
        traced.stored = (!is_gone).then_some(StoredObject { version, hashes, time, deletion, times });
        Some((object, hashes))
    }

    /// Keys of all objects that have existed.
    pub(super) fn keys(&self) -> impl Iterator<Item = &ObjectKey> {
        self.all.keys().map(|(_, key)| key)
    }

    fn stored(&self) -> impl Iterator<Item = (&ObjectId, &StoredObject)> {
        self.all.iter().filter_map(|(id, object)| Some((id, object.stored.as_ref()?)))
    }

    /// Hash of all objects, with times since `origin`.
    pub(super) fn exact_hash(&self, origin: Duration) -> u64 {
        let since = |time: Duration| bucket(time, origin);
        let mut hasher = DefaultHasher::new();
        for ((resource, key), StoredObject { hashes, time, deletion, .. }) in self.stored() {
            let (time, deletion) = (time.map(since), deletion.map(since));
            let name = written_name(resource, key);
            (resource, &*key.namespace, name, hashes.exact, time, deletion).hash(&mut hasher);
        }
        hasher.finish()
    }

    /// Hash of what the steps of the controllers depend on, with times since `origin`. At the end of the
    /// scenario, no user chooses pods by their names any more, and no rule compares their ages.
    pub(super) fn hash(&self, origin: Duration, is_end: bool) -> u64 {
        let since = |time: Duration| bucket(time, origin);
        let has_delay = self.stored().any(|(_, object)| object.times.has_delay);
        let creations =
            Order::new(self.stored().map(|(_, object)| (object.times.owner, object.times.creation)));
        let ready = Order::new(self.stored().map(|(_, object)| (object.times.owner, object.times.ready)));
        let mut all = Vec::new();
        for ((resource, key), object) in self.stored() {
            let StoredObject { hashes, time, deletion, times, .. } = object;
            let ages = (!is_end)
                .then(|| (creations.of(times.owner, times.creation), ready.of(times.owner, times.ready)));
            // A ready pod has no next step of its own.
            let time = time.filter(|_| times.ready.is_none() || deletion.is_some()).map(since);
            let deletion = deletion.map(since);
            let available = has_delay.then_some(times.ready);
            let id = (resource, &*key.namespace, written_name(resource, key));
            all.push(hash((id, hashes.content, time, deletion, ages, available)));
        }
        if is_end {
            all.sort_unstable();
        }
        hash(all)
    }

    /// `true` if the caches of a controller contain all that the store contains.
    pub(super) fn are_cached(&self, controller: &ControllerState) -> bool {
        controller.cached_versions().all(|(informer, cached)| {
            // Its resource, and perhaps the group.
            let resource = informer.split('.').next().unwrap_or_default();
            let stored = self.stored().filter(|((of, _), _)| **of == *resource);
            let stored = stored.map(|((_, key), object)| (key, &*object.version));
            let mut cached: Vec<_> = cached.iter().map(|(key, version)| (key, &**version)).collect();
            cached.sort_unstable();
            stored.eq(cached)
        })
    }
}

/// Name of an object, unless it is drawn. The order of drawn names matters: users and controllers choose pods by it.
fn written_name<'a>(resource: &str, key: &'a ObjectKey) -> &'a str {
    if resource == "pods" { "" } else { &key.name }
}

/// Distinct times of objects with the same owner, in ascending order.
struct Order(Vec<(u64, Option<Timestamp>)>);

impl Order {
    fn new(times: impl Iterator<Item = (u64, Option<Timestamp>)>) -> Self {
        let mut all: Vec<_> = times.collect();
        all.sort_unstable();
        all.dedup();
        Self(all)
    }

    /// Number of times of the owner before `time`.
    fn of(&self, owner: u64, time: Option<Timestamp>) -> usize {
        let before = self.0.partition_point(|one| *one < (owner, time));
        before - self.0.partition_point(|(of, _)| *of < owner)
    }
}

impl Times {
    fn of(resource: &str, value: &Value) -> Self {
        let time = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
        let has_delay = value["spec"]["minReadySeconds"].as_u64().is_some_and(|seconds| seconds > 0);
        let times = Self { has_delay, ..Self::default() };
        let creation = time(&value["metadata"]["creationTimestamp"]);
        match resource {
            "replicasets" => Self { creation, ..times },
            "pods" => {
                let conditions = value["status"]["conditions"].as_array().into_iter().flatten();
                let mut conditions =
                    conditions.filter(|one| one["type"] == "Ready" && one["status"] == "True");
                let ready = conditions.next().and_then(|one| time(&one["lastTransitionTime"]));
                let owners = value["metadata"]["ownerReferences"].as_array().into_iter().flatten();
                let owners: Vec<_> = owners.map(|owner| owner["uid"].as_str()).collect();
                Self { owner: hash(owners), creation, ready, ..times }
            }
            _ => times,
        }
    }
}

/// Hashes of an object. Of a Lease, only the holder matters. `numbers` replace UIDs.
fn hashes(resource: &str, value: &Value, numbers: &HashMap<Box<str>, u32>) -> Hashes {
    if resource == "leases" {
        let holder = hash(value["spec"]["holderIdentity"].as_str());
        return Hashes { exact: holder, content: holder };
    }
    let mut common = DefaultHasher::new();
    let (all, status) = (Members { numbers, is_exact: true }, Members { numbers, is_exact: false });
    let metadata = &value["metadata"];
    metadata["deletionTimestamp"].is_string().hash(&mut common);
    for member in METADATA {
        all.hash(&metadata[member], &mut common);
    }
    for (name, member) in value.as_object().into_iter().flatten() {
        if !["metadata", "status"].contains(&&**name) {
            name.hash(&mut common);
            all.hash(member, &mut common);
        }
    }
    let mut exact = common.clone();
    for member in IN_PART {
        all.hash(&metadata[member], &mut exact);
    }
    all.hash(&value["status"], &mut exact);

    let number = |value: &Value| value.as_i64().unwrap_or_default();
    let behind = number(&metadata["generation"]) - number(&value["status"]["observedGeneration"]);
    behind.hash(&mut common);
    let is_empty =
        resource == "replicasets" && value["spec"]["replicas"] == 0 && value["status"]["replicas"] == 0;
    for (name, annotation) in metadata["annotations"].as_object().into_iter().flatten() {
        if !(is_empty && SIZES.contains(&&**name)) {
            (&**name, annotation.as_str()).hash(&mut common);
        }
    }
    status.hash(&value["status"], &mut common);
    Hashes { exact: exact.finish(), content: common.finish() }
}

/// Hash of a member of an object, and of all its members.
struct Members<'a> {
    numbers: &'a HashMap<Box<str>, u32>,
    /// `false` if times, generations and the order of conditions do not matter.
    is_exact: bool,
}

impl Members<'_> {
    fn hash(&self, value: &Value, hasher: &mut DefaultHasher) {
        match value {
            Value::Object(members) => {
                // The deadline depends on its time.
                let is_progress = value["type"] == "Progressing"
                    && !value["reason"].as_str().is_some_and(|reason| DECIDED.contains(&reason));
                let of = Members { is_exact: self.is_exact || is_progress, ..*self };
                for (name, member) in members.iter().filter(|(name, _)| of.matters(name)) {
                    name.hash(hasher);
                    match member.as_str().filter(|_| name == "uid").and_then(|uid| self.numbers.get(uid)) {
                        Some(number) => number.hash(hasher),
                        None if name == "conditions" && !of.is_exact => of.hash_conditions(member, hasher),
                        None => of.hash(member, hasher),
                    }
                }
                members.len().hash(hasher);
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
mod tests {
    use serde_json::json;

    use super::*;

    /// Hashes of an object with this change, by merge patch.
    fn changed(resource: &str, patch: &Value) -> Hashes {
        let mut object = json!({
            "metadata": {
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "generation": 2,
                "annotations": {"deployment.kubernetes.io/desired-replicas": "3", "note": "a"},
                "ownerReferences": [{"uid": "a"}],
            },
            "spec": {"replicas": 0, "template": {"metadata": {"annotations": {"at": "2026-01-01T00:00:00Z"}}}},
            "status": {
                "replicas": 0,
                "observedGeneration": 2,
                "podIP": "10.0.0.1",
                "conditions": [
                    {"type": "Ready", "lastTransitionTime": "2026-01-01T00:00:01Z"},
                    {"type": "Progressing", "reason": "NewReplicaSetAvailable", "lastUpdateTime": "2026-01-01T00:00:01Z"},
                ],
            },
        });
        merge(&mut object, patch);
        hashes(resource, &object, &HashMap::from([("a".into(), 1), ("b".into(), 1), ("c".into(), 2)]))
    }

    fn merge(object: &mut Value, patch: &Value) {
        match (object, patch) {
            (Value::Object(object), Value::Object(patch)) => {
                for (name, member) in patch {
                    merge(object.entry(name).or_insert(Value::Null), member);
                }
            }
            (object, patch) => *object = patch.clone(),
        }
    }

    #[test]
    fn steps_do_not_depend_on_all_members() {
        let conditions = |reason: &str, second: u32| {
            json!([
                {"type": "Progressing", "reason": reason, "lastUpdateTime": format!("2026-01-01T00:00:0{second}Z")},
                {"type": "Ready", "lastTransitionTime": "2026-01-01T00:00:05Z"},
            ])
        };
        let before = changed("replicasets", &json!({}));
        // Patch, and whether the hashes of all members and of those that matter are equal.
        for (patch, exact_is_equal, content_is_equal) in [
            (json!({"metadata": {"ownerReferences": [{"uid": "b"}]}}), true, true),
            (json!({"metadata": {"ownerReferences": [{"uid": "c"}]}}), false, false),
            (json!({"metadata": {"ownerReferences": [{"uid": "unknown"}]}}), false, false),
            (json!({"status": {"podIP": "10.0.0.2"}}), true, true),
            (json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:09Z"}}), false, true),
            (json!({"metadata": {"generation": 3}, "status": {"observedGeneration": 3}}), false, true),
            (json!({"metadata": {"generation": 3}}), false, false),
            (
                json!({"metadata": {"annotations": {"deployment.kubernetes.io/desired-replicas": "4"}}}),
                false,
                true,
            ),
            (
                json!({
                    "metadata": {"annotations": {"deployment.kubernetes.io/desired-replicas": "4"}},
                    "spec": {"replicas": 1},
                }),
                false,
                false,
            ),
            (json!({"metadata": {"annotations": {"note": "b"}}}), false, false),
            (json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:09Z"}}), false, false),
            (
                json!({"spec": {"template": {"metadata": {"annotations": {"at": "2026-01-01T00:00:09Z"}}}}}),
                false,
                false,
            ),
            (json!({"status": {"conditions": conditions("NewReplicaSetAvailable", 5)}}), false, true),
            (json!({"status": {"conditions": conditions("ReplicaSetUpdated", 5)}}), false, false),
        ] {
            let Hashes { exact, content } = changed("replicasets", &patch);
            let are_equal = (exact == before.exact, content == before.content);
            assert_eq!(are_equal, (exact_is_equal, content_is_equal), "{patch}");
        }
        let updated = |second| {
            changed(
                "deployments",
                &json!({"status": {"conditions": conditions("ReplicaSetUpdated", second)}}),
            )
        };
        assert_ne!(updated(5).content, updated(6).content);
    }

    /// Objects with pods of one owner, each with its creation, and the second since which it is ready.
    fn pods(pods: &[(&str, i64, Option<i64>)], has_delay: bool, is_end: bool) -> u64 {
        let mut objects = Objects::default();
        for (name, creation, ready) in pods {
            let at = |second: i64| Timestamp::from_second(second).ok();
            let (creation, ready) = (at(*creation), ready.and_then(at));
            let times = Times { owner: 1, creation, ready, has_delay };
            let (version, hashes) = (String::new(), Hashes { exact: 0, content: 7 });
            let time = creation.map(|at| at.duration_since(Timestamp::UNIX_EPOCH).unsigned_abs());
            let stored = Some(StoredObject { version, hashes, time, deletion: None, times });
            let id = (Box::from("pods"), ObjectKey::new("ns", *name));
            objects.all.insert(id, TracedObject { number: 1, stored });
        }
        objects.hash(Duration::ZERO, is_end)
    }

    #[test]
    fn only_the_order_of_times_of_ready_pods_matters() {
        let at = |all: &[(&str, i64, Option<i64>)]| pods(all, false, false);
        let before = at(&[("a", 1, Some(3)), ("b", 2, Some(4))]);
        assert_eq!(at(&[("a", 1, Some(5)), ("b", 4, Some(9))]), before);
        assert_eq!(at(&[("c", 1, Some(3)), ("d", 2, Some(4))]), before);
        assert_ne!(at(&[("a", 1, Some(4)), ("b", 2, Some(3))]), before);
        assert_ne!(at(&[("a", 1, Some(3)), ("b", 2, Some(3))]), before);
        assert_ne!(at(&[("a", 1, Some(3))]), before);
        assert_ne!(at(&[("a", 1, None), ("b", 2, None)]), at(&[("a", 1, None), ("b", 3, None)]));
        let with_delay = |second| pods(&[("a", 1, Some(3)), ("b", 2, Some(second))], true, false);
        assert_ne!(with_delay(4), with_delay(5));
    }

    #[test]
    fn order_of_names_and_ages_does_not_matter_at_the_end() {
        let at = |all: &[(&str, i64, Option<i64>)]| pods(all, false, true);
        let before = at(&[("a", 1, Some(3)), ("b", 2, None)]);
        assert_eq!(at(&[("a", 2, None), ("b", 1, Some(3))]), before);
        assert_eq!(at(&[("a", 2, None), ("b", 2, Some(3))]), before);
        assert_ne!(at(&[("a", 3, None), ("b", 1, Some(3))]), before);
    }
}

//! Estimated memory of cached objects.

use std::{
    collections::BTreeMap,
    io::{self, Write},
    mem::size_of,
    sync::Arc,
};

use kcm_api::{
    Deployment, DeploymentCondition, ObjectMeta, OwnerReference, Pod, PodTemplate, ReplicaSet,
    ReplicaSetCondition,
};
use kcm_informer::{Object, Store};
use serde::Serialize;

/// Maximum number of objects that a scrape samples.
const SAMPLE: usize = 64;

/// Average overhead of the allocator per allocation, in bytes.
const ALLOCATION: usize = 16;

/// Size of the counters of an `Arc`, in bytes.
const ARC: usize = 16;

/// Size of a store's key, pointer and index entries per object, in bytes.
const SLOT: usize = 100;

/// Estimated memory of an object in a cache.
pub trait CacheSize: Object {
    /// Size in bytes, including heap allocations. The size of shared data is divided by the number of references.
    fn bytes(&self) -> usize;
}

impl CacheSize for Pod {
    fn bytes(&self) -> usize {
        let text = |text: &Arc<str>| text.len() + ARC + ALLOCATION;
        let mut bytes = size_of::<Self>() + ARC + ALLOCATION;
        bytes += self.resource_version.len() + ALLOCATION;
        bytes += text(&self.uid) + text(&self.key.name);
        bytes += text(&self.key.namespace) / Arc::strong_count(&self.key.namespace).max(1);
        bytes += (map(&self.labels) + ARC + ALLOCATION) / Arc::strong_count(&self.labels).max(1);
        if let Some(node) = &self.node_name {
            bytes += text(node) / Arc::strong_count(node).max(1);
        }
        if let Some(owner) = &self.controller {
            bytes += (size_of_val(&**owner) + text(&owner.name) + text(&owner.uid))
                / Arc::strong_count(owner).max(1);
        }
        bytes
    }
}

/// Size of a map of strings: `nodes × node size + strings`.
///
/// A B-tree node has room for 11 entries. A map of up to 11 entries is one node; a larger map has nodes that are two
/// thirds full on average. Example: 30 entries are estimated at `30 × 3 / 22 + 1 = 5` nodes.
fn map(map: &BTreeMap<String, String>) -> usize {
    const CAPACITY: usize = 11;
    let texts: usize = map.iter().map(|(key, value)| key.len() + value.len() + 2 * ALLOCATION).sum();
    let nodes = if map.len() <= CAPACITY { map.len().min(1) } else { map.len() * 3 / (2 * CAPACITY) + 1 };
    texts + nodes * (CAPACITY * size_of::<(String, String)>() + 2 * ALLOCATION)
}

fn template(template: &PodTemplate) -> usize {
    // Labels and annotations are decoded only for templates that have pods.
    template.size() + 2 * ALLOCATION
}

fn metadata(metadata: &ObjectMeta) -> usize {
    map(&metadata.labels)
        + map(&metadata.annotations)
        + metadata.owner_references.capacity() * size_of::<OwnerReference>()
        + metadata.finalizers.capacity() * size_of::<String>()
}

/// Size of an object without the data that was `counted` separately. The length of its JSON approximates its strings.
fn rest<K: Serialize>(object: &K, counted: &[&str]) -> usize {
    let mut json = Length::default();
    // Serialization does not fail. An error would make the estimate too small.
    let _ = serde_json::to_writer(&mut json, object);
    let counted: usize = counted.iter().map(|text| text.len()).sum();
    size_of::<K>() + ARC + ALLOCATION + json.0.saturating_sub(counted)
}

impl CacheSize for Deployment {
    fn bytes(&self) -> usize {
        let selector = self.spec.selector.as_ref().map_or(0, |selector| map(&selector.match_labels));
        let conditions = self.status.conditions.capacity() * size_of::<DeploymentCondition>();
        let parts = metadata(&self.metadata) + template(&self.spec.template) + selector + conditions;
        parts + rest(self, &[&self.spec.template.json()])
    }
}

impl CacheSize for ReplicaSet {
    fn bytes(&self) -> usize {
        let selector = self.spec.selector.as_ref().map_or(0, |selector| map(&selector.match_labels));
        let conditions = self.status.conditions.capacity() * size_of::<ReplicaSetCondition>();
        let parts = metadata(&self.metadata) + template(&self.spec.template) + selector + conditions;
        parts + rest(self, &[&self.spec.template.json()])
    }
}

/// Writer that counts bytes.
#[derive(Debug, Default)]
struct Length(usize);

impl Write for Length {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Estimated size of the objects in `store`, in bytes: the mean of up to [`SAMPLE`] objects times the number of objects.
pub(super) fn estimate<K: CacheSize>(store: &Store<K>) -> usize {
    let sample = store.sample(SAMPLE);
    let sampled: usize = sample.iter().map(|object| object.bytes() + SLOT).sum();
    sampled.checked_div(sample.len()).map_or(0, |mean| mean * store.len())
}

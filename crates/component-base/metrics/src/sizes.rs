//! How much memory cached objects take.

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

/// Looking at each of a hundred thousand objects at each scrape would cost more than it tells.
const SAMPLE: usize = 64;

/// What the allocator keeps beside each allocation, and what it rounds up by, on average.
const ALLOCATION: usize = 16;

/// The counts before what an `Arc` holds.
const ARC: usize = 16;

/// What a store keeps for an object beside it: key, pointer, places in the tables of keys and of a few indexes.
const SLOT: usize = 100;

/// How much memory an object takes in a cache, about.
pub trait CacheSize: Object {
    /// In bytes, with everything that it has on the heap. What is shared is split between those that share it.
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

/// A sorted map of strings. However few it has, a node has room for eleven, and that is most of it.
fn map(map: &BTreeMap<String, String>) -> usize {
    const ROOM: usize = 11;
    let texts: usize = map.iter().map(|(key, value)| key.len() + value.len() + 2 * ALLOCATION).sum();
    // A larger one has nodes that are about two thirds full.
    let nodes = if map.len() <= ROOM { map.len().min(1) } else { map.len() * 3 / (2 * ROOM) + 1 };
    texts + nodes * (ROOM * size_of::<(String, String)>() + 2 * ALLOCATION)
}

fn template(template: &PodTemplate) -> usize {
    // Its text as it came, and what is read of it.
    template.json().len() + map(template.labels()) + map(template.annotations()) + 2 * ALLOCATION
}

fn metadata(metadata: &ObjectMeta) -> usize {
    map(&metadata.labels)
        + map(&metadata.annotations)
        + metadata.owner_references.capacity() * size_of::<OwnerReference>()
        + metadata.finalizers.capacity() * size_of::<String>()
}

/// The rest of an object that is kept whole: strings, of which the JSON tells the length, and where they are.
fn rest<K: Serialize>(object: &K, counted: &[&str]) -> usize {
    let mut json = Length::default();
    // It can be written: it was read. What could not, would be estimated too low.
    let _ = serde_json::to_writer(&mut json, object);
    let counted: usize = counted.iter().map(|text| text.len()).sum();
    size_of::<K>() + ARC + ALLOCATION + json.0.saturating_sub(counted)
}

impl CacheSize for Deployment {
    fn bytes(&self) -> usize {
        let selector = self.spec.selector.as_ref().map_or(0, |selector| map(&selector.match_labels));
        let conditions = self.status.conditions.capacity() * size_of::<DeploymentCondition>();
        let parts = metadata(&self.metadata) + template(&self.spec.template) + selector + conditions;
        parts + rest(self, &[self.spec.template.json()])
    }
}

impl CacheSize for ReplicaSet {
    fn bytes(&self) -> usize {
        let selector = self.spec.selector.as_ref().map_or(0, |selector| map(&selector.match_labels));
        let conditions = self.status.conditions.capacity() * size_of::<ReplicaSetCondition>();
        let parts = metadata(&self.metadata) + template(&self.spec.template) + selector + conditions;
        parts + rest(self, &[self.spec.template.json()])
    }
}

/// Counts what is written to it.
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

/// How much memory the objects of `store` take, from a few of them.
pub(crate) fn estimate<K: CacheSize>(store: &Store<K>) -> usize {
    let sample = store.sample(SAMPLE);
    let sampled: usize = sample.iter().map(|object| object.bytes() + SLOT).sum();
    sampled.checked_div(sample.len()).map_or(0, |mean| mean * store.len())
}

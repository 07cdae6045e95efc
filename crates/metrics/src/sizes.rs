//! How much memory cached objects take.

use std::{
    io::{self, Write},
    mem::size_of,
    sync::Arc,
};

use kcm_api::{Deployment, Pod, ReplicaSet, ReplicationController};
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
        let labels: usize = self.labels.iter().map(|(key, value)| pair(key.len(), value.len())).sum();
        let mut bytes = size_of::<Self>() + ARC + ALLOCATION;
        bytes += self.resource_version.len() + ALLOCATION;
        bytes += text(&self.uid) + text(&self.key.name);
        bytes += text(&self.key.namespace) / Arc::strong_count(&self.key.namespace).max(1);
        bytes += (labels + ARC + ALLOCATION) / Arc::strong_count(&self.labels).max(1);
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

/// An entry of a sorted map of strings.
const fn pair(key: usize, value: usize) -> usize {
    // A node of eleven places is about two thirds full.
    size_of::<(String, String)>() * 3 / 2 + key + value + 2 * ALLOCATION
}

/// An object that is kept whole: its template is text as it came; the rest is strings and numbers, which take about
/// as much again beside their JSON for where they are and how long they are.
fn of_whole<K: Serialize>(object: &K, template: usize) -> usize {
    let mut json = Length::default();
    // It can be written: it was read. What could not, would be estimated too low.
    let _ = serde_json::to_writer(&mut json, object);
    size_of::<K>() + ARC + ALLOCATION + template + 2 * json.0.saturating_sub(template)
}

macro_rules! whole {
    ($($kind:ty => $template:expr),*) => { $(
        impl CacheSize for $kind {
            fn bytes(&self) -> usize {
                let template: fn(&Self) -> usize = $template;
                of_whole(self, template(self))
            }
        }
    )* };
}

whole! {
    Deployment => |it| json_length(&it.spec.template),
    ReplicaSet => |it| json_length(&it.spec.template),
    ReplicationController => |_| 0
}

fn json_length(value: &impl Serialize) -> usize {
    let mut json = Length::default();
    let _ = serde_json::to_writer(&mut json, value);
    json.0
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

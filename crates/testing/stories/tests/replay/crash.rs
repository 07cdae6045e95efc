//! A manager that crashes after any of its writes, and another that starts in its place.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use kcm_apiserver::{ApiServer, ListOptions, Resource};
use kcm_stories::{AfterWrite, InProcessConfig, Story, left};
use serde_json::json;

use super::play;

/// When the manager crashes: right after these of its writes, counted from 1 through all its lives.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Crashes {
    Never,
    /// After this one.
    After(usize),
    /// After this one and each so many later, up to the last. One that crashes as often as it tries again what cannot be
    /// done would go on for ever.
    Every {
        first: usize,
        stride: usize,
        last: usize,
    },
}

impl Crashes {
    fn is_due(self, write: usize) -> bool {
        match self {
            Self::Never => false,
            Self::After(only) => write == only,
            Self::Every { first, stride, last } => {
                (first..=last).contains(&write) && (write - first).is_multiple_of(stride)
            }
        }
    }

    /// A hook that makes it so, and the count of the writes.
    pub(crate) fn hook(self) -> (AfterWrite, Arc<AtomicUsize>) {
        let count = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&count);
        let hook: AfterWrite = Arc::new(move |_, _, manager| {
            if self.is_due(counted.fetch_add(1, Ordering::Relaxed) + 1) {
                manager.restart();
            }
        });
        (hook, count)
    }
}

/// A story with so many writes is told once for each of them, with one crash.
const FEW: usize = 100;

/// One with more is told so many times, with a crash after each so manieth write: each write has its crash in one of
/// them.
const TELLINGS: usize = 4;

/// One of a cluster with more than so many writes is a sample of that: two tellings, each with a crash after each
/// [`SAMPLE`]th write.
const MANY: usize = 400;
const SAMPLE: usize = 29;

/// Plays a story as often as it takes for the manager to have crashed after each of its writes, or a sample of them where
/// they are very many. The end must be the same, and the invariants must hold meanwhile.
pub(crate) async fn assert_same_end(story: &Story) {
    let (expected, writes) = end(story, Crashes::Never).await;
    assert!(writes > 2, "{} has hardly any writes", story.name);
    let runs: Vec<Crashes> = if writes <= FEW {
        (1..=writes).map(Crashes::After).collect()
    } else if writes > MANY && story.cluster.is_some() {
        [1, 15].map(|first| Crashes::Every { first, stride: SAMPLE, last: writes }).to_vec()
    } else {
        (1..=TELLINGS).map(|first| Crashes::Every { first, stride: TELLINGS, last: writes }).collect()
    };
    for crashes in runs {
        let (end, _) = end(story, crashes).await;
        assert_eq!(end, expected, "{}, with crashes: {crashes:?}", story.name);
    }
}

/// What is left at the end, and how many writes there were.
async fn end(story: &Story, crashes: Crashes) -> (Vec<String>, usize) {
    let (hook, count) = crashes.hook();
    let config = InProcessConfig { after_write: vec![hook], ..InProcessConfig::for_story(story, 1) };
    let (cluster, _) = play(story, config).await;
    let left = if story.cluster.is_some() {
        left(&cluster.server, "t0x").unwrap()
    } else {
        details(&cluster.server)
    };
    // One that has just started cannot know who created what it finds.
    let left = left.into_iter().map(|line| line.replace("FoundNewReplicaSet", "NewReplicaSetCreated"));
    (left.collect(), count.load(Ordering::Relaxed))
}

/// The objects that a story leaves behind: what they are to be, and all that is reported of them. Stories that play the
/// kubelet themselves leave nothing in it to chance.
fn details(server: &ApiServer) -> Vec<String> {
    let mut left = Vec::new();
    for resource in [Resource::DEPLOYMENTS, Resource::REPLICA_SETS, Resource::PODS] {
        for object in server.list(resource, Some("t0x"), &ListOptions::default()).unwrap().items {
            let object = object.value();
            let (meta, spec, mut status) = (&object["metadata"], &object["spec"], object["status"].clone());
            // When and in which words something came about may differ; that it is so may not.
            for condition in status["conditions"].as_array_mut().into_iter().flatten() {
                *condition = json!([condition["type"], condition["status"], condition["reason"]]);
            }
            let name = if resource == Resource::PODS { &meta["generateName"] } else { &meta["name"] };
            let replicas = &spec["replicas"];
            left.push(json!([name, meta["labels"], replicas, status]).to_string());
        }
    }
    left.sort();
    left
}

//! Crashes of the manager after each of its writes, with an immediate restart.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use kcm_apiserver::{ApiServer, ListOptions, Resource};
use kcm_stories::{AfterWrite, InProcessConfig, Story, remaining_objects};
use serde_json::json;

use super::play;

/// Writes after which the manager crashes, counted from 1 across restarts.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Crashes {
    Never,
    /// After this write.
    After(usize),
    /// After `first`, and after every `stride`th write up to `last`. Without a limit, a manager that retries could crash
    /// forever.
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

    /// Returns a callback that restarts the manager, and the counter of writes.
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

/// Stories with at most this number of writes are played once per write, with one crash each.
const MAX_SINGLE_CRASHES: usize = 100;

/// Other stories are played this number of times, each with a crash after every `RUNS`th write, so that each write is
/// followed by a crash in one of the runs.
const RUNS: usize = 4;

/// Cluster stories with more writes are sampled: two runs, each with a crash after every [`SAMPLE`]th write.
const MAX_WRITES: usize = 400;
const SAMPLE: usize = 29;

/// Plays a story with crashes after each of its writes, or after a sample of them. The final state must be the same as
/// without crashes, and the invariants must hold.
pub(crate) async fn assert_same_end(story: &Story) {
    let (expected, writes) = final_state(story, Crashes::Never).await;
    assert!(writes > 2, "{} has too few writes", story.name);
    let runs: Vec<Crashes> = if writes <= MAX_SINGLE_CRASHES {
        (1..=writes).map(Crashes::After).collect()
    } else if writes > MAX_WRITES && story.cluster.is_some() {
        [1, 15].map(|first| Crashes::Every { first, stride: SAMPLE, last: writes }).to_vec()
    } else {
        (1..=RUNS).map(|first| Crashes::Every { first, stride: RUNS, last: writes }).collect()
    };
    for crashes in runs {
        let (end, _) = final_state(story, crashes).await;
        assert_eq!(end, expected, "{}, with crashes: {crashes:?}", story.name);
    }
}

/// Returns the final state and the number of writes.
async fn final_state(story: &Story, crashes: Crashes) -> (Vec<String>, usize) {
    let (hook, count) = crashes.hook();
    let config = InProcessConfig { after_write: vec![hook], ..InProcessConfig::for_story(story, 1) };
    let (in_process, _) = play(story, config).await;
    let objects = if story.cluster.is_some() {
        remaining_objects(&in_process.server, "t0x").unwrap()
    } else {
        details(&in_process.server)
    };
    // A restarted manager does not distinguish created and existing ReplicaSets.
    let objects = objects.into_iter().map(|line| line.replace("FoundNewReplicaSet", "NewReplicaSetCreated"));
    (objects.collect(), count.load(Ordering::Relaxed))
}

/// Returns spec and status of the objects. Only for stories without simulated nodes, which are deterministic.
fn details(server: &ApiServer) -> Vec<String> {
    let mut objects = Vec::new();
    for resource in [Resource::DEPLOYMENTS, Resource::REPLICA_SETS, Resource::PODS] {
        for object in server.list(resource, Some("t0x"), &ListOptions::default()).unwrap().items {
            let object = object.value();
            let (meta, spec, mut status) = (&object["metadata"], &object["spec"], object["status"].clone());
            // Times and messages of conditions can differ.
            for condition in status["conditions"].as_array_mut().into_iter().flatten() {
                *condition = json!([condition["type"], condition["status"], condition["reason"]]);
            }
            let name = if resource == Resource::PODS { &meta["generateName"] } else { &meta["name"] };
            let replicas = &spec["replicas"];
            objects.push(json!([name, meta["labels"], replicas, status]).to_string());
        }
    }
    objects.sort();
    objects
}

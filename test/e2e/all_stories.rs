//! Plays the stories of `test/stories` over HTTP, and compares the writes with upstream's.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use kcm_controller_manager::KUBERNETES_VERSION;
use kcm_stories::{
    Recording, Step, Story, StoryCluster, closest_difference,
    external::{self, ExternalConfig, ServerProgram},
    play,
};
use serde_saphyr::Spanned;
use tokio::task::JoinSet;

use crate::harness::assets;

fn test_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Command line of the manager, with the options of the recordings: one worker per controller and a high rate limit.
fn manager() -> String {
    format!(
        "'{}' --kubeconfig={{kubeconfig}} --controllers={{controllers}} --leader-elect=false --secure-port=0 \
         --kube-api-qps=1000 --kube-api-burst=1000 --concurrent-deployment-syncs=1 \
         --concurrent-replicaset-syncs=1",
        kcm_testkit::program("kube-controller-manager").display()
    )
}

/// Plays a story in a namespace.
async fn compare(story: &Story, cluster: &mut StoryCluster, namespace: &str) -> Result<(), String> {
    let recording = play(story, cluster, namespace).await.map_err(|error| error.to_string())?;
    let folder = test_folder().join(format!("recordings/{KUBERNETES_VERSION}/stories"));
    let runs = Recording::read_runs(&folder, &story.name, Some(KUBERNETES_VERSION))
        .map_err(|error| error.to_string())?;
    closest_difference(&runs, &recording).map_or(Ok(()), |difference| Err(difference.to_string()))
}

/// Length of a story in steps, for scheduling.
fn length(story: &Story) -> usize {
    let length = |step: &Spanned<Step>| match &step.value {
        Step::Repeat(repeat) => repeat.times * repeat.steps.len(),
        _ => 1,
    };
    story.steps.iter().map(length).sum()
}

/// Plays all stories on `servers` parallel API servers. Stories do not share an API server, because a manager watches all
/// namespaces.
async fn assert_all_equal_upstream(server: ServerProgram, servers: usize) {
    let mut stories = Story::read_all(&test_folder().join("stories")).unwrap();
    assert_eq!(stories.len(), 30);
    // The longest story starts first.
    stories.sort_by_key(length);
    let left = Arc::new(Mutex::new(stories));
    let mut lanes = JoinSet::new();
    for _ in 0..servers {
        let (left, server) = (Arc::clone(&left), server.clone());
        lanes.spawn(async move {
            let folder = tempfile::tempdir().unwrap();
            let config = ExternalConfig { server, manager: manager(), folder: folder.path().to_owned() };
            let mut external = external::start(config).await.unwrap_or_else(|error| panic!("{error}"));
            let mut failures = Vec::new();
            for number in 0.. {
                let Some(story) = left.lock().unwrap().pop() else { break };
                // A unique name, which the comparison replaces in the recording.
                if let Err(error) = compare(&story, &mut external.cluster, &format!("t{number}x")).await {
                    failures.push(format!("{}: {error}", story.name));
                }
            }
            failures
        });
    }
    let failures: Vec<_> = lanes.join_all().await.into_iter().flatten().collect();
    assert!(failures.is_empty(), "{} of 30 stories failed:\n{}", failures.len(), failures.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stories_over_http_equal_upstream() {
    assert_all_equal_upstream(ServerProgram::Embedded, 12).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stories_on_a_real_server_equal_upstream() {
    let Some(assets) = assets() else { return };
    assert_all_equal_upstream(ServerProgram::Kubebuilder(assets), 4).await;
}

//! The stories of `test/stories`, played by the program over HTTP and held against what upstream wrote.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use kcm_stories::{
    Recording, Step, Story, closest_difference,
    external::{self, ExternalConfig, ServerProgram},
    play,
};
use serde_saphyr::Spanned;
use tokio::task::JoinSet;

/// The version that ours is held against.
const VERSION: &str = "v1.36";

fn test_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../test")
}

/// As upstream was run when it was recorded: one worker a controller, and no rate to speak of.
fn manager() -> String {
    format!(
        "'{}' --kubeconfig={{kubeconfig}} --controllers={{controllers}} --leader-elect=false --secure-port=0 --kube-api-qps=1000 \
         --kube-api-burst=1000 --concurrent-deployment-syncs=1 --concurrent-replicaset-syncs=1",
        env!("CARGO_BIN_EXE_kube-controller-manager")
    )
}

/// Plays a story on a server of its own. Says how it differs from upstream's, or why it could not be played.
async fn judge(story: &Story, server: ServerProgram) -> Result<(), String> {
    let folder = tempfile::tempdir().unwrap();
    let config = ExternalConfig { server, manager: manager(), folder: folder.path().to_owned() };
    let mut external = external::start(config).await.map_err(|error| error.to_string())?;
    let ours = play(story, &mut external.world, "t0x").await.map_err(|error| error.to_string())?;
    let folder = test_folder().join(format!("recordings/{VERSION}/stories"));
    let runs =
        Recording::read_runs(&folder, &story.name, Some(VERSION)).map_err(|error| error.to_string())?;
    closest_difference(&runs, &ours).map_or(Ok(()), |difference| Err(difference.to_string()))
}

/// About how long a story takes, in steps.
fn length(story: &Story) -> usize {
    let length = |step: &Spanned<Step>| match &step.value {
        Step::Repeat(repeat) => repeat.times * repeat.steps.len(),
        _ => 1,
    };
    story.steps.iter().map(length).sum()
}

/// Plays all stories, so many at once. They wait most of the time.
async fn all_equal_upstream(server: ServerProgram, at_once: usize) {
    let mut stories = Story::read_all(&test_folder().join("stories")).unwrap();
    assert_eq!(stories.len(), 30);
    // The longest is begun first: no story takes longer than all of them together.
    stories.sort_by_key(length);
    let left = Arc::new(Mutex::new(stories));
    let mut lanes = JoinSet::new();
    for _ in 0..at_once {
        let (left, server) = (Arc::clone(&left), server.clone());
        lanes.spawn(async move {
            let mut failures = Vec::new();
            loop {
                let Some(story) = left.lock().unwrap().pop() else { return failures };
                if let Err(why) = judge(&story, server.clone()).await {
                    failures.push(format!("{}: {why}", story.name));
                }
            }
        });
    }
    let failures: Vec<_> = lanes.join_all().await.into_iter().flatten().collect();
    assert!(
        failures.is_empty(),
        "{} of 30 stories differ from upstream:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stories_over_http_equal_upstream() {
    all_equal_upstream(ServerProgram::Embedded, 12).await;
}

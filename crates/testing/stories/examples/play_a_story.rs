//! Plays a story in simulated time and in one process, and prints the writes of the controllers.
//!
//! `cargo run -p kcm-stories --example play_a_story`

use std::{error::Error, path::Path};

use kcm_stories::{InProcess, InProcessConfig, Story, play};

const STORY: &str = "
story: two-pods
about: A ReplicaSet creates its pods, and they become ready.
controllers: [replicaset-controller]
steps:
- create:
    apiVersion: apps/v1
    kind: ReplicaSet
    metadata: {name: rs}
    spec:
      replicas: 2
      selector: {matchLabels: {app: rs}}
      template:
        metadata: {labels: {app: rs}}
        spec: {containers: [{name: c, image: i}]}
- settle: created
- podStatus: {}
- settle: ready
";

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let story = Story::parse(STORY, Path::new("two-pods.yaml"))?;
    let mut in_process = InProcess::new(InProcessConfig::new(1)).await?;
    let recording = play(&story, &mut in_process.cluster, "example").await?;
    for step in &recording.steps {
        println!("{}:", step.step);
        for write in &step.writes {
            println!("  {} x {} {}", write.times, write.what.write, write.what.code);
        }
    }
    for violation in in_process.checker.violations() {
        println!("{violation}");
    }
    Ok(())
}

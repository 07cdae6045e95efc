//! The stories of `test/stories/found`: minimal reproductions of bugs found under faults.

use kcm_stories::{InProcess, InProcessConfig, Story};

use super::{lines, test_folder};

#[tokio::test(start_paused = true)]
async fn found_stories_complete_and_hold_all_invariants() {
    let stories = Story::read_all(&test_folder().join("stories/found")).unwrap();
    assert!(!stories.is_empty());
    for story in stories {
        let config = InProcessConfig::for_story(&story, 1);
        let faults = config.faults.clone();
        let mut in_process = InProcess::new(config).await.unwrap();
        let played = kcm_stories::play(&story, &mut in_process.cluster, "t0x").await;
        let violations = in_process.checker.violations_except(&story.exempt);
        assert!(violations.is_empty(), "{}: {}", story.name, lines(violations));
        if let Err(error) = played {
            panic!("{}: {error}", story.name);
        }
        let applied = faults.applied();
        assert!(
            applied.iter().all(|count| *count > 0),
            "{}: a fault was never applied: {applied:?}",
            story.name
        );
    }
}

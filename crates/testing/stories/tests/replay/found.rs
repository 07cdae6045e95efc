//! Stories of `test/stories/found`: each is a defect that was found under faults, in the fewest steps that show it.

use kcm_stories::{InProcess, InProcessConfig, Story};

use super::{lines, test_folder};

#[tokio::test(start_paused = true)]
async fn found_stories_end_as_they_should_and_hold_all_invariants() {
    let stories = Story::read_all(&test_folder().join("stories/found")).unwrap();
    assert!(!stories.is_empty());
    for story in stories {
        let config = InProcessConfig::for_story(&story, 1);
        let faults = config.faults.clone();
        let mut cluster = InProcess::new(config).await.unwrap();
        let played = kcm_stories::play(&story, &mut cluster.world, "t0x").await;
        let violations = cluster.guard.violations_but(&story.exempt);
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

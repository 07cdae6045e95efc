//! The stories of `test/stories/found`: minimal reproductions of bugs found under faults.

use kcm_stories::Story;

use super::{play, test_folder};

#[tokio::test(start_paused = true)]
async fn found_stories_complete_and_hold_all_invariants() {
    let stories = Story::read_all(&test_folder().join("stories/found")).unwrap();
    assert!(!stories.is_empty());
    for story in stories {
        let faults = story.faults();
        play(&story, 1, &faults).await;
        let applied = faults.applied();
        assert!(
            applied.iter().all(|count| *count > 0),
            "{}: a fault was never applied: {applied:?}",
            story.name
        );
    }
}

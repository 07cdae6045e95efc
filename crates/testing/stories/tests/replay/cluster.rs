//! The stories of `test/stories/cluster`: both controllers with simulated nodes. The summary of the final state is compared,
//! not the order of writes.

use kcm_stories::{Story, StorySummary};

use super::{play_undisturbed, test_folder};

fn read(name: &str) -> Story {
    Story::read(&test_folder().join(format!("stories/cluster/{name}.yaml"))).unwrap()
}

async fn assert_summary(name: &str) {
    let (in_process, _) = play_undisturbed(&read(name), 1).await;
    let summary = StorySummary::new(&in_process.server, "t0x", in_process.checker.counts()).unwrap();
    insta::with_settings!({ snapshot_path => "../../../../../test/stories/cluster/snapshots", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_yaml_snapshot!(name, summary);
    });
}

stories! {
    assert_summary as completes_and_holds_all_invariants:
    s01_roll_100_by_quarters
    s02_roll_100_surge_only
    s03_roll_100_no_surge
    s04_roll_100_at_once
    s05_roll_one_by_one
    s06_recreate_100
    s07_scale_while_rolling
    s08_undo_in_mid_rollout
    s09_quota_runs_out
    s10_crashing_pods
    s11_node_drained
    s12_node_lost
    s13_paused_for_an_hour
    s14_ten_rollouts_in_a_row
    s15_two_deployments_one_label
    s16_orphaned_and_adopted
    s17_rapid_scaling
    s18_history_is_kept_short
    s19_hash_collision
    s20_faults_in_a_rollout
}

#[test]
fn all_stories_have_a_test() {
    let stories = Story::read_all(&test_folder().join("stories/cluster")).unwrap();
    let names: Vec<_> = stories.iter().map(|story| story.name.replace('-', "_")).collect();
    assert_eq!(names, STORIES);
}

#[tokio::test(start_paused = true)]
async fn runs_of_equal_seeds_are_equal() {
    let mut summaries = Vec::new();
    for _ in 0..2 {
        let (in_process, _) = play_undisturbed(&read("s11-node-drained"), 7).await;
        summaries.push(StorySummary::new(&in_process.server, "t0x", in_process.checker.counts()).unwrap());
    }
    assert_eq!(summaries[0], summaries[1]);
}

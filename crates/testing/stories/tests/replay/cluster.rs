//! The stories of `test/stories/cluster`: both controllers with simulated nodes. The summary of the final state is compared,
//! not the order of writes.

use kcm_stories::{Story, StorySummary};

use super::{crash, play_undisturbed, test_folder};

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

macro_rules! stories {
    ($($test:ident: $name:literal,)*) => {
        const STORIES: &[&str] = &[$($name),*];

        mod completes_and_holds_all_invariants {
            $(
                #[tokio::test(start_paused = true)]
                async fn $test() {
                    super::assert_summary($name).await;
                }
            )*
        }

        mod has_the_same_end_with_crashes {
            $(
                #[tokio::test(start_paused = true)]
                async fn $test() {
                    super::crash::assert_same_end(&super::read($name)).await;
                }
            )*
        }
    };
}

stories! {
    s01_roll_100_by_quarters: "s01-roll-100-by-quarters",
    s02_roll_100_surge_only: "s02-roll-100-surge-only",
    s03_roll_100_no_surge: "s03-roll-100-no-surge",
    s04_roll_100_at_once: "s04-roll-100-at-once",
    s05_roll_one_by_one: "s05-roll-one-by-one",
    s06_recreate_100: "s06-recreate-100",
    s07_scale_while_rolling: "s07-scale-while-rolling",
    s08_undo_in_mid_rollout: "s08-undo-in-mid-rollout",
    s09_quota_runs_out: "s09-quota-runs-out",
    s10_crashing_pods: "s10-crashing-pods",
    s11_node_drained: "s11-node-drained",
    s12_node_lost: "s12-node-lost",
    s13_paused_for_an_hour: "s13-paused-for-an-hour",
    s14_ten_rollouts_in_a_row: "s14-ten-rollouts-in-a-row",
    s15_two_deployments_one_label: "s15-two-deployments-one-label",
    s16_orphaned_and_adopted: "s16-orphaned-and-adopted",
    s17_rapid_scaling: "s17-rapid-scaling",
    s18_history_is_kept_short: "s18-history-is-kept-short",
    s19_hash_collision: "s19-hash-collision",
    s20_faults_in_a_rollout: "s20-faults-in-a-rollout",
}

#[test]
fn all_stories_have_a_test() {
    let stories = Story::read_all(&test_folder().join("stories/cluster")).unwrap();
    let names: Vec<_> = stories.iter().map(|story| story.name.as_str()).collect();
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

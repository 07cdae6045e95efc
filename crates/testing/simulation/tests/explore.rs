//! Surprises of the scenarios in `test/stories/explore`.
#![expect(clippy::unwrap_used, reason = "the helpers of tests may fail as tests do")]

use std::path::Path;

use kcm_rollout_simulation::{Alternative, Explorer, Scenario, Surprise};

fn scenario(name: &str) -> Scenario {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../test/stories/explore");
    Scenario::read(&folder.join(format!("{name}.yaml"))).unwrap()
}

#[test]
fn late_timer_delays_the_sync_of_its_key() {
    let late = Surprise { step: "m0 timer delayed key".to_owned(), nth: 2, becomes: Alternative::Later };
    let explorer = Explorer::new(scenario("min-ready-seconds"), 1).unwrap();
    let outcome = explorer.schedule(&[late]).run().unwrap();
    assert!(outcome.has_no_findings(), "{outcome}");
    assert_ne!(outcome.log, explorer.outcome().log);
}

/// The user acts before the object of the same name is gone.
#[test]
fn workload_that_cannot_be_created_again_is_not_compared() {
    let late = Surprise { step: "user action".to_owned(), nth: 1, becomes: Alternative::Later };
    let explorer = Explorer::new(scenario("delete-foreground"), 1).unwrap();
    let outcome = explorer.schedule(&[late]).run().unwrap();
    assert!(outcome.has_no_findings(), "{outcome}");
}

#[test]
fn surprise_without_a_step_is_reported() {
    let surprise = Surprise { step: "m0 create pods".to_owned(), nth: 1000, becomes: Alternative::Refuse };
    let explorer = Explorer::new(scenario("recreate"), 1).unwrap();
    let outcome = explorer.schedule(&[surprise]).run_once().unwrap();
    assert_eq!(outcome.rules(), ["surprise"]);
}

#[test]
fn scenario_ends_after_the_effects_of_its_last_surprises() {
    let explorer = Explorer::new(scenario("two-managers"), 1).unwrap();
    let points = explorer.choice_points();
    let last = points.iter().rfind(|point| &*point.step == "m0 update leases").unwrap();
    let stop = Surprise { step: last.step.to_string(), nth: last.nth, becomes: Alternative::Stop };
    let outcome = explorer.schedule(&[stop]).run_once().unwrap();
    let time = |what: &str| {
        let line = outcome.log.iter().find(|line| line.ends_with(what)).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap()
    };
    assert!(time("all faults end") >= time("m0.1 is stopped for 4s") + 4_000, "{:#?}", outcome.log);
}

//! Seeds that every test run tries, and the reproducibility of each.
#![expect(clippy::unwrap_used, reason = "the helpers of tests may fail as tests do")]

use std::{fs, path::Path};

use kcm_rollout_simulation::{Scenario, parallel};

/// Seeds that every test run tries. `SIMULATION_SEEDS=0..1000` tries others.
const SEEDS: std::ops::Range<u64> = 0..if cfg!(debug_assertions) { 20 } else { 300 };

const THREADS: usize = 4;

fn seeds() -> std::ops::Range<u64> {
    let Ok(text) = std::env::var("SIMULATION_SEEDS") else { return SEEDS };
    let (from, to) = text.split_once("..").unwrap();
    from.parse().unwrap()..to.parse().unwrap()
}

#[test]
fn seeds_violate_no_rule() {
    let run = |seed: &u64| {
        let scenario = Scenario::draw(*seed);
        let outcome = scenario.run().unwrap();
        if outcome.has_no_findings() {
            return;
        }
        let small = scenario.shrunk(&outcome.rules()).unwrap();
        panic!("seed {seed}: {outcome}\nin short:\n{}\n{}", small.to_text(), small.run().unwrap());
    };
    parallel::for_each(seeds(), THREADS, run);
}

#[test]
fn seed_gives_the_same_writes_each_time() {
    for seed in [1, 2, 3, 7, 8] {
        let scenario = Scenario::draw(seed);
        let (one, other) = (scenario.run_once().unwrap(), scenario.run_once().unwrap());
        assert!(one.log.len() > 10, "seed {seed} does hardly anything");
        for (one, other) in one.log.iter().zip(&other.log) {
            assert_eq!(one, other, "seed {seed}");
        }
        assert_eq!(one, other, "seed {seed}");
    }
}

/// Scenarios in which something was found once.
#[test]
fn scenarios_that_were_found_violate_no_rule() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../test/stories/found/simulation");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let outcome = Scenario::read(&path).unwrap().run().unwrap();
        assert!(outcome.has_no_findings(), "{}: {outcome}", path.display());
    }
}

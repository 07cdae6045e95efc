//! Output in `docs/rollouts.md`.

use kcm_rollouts::{
    Cause,
    render::{Style, table, text},
};
use serde_json::json;

use crate::{
    READY, template,
    world::{World, deployment, simulate},
};

const PAGE: &str = include_str!("../../../../docs/rollouts.md");

fn check(output: &str) {
    assert!(PAGE.contains(output), "docs/rollouts.md does not contain:\n{output}");
}

#[test]
fn outputs_are_current() {
    simulate(async {
        let world = World::new(READY);
        world.roll_out(deployment(4, "app:1")).await;
        world.change(template("app:broken", &json!({})));
        world.advance(100).await;
        let diagnosis = world.diagnose();
        check(&text(&diagnosis, world.now(), Style::Plain));
        check(&table(&[diagnosis], Style::Plain));
    });
}

#[test]
fn every_cause_is_listed() {
    for cause in Cause::ALL {
        assert!(PAGE.contains(&format!("| `{cause}` |")), "{cause}");
    }
}

#[test]
fn coarser_causes_are_listed() {
    let (_, section) = PAGE.split_once("## The metric of stuck rollouts").unwrap();
    let rows = || section.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| `"));
    for cause in Cause::ALL {
        let row = rows().find(|row| row.split(" | ").next().unwrap().contains(&format!("`{cause}`")));
        let expected = (*cause != cause.in_caches()).then(|| format!(" | `{}` |", cause.in_caches()));
        assert_eq!(row.is_some(), expected.is_some(), "{cause}");
        assert!(row.zip(expected).is_none_or(|(row, expected)| row.ends_with(&expected)), "{cause}");
    }
}

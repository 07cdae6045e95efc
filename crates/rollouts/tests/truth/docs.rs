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

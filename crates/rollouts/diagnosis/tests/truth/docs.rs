//! Output in `docs/rollouts.md`.

use jiff::SignedDuration;
use kcm_preview::try_commands;
use kcm_rollouts::{
    Cause, ControllerState,
    render::{Columns, Style, table, text},
};
use serde_json::json;

use crate::{
    READY, template,
    world::{World, deployment, simulate},
};

const PAGE: &str = include_str!("../../../../../docs/rollouts.md");

const README: &str = include_str!("../../../../../README.md");

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
        let mut diagnosis = world.diagnose();
        try_commands(&world.snapshot(), &world.deployment(), world.now(), &mut diagnosis);
        let shown = text(&diagnosis, world.now(), Style::Plain);
        check(&shown);
        assert!(README.contains(&shown), "README.md does not contain:\n{shown}");
        assert!(README.contains(&format!("the {} causes", Cause::ALL.len())));
        let rows = [diagnosis];
        for columns in [Columns::Default, Columns::Wide] {
            check(&table(&rows, columns, world.now(), Style::Plain));
        }
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

#[test]
fn queue_state_is_current() {
    simulate(async {
        let world = World::new(READY);
        world.roll_out(deployment(1, "app:1")).await;
        world.change(template("app:broken", &json!({})));
        world.advance(60).await;
        let mut diagnosis = world.diagnose();
        let ended = world.now().saturating_sub(SignedDuration::from_secs(5)).unwrap();
        let error = "pods \"web-8565676457-x2k8v\" is forbidden: exceeded quota: small, requested: pods=1, used: pods=1, \
                     limited: pods=1";
        let state = json!({
            "name": "web-8565676457",
            "queue": { "phase": "absent", "delaySeconds": 12.4, "retries": 7 },
            "lastSync": { "ended": ended.to_string(), "result": "error", "error": error },
        });
        diagnosis.controllers = vec![ControllerState::parse("replicaset", &state)];
        let shown = text(&diagnosis, world.now(), Style::Plain);
        let (_, lines) = shown.split_once("  - the controller's queue").unwrap();
        check(&format!("  - the controller's queue{}", lines.split("\n\n").next().unwrap()));
    });
}

//! Rules that apply to every operator, and simulations without some of them.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use kcm_simulation::{Action, Scenario, Simulation};
use kube_client::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

/// Writes a ConfigMap each ten seconds, with another value each time.
async fn heartbeat(client: Client) {
    let api: Api<ConfigMap> = Api::namespaced(client, "shop");
    for beat in 0_u32.. {
        let patch = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "heartbeat"},
            "data": {"beat": beat.to_string()},
        });
        api.patch("heartbeat", &PatchParams::apply("test"), &Patch::Apply(patch)).await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

fn simulation() -> Simulation {
    Simulation::new(|process| heartbeat(process.kube_client()))
        .namespace("shop")
        .converges_within(Duration::from_secs(60))
}

#[test]
fn rules_for_the_end_apply_to_an_operator_that_always_writes() {
    let failure = simulation().calm().unwrap().unwrap();
    assert_eq!(failure.outcome.rules(), ["converged"], "{failure}");
    let simulation = simulation().without_rule("converged").end_rule("beats", |world| {
        world.object("ConfigMap", "shop", "heartbeat").is_some().then(|| "there is a heartbeat".to_owned())
    });
    let failure = simulation.calm().unwrap().unwrap();
    assert_eq!(failure.outcome.rules(), ["beats"], "{failure}");
}

#[test]
fn refused_action_violates_a_rule_in_a_scenario_without_faults() {
    let map =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "none"}});
    let simulation = simulation().without_rule("converged").without_rule("silence");
    assert_eq!(simulation.calm().unwrap(), None);
    let failure = simulation.at(1, Action::create(map)).calm().unwrap().unwrap();
    assert_eq!(failure.outcome.rules(), ["action"], "{failure}");
}

#[test]
fn file_may_have_a_surprise_that_does_not_happen() {
    let text = "{end: 1000, surprises: [{step: m0 list pods, nth: 7, becomes: loseRequest}]}";
    let scenario = Scenario::parse(text).unwrap();
    let simulation =
        simulation().without_rule("converged").without_rule("silence").without_rule("equal-effect");
    assert_eq!(simulation.run(&scenario).unwrap().rules(), ["surprise"]);
    simulation.check_scenario(&scenario);
}

#[test]
fn panic_violates_a_rule() {
    async fn operator() {
        panic!("no configuration");
    }
    let failure = Simulation::new(|_| operator()).calm().unwrap().unwrap();
    assert_eq!(failure.outcome.rules(), ["panic"], "{failure}");
    assert!(failure.to_string().contains("panic: m0.1 panics: no configuration"), "{failure}");
}

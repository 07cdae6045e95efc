//! Rules that apply to every operator, and simulations without some of them.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::time::Duration;

use k8s_openapi::{api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kcm_simulation::{Action, Scenario, Simulation};
use kube_client::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
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

/// Creates a ConfigMap at its start, unless the request fails.
async fn create_once(client: Client) {
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    let _ = Api::<ConfigMap>::namespaced(client, "shop").create(&PostParams::default(), &map).await;
    std::future::pending::<()>().await;
}

#[test]
fn surprise_of_a_file_that_does_not_happen_has_no_effect() {
    let text = "
end: 1000
surprises:
- {step: m0 create configmaps, nth: 1, becomes: loseRequest}
- {step: m0 list pods, nth: 7, becomes: loseRequest}
";
    let scenario = Scenario::parse(text).unwrap();
    let simulation = || Simulation::new(|process| create_once(process.kube_client())).namespace("shop");
    let outcome = simulation().run(&scenario).unwrap();
    assert_eq!(outcome.rules(), ["equal-effect", "surprise"], "{outcome}");
    simulation().without_rule("equal-effect").check_scenario(&scenario);
}

#[test]
#[should_panic(expected = "equal-effect")]
fn surprise_of_a_file_that_happens_violates_a_rule() {
    let text = "{end: 1000, surprises: [{step: m0 create configmaps, nth: 1, becomes: loseRequest}]}";
    Simulation::new(|process| create_once(process.kube_client()))
        .namespace("shop")
        .check_scenario(&Scenario::parse(text).unwrap());
}

#[test]
fn operator_that_writes_nothing_violates_a_rule() {
    let simulation = || Simulation::new(|_| std::future::pending::<()>());
    let failure = simulation().calm().unwrap().unwrap();
    assert_eq!(failure.outcome.rules(), ["inactive"], "{failure}");
    assert_eq!(simulation().without_rule("inactive").calm().unwrap(), None);
}

#[test]
fn removed_rule_must_exist() {
    let error = simulation().without_rule("equal_effect").calm().unwrap_err();
    assert_eq!(error.to_string(), "no rule has the name \"equal_effect\"");
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

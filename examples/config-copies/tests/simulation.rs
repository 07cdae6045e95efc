//! The operator with faults, and three wrong variants of it.

mod wrong;

use config_copies::{ConfigCopy, run};
use kcm_simulation::{Simulation, UserAction};
use kube_client::Client;
use kube_core::CustomResourceExt;
use serde_json::json;

/// Page that contains the simulation, and a failure.
const PAGE: &str = include_str!("../../../docs/simulating-operators.md");

/// A ConfigCopy from its creation to its deletion, and another one.
fn simulation<F>(operator: fn(Client) -> F) -> Simulation
where
    F: Future<Output = ()> + Send + 'static,
{
    let copy = |name| {
        json!({
            "apiVersion": "example.org/v1", "kind": "ConfigCopy",
            "metadata": {"name": name, "namespace": "shop"},
            "spec": {"data": {"color": "red"}, "namespaces": ["a"]},
        })
    };
    let change = |spec| UserAction::patch("ConfigCopy", "shop", "settings", json!({ "spec": spec }));
    Simulation::new(move |process| operator(process.kube_client()))
        .object(ConfigCopy::crd())
        .namespace("shop")
        .namespace("a")
        .namespace("b")
        .at(1, UserAction::create(copy("settings")))
        .at(11, change(json!({"namespaces": ["a", "b"]})))
        .at(21, change(json!({"data": {"color": "blue"}, "namespaces": ["b"]})))
        .at(31, UserAction::delete("ConfigCopy", "shop", "settings"))
        .at(41, UserAction::create(copy("theme")))
}

#[test]
fn operator_violates_no_rule() {
    simulation(run).check(0..if cfg!(debug_assertions) { 50 } else { 2_000 });
}

#[test]
fn page_contains_the_simulation() {
    let own = include_str!("simulation.rs").split("/// A ConfigCopy from").nth(1).unwrap();
    assert!(
        PAGE.contains(own.split("\nmod finds").next().unwrap().split("\n#[test]\nfn page").next().unwrap())
    );
}

mod finds {
    use super::*;

    #[test]
    fn cache_that_goes_back_in_time() {
        let failure = simulation(wrong::with_old_lists).seeds(0..2_000).unwrap().unwrap();
        assert!(failure.outcome.rules().contains(&"needless-deletion"), "{failure}");
    }

    #[test]
    fn event_that_is_never_seen() {
        let failure = simulation(wrong::without_finalizer).surprises(1).unwrap().unwrap();
        assert_eq!(failure.outcome.rules(), ["left-behind"], "{failure}");
        let (outcome, log) = (&failure.outcome, failure.outcome.log.join("\n"));
        for part in [outcome.to_string(), failure.scenario.to_text(), log] {
            assert!(PAGE.contains(&part), "{failure}");
        }
    }

    #[test]
    fn crash_between_two_writes() {
        let failure = simulation(wrong::status_first).surprises(1).unwrap().unwrap();
        assert_eq!(failure.outcome.rules(), ["equal-effect"], "{failure}");
    }
}

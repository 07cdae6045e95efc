//! The operator with faults, and three wrong variants of it.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

mod wrong;

use config_copies::{ConfigCopy, run};
use kcm_simulation::{Action, Simulation};
use kube_client::Client;
use kube_core::CustomResourceExt;
use serde_json::json;

/// A ConfigCopy from its creation to its deletion.
fn simulation<F>(operator: fn(Client) -> F) -> Simulation
where
    F: Future<Output = ()> + Send + 'static,
{
    let copy = json!({
        "apiVersion": "example.org/v1", "kind": "ConfigCopy",
        "metadata": {"name": "settings", "namespace": "shop"},
        "spec": {"data": {"color": "red"}, "namespaces": ["a"]},
    });
    let change = |spec| Action::patch("ConfigCopy", "shop", "settings", json!({ "spec": spec }));
    Simulation::new(move |process| operator(process.kube_client()))
        .object(ConfigCopy::crd())
        .namespace("shop")
        .namespace("a")
        .namespace("b")
        .at(1, Action::create(copy))
        .at(11, change(json!({"namespaces": ["a", "b"]})))
        .at(21, change(json!({"data": {"color": "blue"}, "namespaces": ["b"]})))
        .at(31, Action::delete("ConfigCopy", "shop", "settings"))
}

#[test]
fn operator_violates_no_rule() {
    simulation(run).check(0..if cfg!(debug_assertions) { 50 } else { 2_000 });
}

mod finds {
    use super::*;

    #[test]
    fn cache_that_goes_back_in_time() {
        let failure = simulation(wrong::with_old_lists).seeds(0..2_000).unwrap().unwrap();
        assert_eq!(failure.outcome.rules(), ["needless-deletion"], "{failure}");
    }

    #[test]
    fn event_that_is_never_seen() {
        let failure = simulation(wrong::without_finalizer).surprises(1).unwrap().unwrap();
        assert_eq!(failure.outcome.rules(), ["left-behind"], "{failure}");
    }

    #[test]
    fn crash_between_two_writes() {
        let failure = simulation(wrong::status_first).surprises(1).unwrap().unwrap();
        assert_eq!(failure.outcome.rules(), ["equal-effect"], "{failure}");
    }
}

//! The operator with faults, and three wrong variants of it.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

mod wrong;

use std::{collections::BTreeSet, sync::Arc};

use kcm::prelude::*;
use kcm_simulation::{Simulation, UserAction};
use kube_core::CustomResourceExt;
use serde_json::json;
use website_operator::{controller::NAME, dns::FakeDns, operator, website::Website};

/// A website from its creation to its deletion, and another one, with an operator that elects a leader.
fn simulation(add_to: impl Fn(&mut Manager, Arc<FakeDns>) + Send + Sync + 'static) -> Simulation<FakeDns> {
    let website = |name, host| {
        json!({
            "apiVersion": "example.org/v1", "kind": "Website", "metadata": {"name": name, "namespace": "shop"},
            "spec": {"host": host, "image": "nginx:1", "replicas": 1},
        })
    };
    let change = |spec| UserAction::patch("Website", "shop", "web", json!({ "spec": spec }));
    Simulation::with_external(FakeDns::default, move |process, dns| {
        let mut manager = process.manager(NAME).unwrap();
        add_to(&mut manager, dns);
        manager.run(process.shutdown().clone())
    })
    .object(Website::crd())
    .namespace("shop")
    .at(1, UserAction::create(website("web", "shop.example.org")))
    .at(11, change(json!({"host": "www.example.org"})))
    .at(21, change(json!({"replicas": 2})))
    .at(31, UserAction::delete("Website", "shop", "web"))
    .at(41, UserAction::create(website("blog", "blog.example.org")))
    .end_rule("dns", |world| {
        let (websites, hosts) = (world.objects("Website"), world.external.hosts());
        let wanted: BTreeSet<_> =
            websites.iter().filter_map(|one| one.value()["spec"]["host"].as_str()).collect();
        (!wanted.iter().eq(&hosts)).then(|| format!("{hosts:?} are published, not {wanted:?}"))
    })
}

#[test]
fn operator_violates_no_rule() {
    let (seeds, share) = if cfg!(debug_assertions) { (20, 20) } else { (2_000, 1) };
    simulation(|manager, dns| operator::add_to(manager, dns)).share(share).check(0..seeds);
}

#[test]
fn operator_with_a_standby_violates_no_rule() {
    let (seeds, share) = if cfg!(debug_assertions) { (10, 40) } else { (2_000, 1) };
    let simulation = simulation(|manager, dns| operator::add_to(manager, dns)).processes(2);
    simulation.share(share).check(0..seeds);
}

mod finds {
    use super::*;

    #[test]
    fn cache_that_goes_back_in_time() {
        // The first of 2,000 seeds that finds it.
        let seeds = if cfg!(debug_assertions) { 491..492 } else { 0..2_000 };
        let failure = simulation(wrong::with_old_list).seeds(seeds).unwrap().unwrap();
        assert!(failure.outcome.rules().contains(&"needless-deletion"), "{failure}");
    }

    #[test]
    fn event_that_is_never_seen() {
        let failure = simulation(wrong::without_finalizer).surprises(1).unwrap().unwrap();
        assert_eq!(failure.outcome.rules(), ["dns"], "{failure}");
    }

    #[test]
    fn crash_between_two_writes() {
        let failure = simulation(wrong::status_first).surprises(1).unwrap().unwrap();
        assert_eq!(failure.outcome.rules(), ["dns"], "{failure}");
    }
}

//! Rules that apply to every operator, and simulations without some of them.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{
    future::{pending, ready},
    panic,
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

use k8s_openapi::{
    api::{apps::v1::Deployment, batch::v1::Job, coordination::v1::Lease, core::v1::ConfigMap},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kcm_simulation::{Alternative, Object, Scenario, Simulation, Surprise, UserAction};
use kube_client::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use kube_core::{ApiResource, DynamicObject};
use serde_json::{Value, json};

/// Applies the ConfigMap `heartbeat` with a value.
async fn apply(client: &Client, beat: &str) {
    let patch = json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "heartbeat"}, "data": {"beat": beat},
    });
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), "shop");
    api.patch("heartbeat", &PatchParams::apply("test"), &Patch::Apply(patch)).await.unwrap();
}

/// Writes the ConfigMap at an interval in seconds, with another value each time.
async fn heartbeat(client: Client, interval: u64) {
    for beat in 0_u32.. {
        apply(&client, &beat.to_string()).await;
        tokio::time::sleep(Duration::from_secs(interval)).await;
    }
}

fn simulation() -> Simulation {
    Simulation::new(|process| heartbeat(process.kube_client(), 10))
        .namespace("shop")
        .converges_within(Duration::from_secs(60))
}

#[test]
fn rules_for_the_end_apply_to_an_operator_that_always_writes() {
    let failure = simulation().calm().unwrap().unwrap();
    assert_eq!(failure.outcome.rules(), ["converged"], "{failure}");
    let simulation = simulation().without_rule("converged").end_rule("beats", |world| {
        let is_of = |kind| world.object(kind, "shop", "heartbeat").is_some();
        (is_of("ConfigMap") && is_of("ConfigMap.")).then(|| "there is a heartbeat".to_owned())
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
    let failure = simulation.at(1, UserAction::create(map)).calm().unwrap().unwrap();
    assert_eq!(failure.outcome.rules(), ["action"], "{failure}");
}

/// Creates a ConfigMap at its start, unless the request fails.
async fn create_once(client: Client) {
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some("a".to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    let _ = Api::<ConfigMap>::namespaced(client, "shop").create(&PostParams::default(), &map).await;
    pending::<()>().await;
}

#[test]
#[should_panic(expected = "surprise: there is no step m0 list pods #7")]
fn surprise_of_a_file_that_does_not_happen_violates_a_rule() {
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
    let of_pods = "{end: 1000, surprises: [{step: m0 create configmaps, nth: 1, becomes: slowStart}]}";
    let outcome = simulation().run(&Scenario::parse(of_pods).unwrap()).unwrap();
    assert_eq!(outcome.rules(), ["surprise"], "{outcome}");
    simulation().without_rule("equal-effect").without_rule("surprise").check_scenario(&scenario);
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
fn fault_of_a_file_that_has_no_effect_violates_a_rule() {
    let violations = |faults: &str| {
        let scenario = Scenario::parse(&format!("{{end: 1000, {faults}}}")).unwrap();
        let check = || {
            Simulation::new(|process| create_once(process.kube_client()))
                .namespace("shop")
                .without_rule("equal-effect")
                .check_scenario(&scenario);
        };
        let panic = panic::catch_unwind(check).err()?;
        let text =
            panic.downcast_ref::<String>().unwrap().lines().take_while(|line| line.starts_with("fault: "));
        Some(text.collect::<Vec<_>>().join("\n"))
    };
    let fault = |requests: &str, effect: &str, from: u64, share: u32| {
        violations(&format!(
            "faults: [{{requests: {requests}, effect: {effect}, from: {from}, until: 1000, perMille: {share}}}]"
        ))
    };
    let delay = |requests: &str, share: u32| fault(requests, "{delayRequest: {time: 10}}", 0, share);
    assert_eq!(delay("create configmaps", 1), None);
    for (requests, effect, from, share, text) in [
        ("create secrets", "loseRequest", 0, 1000, "LoseRequest"),
        ("create configmaps", "loseRequest", 1, 1000, "LoseRequest"),
        ("create configmaps", "loseRequest", 0, 0, "LoseRequest"),
        ("create configmaps", "noBookmarks", 0, 1000, "NoBookmarks"),
    ] {
        let expected =
            format!("fault: no request of `{requests}` from {from} to 1000 can have the effect {text}");
        assert_eq!(fault(requests, effect, from, share), Some(expected));
    }
    let one = "{requests: create configmaps, effect: {delayResponse: {time: 10}}, from: 0, until: 1000, perMille: 1000}";
    assert_eq!(violations(&format!("faults: [{one}, {one}]")), None, "both could affect the request");
    let incident = |incident: &str| violations(&format!("incidents: [{{at: 500, event: {{{incident}}}}}]"));
    assert_eq!(incident("stop: {manager: 0, time: 10}"), None);
    assert_eq!(incident("stop: {manager: 1, time: 10}").unwrap(), "fault: there is no process 1");
}

#[test]
#[should_panic(expected = "inactive: the operator writes nothing")]
fn file_without_a_write_violates_a_rule() {
    let simulation = Simulation::new(|_| pending::<()>());
    let scenario = Scenario::parse("incidents: [{at: 1000, event: {kill: {manager: 0}}}]").unwrap();
    simulation.check_scenario(&Scenario { end: 1_000, ..scenario });
}

#[test]
fn scenario_of_the_simulation_is_extended_with_faults() {
    let simulation = Simulation::new(|process| create_once(process.kube_client())).namespace("shop");
    let simulation = simulation.at(1, UserAction::delete("ConfigMap", "shop", "a"));
    let fault =
        Surprise { step: "m0 create configmaps".to_owned(), nth: 1, becomes: Alternative::DelayRequest };
    let scenario = Scenario { surprises: vec![fault], ..simulation.scenario().clone() };
    assert_eq!(simulation.run(&scenario).unwrap().rules(), ["left-behind"]);
}

/// Applies a ConfigMap until it succeeds, every `pause` seconds.
async fn retry(client: Client, pause: u64) {
    let api: Api<ConfigMap> = Api::namespaced(client, "shop");
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}});
    while api.patch("a", &PatchParams::apply("test"), &Patch::Apply(&map)).await.is_err() {
        tokio::time::sleep(Duration::from_secs(pause)).await;
    }
    pending::<()>().await;
}

#[test]
fn end_waits_for_retries() {
    let text = "{end: 1000, surprises: [{step: m0 patch configmaps, nth: 1, becomes: refuse}]}";
    let scenario = Scenario::parse(text).unwrap();
    let simulation =
        |pause| Simulation::new(move |process| retry(process.kube_client(), pause)).namespace("shop");
    for pause in [5, 50, 500] {
        simulation(pause).check_scenario(&scenario);
    }
    let outcome = simulation(500).converges_within(Duration::from_secs(60)).run(&scenario).unwrap();
    assert_eq!(outcome.rules(), ["equal-effect"], "{outcome}");
}

#[test]
fn times_of_the_wall_clock_are_not_compared() {
    static NOW: AtomicU32 = AtomicU32::new(0);
    async fn operator(client: Client) {
        for name in ["a", "b"] {
            let now = format!("2026-01-01T00:00:00.{:06}Z", NOW.fetch_add(1, Ordering::Relaxed));
            let data = json!({ "at": now });
            let map =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data});
            let api: Api<ConfigMap> = Api::namespaced(client.clone(), "shop");
            let params = PatchParams::apply("test");
            while api.patch(name, &params, &Patch::Apply(&map)).await.is_err() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        pending::<()>().await;
    }
    let simulation = Simulation::new(|process| operator(process.kube_client())).namespace("shop");
    assert_eq!(simulation.calm().unwrap(), None);
    assert_eq!(simulation.surprises(1).unwrap(), None);
}

/// Rules that an operator violates in the run without faults.
fn violated<F>(operator: impl Fn(Client) -> F + Send + Sync + 'static) -> Vec<String>
where
    F: Future<Output = ()> + Send + 'static,
{
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": "shop"},
        "spec": {
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {"containers": [{"name": "web", "image": "web"}]},
            },
        },
    });
    let simulation = Simulation::new(move |process| operator(process.kube_client()));
    let failure = simulation.namespace("shop").object(deployment).calm().unwrap();
    failure
        .map(|failure| failure.outcome.rules().into_iter().map(str::to_owned).collect())
        .unwrap_or_default()
}

/// Writes generations as observed, after a change that sets the generation to 2.
async fn observe(client: Client, generations: &[i64]) {
    let api: Api<Deployment> = Api::namespaced(client, "shop");
    let scale = Patch::Merge(json!({"spec": {"replicas": 2}}));
    api.patch("web", &PatchParams::default(), &scale).await.unwrap();
    for generation in generations {
        let patch = Patch::Merge(json!({"status": {"observedGeneration": generation}}));
        api.patch_status("web", &PatchParams::default(), &patch).await.unwrap();
    }
    pending::<()>().await;
}

#[test]
fn status_that_is_ahead_or_goes_back_violates_a_rule() {
    assert!(violated(|client| observe(client, &[1, 2])).is_empty());
    assert_eq!(violated(|client| observe(client, &[3])), ["status-ahead"]);
    assert_eq!(violated(|client| observe(client, &[2, 1])), ["status-back"]);
}

#[test]
fn late_write_violates_a_rule() {
    assert_eq!(violated(|client| heartbeat(client, 45)), ["silence"]);
    let simulation = Simulation::new(|process| heartbeat(process.kube_client(), 45)).namespace("shop");
    let failure = simulation.calm().unwrap().unwrap();
    let first = "the first one is `90000 m0.1 patch configmaps shop/heartbeat 200`";
    assert!(failure.to_string().contains(first), "{failure}");
}

#[test]
fn write_after_the_end_of_a_lease_violates_a_rule() {
    async fn operator(client: Client) {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "operator"},
            "spec": {
                "holderIdentity": "one", "leaseDurationSeconds": 15,
                "acquireTime": "2026-01-01T00:00:00.000000Z", "renewTime": "2026-01-01T00:00:00.000000Z",
            },
        });
        let api: Api<Lease> = Api::namespaced(client.clone(), "shop");
        api.patch("operator", &PatchParams::apply("test"), &Patch::Apply(lease)).await.unwrap();
        apply(&client, "in time").await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        apply(&client, "late").await;
        pending::<()>().await;
    }
    assert_eq!(violated(operator), ["lease"]);
}

#[test]
fn requests_that_differ_between_runs_violate_a_rule() {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    async fn operator(client: Client) {
        apply(&client, &RUNS.fetch_add(1, Ordering::Relaxed).to_string()).await;
        pending::<()>().await;
    }
    assert_eq!(violated(operator), ["deterministic"]);
}

#[test]
fn repeated_creation_violates_a_rule() {
    async fn operator(client: Client) {
        let api: Api<ConfigMap> = Api::namespaced(client, "shop");
        if api.list(&ListParams::default().labels("app=web")).await.is_ok_and(|list| list.items.is_empty()) {
            let map: ConfigMap = serde_json::from_value(json!({
                "metadata": {"generateName": "a-", "labels": {"app": "web"}},
            }))
            .unwrap();
            while api.create(&PostParams::default(), &map).await.is_err() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
        pending::<()>().await;
    }
    let simulation = Simulation::new(|process| operator(process.kube_client())).namespace("shop");
    let scenario = "{end: 1000, surprises: [{step: m0 create configmaps, nth: 1, becomes: loseResponse}]}";
    let outcome = simulation.run(&Scenario::parse(scenario).unwrap()).unwrap();
    assert_eq!(outcome.rules(), ["created-twice", "left-behind"], "{outcome}");
}

/// Applies ConfigMaps of two groups with one name.
async fn two_groups(client: Client) {
    apply(&client, "1").await;
    let resource = ApiResource::erase::<ConfigMap>(&());
    let (group, version) = ("example.com".to_owned(), "v1".to_owned());
    let custom = ApiResource { group, version, api_version: "example.com/v1".to_owned(), ..resource };
    let map = DynamicObject::new("heartbeat", &custom);
    let api: Api<DynamicObject> = Api::namespaced_with(client, "shop", &custom);
    api.create(&PostParams::default(), &map).await.unwrap();
    pending::<()>().await;
}

#[test]
fn objects_are_distinguished_by_group() {
    let version = json!({
        "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}},
    });
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "configmaps.example.com"},
        "spec": {
            "group": "example.com", "scope": "Namespaced", "versions": [version],
            "names": {"plural": "configmaps", "kind": "ConfigMap"},
        },
    });
    let simulation = Simulation::new(|process| two_groups(process.kube_client()))
        .object(definition)
        .namespace("shop")
        .write_rule("created", |write, _| write.before.map(|before| before.value().to_string()))
        .end_rule("both", |world| {
            let maps = ["ConfigMap.", "ConfigMap.example.com"].map(|kind| world.objects(kind).len());
            (maps != [1, 1]).then(|| format!("{maps:?}"))
        });
    assert_eq!(simulation.calm().unwrap(), None);
}

#[test]
fn kind_of_a_rule_must_exist() {
    let simulation = || Simulation::new(|process| create_once(process.kube_client())).namespace("shop");
    let kind = |simulation: Simulation| simulation.calm().unwrap_err().to_string();
    let rule = simulation().end_rule("maps", |world| world.objects("Configmap").pop().map(|_| String::new()));
    assert_eq!(kind(rule), "invalid kind \"Configmap\": no resource has this kind");
    let ignored = simulation().ignore_field("ConfigMap.example.com", "/data");
    assert_eq!(kind(ignored), "invalid kind \"ConfigMap.example.com\": no resource has this kind");
}

#[test]
fn ignored_field_is_not_compared() {
    async fn operator(client: Client) {
        let api: Api<ConfigMap> = Api::namespaced(client, "shop");
        for attempt in 1_u32.. {
            let map = json!({"metadata": {"name": "a"}, "data": {"attempts": attempt.to_string()}});
            let map = serde_json::from_value(map).unwrap();
            if api.create(&PostParams::default(), &map).await.is_ok() {
                break;
            }
        }
        pending::<()>().await;
    }
    let simulation = || Simulation::new(|process| operator(process.kube_client())).namespace("shop");
    let scenario = "{end: 1000, surprises: [{step: m0 create configmaps, nth: 1, becomes: loseRequest}]}";
    let scenario = Scenario::parse(scenario).unwrap();
    assert_eq!(simulation().run(&scenario).unwrap().rules(), ["equal-effect"]);
    simulation().ignore_field("ConfigMap", "/data/attempts").check_scenario(&scenario);
}

#[test]
fn requests_without_end_violate_a_rule() {
    async fn operator(client: Client) {
        let api: Api<ConfigMap> = Api::namespaced(client, "shop");
        loop {
            let _ = api.get_opt("a").await;
        }
    }
    let simulation = Simulation::new(|process| operator(process.kube_client())).namespace("shop");
    let outcome = simulation.run_once(&Scenario::parse("end: 1000").unwrap()).unwrap();
    assert_eq!(outcome.rules(), ["effort"]);
}

#[test]
fn operator_that_writes_nothing_violates_a_rule() {
    let simulation = || Simulation::new(|_| pending::<()>());
    let failure = simulation().calm().unwrap().unwrap();
    assert_eq!(failure.outcome.rules(), ["inactive"], "{failure}");
    assert_eq!(simulation().without_rule("inactive").calm().unwrap(), None);
}

#[test]
fn removed_rule_must_exist() {
    let error = simulation().without_rule("equal_effect").calm().unwrap_err();
    assert_eq!(error.to_string(), "invalid rule \"equal_effect\": no rule has this name");
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

#[test]
fn exit_violates_a_rule_in_a_scenario_without_faults() {
    async fn operator(client: Client) -> Result<(), &'static str> {
        apply(&client, "once").await;
        Err("the watch has ended")
    }
    let simulation = || Simulation::new(|process| operator(process.kube_client())).namespace("shop");
    let failure = simulation().calm().unwrap().unwrap();
    assert_eq!(failure.outcome.rules(), ["exit"], "{failure}");
    assert!(failure.to_string().contains("exit: m0.1 exits: the watch has ended"), "{failure}");
    assert_eq!(simulation().without_rule("exit").calm().unwrap(), None);
    let ended = Simulation::new(|_| ready(())).without_rule("inactive").calm().unwrap().unwrap();
    assert!(ended.to_string().contains("exit: m0.1 exits\n"), "{ended}");
}

/// Creates a Job until it exists, and a ConfigMap when the Job has succeeded.
async fn run_job(client: Client) {
    let api: Api<Job> = Api::namespaced(client.clone(), "shop");
    let job: Job = serde_json::from_value(json!({
        "metadata": {"name": "backup"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "a", "image": "a"}]}}},
    }))
    .unwrap();
    loop {
        let _ = api.create(&PostParams::default(), &job).await;
        let status = api.get_opt("backup").await.ok().flatten().and_then(|job| job.status);
        if status.and_then(|status| status.succeeded) == Some(1) {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    apply(&client, "the Job has succeeded").await;
    pending::<()>().await;
}

mod status_of {
    use super::*;

    fn simulation(kind: &str) -> Simulation {
        Simulation::new(|process| run_job(process.kube_client()))
            .namespace("shop")
            .status_of(kind, Duration::from_secs(2), |job| {
                let is_new = job.value()["status"]["succeeded"].is_null();
                is_new.then(|| json!({"succeeded": 1, "startTime": "2026-01-01T00:00:00Z"}))
            })
            .end_rule("copied", |world| {
                assert!(world.object("ConfigMap", "shop", "heartbeat").is_some(), "there is no ConfigMap");
                None
            })
    }

    #[test]
    fn sets_the_status_of_a_kind_after_a_delay() {
        let simulation = simulation("Job");
        assert_eq!(simulation.calm().unwrap(), None);
        let outcome = simulation.run_once(&Scenario::default()).unwrap();
        let log = outcome.log.join("\n");
        let status =
            r#"2000 status of jobs shop/backup becomes {"startTime":"2026-01-01T00:00:00Z","succeeded":1}"#;
        assert_eq!(log.matches("status of jobs").count(), 1, "{log}");
        assert!(log.contains(status), "{log}");
        assert!(log.contains("2000 m0.1 patch configmaps shop/heartbeat 201"), "{log}");
    }

    #[test]
    fn requires_a_kind_that_exists() {
        let error = simulation("Jobs").without_rule("copied").calm().unwrap_err();
        assert_eq!(error.to_string(), "invalid kind \"Jobs\": no resource has this kind");
    }

    #[test]
    fn invalid_status_violates_a_rule() {
        let simulation =
            simulation("Job").status_of("Job", Duration::ZERO, |_| Some(json!({"succeeded": "x"})));
        let failure = simulation.calm().unwrap().unwrap();
        assert_eq!(failure.outcome.rules(), ["action"], "{failure}");
    }

    #[test]
    fn panic_or_writes_without_end_violate_a_rule() {
        let rules = |simulation: Simulation| {
            let failure = simulation.calm().unwrap().unwrap();
            failure.outcome.rules().into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        let with =
            |status: fn(&Object) -> Option<Value>| simulation("Job").status_of("Job", Duration::ZERO, status);
        assert_eq!(rules(with(|_| panic!("no status"))), ["panic"]);
        let counter =
            |job: &Object| Some(json!({"failed": job.value()["status"]["failed"].as_u64().unwrap_or(0) + 1}));
        assert_eq!(rules(with(counter)), ["effort"]);
    }
}

#[test]
fn failed_assertion_of_a_rule_is_a_violation() {
    let simulation = || {
        let simulation = Simulation::new(|process| create_once(process.kube_client())).namespace("shop");
        simulation.converges_within(Duration::ZERO)
    };
    let failure = |simulation: Simulation| simulation.calm().unwrap().unwrap();
    let end = failure(simulation().end_rule("two", |world| {
        let maps = world.objects("ConfigMap").len();
        assert!(maps >= 9, "{maps} ConfigMaps");
        None
    }));
    assert!(format!("{end:?}").starts_with("two: 1 ConfigMaps\n"), "{end}");
    let write = failure(simulation().write_rule("named", |write, _| {
        assert_eq!(write.after.unwrap().name(), "b");
        None
    }));
    assert_eq!(write.outcome.rules(), ["named"], "{write}");
}

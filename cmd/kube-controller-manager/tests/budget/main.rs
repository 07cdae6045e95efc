//! Cost of a fixed script: requests of the manager, the bytes of their bodies, and its allocations, compared with
//! `requests.txt`.
//!
//! The script runs in simulated time with seeded random numbers, so the result hardly depends on the machine. Numbers may
//! differ by 5%. `UPDATE_BUDGET=1` writes the file. `cargo xtask budget` counts the instructions of the same test.
//!
//! A separate binary with one test, because the allocator counts for the whole process.
#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test fails that way")]

mod cluster;
mod costs;
mod growth;
mod scope;

use std::{env, fmt::Write as _, fs, sync::Arc};

use cluster::Cluster;
use costs::{Connection, Cost, Costs, Meter};
use kcm_client::{ClientFactory, ClientMetrics, ClientOptions, ContentType, RateLimit, UserAgent};
use kcm_clock::{Random, SeededRandom};
use kcm_controller_manager::{Dependencies, ManagerConfig, RunError};
use scope::{Allocations, counted, end_section, uncounted_future};
use serde_json::json;
use tokio::{
    runtime::{self, Runtime},
    task::JoinHandle,
};
use tokio_util::sync::CancellationToken;

/// File of the budget.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/budget/requests.txt");

/// Number of Deployments.
const DEPLOYMENTS: usize = 10;
/// Number of pods of a large Deployment.
const LARGE: usize = 100;

struct Section {
    name: &'static str,
    costs: Costs,
    allocations: Allocations,
}

/// Sections of the script so far.
struct Script {
    meter: Arc<Meter>,
    start: Allocations,
    sections: Vec<Section>,
}

impl Script {
    fn end(&mut self, name: &'static str) {
        end_section();
        let now = Allocations::of_manager();
        let costs = self.meter.take();
        self.sections.push(Section { name, costs, allocations: now.since(self.start) });
        self.start = now;
    }
}

/// Manager on a cluster, in simulated time.
struct World {
    cluster: Cluster,
    meter: Arc<Meter>,
    shutdown: CancellationToken,
    manager: JoinHandle<Result<(), RunError>>,
}

impl World {
    fn start() -> Self {
        let cluster = Cluster::new();
        let meter = Arc::new(Meter::default());
        let options =
            ClientOptions::new(UserAgent::new("manager-budget", "v1", ""), Arc::clone(&cluster.clock));
        let metrics: Arc<dyn ClientMetrics> = meter.clone();
        let options = ClientOptions { content_type: ContentType::Protobuf, metrics, ..options };
        let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
        let connection = Connection { server: cluster.server.service(), meter: Arc::clone(&meter) };
        let clients = ClientFactory::in_process(connection, options);
        let dependencies = Dependencies::new(&clients, &cluster.clock, &random);
        let config = ManagerConfig {
            rate_limit: RateLimit::UNLIMITED,
            leader_election: None,
            ..ManagerConfig::default()
        };
        let shutdown = CancellationToken::new();
        let manager = tokio::spawn(
            kcm_controller_manager::manager(&config, &dependencies, "manager-budget")
                .unwrap()
                .run(shutdown.clone()),
        );
        Self { cluster, meter, shutdown, manager }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.manager.await.unwrap().unwrap();
    }
}

fn runtime() -> Runtime {
    runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap()
}

async fn run_script() -> Vec<Section> {
    let world = World::start();
    let cluster = &world.cluster;
    let meter = Arc::clone(&world.meter);
    let mut script = Script { meter, start: Allocations::of_manager(), sections: Vec::new() };
    cluster.settle().await;
    script.end("start");

    let names: Vec<_> = (0..DEPLOYMENTS).map(|number| format!("web-{number}")).collect();
    names.iter().for_each(|name| cluster.deploy(name, 3));
    cluster.settle().await;
    script.end("10 Deployments with 3 pods each");
    names.iter().for_each(|name| cluster.set(name, "/template/spec/containers/0/image", json!("app:2")));
    cluster.settle().await;
    script.end("new image of all");
    cluster.deploy("large", LARGE);
    cluster.settle().await;
    assert_eq!(cluster.pods(), 3 * DEPLOYMENTS + LARGE);
    script.end("a Deployment with 100 pods");
    cluster.set("large", "/replicas", json!(0));
    cluster.settle().await;
    script.end("its pods are deleted");
    cluster.sleep(3600).await;
    script.end("an hour at rest");
    world.stop().await;
    script.sections
}

fn to_text(sections: &[Section]) -> String {
    let mut text = String::new();
    for Section { name, costs, allocations: Allocations { count, bytes } } in sections {
        writeln!(text, "# {name}").unwrap();
        writeln!(text, "allocations: {count} of {bytes} bytes").unwrap();
        for (kind, Cost { requests, sent, received }) in costs {
            writeln!(text, "{kind}: {requests} requests, {sent} bytes sent, {received} received").unwrap();
        }
    }
    text
}

/// Numbers of a line, and the rest of it.
fn numbers(line: &str) -> (Vec<usize>, String) {
    let (mut numbers, mut rest) = (Vec::new(), String::new());
    for word in line.split_whitespace() {
        match word.parse() {
            Ok(number) if !line.starts_with('#') => numbers.push(number),
            _ => rest.extend([word, " "]),
        }
    }
    (numbers, rest)
}

fn is_within(budget: &str, line: &str) -> bool {
    let ((budget, kind), (measured, measured_kind)) = (numbers(budget), numbers(line));
    let within = |(budget, measured): (&usize, &usize)| measured.abs_diff(*budget) <= budget / 20;
    kind == measured_kind && budget.len() == measured.len() && budget.iter().zip(&measured).all(within)
}

#[test]
fn costs_stay_within_the_budget() {
    tolerance();
    let runtime = runtime();
    let mut sections = Vec::new();
    counted(&mut || sections = runtime.block_on(uncounted_future(run_script())));
    let measured = to_text(&sections);
    if env::var_os("UPDATE_BUDGET").is_some() {
        fs::write(FILE, &measured).unwrap();
    }
    let budget = fs::read_to_string(FILE).unwrap();
    assert_eq!(budget.lines().count(), measured.lines().count(), "{measured}");
    for (budget, line) in budget.lines().zip(measured.lines()) {
        assert!(is_within(budget, line), "the budget is\n{budget}\nnow\n{line}\nof\n{measured}");
    }
}

/// Checks the comparison. The test of the costs calls it, because the allocator counts for the whole process.
fn tolerance() {
    let budget = "PUT deployments/status: 40 requests, 10000 bytes sent, 0 received";
    assert!(is_within(budget, "PUT deployments/status: 42 requests, 10500 bytes sent, 0 received"));
    assert!(!is_within(budget, "PUT deployments/status: 43 requests, 10000 bytes sent, 0 received"));
    assert!(!is_within(budget, "PUT deployments/status: 40 requests, 10501 bytes sent, 0 received"));
    assert!(!is_within(budget, "PUT deployments: 40 requests, 10000 bytes sent, 0 received"));
}

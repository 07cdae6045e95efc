//! Requests of a fixed script, and the bytes of their bodies, compared with `budget.txt`.
//!
//! The script runs in simulated time, so the result does not depend on the machine. Requests and bytes may differ by 5%.
//! `UPDATE_BUDGET=1` writes the file.

use std::{collections::BTreeMap, env, fmt::Write as _, fs, sync::Arc, time::Duration};

use kcm_apiserver::Resource;
use kcm_client::{
    ClientFactory, ClientMetrics, ClientOptions, ContentType, RateLimit, RequestInfo, UserAgent,
};
use kcm_clock::{Random, SeededRandom};
use kcm_controller_manager::{Dependencies, Manager, ManagerConfig};
use kcm_sandbox::KubeletConfig;
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::world::World;

/// File of the budget.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/takeover/budget.txt");

/// Number of Deployments.
const DEPLOYMENTS: usize = 20;

/// Requests of one kind, and the bytes of their bodies and of those of their responses.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Cost {
    requests: usize,
    sent: usize,
    received: usize,
}

/// Costs by method and resource. Watches are not included, because they do not end.
#[derive(Debug, Default)]
struct Meter(Mutex<BTreeMap<String, Cost>>);

impl Meter {
    fn add(&self, request: RequestInfo<'_>, add: impl FnOnce(&mut Cost)) {
        if !request.watch {
            add(self.0.lock().entry(kind(request)).or_default());
        }
    }

    fn take(&self) -> BTreeMap<String, Cost> {
        std::mem::take(&mut self.0.lock())
    }
}

impl ClientMetrics for Meter {
    fn sent(&self, request: RequestInfo<'_>, bytes: usize) {
        self.add(request, |cost| {
            cost.requests += 1;
            cost.sent += bytes;
        });
    }

    fn received(&self, request: RequestInfo<'_>, bytes: usize) {
        self.add(request, |cost| cost.received += bytes);
    }
}

/// Method and resource, such as `PUT deployments/status`.
fn kind(request: RequestInfo<'_>) -> String {
    let mut path = request.path.split('/').skip_while(|part| *part != "namespaces").skip(2);
    let (resource, subresource) = (path.next().unwrap_or("list"), path.nth(1));
    let subresource = subresource.map(|name| format!("/{name}")).unwrap_or_default();
    format!("{} {resource}{subresource}", request.method)
}

struct Section {
    name: &'static str,
    costs: BTreeMap<String, Cost>,
}

async fn run_script() -> Vec<Section> {
    let at_once = Duration::ZERO;
    let world = World::new(KubeletConfig { pod_ready_delay: at_once, pod_stop_delay: at_once });
    let meter = Arc::new(Meter::default());
    let options = ClientOptions::new(UserAgent::new("manager-budget", "v1", ""), Arc::clone(&world.clock));
    let metrics: Arc<dyn ClientMetrics> = meter.clone();
    let options = ClientOptions { content_type: ContentType::Protobuf, metrics, ..options };
    let random: Arc<dyn Random> = Arc::new(SeededRandom::new(1));
    let factory = ClientFactory::in_process(world.server.service(), options);
    let dependencies = Dependencies::new(&factory, &world.clock, &random);
    let config =
        ManagerConfig { rate_limit: RateLimit::UNLIMITED, leader_election: None, ..ManagerConfig::default() };
    let shutdown = CancellationToken::new();
    let manager = tokio::spawn(Manager::new(config, dependencies, "manager-budget").run(shutdown.clone()));
    world.sleep(60).await;
    meter.take();

    let mut sections = Vec::new();
    let names: Vec<_> = (0..DEPLOYMENTS).map(|number| format!("web-{number}")).collect();
    names.iter().for_each(|name| world.deploy(name, 3));
    settle(&world, &names).await;
    sections.push(Section { name: "20 Deployments with 3 pods each", costs: meter.take() });
    names.iter().for_each(|name| world.set_image(name, "app:2"));
    settle(&world, &names).await;
    sections.push(Section { name: "new image of all", costs: meter.take() });
    world.deploy("large", 500);
    settle(&world, &["large".to_owned()]).await;
    sections.push(Section { name: "a Deployment with 500 pods", costs: meter.take() });
    world.sleep(3600).await;
    sections.push(Section { name: "an hour at rest", costs: meter.take() });
    assert_eq!(world.list(Resource::PODS).len(), 3 * DEPLOYMENTS + 500);
    shutdown.cancel();
    manager.await.unwrap().unwrap();
    sections
}

/// Waits until the rollouts are complete, and the events are written.
async fn settle(world: &World, names: &[String]) {
    for name in names {
        world.until_rolled_out(name).await;
    }
    world.sleep(60).await;
}

fn to_text(sections: &[Section]) -> String {
    let mut text = String::new();
    for Section { name, costs } in sections {
        writeln!(text, "# {name}").unwrap();
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

#[tokio::test(start_paused = true)]
async fn requests_stay_within_the_budget() {
    let measured = to_text(&run_script().await);
    if env::var_os("UPDATE_BUDGET").is_some() {
        fs::write(FILE, &measured).unwrap();
    }
    let budget = fs::read_to_string(FILE).unwrap();
    assert_eq!(budget.lines().count(), measured.lines().count(), "{measured}");
    for (budget, line) in budget.lines().zip(measured.lines()) {
        assert!(is_within(budget, line), "the budget is\n{budget}\nnow\n{line}\nof\n{measured}");
    }
}

#[test]
fn tolerance() {
    let budget = "PUT deployments/status: 40 requests, 10000 bytes sent, 0 received";
    assert!(is_within(budget, "PUT deployments/status: 42 requests, 10500 bytes sent, 0 received"));
    assert!(!is_within(budget, "PUT deployments/status: 43 requests, 10000 bytes sent, 0 received"));
    assert!(!is_within(budget, "PUT deployments/status: 40 requests, 10501 bytes sent, 0 received"));
    assert!(!is_within(budget, "PUT deployments: 40 requests, 10000 bytes sent, 0 received"));
}

//! Faults of the catalogue that the embedded API server can produce, without other binaries. Each ends as soon as it has
//! reached the manager, apart from bursts. The manager must stay within the bounds of the fault.
#![expect(clippy::unwrap_used, reason = "the helpers of tests may fail as tests do")]

use futures_util::{StreamExt, stream};

/// Faults of connections, servers and the process, during which the manager mostly waits.
const WAITING: [&str; 12] = [
    "dials-unanswered-3s",
    "connection-reset",
    "cut-in-body",
    "go-away",
    "one-stream",
    "http1-only",
    "certificate-replaced",
    "proxy-restarted",
    "429-retry-after",
    "500-bursts",
    "503-bursts",
    "sigstop-5s",
];

/// Hostile clients. Each takes a processor and times the probes, so it runs alone.
const CLIENTS: [&str; 5] = [
    "client-chain-of-names",
    "client-large-headers",
    "client-rapid-reset",
    "client-continuation",
    "client-ping",
];

/// Returns the bounds that the manager has exceeded, and the end of its log.
async fn check(fault: &str) -> Option<String> {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("manager.log");
    let program = kcm_testkit::program("kube-controller-manager");
    let exceeded = beside_upstream::run_embedded(fault, &program, &log).await.unwrap();
    let log = std::fs::read_to_string(&log).unwrap_or_default();
    let tail: Vec<_> = log.lines().rev().take(20).collect();
    (!exceeded.is_empty()).then(|| format!("{fault}: {exceeded:?}\n{tail:#?}"))
}

async fn check_all(faults: &[&str], concurrent: usize) {
    let problems = stream::iter(faults.iter().map(|fault| check(fault))).buffer_unordered(concurrent);
    let problems: Vec<_> = problems.filter_map(std::future::ready).collect().await;
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn manager_stays_within_the_bounds_of_faults() {
    check_all(&WAITING, 4).await;
    check_all(&CLIENTS, 1).await;
}

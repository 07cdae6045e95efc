//! Faults of the catalogue that the embedded API server can produce, without other binaries. Each ends as soon as it has
//! reached the manager, apart from bursts. The manager must stay within the bounds of the fault.
#![expect(clippy::unwrap_used, reason = "the helpers of tests may fail as tests do")]

use tokio::sync::RwLock;

/// Locked for writing by a hostile client, which takes a processor and times the probes.
static MACHINE: RwLock<()> = RwLock::const_new(());

async fn check(fault: &str) {
    let is_client = fault.starts_with("client-");
    let _alone = if is_client { Some(MACHINE.write().await) } else { None };
    let _shared = if is_client { None } else { Some(MACHINE.read().await) };
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("manager.log");
    let program = kcm_testkit::program("kube-controller-manager");
    let exceeded = beside_upstream::run_embedded(fault, &program, &log).await.unwrap();
    let log = std::fs::read_to_string(&log).unwrap_or_default();
    let tail: Vec<_> = log.lines().rev().take(20).collect();
    assert!(exceeded.is_empty(), "{fault}: {exceeded:?}\n{tail:#?}");
}

/// Defines a test per fault.
macro_rules! faults {
    ($($test:ident: $fault:literal),+ $(,)?) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $test() {
            check($fault).await;
        })+
    };
}

faults! {
    dials_unanswered: "dials-unanswered-3s",
    connection_reset: "connection-reset",
    cut_in_body: "cut-in-body",
    go_away: "go-away",
    one_stream: "one-stream",
    http1_only: "http1-only",
    certificate_replaced: "certificate-replaced",
    proxy_restarted: "proxy-restarted",
    too_many_requests: "429-retry-after",
    server_errors: "500-bursts",
    unavailable: "503-bursts",
    stopped: "sigstop-5s",
    client_chain_of_names: "client-chain-of-names",
    client_large_headers: "client-large-headers",
    client_rapid_reset: "client-rapid-reset",
    client_continuation: "client-continuation",
    client_ping: "client-ping",
}

//! Acceptance checks of the sandbox with the newest installed `kubectl`.
//!
//! `cargo xtask kubectl-acceptance` runs them with all installed versions.

use std::collections::BTreeSet;

use kubectl_acceptance::{Options, Version};

#[test]
fn sandbox_passes_kubectl_acceptance() {
    let Some(newest) = Version::installed().pop() else {
        println!("skipped: kubectl is not in the path");
        return;
    };
    let options = Options {
        sandbox: kcm_testkit::program("kube-sandbox"),
        versions: vec![newest],
        kubeconfig: None,
        only: Vec::new(),
        parallel: 12,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let report = runtime.block_on(kubectl_acceptance::run(&options)).unwrap();
    println!("{}", report.table());
    assert_eq!(report.failed(), BTreeSet::new(), "{}", report.details());
}

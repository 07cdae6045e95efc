//! The sandbox before stock `kubectl`: the acceptance lane with the newest version that is installed.
//!
//! `cargo xtask kubectl-acceptance` runs it with all of them, and tells more.

use std::{collections::BTreeSet, path::PathBuf};

use xtask::acceptance::{self, Options, Version};

#[test]
fn sandbox_serves_kubectl_as_a_cluster_would() {
    let Some(newest) = Version::installed().pop() else {
        println!("skipped: kubectl is not in the path");
        return;
    };
    let options = Options {
        sandbox: PathBuf::from(env!("CARGO_BIN_EXE_kube-sandbox")),
        versions: vec![newest],
        kubeconfig: None,
        only: Vec::new(),
        parallel: 12,
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let report = runtime.block_on(acceptance::run(&options)).unwrap();
    println!("{}", report.table());
    assert_eq!(report.failed(), BTreeSet::new(), "{}", report.details());
}

//! Optional programs of the tests.

use std::{env, io::Write as _, path::PathBuf, sync::Once};

/// Folder with etcd and kube-apiserver. Without it, reports once that tests are skipped.
pub(crate) fn assets() -> Option<PathBuf> {
    static REPORTED: Once = Once::new();
    let assets = env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    if assets.is_none() {
        REPORTED.call_once(|| skipped("tests with kube-apiserver (no KUBEBUILDER_ASSETS)"));
    }
    assets
}

/// Reports skipped tests. Writes to stderr directly, because the test harness captures the output of `eprintln!`.
pub(crate) fn skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

//! What a machine may lack.

use std::{env, io::Write as _, path::PathBuf, sync::Once};

/// The folder with etcd and kube-apiserver. Says, once, that tests are skipped where there is none.
pub(crate) fn assets() -> Option<PathBuf> {
    static SAID: Once = Once::new();
    let assets = env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    if assets.is_none() {
        SAID.call_once(|| skipped("the tests on a real API server (no KUBEBUILDER_ASSETS)"));
    }
    assets
}

/// Says that something is not tested. The test harness keeps what tests print to itself, so this goes past it.
pub(crate) fn skipped(what: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: {what}");
}

//! End-to-end tests of the binary with API servers over HTTP.
//!
//! Most tests run twice: with this project's API server, and with etcd and kube-apiserver if `KUBEBUILDER_ASSETS` names a
//! folder with both, as for envtest. Tests with upstream's manager require its path in `KUBE_CONTROLLER_MANAGER`. Skipped
//! tests print a line that begins with `SKIPPED:` to stderr.
#![expect(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests may fail as tests do")]

// Tests start in the order of their names. These take longest.
mod all_stories;
mod deviations;
mod differential;
mod drawn_requests;
mod election;
mod expiry;
mod harness;
mod restarts;
mod roles;
mod rules;
mod stored_kinds;
mod takeover;
mod transcripts;

/// Defines two tests per function: with the embedded API server, and with kube-apiserver.
macro_rules! on_both_servers {
    ($($test:ident),+ $(,)?) => {
        mod on_the_embedded_server {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                super::$test(crate::harness::Cluster::embedded().await).await;
            })+
        }

        mod on_a_real_server {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $test() {
                if let Some(cluster) = crate::harness::Cluster::real().await {
                    super::$test(cluster).await;
                }
            })+
        }
    };
}
pub(crate) use on_both_servers;

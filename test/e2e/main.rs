//! The manager's program against API servers over HTTP, as it is run in a cluster.
//!
//! Most of it is done twice: against this project's API server on a port of this machine, always; and against etcd and
//! kube-apiserver where `KUBEBUILDER_ASSETS` names a folder with both, as for envtest. What needs upstream's manager
//! wants its program in `KUBE_CONTROLLER_MANAGER`. A test that does not find what it needs says so on standard error,
//! in a line that begins with `SKIPPED:`.
#![expect(clippy::unwrap_used, clippy::panic, reason = "the helpers of tests may fail as tests do")]

// Tests are begun in the order of their names, and these take longest.
mod all_stories;
mod election;
mod expiry;
mod harness;
mod restarts;
mod roles;
mod takeover;

/// Two tests of what a function does to a cluster: one on the embedded API server, one on a real one.
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

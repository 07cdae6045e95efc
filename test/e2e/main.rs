//! The manager's program against API servers over HTTP, as it is run in a cluster.
//!
//! Everything here is done twice: against this project's API server on a port of this machine, always; and against
//! etcd and kube-apiserver where `KUBEBUILDER_ASSETS` names a folder with both, as for envtest. What needs upstream's
//! manager wants its program in `KUBE_CONTROLLER_MANAGER`. A test that does not find what it needs says so on standard
//! error, in a line that begins with `SKIPPED:`.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "the helpers of tests may fail as tests do"
)]

mod stories;

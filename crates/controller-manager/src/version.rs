//! Names and versions of the program.

use kcm_client::UserAgent;

/// Version of this program.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// Version of Kubernetes whose behaviour the program implements.
pub const KUBERNETES_VERSION: &str = "v1.36";

/// Name of the binary, and so the field manager of its writes (US-1.3).
pub(crate) const BINARY: &str = "kube-controller-manager";

/// User agent of the manager's clients.
pub fn user_agent() -> UserAgent {
    // Set by release builds.
    UserAgent::new(BINARY, VERSION, option_env!("KUBE_GIT_COMMIT").unwrap_or_default())
}

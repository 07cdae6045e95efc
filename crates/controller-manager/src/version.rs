//! Who this is.

use kcm_client::UserAgent;

/// The version of this program.
pub const VERSION: &str = concat!("v", env!("CARGO_PKG_VERSION"));

/// The version of Kubernetes whose behaviour it has.
pub const KUBERNETES_VERSION: &str = "v1.36";

/// What the binary is called, and by that the field manager of what it writes (US-1.3).
pub(crate) const BINARY: &str = "kube-controller-manager";

/// How the manager's clients introduce themselves.
pub fn user_agent() -> UserAgent {
    // Set by whoever builds a release.
    UserAgent::new(BINARY, VERSION, option_env!("KUBE_GIT_COMMIT").unwrap_or_default())
}

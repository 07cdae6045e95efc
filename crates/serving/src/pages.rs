//! Pages that components have in common.

use kcm_clock::Timestamp;

use crate::{Answer, Handler, Routes, handler};

/// What `/statusz` says of a component.
#[derive(Debug, Clone)]
pub struct Status {
    /// The component, such as `kube-controller-manager`.
    pub component: String,
    /// When it was started.
    pub started: Timestamp,
    /// Its version, such as `1.36.2`.
    pub binary_version: String,
    /// The version of Kubernetes that it behaves as, such as `1.36`.
    pub emulation_version: String,
    /// What it was built with, such as `rustc 1.95.0`; upstream has Go's version here.
    pub compiler: String,
    /// Its paths.
    pub paths: Vec<String>,
}

/// `/configz`: the component's configuration, by the name of its API group.
pub fn configz(name: &str, config: &serde_json::Value) -> Handler {
    let body = serde_json::json!({ name: config }).to_string();
    handler(move |_| Answer::json(body.clone()))
}

/// `/flagz`: the flags that the component runs with, name and value.
pub fn flagz(_component: &str, _flags: Vec<(String, String)>) -> Handler {
    handler(|_| Answer::text("flagz"))
}

/// `/statusz`.
pub fn statusz(_status: Status, _clock: std::sync::Arc<dyn kcm_clock::Clock>) -> Handler {
    handler(|_| Answer::text("statusz"))
}

/// `/debug/flags/v`: changes how much is logged.
pub fn verbosity(_set: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) -> Handler {
    handler(|_| Answer::text("v"))
}

/// `/debug/pprof/`: what can be told of a running process.
pub fn profiling(routes: Routes) -> Routes {
    routes
}

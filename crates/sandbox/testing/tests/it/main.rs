//! Environments in simulated time.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

mod environment;
mod faults;
mod managers;

use k8s_openapi::api::core::v1::ConfigMap;
use kcm_testing::TestEnv;
use serde_json::json;

/// A ConfigMap without data.
fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}})).unwrap()
}

/// Number of watches that the server of the environment has opened.
fn watches(env: &TestEnv) -> usize {
    env.requests().iter().filter(|event| event.verb == "watch").count()
}

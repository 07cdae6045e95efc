//! Test environment for operators: fault injection, simulated nodes and simulated time around an API server in the process of
//! the test.
//!
//! *Upstream counterpart:* `envtest` of controller-runtime. No binaries are required, and a test takes milliseconds.
//!
//! | Part | Method |
//! |---|---|
//! | embedded API server with the CRDs and namespaces of the test | [`TestEnv::builder`] |
//! | simulated nodes, scheduler, kubelets, garbage collector | [`nodes`](TestEnvBuilder::nodes) |
//! | controllers of Deployments and ReplicaSets | `controllers` |
//! | clients | [`api`](TestEnv::api), [`client`](TestEnv::client), [`clients`](TestEnv::clients), `kube_client` |
//! | operator | `manager` and `run` |
//! | faults | [`fault`](TestEnv::fault), [`faults`](TestEnv::faults) |
//! | time | [`eventually`](TestEnv::eventually), [`advance`](TestEnv::advance), [`clock`](TestEnv::clock) |
//! | requests that the server received | [`requests`](TestEnv::requests) |
//! | API server of a real cluster, in place of the embedded one | [`cluster`](TestEnvBuilder::cluster) |
//!
//! An operator that creates a pod per website, and its test with simulated nodes and a fault:
//!
//! ```
//! use k8s_openapi::api::core::v1::Pod;
//! use kcm_client::{ApiClient, ApiError, ApplyOptions, ListParams, Patch};
//! use kcm_informer::Store;
//! use kcm_manager::Manager;
//! use kcm_runtime::{ObjectKey, Reconciler, Requeue};
//! use kcm_testing::TestEnv;
//! use kube_derive::CustomResource;
//! use schemars::JsonSchema;
//! use serde::{Deserialize, Serialize};
//! use serde_json::json;
//!
//! #[derive(CustomResource, Debug, Clone, Serialize, Deserialize, JsonSchema)]
//! #[kube(group = "example.org", version = "v1", kind = "Website", namespaced, crates(kube_core = "::kube_core"))]
//! struct WebsiteSpec {
//!     image: String,
//! }
//!
//! struct Websites(Store<Website>, ApiClient);
//!
//! impl Reconciler for Websites {
//!     type Error = ApiError;
//!
//!     async fn reconcile(&self, key: &ObjectKey) -> Result<Requeue, ApiError> {
//!         let Some(website) = self.0.get(key) else { return Ok(Requeue::Done) };
//!         let pod = json!({
//!             "apiVersion": "v1", "kind": "Pod", "metadata": {"name": &*key.name},
//!             "spec": {"containers": [{"name": "web", "image": website.spec.image}]},
//!         });
//!         let apply = Patch::apply(&pod, ApplyOptions::new("websites"));
//!         self.1.api::<Pod>().patch(key, &apply).await?;
//!         Ok(Requeue::Done)
//!     }
//! }
//!
//! fn add_to(manager: &mut Manager) {
//!     let websites = manager.informer::<Website>(ListParams::default());
//!     let context = manager.context();
//!     let reconciler = Websites(websites.store(), context.client("websites"));
//!     let controller = context.controller("websites").reconciles(&websites).build(reconciler);
//!     manager.add(controller);
//! }
//!
//! // In a test: `#[tokio::test(start_paused = true)]`.
//! #[tokio::main(flavor = "current_thread", start_paused = true)]
//! async fn main() {
//!     let env = TestEnv::builder().crd::<Website>().namespace("shop").nodes(3).start().await;
//!     let refused = env.fault("PATCH /api/v1/**/pods/* 500 times=1");
//!     let mut manager = env.manager("websites");
//!     add_to(&mut manager);
//!     let _operator = env.run(manager);
//!
//!     let website = Website::new("home", WebsiteSpec { image: "nginx:1".to_owned() });
//!     env.api::<Website>().create(&website).await.unwrap();
//!     env.eventually("the pod runs", async || {
//!         let pod = env.api::<Pod>().find("home").await.unwrap();
//!         pod.and_then(|pod| pod.status?.phase).as_deref() == Some("Running")
//!     })
//!     .await;
//!     assert_eq!(refused.applied(), 1);
//! }
//! ```
//!
//! The methods without a link require a [feature](https://docs.rs/crate/kcm-testing/latest/features): `controllers`,
//! `kube-client`, or `manager`, which is a default feature. Methods panic where a test would fail: on invalid definitions and rules, and on requests that are refused.

#![warn(missing_debug_implementations)]
#![expect(clippy::panic, reason = "a failure of the environment fails the test")]

mod builder;
mod env;
#[cfg(feature = "manager")]
mod operator;

pub use builder::TestEnvBuilder;
pub use env::TestEnv;
#[cfg(feature = "manager")]
pub use operator::RunningManager;

/// Embedded API server.
pub use kcm_apiserver as apiserver;
pub use kcm_apiserver::{ApiServer, ApiServerConfig, AuditEvent, Fault, FaultHandle, Faults};
pub use kcm_sandbox::KubeletConfig;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

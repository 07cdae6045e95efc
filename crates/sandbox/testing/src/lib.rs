//! Test environment for operators: fault injection, simulated nodes and simulated time around an API server in the process of
//! the test.
//!
//! *Upstream counterpart:* `envtest` of controller-runtime. No binaries are required, and a test takes milliseconds.
//!
//! | Part | Method |
//! |---|---|
//! | embedded API server with the CRDs and namespaces of the test | [`TestEnv::builder`] |
//! | simulated nodes, scheduler, kubelets, garbage collector | [`nodes`](TestEnvBuilder::nodes) |
//! | clients | [`api`](TestEnv::api), [`client`](TestEnv::client), [`clients`](TestEnv::clients), `kube_client` |
//! | operator | `manager` and `run` |
//! | faults | [`fault`](TestEnv::fault), [`faults`](TestEnv::faults) |
//! | time | [`eventually`](TestEnv::eventually), [`advance`](TestEnv::advance), [`clock`](TestEnv::clock) |
//! | requests that the server received | [`requests`](TestEnv::requests) |
//! | API server of a real cluster, in place of the embedded one | [`cluster`](TestEnvBuilder::cluster) |
//!
//! Methods panic where a test would fail: on invalid definitions and rules, and on requests that are refused.

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

pub use kcm_apiserver::{AuditEvent, Fault, FaultHandle, Faults};
pub use kcm_sandbox::KubeletConfig;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

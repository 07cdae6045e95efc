//! Deterministic simulation testing for Kubernetes operators.
//!
//! *Upstream counterpart:* none.
//!
//! A [`Simulation`] has the controllers of an operator, which a function starts for each life of a process, the objects that
//! exist from the start, the actions of users, and rules. It runs them with an API server and faults in simulated time:
//!
//! | Method | Runs |
//! |---|---|
//! | [`check`](Simulation::check) | the scenario without faults, with each surprise, and with the faults of seeds; panics if a rule is violated |
//! | [`calm`](Simulation::calm) | the scenario without faults, and repeats it |
//! | [`seeds`](Simulation::seeds) | the scenario with the faults of each seed |
//! | [`surprises`](Simulation::surprises) | every schedule of the scenario with a few [`Surprise`]s |
//! | [`check_scenario`](Simulation::check_scenario) | a [`Scenario`], such as that of a file, without its faults and with them; panics if a rule is violated |
//! | [`run`](Simulation::run) | a [`Scenario`] |
//!
//! A violation is a [`Failure`] with a scenario that was made as small as possible. [`RULES`] apply to every operator, unless
//! [removed](Simulation::without_rule); the page `docs/simulating-operators.md` describes them.
//!
//! The first simulation, of an operator on kube-rs that copies labelled ConfigMaps:
//!
//! ```
//! use std::{future::ready, sync::Arc, time::Duration};
//!
//! use futures_util::StreamExt;
//! use k8s_openapi::api::core::v1::ConfigMap;
//! use kcm_simulation::{Simulation, UserAction};
//! use kube_client::{Api, Client, api::{Patch, PatchParams}};
//! use kube_core::{Resource, ResourceExt};
//! use kube_runtime::{Controller, controller, watcher};
//! use serde_json::json;
//!
//! async fn operator(client: Client) {
//!     let sources = watcher::Config::default().labels("copied=yes");
//!     Controller::new(Api::<ConfigMap>::all(client.clone()), sources)
//!         .run(copy, |_, _, _| controller::Action::requeue(Duration::from_secs(5)), Arc::new(client))
//!         .for_each(|_| ready(()))
//!         .await;
//! }
//!
//! async fn copy(source: Arc<ConfigMap>, client: Arc<Client>) -> Result<controller::Action, kube_client::Error> {
//!     let copy = json!({
//!         "apiVersion": "v1", "kind": "ConfigMap", "data": source.data,
//!         "metadata": {
//!             "name": format!("{}-copy", source.name_any()),
//!             "ownerReferences": [source.controller_owner_ref(&())],
//!         },
//!     });
//!     let api: Api<ConfigMap> = Api::namespaced((*client).clone(), "shop");
//!     let params = PatchParams::apply("copies").force();
//!     api.patch(&format!("{}-copy", source.name_any()), &params, &Patch::Apply(copy)).await?;
//!     Ok(controller::Action::await_change())
//! }
//!
//! let source = json!({
//!     "apiVersion": "v1", "kind": "ConfigMap", "data": {"color": "red"},
//!     "metadata": {"name": "settings", "namespace": "shop", "labels": {"copied": "yes"}},
//! });
//! Simulation::new(|process| operator(process.kube_client()))
//!     .namespace("shop")
//!     .at(1, UserAction::create(source))
//!     .at(11, UserAction::patch("ConfigMap", "shop", "settings", json!({"data": {"color": "blue"}})))
//!     .at(21, UserAction::delete("ConfigMap", "shop", "settings"))
//!     .check(0..20);
//! ```
//!
//! A scenario file contains actions, incidents, faults and surprises. Here, the API server refuses a third of the updates of ConfigMaps
//! for ten seconds, and a process is killed after its second patch of a ConfigMap:
//!
//! ```
//! use kcm_simulation::{Alternative, Scenario};
//!
//! let scenario = Scenario::parse(
//!     "
//! end: 30000
//! actions:
//! - at: 1000
//!   event:
//!     patch: {kind: ConfigMap, namespace: shop, name: settings, patch: {data: {color: blue}}}
//! faults:
//! - {requests: update configmaps, effect: {refuse: {code: 409}}, perMille: 300, from: 10000, until: 20000}
//! surprises:
//! - {step: m0 patch configmaps, nth: 2, becomes: killAfter}
//! ",
//! )?;
//! assert_eq!(scenario.surprises[0].becomes, Alternative::KillAfter);
//! # Ok::<(), kcm_simulation::ScenarioError>(())
//! ```
//!
//! ## Parts
//!
//! | Part | File |
//! |---|---|
//! | processes, hosts, network with faults, choice points, exploration, shrinking | `engine` |
//! | scenarios as data, and faults of seeds | `scenario.rs`, `draw.rs` |
//! | the operator, controllers of other kinds, and runs of scenarios | `simulation.rs`, `process.rs`, `status_controller.rs`, `simulate.rs` |
//! | observation of writes, and rules | `recorder.rs`, `rules.rs`, `world.rs` |
//! | seeds, exploration and shrinking in one call | `check.rs` |
//!
//! The engine is generic: `crates/testing/simulation` runs the built-in controllers on it, with scenarios and rules of their
//! own.
//!
//! *Not in this crate:* rules of built-in controllers, real time.

#![warn(missing_debug_implementations)]

#[doc(hidden)]
pub mod engine;

mod check;
mod draw;
mod process;
mod recorder;
mod rules;
mod scenario;
mod simulate;
mod simulation;
mod status_controller;
mod world;

pub use check::Failure;
pub use engine::{
    faults::{At, FaultEffect, Incident, RequestFault, RequestPattern},
    files::ScenarioError,
    network::ProcessConnection,
    observer::Finding,
    outcome::{Outcome, SimulationError},
    surprises::{Alternative, Surprise},
};
pub use kcm_apiserver::{ApiServer, Object};
pub use kcm_clock::{Clock, Random};
pub use process::{ExitResult, ManagerProcess};
pub use rules::RULES;
pub use scenario::{Scenario, UserAction};
pub use simulation::Simulation;
pub use world::{World, Write};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

//! Catalogue of faults: this manager beside upstream's, started by `cargo xtask beside-upstream`.
//!
//! A fault is a row of a table. A run starts a manager and the workload, injects the fault in mid-rollout and measures
//! until the workload has converged. The page compares the managers.
//!
//! | Module | Contents |
//! |---|---|
//! | `catalogue` | the faults, as data |
//! | `inject`, `rules` | their effects |
//! | `proxy`, `dns`, `webhook`, `cgroup` | the means |
//! | `clients` | hostile clients of the secure port, in another process |
//! | `cluster`, `scene`, `manager` | API server, files and processes |
//! | `workload`, `observer`, `lease` | the workload, its kubelet and its measurement |
//! | `run`, `client_run`, `probe`, `measure`, `results` | runs and their results |
//! | `verdict`, `page` | comparison |

mod catalogue;
mod cgroup;
mod client_run;
mod clients;
mod cluster;
mod dns;
mod error;
mod inject;
mod lease;
mod manager;
mod measure;
mod observer;
mod page;
mod probe;
mod proxy;
mod results;
mod rules;
mod run;
mod scene;
mod task;
mod verdict;
mod webhook;
mod workload;

pub use clients::HostileClient;
pub use error::SuiteError;
pub use task::{Programs, Task, run_embedded};

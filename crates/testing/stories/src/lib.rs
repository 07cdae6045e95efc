//! Stories: scripted API operations, played against a controller manager. Its writes are recorded, checked by invariants,
//! and compared with those of upstream.
//!
//! *Upstream counterpart:* none; `test/integration` contains similar scenarios in Go.
//!
//! | part | file |
//! |---|---|
//! | story files and their steps | `story.rs`, `step.rs`, `expectation.rs`, `target.rs`, `seconds.rs` |
//! | execution of steps | `play.rs`, `client.rs`, `operations.rs` |
//! | clusters: API server, manager, and log of the manager's writes | `cluster.rs`, `write_log.rs`, `in_process.rs`, `external/` |
//! | recorded writes without random values | `recording.rs`, `scrub.rs` |
//! | comparison of recordings | `effects.rs` |
//! | invariants checked after every write | `invariant_checker.rs`, crate `kcm-invariants` |
//! | summary of the final state | `summary.rs` |
//!
//! [`play`] plays a [`Story`] in a [`StoryCluster`]. A cluster runs in this process and in simulated time ([`InProcess`]), or
//! consists of separate processes ([`external`]): any API server with an audit log, and any controller manager with
//! upstream's flags. In both cases, the writes of the manager are taken from the audit log.
//!
//! This crate contains no expectations of a particular story (these are recorded in `test/recordings`) and nothing that a
//! controller needs.

mod client;
mod cluster;
mod effects;
mod expectation;
pub mod external;
mod in_process;
mod invariant_checker;
mod operations;
mod play;
mod recording;
mod scrub;
mod seconds;
mod step;
mod story;
mod summary;
mod target;
mod write_log;

pub use client::StepError;
pub use cluster::{Activity, ClusterError, ManagerUnderTest, StoryCluster, wait_until_idle};
pub use effects::{Difference, Effects, closest_difference};
pub use expectation::Expectation;
pub use in_process::InProcess;
pub use invariant_checker::InvariantChecker;
pub use kcm_invariants::Entry;
pub use play::{PlayError, play};
pub use recording::{Counted, RecordedEvent, Recording, RecordingError, StepWrites, Write};
pub use step::{
    Bind, Delete, Drain, Patch, PatchForm, PodStatusReport, Repeat, ReplicaSetStatusReport, RestartManager,
    Scale, SetImage, Settle, Step, Undo,
};
pub use story::{SimulatedNodes, Story, StoryError};
pub use summary::{StorySummary, WriteCounts};
pub use target::{ObjectKind, Target, TargetName};
pub use write_log::{WriteLog, WriteLogSender};

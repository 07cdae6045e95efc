//! Preview of a change of a Deployment: the real controllers, in an embedded cluster and in simulated time.
//!
//! *Upstream counterpart:* none.
//!
//! [`preview`] copies objects of a cluster ([`Snapshot`]) into an embedded API server, makes a [`Change`] there, and returns a
//! [`Preview`]: the effect, each step, peaks, duration, quotas, node capacity and warnings. It sends nothing to a cluster.
//!
//! | Part | File |
//! |---|---|
//! | objects of the cluster, pod timings | `snapshot.rs`, `reduce.rs`, `timings.rs` |
//! | requests of a change, maximum size | `change.rs`, `size.rs` |
//! | simulated cluster, standing refusals | `import.rs`, `cluster.rs`, `refusal.rs` |
//! | range of the duration | `range.rs` |
//! | course of the rollout from the observed objects | `history.rs`, `usage.rs` |
//! | quotas, nodes, warnings | `capacity.rs`, `warnings.rs` |
//! | result and its JSON form | `report.rs`, `preview.rs`, `diff.rs` |
//! | text and SVG | `render/` |
//!
//! *Not in this crate:* access to a cluster.

#![warn(missing_debug_implementations)]

mod capacity;
mod change;
mod cluster;
mod diff;
mod error;
mod history;
mod import;
mod json;
mod preview;
mod range;
mod reduce;
mod refusal;
mod remedies;
pub mod render;
mod report;
mod size;
mod snapshot;
mod timings;
mod usage;
mod warnings;

pub use change::{Change, ChangeRequest};
pub use error::PreviewError;
pub use kcm_apiserver::PatchType;
pub use kcm_rollouts::Unreadable;
pub use preview::{preview, preview_with_progress};
pub use reduce::usage_of_pod;
pub use remedies::try_commands;
pub use report::{
    API_VERSION, Bounds, Condition, Deadline, DryRun, DurationRange, DurationReason, Effect, End,
    FieldChange, NeverReady, NewReplicaSet, NodesCheck, Outcome, Peak, Preview, QuotaCheck, Replicas, Step,
    StepReplicaSet, Warning, WarningCode, WriteGroup, WriteTotal,
};
pub use snapshot::Snapshot;
pub use timings::{ReadyAfterSource, StopAfterSource, TemplateAge, TimingOptions, Timings};

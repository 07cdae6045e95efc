//! Whole stories: what is done to a cluster step by step, what a controller manager writes in answer, and whether
//! two managers achieve the same.
//!
//! *Upstream counterpart:* none; `test/integration` tells such stories in Go, of upstream's controllers alone.
//!
//! | part | file |
//! |---|---|
//! | a story as its file tells it | `story.rs`, `step.rs` |
//! | doing what it says | `play.rs`, `stage.rs`, `operate.rs`, `look.rs` |
//! | where it happens: a server, a manager, and a trail of what the manager writes | `world.rs`, `trail.rs`, `in_process.rs`, `external/` |
//! | what was written, freed from chance, and kept in files | `scrub.rs`, `recording.rs` |
//! | what it achieved, and how two recordings differ | `effects.rs` |
//! | what must hold after every write, whatever the story | `invariants/`, `guard.rs` |
//! | what it came to in the end | `outcome.rs` |
//!
//! A [`Story`] is played in a [`World`] by [`play`]. There are worlds in this process, in simulated time
//! ([`InProcess`]), and worlds of other programs ([`external`]): any API server that keeps an audit log, any
//! controller manager that takes upstream's flags. Either way every write of the manager arrives at the trail, from
//! the server's audit and not from the manager's own account.
//!
//! *What must not live here:* expectations of one story in code (they are recorded in `test/recordings`), anything
//! that a controller needs.

mod effects;
pub mod external;
mod guard;
mod in_process;
pub mod invariants;
mod look;
mod operate;
mod outcome;
mod play;
mod recording;
mod scrub;
mod stage;
mod step;
mod story;
mod trail;
mod world;

pub use effects::{Difference, Effects, closest_difference};
pub use guard::Guard;
pub use in_process::{AfterWrite, InProcess, InProcessConfig, ManagerHandle};
pub use look::Look;
pub use outcome::{Outcome, Tally, left};
pub use play::{PlayError, play};
pub use recording::{Counted, Event, Recording, RecordingError, StepWrites, Write};
pub use stage::StageError;
pub use step::{
    Bind, Delete, Drain, Kind, Name, Patch, PatchForm, PodStatus, Repeat, ReplicaSetStatus, RestartManager,
    Scale, SetImage, Settle, Step, Target, Undo,
};
pub use story::{Cluster, Story, StoryError};
pub use trail::{Entry, Trail, TrailSender};
pub use world::{Activity, Manager, World, WorldError, come_to_rest};

//! Scenarios of rollouts: objects, steps, and the true state, causes and remedy.
//!
//! The files in `scenarios` are written from knowledge of Kubernetes, not from the output of `kubectl rollouts why`.
//! Their names of states and causes are those of the JSON form of a diagnosis, and are compared as text. The format is
//! documented at [`Scenario`].
//!
//! | Module | Contents |
//! |---|---|
//! | `scenario` | format of the files |
//! | `workload` | scenarios of StatefulSets and DaemonSets, as objects |
//! | `vocabulary` | names of states, causes and rules |
//! | `objects` | objects and patches of the scenarios, independent of the cluster |
//! | `refusal` | requests of the controllers that fail |
//! | `judge` | comparison of a diagnosis with the truth, and the table of results |
//!
//! `tests/sandbox` runs the scenarios on the embedded cluster, in simulated time. `tests/real` runs them on kube-apiserver
//! with upstream's manager, in real time. Those of StatefulSets and DaemonSets are judged without a cluster.

mod judge;
pub mod objects;
mod refusal;
mod scenario;
mod vocabulary;
mod workload;

pub use judge::{Outcome, Verdict, judge, table};
pub use scenario::{
    Change, Condition, LoadError, NodeNames, ObjectRef, Patch, PodDeletion, PodEvent, PodPatch, PodReport,
    Refusal, Request, Running, Scenario, Step, Truth, Which, load,
};
pub use vocabulary::{CAUSES, RULES, STATES};
pub use workload::{EventState, NOW, PodState, Revision, WorkloadKind, WorkloadScenario, load_workloads};

//! Kubernetes operators in one dependency: the crates of this project as modules.
//!
//! | Module | Contents | Crate |
//! |---|---|---|
//! | [`client`] | all verbs for any type, rate limits, retries, clients that write only while their process leads | `kcm-client` |
//! | [`informer`] | caches with indexes, and handlers with the old and the new object | `kcm-informer` |
//! | [`workqueue`] | queue of keys with delays and back-off per key | `kcm-workqueue` |
//! | [`runtime`] | controllers: builder, watches, predicates, retries, health, shutdown with drain | `kcm-runtime` |
//! | [`expectations`] | own writes of a controller that its caches do not contain yet | `kcm-expectations` |
//! | [`owners`] | owner references: claiming, adopting and releasing objects | `kcm-controller-ref-manager` |
//! | [`workload`] | pods of a workload: filters, ranking for deletion, owner indexes, creation in growing batches | `kcm-controller-util` |
//! | [`events`] | event recorder with aggregation, counts and a spam filter | `kcm-events` |
//! | [`leader_election`] | election by a Lease, and the gate for writes | `kcm-leader-election` |
//! | [`clock`] | clock and random source, also simulated | `kcm-clock` |
//! | [`api`], [`meta`] | lean types of workloads; metadata of objects of any type | `kcm-api`, `kcm-meta` |
//! | `manager` | everything that a program with controllers owns, in one builder; feature `manager` | `kcm-manager` |
//! | `metrics` | Prometheus registry; feature `manager` | `kcm-metrics` |
//! | `serving` | secure port with health checks; feature `manager` | `kcm-serving` |
//! | `testing` | test environment: API server, nodes, time and faults; feature `testing` | `kcm-testing` |
//! | `kube` | client, informers and streams for programs with a `kube::Client`; feature `kube-client` | `kcm-kube` |
//!
//! [`prelude`] contains the items that most operators use.
//!
//! The crate has the name that prefixes all crates of the project. It contains no code: a program that needs a work queue only
//! depends on `kcm-workqueue`.

pub use kcm_api as api;
pub use kcm_client as client;
pub use kcm_clock as clock;
pub use kcm_controller_ref_manager as owners;
pub use kcm_controller_util as workload;
pub use kcm_events as events;
pub use kcm_expectations as expectations;
pub use kcm_informer as informer;
#[cfg(feature = "kube-client")]
pub use kcm_kube as kube;
pub use kcm_leader_election as leader_election;
#[cfg(feature = "manager")]
pub use kcm_manager as manager;
pub use kcm_meta as meta;
#[cfg(feature = "manager")]
pub use kcm_metrics as metrics;
pub use kcm_runtime as runtime;
#[cfg(feature = "manager")]
pub use kcm_serving as serving;
#[cfg(feature = "testing")]
pub use kcm_testing as testing;
pub use kcm_workqueue as workqueue;

/// Items that most operators use: `use kcm::prelude::*`.
pub mod prelude {
    #[cfg(feature = "kube")]
    pub use kcm_client::OwnerClient;
    pub use kcm_client::{
        Api, ApiClient, ApiError, ApplyOptions, ClientFactory, DeleteOptions, ListParams, Patch,
        Preconditions, RateLimit,
    };
    pub use kcm_clock::{Clock, Random};
    pub use kcm_controller_ref_manager::{OwnerIdentity, claim};
    pub use kcm_controller_util::{Creation, OwnedObjects, pod_indexers};
    pub use kcm_events::{EventRecorder, EventType, ObjectReference};
    pub use kcm_informer::{IndexName, Indexers, Object, SharedInformer, Store};
    #[cfg(feature = "manager")]
    pub use kcm_manager::{Context, Manager, ProgramOptions};
    pub use kcm_runtime::{
        Controller, DeletedObject, ErrorClass, ObjectKey, OwnWrites, Reconciler, Requeue, Watch, owner_of,
        predicate,
    };
}

#[cfg(all(doctest, feature = "kube", feature = "manager"))]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

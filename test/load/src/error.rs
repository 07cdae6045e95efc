//! Errors of the tasks.

use kcm_api::ApiError;
use kcm_informer::ListWatchError;
use kcm_stories::ClusterError;
use thiserror::Error;
use tokio::task::JoinError;

use crate::measure::ProgramError;

/// Error of the task.
#[derive(Debug, Error)]
pub enum TaskError {
    /// A program cannot be run or inspected.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// A request failed.
    #[error(transparent)]
    Api(#[from] ApiError),
    /// A list or watch request failed.
    #[error(transparent)]
    ListWatch(#[from] ListWatchError),
    /// A response is not JSON.
    #[error("failed to decode response: {0}")]
    Json(#[from] serde_json::Error),
    /// A measurement is too slow.
    #[error("timeout: {0}")]
    Late(String),
    /// A manager exited during a measurement.
    #[error("{0} exited: {1}")]
    Exited(&'static str, String),
    /// `--kube-apiserver` requires the programs.
    #[error("--kube-apiserver requires KUBEBUILDER_ASSETS, a directory with etcd and kube-apiserver")]
    NoServer,
    /// kube-apiserver does not start.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// A list does not contain all pods.
    #[error("list contains {found} pods, expected {expected}")]
    ShortList {
        /// Number of pods in the list.
        found: usize,
        /// Expected number of pods.
        expected: usize,
    },
    /// A client task failed.
    #[error("client task failed: {0}")]
    Client(#[from] JoinError),
    /// A program failed.
    #[error("{program} failed:\n{output}")]
    Failed {
        /// The program.
        program: &'static str,
        /// Its output.
        output: String,
    },
    /// A file or the output of a program has an unexpected content.
    #[error("unexpected content of {0}")]
    Content(&'static str),
    /// Instructions exceed the budget, or stay below it.
    #[error(
        "instructions differ by more than 5%:\n{0}\nIf this is intended, run cargo xtask budget --update"
    )]
    Exceeded(String),
}

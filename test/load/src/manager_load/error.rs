//! Errors of the benchmark.

use kcm_api::ApiError;
use kcm_informer::ListWatchError;
use kcm_stories::ClusterError;
use thiserror::Error;

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
}

//! Result of a diagnosis and its JSON form.

use kcm_clock::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::{cause::Cause, controller::ControllerState, finding::Finding, known::Unreadable};

/// Version of the JSON form of a [`Diagnosis`].
pub const API_VERSION: &str = "rollouts/v1alpha1";

/// State of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// All pods have the current template and are available, and no old pod is left.
    Complete,
    /// The rollout continues without intervention.
    Progressing,
    /// The Deployment is paused before its rollout is complete.
    Paused,
    /// The objects that could be read do not show why the rollout is not complete, or if it is.
    Unknown,
    /// The rollout does not continue without intervention.
    Stuck,
    /// The progress deadline is exceeded, and the rollout has made no progress since.
    DeadlineExceeded,
}

impl State {
    /// Exit code of `kubectl rollouts why`.
    pub const fn exit_code(self) -> u8 {
        match self {
            Self::Complete => 0,
            Self::Progressing => 2,
            Self::Paused | Self::Stuck => 3,
            Self::DeadlineExceeded => 4,
            Self::Unknown => 5,
        }
    }

    /// Name in text.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Progressing => "progressing",
            Self::Paused => "paused",
            Self::Stuck => "stuck",
            Self::DeadlineExceeded => "deadline exceeded",
            Self::Unknown => "unknown",
        }
    }
}

/// Number of pods of a rollout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Replicas {
    /// Desired.
    pub desired: i32,
    /// With the current template.
    pub updated: i32,
    /// Available, with any template.
    pub available: i32,
    /// All, without terminating ones.
    pub total: i32,
}

/// Bound that stops the ReplicaSets at their sizes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Bounds {
    /// `maxSurge` is used up: the new ReplicaSet cannot grow.
    pub surge_used_up: bool,
    /// No pod can be removed without more than `maxUnavailable` unavailable pods.
    pub no_availability_to_spare: bool,
    /// Both values resolve to zero. The controller then uses 1 for `maxUnavailable`.
    pub both_zero: bool,
    /// Explanation.
    pub message: String,
}

/// Last change of a pod template.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TemplateChange {
    /// Time of the change.
    pub at: Timestamp,
    /// Field manager that made it, such as `kubectl-set`.
    pub manager: String,
}

/// Suggested command.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Command {
    /// Purpose.
    pub purpose: String,
    /// Command line.
    pub command: String,
    /// Change of the Deployment that the command makes, for a preview of its course.
    #[serde(skip)]
    pub remedy: Option<Remedy>,
    /// Predicted course of the change, such as `completes in about 40s`. [`diagnose`](crate::diagnose) leaves it empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub course: Option<String>,
}

/// Change of a Deployment.
#[derive(Debug, Clone, PartialEq)]
pub enum Remedy {
    /// As `kubectl rollout undo`.
    Undo,
    /// Merge patch. Pods that cannot be scheduled are taken to be scheduled after it.
    Patch(Value),
}

/// State of a rollout and its explanation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    /// [`API_VERSION`].
    pub api_version: &'static str,
    /// `RolloutDiagnosis`.
    pub kind: &'static str,
    /// Resource of the workload: `deployment`, `statefulset` or `daemonset`.
    pub resource: &'static str,
    /// Namespace of the workload.
    pub namespace: String,
    /// Name of the workload.
    pub name: String,
    /// State.
    pub state: State,
    /// Most important cause. `None` if the rollout is complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cause: Option<Cause>,
    /// The state in one sentence.
    pub summary: String,
    /// Number of pods.
    pub replicas: Replicas,
    /// Last change of the pod template, if the objects contain it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<TemplateChange>,
    /// Time of the last progress, from the condition `Progressing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_progress: Option<Timestamp>,
    /// Time at which the progress deadline passes, if the rollout makes no progress until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Timestamp>,
    /// Time at which the current step is expected to end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Timestamp>,
    /// Bounds of the rolling update that hold the ReplicaSets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bounds: Option<Bounds>,
    /// Causes, the most important first.
    pub findings: Vec<Finding>,
    /// Writes of the controllers for the objects as they are, with reasons.
    pub next: Vec<String>,
    /// Queue state of the controllers, if the caller has read it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub controllers: Vec<ControllerState>,
    /// Commands that inspect or resolve the causes.
    pub commands: Vec<Command>,
    /// Resources that could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
}

impl Diagnosis {
    /// Returns the sentence without the numbers of pods, if a cause holds the rollout, such as
    /// `Stuck because 2 pods cannot pull their image`. `None` if the rollout progresses.
    pub fn reason(&self) -> Option<&str> {
        self.cause?;
        let reason = self.summary.split(": ").next()?;
        (reason != "Progressing").then_some(reason)
    }
}

//! Format of the scenario files.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use kcm_api::GoDuration;
use kcm_sandbox::PodBehavior;
use serde::{Deserialize, Deserializer, de::Error as _};
use serde_json::Value;
use thiserror::Error;

use crate::vocabulary::{CAUSES, RULES, STATES};

/// Scenario of a rollout.
///
/// The cluster has two nodes, `sim-node-0` and `sim-node-1`, the namespace `shop`, a current Lease of
/// kube-controller-manager, and the Deployment `web` with 4 replicas of the container `app`, image `app:1`, which
/// starts in 5 seconds. It is rolled out before the steps.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Name, unique in all files.
    pub name: String,
    /// Rules that the scenario covers, of [`RULES`](crate::RULES).
    #[serde(default)]
    pub rules: Vec<String>,
    /// Objects that are created before the Deployment.
    #[serde(default)]
    pub objects: Vec<Value>,
    /// Changes of the Deployment before its creation.
    #[serde(default)]
    pub deployment: Change,
    /// Time between the creation of the Deployment and the first step.
    #[serde(default = "settle", deserialize_with = "duration")]
    pub settle: Duration,
    /// Steps, in their order.
    #[serde(default)]
    pub steps: Vec<Step>,
    /// Truth after the last step.
    pub truth: Truth,
}

fn settle() -> Duration {
    Duration::from_secs(60)
}

/// Step of a scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// Lets time pass.
    Advance(#[serde(deserialize_with = "duration")] Duration),
    /// Changes the Deployment.
    Change(Box<Change>),
    /// Creates an object, in the namespace `shop` by default.
    Create(Value),
    /// Patches an object.
    Patch(Patch),
    /// Deletes an object.
    Delete(ObjectRef),
    /// Deletes pods of the Deployment.
    DeletePods(PodDeletion),
    /// Patches pods of the Deployment.
    PatchPods(PodPatch),
    /// Writes a status of pods, as a kubelet or another controller does.
    PodStatus(PodReport),
    /// Records a warning about pods.
    PodEvent(PodEvent),
    /// Stops or starts both controllers.
    Controllers(Running),
    /// Stops or resumes the renewal of the Lease.
    Lease(Running),
    /// Lets requests of the controllers fail.
    Refuse(Refusal),
    /// Ends the failure of a request.
    Allow(Request),
    /// Cordons nodes.
    Cordon(NodeNames),
    /// Uncordons nodes.
    Uncordon(NodeNames),
    /// Stops nodes: their kubelets write nothing, and their condition is `Unknown`.
    LoseNodes(NodeNames),
    /// Sets a condition of the Deployment's pods.
    Condition(Condition),
    /// Merge patch of the Deployment as it is read, for objects that the embedded API server does not accept.
    AsRead(Value),
    /// Denies the reader of the diagnosis these resources, by plural name.
    Hide(Vec<String>),
    /// Lets the reader of the diagnosis read the queues of the controllers. Upstream's manager does not serve them.
    ReadQueues,
}

/// Names of nodes.
pub type NodeNames = Vec<String>;

/// Change of the Deployment. Absent members are unchanged.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// Image of the container `app`.
    pub image: Option<String>,
    /// Value of the annotation `kube-sandbox/behavior` of new pods.
    pub behavior: Option<Value>,
    /// Strategic merge patch of the pod specification.
    pub pod: Option<Value>,
    /// Strategic merge patch of `spec`.
    pub spec: Option<Value>,
    /// Strategic merge patch of `metadata`.
    pub metadata: Option<Value>,
}

/// Reference to an object.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectRef {
    /// Plural name of the resource.
    pub resource: String,
    /// API group.
    #[serde(default)]
    pub group: String,
    /// Name. `new` and `old` are the Deployment's new ReplicaSet and its newest old one.
    pub name: String,
    /// Namespace. Empty for cluster-scoped resources.
    #[serde(default = "namespace")]
    pub namespace: String,
}

fn namespace() -> String {
    "shop".to_owned()
}

/// Patch of an object.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Patch {
    /// Object.
    pub object: ObjectRef,
    /// Strategic merge patch.
    pub patch: Value,
    /// If `true`, the patch is one of the status.
    #[serde(default)]
    pub status: bool,
}

/// Set of the Deployment's pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// All.
    #[default]
    All,
    /// Those with the current image.
    New,
    /// The others.
    Old,
}

/// Deletion of pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodDeletion {
    /// Pods.
    #[serde(default)]
    pub which: Which,
    /// Maximum number.
    #[serde(default = "all")]
    pub count: usize,
}

fn all() -> usize {
    usize::MAX
}

/// Patch of pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodPatch {
    /// Pods.
    #[serde(default)]
    pub which: Which,
    /// Maximum number.
    #[serde(default = "all")]
    pub count: usize,
    /// Strategic merge patch.
    pub patch: Value,
}

/// Status of pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodReport {
    /// Pods.
    #[serde(default)]
    pub which: Which,
    /// Maximum number.
    #[serde(default = "all")]
    pub count: usize,
    /// Strategic merge patch of `status`.
    pub status: Value,
}

/// Condition of pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// Pods.
    #[serde(default)]
    pub which: Which,
    /// Type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
}

/// Warning about pods.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PodEvent {
    /// Pods.
    #[serde(default)]
    pub which: Which,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
}

/// State of a component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Running {
    /// It does not run.
    Stopped,
    /// It runs.
    Running,
}

/// Request of the controllers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Creation of pods.
    CreatePods,
    /// Deletion of pods.
    DeletePods,
    /// Creation of ReplicaSets.
    CreateReplicaSets,
    /// Update of ReplicaSets.
    UpdateReplicaSets,
    /// Update of the status of Deployments.
    UpdateDeploymentStatus,
    /// Update of the status of ReplicaSets.
    UpdateReplicaSetStatus,
}

/// Failure of a request.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// Request.
    pub request: Request,
    /// Message of the API server.
    pub message: String,
    /// HTTP status: 403, 422 or 500.
    #[serde(default = "forbidden")]
    pub code: u16,
}

fn forbidden() -> u16 {
    403
}

/// Truth of a scenario.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Truth {
    /// State, of [`STATES`](crate::STATES).
    pub state: String,
    /// Causes that must be found, of [`CAUSES`](crate::CAUSES). The most important one that is found is one of them.
    #[serde(default)]
    pub causes: Vec<String>,
    /// Causes of which one must be found.
    #[serde(default)]
    pub any_of: Vec<String>,
    /// Causes that one finding must cover.
    #[serde(default)]
    pub single: Vec<String>,
    /// Causes that must not be claimed.
    #[serde(default)]
    pub not: Vec<String>,
    /// Parts of suggested commands.
    #[serde(default)]
    pub remedy: Vec<String>,
    /// Parts of commands that must not be suggested, because they change nothing.
    #[serde(default)]
    pub no_remedy: Vec<String>,
    /// Parts of the explanation.
    #[serde(default)]
    pub says: Vec<String>,
    /// Texts that the explanation must not contain.
    #[serde(default)]
    pub never_says: Vec<String>,
}

impl Truth {
    /// Causes that must or may be found.
    pub fn found(&self) -> impl Iterator<Item = &String> {
        self.causes.iter().chain(&self.any_of)
    }

    /// Checks the names of the truth, and those of rules.
    pub(crate) fn check(&self, rules: &[String]) -> Result<(), String> {
        if !STATES.contains(&self.state.as_str()) {
            return Err(format!("unknown state {:?}", self.state));
        }
        if let Some(cause) = self.names().find(|one| !CAUSES.contains(&one.as_str())) {
            return Err(format!("unknown cause {cause:?}"));
        }
        if let Some(cause) = self.causes.iter().find(|cause| self.not.contains(cause)) {
            return Err(format!("cause {cause:?} is in both lists"));
        }
        if let Some(rule) = rules.iter().find(|one| RULES.iter().all(|(name, _)| name != one)) {
            return Err(format!("unknown rule {rule:?}"));
        }
        Ok(())
    }

    /// All names of causes.
    fn names(&self) -> impl Iterator<Item = &String> {
        [&self.causes, &self.any_of, &self.single, &self.not].into_iter().flatten()
    }
}

pub(crate) fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let parsed = GoDuration::parse(&text).map_err(D::Error::custom)?;
    parsed
        .to_std()
        .ok_or_else(|| D::Error::custom(format!("invalid duration {text:?}: must not be negative")))
}

/// Scenario files that cannot be loaded.
#[derive(Debug, Error)]
pub enum LoadError {
    /// A file or the directory cannot be read.
    #[error("failed to read {path}: {source}")]
    Read {
        /// Path.
        path: String,
        /// Cause.
        source: io::Error,
    },
    /// A file does not have the format.
    #[error("failed to parse {path}: {reason}")]
    Parse {
        /// Path.
        path: String,
        /// Cause.
        reason: String,
    },
    /// A scenario is invalid.
    #[error("invalid scenario {name:?}: {reason}")]
    Invalid {
        /// Name of the scenario.
        name: String,
        /// Cause.
        reason: String,
    },
}

/// Loads the scenarios of a directory, in the order of the files' names.
pub fn load(directory: &Path) -> Result<Vec<Scenario>, LoadError> {
    let mut scenarios: Vec<Scenario> = Vec::new();
    for (path, text) in read(directory)? {
        for scenario in parse(&text).map_err(|reason| LoadError::Parse { path, reason })? {
            let reason = scenario.check().err().or_else(|| {
                scenarios.iter().any(|other| other.name == scenario.name).then(|| "duplicate name".to_owned())
            });
            if let Some(reason) = reason {
                return Err(LoadError::Invalid { name: scenario.name, reason });
            }
            scenarios.push(scenario);
        }
    }
    Ok(scenarios)
}

/// Paths and contents of the files of a directory, in the order of their names.
pub(crate) fn read(directory: &Path) -> Result<Vec<(String, String)>, LoadError> {
    let failure = |path: &Path, source| LoadError::Read { path: path.display().to_string(), source };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(|error| failure(directory, error))? {
        files.push(entry.map_err(|error| failure(directory, error))?.path());
    }
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let read = |file: &PathBuf| {
        let text = fs::read_to_string(file).map_err(|error| failure(file, error))?;
        Ok((file.display().to_string(), text))
    };
    files.iter().map(read).collect()
}

fn parse(text: &str) -> Result<Vec<Scenario>, String> {
    serde_saphyr::from_str(text).map_err(|error| error.to_string())
}

impl Scenario {
    /// Checks the names and the behaviors.
    fn check(&self) -> Result<(), String> {
        self.truth.check(&self.rules)?;
        let changes = self.steps.iter().filter_map(|step| match step {
            Step::Change(change) => Some(&**change),
            _ => None,
        });
        for behavior in changes.chain([&self.deployment]).filter_map(|change| change.behavior.as_ref()) {
            behavior
                .to_string()
                .parse::<PodBehavior>()
                .map_err(|error| format!("invalid behavior: {error}"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(truth: &str, behavior: &str) -> Result<(), String> {
        let text = format!("[{{name: n, deployment: {{behavior: {behavior}}}, truth: {truth}}}]");
        parse(&text)?.iter().try_for_each(Scenario::check)
    }

    #[test]
    fn unknown_names_are_refused() {
        check("{state: stuck, causes: [crash_loop]}", "{}").unwrap();
        let cases = [
            ("{state: stuk}", "{}", "unknown state"),
            ("{state: stuck, causes: [crashloop]}", "{}", "unknown cause"),
            ("{state: stuck, not: [crashloop]}", "{}", "unknown cause"),
            ("{state: stuck, causes: [paused], not: [paused]}", "{}", "in both lists"),
            ("{state: stuck, cause: paused}", "{}", "cause"),
            ("{state: stuck}", "{container: {}}", "invalid behavior"),
        ];
        for (truth, behavior, part) in cases {
            let error = check(truth, behavior).unwrap_err();
            assert!(error.contains(part), "{truth} {behavior}: {error}");
        }
    }
}

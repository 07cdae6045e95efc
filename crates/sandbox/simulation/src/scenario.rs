//! Scenarios of operators: actions of users, and faults.

use std::{fmt, path::Path};

use kcm_apiserver::{
    ApiServer, ApiStatus, DeleteOptions, DeletionPropagation, Patch, Resource, StatusReason, Subresource,
    WriteOptions,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::engine::{
    faults::{At, Incident, RequestFault},
    files::{self, ScenarioError},
    surprises::Surprise,
    timeline::has_restore,
};

/// Events that the API server keeps for watches in a scenario without expired watches.
pub(crate) const LONG_HISTORY: usize = 100_000;

/// Actions of users, incidents and faults of a simulation. Times are milliseconds since the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Scenario {
    /// Seed of all random numbers of the run.
    pub seed: u64,
    /// Time at which all faults end. The checks of the end follow.
    pub end: u64,
    /// Number of processes of the operator. More than one requires leader election.
    pub managers: usize,
    /// Time until a process that has exited is started again.
    pub restart_after: u64,
    /// Simulated nodes.
    pub nodes: usize,
    /// API servers over one store. Each request goes to one of them.
    pub front_ends: usize,
    /// Events that the API server keeps for watches. Fewer events mean more watches that end with 410.
    pub history: usize,
    /// Actions of users and other controllers.
    pub actions: Vec<At<UserAction>>,
    /// Incidents of processes, their hosts and the API servers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub incidents: Vec<At<Incident>>,
    /// Faults of single requests of the operator.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<RequestFault>,
    /// Steps whose outcome is not the default.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub surprises: Vec<Surprise>,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            seed: 0,
            end: 20_000,
            managers: 1,
            restart_after: 1_000,
            nodes: 1,
            front_ends: 1,
            history: LONG_HISTORY,
            actions: Vec::new(),
            incidents: Vec::new(),
            faults: Vec::new(),
            surprises: Vec::new(),
        }
    }
}

/// Request of a user or of another controller. If the API server refuses it, it has no effect, is not repeated, and violates the
/// rule `action` in a scenario without faults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", deny_unknown_fields)]
#[expect(missing_docs, reason = "the API's names")]
pub enum UserAction {
    /// Creates an object.
    Create { object: Value },
    /// Replaces an object, whatever its resource version.
    Update { object: Value },
    /// Applies a JSON merge patch to an object or its status.
    Patch {
        kind: String,
        namespace: String,
        name: String,
        #[serde(default)]
        status: bool,
        patch: Value,
    },
    /// Deletes an object.
    Delete {
        kind: String,
        namespace: String,
        name: String,
        #[serde(default)]
        foreground: bool,
    },
}

impl UserAction {
    /// Creates an object.
    ///
    /// # Panics
    ///
    /// If the object cannot be serialized.
    #[expect(clippy::expect_used, reason = "an invalid definition fails the test")]
    pub fn create(object: impl Serialize) -> Self {
        Self::Create { object: serde_json::to_value(object).expect("the object can be serialized") }
    }

    /// Applies a JSON merge patch. `kind` is that of a resource, with its group if several groups have the kind:
    /// `Service.serving.knative.dev`.
    pub fn patch(kind: &str, namespace: &str, name: &str, patch: Value) -> Self {
        let (kind, namespace, name) = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        Self::Patch { kind, namespace, name, status: false, patch }
    }

    /// Deletes an object. `kind` is as in [`patch`](Self::patch).
    pub fn delete(kind: &str, namespace: &str, name: &str) -> Self {
        let (kind, namespace, name) = (kind.to_owned(), namespace.to_owned(), name.to_owned());
        Self::Delete { kind, namespace, name, foreground: false }
    }

    /// Performs the action.
    pub(crate) fn perform(&self, server: &ApiServer) -> Result<(), ApiStatus> {
        let options = WriteOptions::default();
        match self {
            Self::Create { object } => {
                let (resource, namespace, _) = address(server, object)?;
                server.create(resource, namespace, object.clone(), &options)?;
            }
            Self::Update { object } => {
                let (resource, namespace, name) = address(server, object)?;
                let mut object = object.clone();
                let stored = server.get(resource, namespace, name)?;
                object["metadata"]["resourceVersion"] = stored.value()["metadata"]["resourceVersion"].clone();
                server.update(resource, namespace, object, &options)?;
            }
            Self::Patch { kind, namespace, name, status, patch } => {
                let (resource, part) = (resource(server, kind)?, status.then_some(Subresource::Status));
                server.patch(resource, namespace, name, part, Patch::merge(patch.clone()), &options)?;
            }
            Self::Delete { kind, namespace, name, foreground } => {
                let propagation = foreground.then_some(DeletionPropagation::Foreground);
                let options = DeleteOptions { propagation, ..DeleteOptions::default() };
                server.delete(resource(server, kind)?, namespace, name, &options)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for UserAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of_object = |f: &mut fmt::Formatter<'_>, verb: &str, object: &Value| {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let (kind, metadata) = (text(&object["kind"]), &object["metadata"]);
            write!(f, "user {verb} {kind} {}/{}", text(&metadata["namespace"]), text(&metadata["name"]))
        };
        match self {
            Self::Create { object } => of_object(f, "creates", object),
            Self::Update { object } => of_object(f, "updates", object),
            Self::Patch { kind, namespace, name, patch, .. } => {
                write!(f, "user patches {kind} {namespace}/{name} {patch}")
            }
            Self::Delete { kind, namespace, name, .. } => write!(f, "user deletes {kind} {namespace}/{name}"),
        }
    }
}

/// Resource, namespace and name of an object.
fn address<'a>(server: &ApiServer, object: &'a Value) -> Result<(Resource, &'a str, &'a str), ApiStatus> {
    let text = |value: &'a Value| value.as_str().unwrap_or_default();
    let metadata = &object["metadata"];
    let group = text(&object["apiVersion"]).split_once('/').map_or("", |(group, _)| group);
    let resource = resource_in(server, text(&object["kind"]), Some(group))?;
    Ok((resource, text(&metadata["namespace"]), text(&metadata["name"])))
}

/// Resource of a kind, which may have a group: `KIND.GROUP`.
pub(crate) fn resource(server: &ApiServer, kind: &str) -> Result<Resource, ApiStatus> {
    let (name, group) = kind.split_once('.').map_or((kind, None), |(name, group)| (name, Some(group)));
    resource_in(server, name, group)
}

/// Resource of a kind in a group, or in any.
fn resource_in(server: &ApiServer, kind: &str, group: Option<&str>) -> Result<Resource, ApiStatus> {
    let is_same = |one: &Resource| one.kind() == kind && group.is_none_or(|group| one.group() == group);
    let found = server.resources().into_iter().find(is_same);
    found.ok_or_else(|| ApiStatus::new(StatusReason::NotFound, format!("no resource of kind {kind}")))
}

impl Scenario {
    /// Reads a scenario from a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, or is not a scenario.
    pub fn read(path: &Path) -> Result<Self, ScenarioError> {
        files::read(path)
    }

    /// Reads a scenario from the text of a file.
    ///
    /// # Errors
    ///
    /// If the text is not a scenario.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        files::parse(text, "scenario")
    }

    /// The scenario as the text of a file.
    pub fn to_text(&self) -> String {
        files::to_text(self)
    }

    /// `true` if the scenario has incidents, faults, surprises or a short history of watches.
    pub fn has_faults(&self) -> bool {
        !(self.incidents.is_empty()
            && self.faults.is_empty()
            && self.surprises.is_empty()
            && self.history >= LONG_HISTORY)
    }

    /// The same actions of users, without faults.
    #[must_use]
    pub fn without_faults(&self) -> Self {
        Self {
            incidents: Vec::new(),
            faults: Vec::new(),
            surprises: Vec::new(),
            front_ends: 1,
            history: LONG_HISTORY,
            ..self.clone()
        }
    }

    /// `true` if the store is restored from a backup.
    pub(crate) fn has_restore(&self) -> bool {
        has_restore(&self.incidents)
    }
}

//! Objects of the cluster that the diagnosis of the selected rollouts needs.

use std::{collections::BTreeMap, time::Duration};

use kcm_api::ApiError;
use kcm_clock::{Clock, Timestamp};
use kcm_preview::try_commands;
use kcm_rollouts::{
    ControllerState, Diagnosis, Index, Snapshot, Unreadable, Workload, diagnose_workload, grants,
};
use serde_json::Value;

use super::{WhyError, cache::Cache, flags::WhyFlags, missing, queues};
use crate::{
    connection::Connection,
    name::DEPLOYMENTS,
    reader::{Reader, escape, path, read_snapshots, unreadable},
};

/// Objects of the cluster at one time.
#[derive(Debug)]
pub(super) struct Reading {
    /// The selected Deployments, or the named workload.
    pub(super) deployments: Vec<Value>,
    /// Kind of the named workload. `None` is a Deployment.
    workload: Option<Workload>,
    /// Time of the server at which the last object was read.
    pub(super) now: Timestamp,
    /// Local monotonic time at which the last object was read.
    read_at: Duration,
    /// Objects by namespace.
    snapshots: BTreeMap<String, Snapshot>,
    /// Reason for which the queues of the given manager could not be read.
    queues_unreadable: Option<Unreadable>,
    /// `true` if one Deployment was selected by its name.
    is_single: bool,
}

/// State of the controllers' queues.
#[derive(Debug, Default)]
struct Queues {
    states: Vec<ControllerState>,
    unreadable: Option<Unreadable>,
}

impl Reading {
    /// Reads the selected Deployments and the objects around them.
    pub(super) async fn read(
        connection: &Connection,
        flags: &WhyFlags,
        clock: &dyn Clock,
    ) -> Result<Self, WhyError> {
        let reader = Reader::new(&connection.client);
        let namespace = (!flags.all_namespaces).then_some(&*connection.namespace);
        let deployments = match &flags.name {
            Some(name) => vec![one(&reader, flags.workload, &connection.namespace, name).await?],
            None => all(&reader, namespace, flags.selector.as_deref()).await?,
        };
        let snapshots = read_snapshots(&reader, namespace, &deployments, flags.workload).await;
        Self::with_queues(connection, flags, clock, &reader, deployments, snapshots).await
    }

    /// As [`read`](Self::read), with the lists of the cache.
    pub(super) async fn cached(
        connection: &Connection,
        flags: &WhyFlags,
        clock: &dyn Clock,
        cache: &Cache,
    ) -> Result<Self, WhyError> {
        let reader = Reader::new(&connection.client);
        let namespace = (!flags.all_namespaces).then_some(&*connection.namespace);
        let deployments = match &flags.name {
            Some(name) => vec![one(&reader, flags.workload, &connection.namespace, name).await?],
            None => {
                let list = path("apps/v1", namespace, DEPLOYMENTS);
                let found = cache.deployments().map_err(|error| forbidden("list", &list, error))?;
                existing(&reader, namespace, found).await?
            }
        };
        let snapshots = cache.snapshots(&reader, &deployments).await;
        Self::with_queues(connection, flags, clock, &reader, deployments, snapshots).await
    }

    async fn with_queues(
        connection: &Connection,
        flags: &WhyFlags,
        clock: &dyn Clock,
        reader: &Reader<'_>,
        deployments: Vec<Value>,
        mut snapshots: BTreeMap<String, Snapshot>,
    ) -> Result<Self, WhyError> {
        let now = reader.server_time.now(clock);
        let read_at = clock.monotonic();
        let mut queues_unreadable = None;
        let is_deployment = flags.workload.is_none();
        if let (Some(name), Some(snapshot)) = (&flags.name, snapshots.get_mut(&connection.namespace))
            && is_deployment
        {
            let queues = read_queues(connection, flags.manager_context.as_deref(), name).await?;
            snapshot.controllers = queues.states;
            queues_unreadable = queues.unreadable;
        }
        let is_single = flags.name.is_some();
        let workload = flags.workload;
        Ok(Self { deployments, workload, now, read_at, snapshots, queues_unreadable, is_single })
    }

    /// Objects of a namespace, for tests.
    #[cfg(test)]
    pub(super) fn of(deployment: Value, snapshot: Snapshot, clock: &dyn Clock) -> Self {
        let namespace = deployment["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        Self {
            deployments: vec![deployment],
            now: clock.now(),
            read_at: clock.monotonic(),
            snapshots: BTreeMap::from([(namespace, snapshot)]),
            workload: None,
            queues_unreadable: None,
            is_single: true,
        }
    }

    /// Explains the rollouts at `now`, the time of the reading or a later one.
    pub(super) fn diagnose(&self, now: Timestamp) -> Result<Vec<Diagnosis>, WhyError> {
        let empty = Snapshot::default();
        let mut indexes = BTreeMap::new();
        let explain = |deployment: &Value| {
            let namespace = deployment["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
            let snapshot = self.snapshots.get(&namespace).unwrap_or(&empty);
            if let Some(workload) = self.workload {
                return Ok(diagnose_workload(snapshot, workload, deployment, now));
            }
            let index = indexes.entry(namespace).or_insert_with(|| Index::new(snapshot));
            let mut diagnosis = index.diagnose(deployment, now)?;
            if self.is_single {
                diagnosis.unreadable.extend(self.queues_unreadable.clone());
                try_commands(snapshot, deployment, now, &mut diagnosis);
            }
            Ok(diagnosis)
        };
        self.deployments.iter().map(explain).collect()
    }

    /// Present time of the server.
    pub(super) fn present(&self, clock: &dyn Clock) -> Timestamp {
        let elapsed = clock.monotonic().saturating_sub(self.read_at);
        self.now.checked_add(elapsed).unwrap_or(self.now)
    }
}

/// Reads one Deployment or other workload.
async fn one(
    reader: &Reader<'_>,
    workload: Option<Workload>,
    namespace: &str,
    name: &str,
) -> Result<Value, WhyError> {
    let resource = workload.map_or(DEPLOYMENTS, Workload::plural);
    let object = format!("{resource}/{}", escape(name));
    match reader.get(&path("apps/v1", Some(&escape(namespace)), &object)).await {
        Err(error) if error.is_not_found() => {
            Err(WhyError::Missing(missing::workload(reader, resource, namespace, name).await))
        }
        read => read.map_err(|error| forbidden("get", &path("apps/v1", Some(namespace), resource), error)),
    }
}

/// Describes the permission that is missing for `list`, and the commands that grant it.
fn forbidden(verb: &str, list: &str, error: ApiError) -> WhyError {
    let unread = unreadable(verb, list, &error);
    let Some(permission) = unread.permission.clone() else { return WhyError::Read(error) };
    let namespace = list.split_once("/namespaces/").and_then(|(_, rest)| rest.split('/').next());
    let commands = grants(namespace.unwrap_or_default(), &[unread]);
    let commands = commands.iter().map(|command| format!("\n  {}", command.command)).collect();
    WhyError::Forbidden { permission, reason: error.to_string(), commands }
}

/// Reads all Deployments with labels.
async fn all(
    reader: &Reader<'_>,
    namespace: Option<&str>,
    selector: Option<&str>,
) -> Result<Vec<Value>, WhyError> {
    let query = format!("deployments?labelSelector={}", escape(selector.unwrap_or_default()));
    let list = path("apps/v1", namespace, &query);
    let found = reader.list(&list).await.map_err(|error| forbidden("list", &list, error))?;
    existing(reader, namespace, found).await
}

/// Returns `found`, unless it is empty because the namespace does not exist.
async fn existing(
    reader: &Reader<'_>,
    namespace: Option<&str>,
    found: Vec<Value>,
) -> Result<Vec<Value>, WhyError> {
    // The list of a namespace that does not exist is empty.
    if let (Some(namespace), true) = (namespace, found.is_empty())
        && let Some(error) = missing::namespace(reader, namespace).await
    {
        return Err(WhyError::Missing(error));
    }
    Ok(found)
}

/// Reads the state of the controllers' queues, if a manager can be reached.
async fn read_queues(connection: &Connection, context: Option<&str>, name: &str) -> Result<Queues, WhyError> {
    let client = match context {
        Some(context) => connection.other(context).await?,
        None => connection.client.clone(),
    };
    Ok(match queues::read(&client, &connection.namespace, name).await {
        Ok(states) => Queues { states, unreadable: None },
        // An API server has no such path, except that of kube-sandbox.
        Err(_) if context.is_none() => Queues::default(),
        Err(error) => {
            let (resource, reason) = ("debug/controllers".to_owned(), error.to_string());
            let unreadable = Unreadable { resource, reason, permission: None };
            Queues { unreadable: Some(unreadable), ..Queues::default() }
        }
    })
}

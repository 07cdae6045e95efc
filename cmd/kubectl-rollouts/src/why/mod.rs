//! Subcommand `why`.

mod changes;
mod queues;

use std::{
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use changes::Changes;
use kcm_api::ApiError;
use kcm_client::ClientConfigError;
use kcm_clock::Clock;
use kcm_rollouts::{
    DiagnoseError, Diagnosis, Snapshot, Unreadable, diagnose,
    render::{self, Style},
};
use serde::Serialize;
use serde_json::Value;
use thiserror::Error;

use crate::{
    connection::Connection,
    flags::{Output, WhyFlags},
    reader::{Reader, escape, path, read_snapshots},
};

/// Time for which `--watch` collects changes before it reads the cluster.
const SETTLE: Duration = Duration::from_millis(250);
/// Time after which `--watch` reads the cluster without a change: times in the text, events, quotas and nodes.
const REFRESH: Duration = Duration::from_secs(10);

/// Failure of `why`.
#[derive(Debug, Error)]
pub(crate) enum WhyError {
    /// A required object could not be read.
    #[error("failed to read deployments: {0}")]
    Read(#[from] ApiError),
    /// The context of the controller manager is invalid.
    #[error(transparent)]
    Manager(#[from] ClientConfigError),
    /// An object could not be decoded.
    #[error(transparent)]
    Diagnose(#[from] DiagnoseError),
    /// The result could not be encoded.
    #[error("failed to encode the result: {0}")]
    Encode(String),
    /// The output could not be written.
    #[error("failed to write the result: {0}")]
    Write(#[from] io::Error),
}

/// List of diagnoses in JSON and YAML.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct DiagnosisList<'a> {
    api_version: &'static str,
    kind: &'static str,
    items: &'a [Diagnosis],
}

/// Prints the diagnosis. Returns the exit code.
///
/// With `--watch`, reads the cluster after each change of a Deployment, ReplicaSet or pod, and prints again if the text
/// differs, until the process is interrupted.
pub(crate) async fn run(
    connection: &Connection,
    flags: &WhyFlags,
    clock: &dyn Clock,
) -> Result<u8, WhyError> {
    let style = style();
    let redraws = flags.watch && io::stdout().is_terminal();
    let namespace = (!flags.all_namespaces).then_some(&*connection.namespace);
    let changes = flags.watch.then(|| Changes::watch(&connection.client, namespace));
    let mut last = String::new();
    loop {
        let found = read(connection, flags, clock).await?;
        let text = show(&found, flags, clock, style)?;
        if text != last {
            // Clears the screen, so that one screen shows one state.
            let clear = if redraws { "\x1b[H\x1b[2J" } else { "" };
            let mut out = io::stdout().lock();
            write!(out, "{clear}{text}")?;
            out.flush()?;
            last = text;
        }
        let Some(changes) = &changes else {
            return Ok(found.iter().map(|diagnosis| diagnosis.state.exit_code()).max().unwrap_or(0));
        };
        tokio::select! {
            () = changes.next() => clock.sleep(SETTLE).await,
            () = clock.sleep(REFRESH) => {}
        }
    }
}

/// Colours on a terminal only, unless `NO_COLOR` is set.
fn style() -> Style {
    let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if io::stdout().is_terminal() && !no_color { Style::Colour } else { Style::Plain }
}

/// Reads the cluster and explains the selected rollouts.
async fn read(
    connection: &Connection,
    flags: &WhyFlags,
    clock: &dyn Clock,
) -> Result<Vec<Diagnosis>, WhyError> {
    let mut reader = Reader::new(&connection.client);
    let namespace = (!flags.all_namespaces).then_some(&*connection.namespace);
    let deployments = match &flags.name {
        Some(name) => vec![reader.get(&path("apps/v1", namespace, &format!("deployments/{name}"))).await?],
        None => {
            let selector = flags.selector.as_deref().unwrap_or_default();
            let query = format!("deployments?labelSelector={}", escape(selector));
            reader.list(&path("apps/v1", namespace, &query)).await?
        }
    };
    let snapshots = read_snapshots(&mut reader, namespace).await;
    let now = clock.now();
    let empty = Snapshot { unreadable: reader.unreadable, ..Snapshot::default() };
    let explain = |deployment: &Value| {
        let namespace = deployment["metadata"]["namespace"].as_str().unwrap_or_default();
        diagnose(snapshots.get(namespace).unwrap_or(&empty), deployment, now).map_err(WhyError::from)
    };
    let mut found: Vec<Diagnosis> = deployments.iter().map(explain).collect::<Result<_, _>>()?;
    if let ([one], Some(_)) = (&mut *found, &flags.name) {
        read_queues(connection, flags.manager_context.as_deref(), one).await?;
    }
    Ok(found)
}

/// Adds the state of the controllers' queues, if a manager can be reached.
async fn read_queues(
    connection: &Connection,
    context: Option<&str>,
    diagnosis: &mut Diagnosis,
) -> Result<(), WhyError> {
    let client = match context {
        Some(context) => connection.other(context).await?,
        None => connection.client.clone(),
    };
    match queues::read(&client, &diagnosis.namespace, &diagnosis.name).await {
        Ok(controllers) => diagnosis.controllers = controllers,
        // An API server has no such path, except that of kube-sandbox.
        Err(_) if context.is_none() => {}
        Err(error) => diagnosis
            .unreadable
            .push(Unreadable { resource: "debug/controllers".to_owned(), reason: error.to_string() }),
    }
    Ok(())
}

fn show(found: &[Diagnosis], flags: &WhyFlags, clock: &dyn Clock, style: Style) -> Result<String, WhyError> {
    let list =
        DiagnosisList { api_version: kcm_rollouts::API_VERSION, kind: "RolloutDiagnosisList", items: found };
    match (flags.output, found) {
        (Output::Text, [one]) if flags.name.is_some() => Ok(render::text(one, clock.now(), style)),
        (Output::Text, all) => Ok(render::table(all, style)),
        (output, [one]) if flags.name.is_some() => encode(one, output),
        (output, _) => encode(&list, output),
    }
}

fn encode(value: &impl Serialize, output: Output) -> Result<String, WhyError> {
    match output {
        Output::Yaml => serde_saphyr::to_string(value).map_err(|error| WhyError::Encode(error.to_string())),
        Output::Json | Output::Text => serde_json::to_string_pretty(value)
            .map(|text| text + "\n")
            .map_err(|error| WhyError::Encode(error.to_string())),
    }
}

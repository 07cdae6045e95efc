//! Subcommand `why`.

use kcm_api::ApiError;
use kcm_clock::Clock;
use kcm_rollouts::{Diagnosis, Snapshot, State, diagnose};
use serde_json::Value;
use thiserror::Error;

use crate::{
    connection::Connection,
    flags::{Output, WhyFlags},
    reader::{Reader, escape, path, read_snapshots},
};

/// Failure of `why`.
#[derive(Debug, Error)]
pub(crate) enum WhyError {
    /// A required object could not be read.
    #[error("failed to read deployments: {0}")]
    Read(#[from] ApiError),
    /// The result could not be encoded.
    #[error("failed to encode the result: {0}")]
    Encode(String),
}

/// Prints the diagnosis. Returns the exit code.
pub(crate) async fn run(
    connection: &Connection,
    flags: &WhyFlags,
    clock: &dyn Clock,
) -> Result<u8, WhyError> {
    let found = read(connection, flags, clock).await?;
    for diagnosis in &found {
        print!("{}", encode(diagnosis, flags.output)?);
    }
    Ok(found.iter().map(exit_code).max().unwrap_or(0))
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
        diagnose(snapshots.get(namespace).unwrap_or(&empty), deployment, now)
    };
    Ok(deployments.iter().map(explain).collect())
}

fn encode(diagnosis: &Diagnosis, output: Output) -> Result<String, WhyError> {
    let encoded = |error: String| WhyError::Encode(error);
    match output {
        Output::Text => Ok(format!("{}: {}\n", diagnosis.name, diagnosis.summary)),
        Output::Json => serde_json::to_string_pretty(diagnosis)
            .map(|text| text + "\n")
            .map_err(|error| encoded(error.to_string())),
        Output::Yaml => serde_saphyr::to_string(diagnosis).map_err(|error| encoded(error.to_string())),
    }
}

fn exit_code(diagnosis: &Diagnosis) -> u8 {
    match diagnosis.state {
        State::Complete => 0,
        State::Progressing => 2,
    }
}

//! Subcommand `preview`.

mod dry_run;
pub(crate) mod flags;
mod manifest;
mod progress;
mod snapshot;

use std::{io::IsTerminal as _, path::PathBuf};

use kcm_api::ApiError;
use kcm_clock::Clock;
use kcm_preview::{Change, Condition, End, Preview, PreviewError, preview_with_progress, render};
use kcm_rollouts::{printable, printable_json};
use serde_json::Value;
use thiserror::Error;

use crate::{
    connection::Connection,
    name::{self, NameError},
};
use flags::{ChangeFlag, Output, PreviewFlags};
use progress::ProgressBar;

/// Failure of `preview`.
#[derive(Debug, Error)]
pub(crate) enum CommandError {
    /// A required object could not be read.
    #[error("failed to read {resource}: {reason}")]
    Read {
        /// Resource.
        resource: String,
        /// Error of the request.
        reason: String,
    },
    /// The manifest could not be read.
    #[error("failed to read {path}: {reason}")]
    Manifest {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        reason: String,
    },
    /// The name of the Deployment is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The object on the command line is of another kind.
    #[error("{0:?} is not a Deployment: write NAME or deployment/NAME")]
    Kind(String),
    /// The namespace of the manifest is another one than that of the command line.
    #[error(
        "the namespace from the provided object {found:?} does not match the namespace {expected:?}. You must pass \
         '--namespace={found}' to perform this operation."
    )]
    Namespace {
        /// Namespace of the manifest.
        found: String,
        /// Namespace of the command line.
        expected: String,
    },
    /// The namespace does not exist.
    #[error("namespaces {0:?} not found")]
    NamespaceNotFound(String),
    /// The API server rejects the change.
    #[error("the API server rejects the change: {0}")]
    Rejected(ApiError),
    /// The change could not be previewed.
    #[error(transparent)]
    Preview(#[from] PreviewError),
    /// The result could not be encoded.
    #[error("failed to encode the result: {0}")]
    Encode(String),
}

/// Prints the preview. Returns the exit code.
pub(crate) async fn run(
    connection: &Connection,
    flags: &PreviewFlags,
    clock: &dyn Clock,
) -> Result<u8, CommandError> {
    let name = flags.name.as_deref().map(name::deployment).transpose().map_err(|error| match error {
        NameError::Kind(word) => CommandError::Kind(word),
        error => CommandError::Name(error),
    })?;
    let manifest = match &flags.change {
        ChangeFlag::File(path) => Some(manifest::read(path, name.as_deref())?),
        ChangeFlag::Change(_) => None,
    };
    let target = target(connection, flags, name, manifest.as_ref())?;
    let snapshot = snapshot::read(connection, &target, flags.nodes, clock).await?;
    let change = match (&flags.change, manifest) {
        (ChangeFlag::Change(change), _) => change.clone(),
        (ChangeFlag::File(_), manifest) => Change::Apply(manifest.unwrap_or_default()),
    };
    let request = change.request(&snapshot)?;
    let checked = if flags.dry_run {
        let is_manifest = matches!(change, Change::Apply(_));
        dry_run::send(&connection.client, &target, &request, is_manifest).await?
    } else {
        dry_run::Checked::Embedded { reason: "not requested".to_owned() }
    };
    let (change, dry_run) = checked.into_change(change);
    let bar = ProgressBar::new(clock, std::io::stderr(), std::io::stderr().is_terminal());
    let result = preview_with_progress(&snapshot, &change, &flags.timings, &|share| bar.update(share));
    bar.clear();
    let mut result = result?;
    result.dry_run = dry_run;
    print!("{}", encode(&result, flags.output)?);
    Ok(exit_code(&result, &flags.fail_on))
}

/// Namespace and name of the Deployment.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Returns the Deployment `name` of the command line, or else the one of the manifest.
///
/// # Errors
///
/// If both name a namespace, and another one.
fn target(
    connection: &Connection,
    flags: &PreviewFlags,
    name: Option<String>,
    manifest: Option<&Value>,
) -> Result<Target, CommandError> {
    let of_manifest = |field: &str| {
        let text = manifest.and_then(|manifest| manifest["metadata"][field].as_str());
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let name = match name {
        Some(name) => name,
        None => name::deployment(&of_manifest("name").unwrap_or_default())?,
    };
    let namespace = match (of_manifest("namespace"), &flags.namespace) {
        (Some(found), Some(expected)) if found != *expected => {
            return Err(CommandError::Namespace { found, expected: expected.clone() });
        }
        (found, _) => found.unwrap_or_else(|| connection.namespace.clone()),
    };
    Ok(Target { namespace, name })
}

/// Output without the control characters of the cluster's messages. JSON and YAML contain escapes. YAML contains U+FFFD for
/// characters that change the direction of text.
fn encode(preview: &Preview, output: Output) -> Result<String, CommandError> {
    let failed = |error: String| CommandError::Encode(error);
    Ok(match output {
        Output::Text => render::text(preview),
        Output::Svg => printable(&render::svg(preview)).into_owned(),
        Output::Json => {
            let json = serde_json::to_string_pretty(preview).map_err(|error| failed(error.to_string()))?;
            printable_json(&json).into_owned() + "\n"
        }
        Output::Yaml => {
            let yaml = serde_saphyr::to_string(preview).map_err(|error| failed(error.to_string()))?;
            printable(&yaml).into_owned()
        }
    })
}

/// Exit code for pipelines, as those of `why` where both have one.
fn exit_code(preview: &Preview, fail_on: &[Condition]) -> u8 {
    let holds = |condition: &Condition| preview.conditions.contains(condition);
    match preview.outcome.end {
        End::Stuck | End::Unfinished if holds(&Condition::Deadline) => 4,
        End::Stuck | End::Unfinished => 3,
        End::Complete | End::Paused
            if fail_on.contains(&Condition::Deadline) && holds(&Condition::Deadline) =>
        {
            4
        }
        End::Complete | End::Paused if fail_on.iter().any(holds) => 6,
        End::Complete | End::Paused => 0,
    }
}

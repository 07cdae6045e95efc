//! Subcommand `preview`.

mod dry_run;
pub(crate) mod flags;
mod manifest;
mod snapshot;

use std::path::PathBuf;

use kcm_api::ApiError;
use kcm_clock::Clock;
use kcm_preview::{Change, Effect, End, Preview, PreviewError, preview, render};
use serde_json::Value;
use thiserror::Error;

use crate::connection::Connection;
use flags::{ChangeFlag, Output, PreviewFlags};

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
    /// The API server rejects the change.
    #[error("the API server rejects the change: {0}")]
    Rejected(ApiError),
    /// The change could not be previewed.
    #[error(transparent)]
    Preview(#[from] PreviewError),
    /// The result could not be encoded.
    #[error("failed to encode the result: {0}")]
    Encode(#[from] serde_json::Error),
}

/// Prints the preview. Returns the exit code.
pub(crate) async fn run(
    connection: &Connection,
    flags: &PreviewFlags,
    clock: &dyn Clock,
) -> Result<u8, CommandError> {
    let manifest = match &flags.change {
        ChangeFlag::File(path) => Some(manifest::read(path, flags.name.as_deref())?),
        ChangeFlag::Change(_) => None,
    };
    let target = target(connection, flags, manifest.as_ref());
    let snapshot = snapshot::read(connection, &target, flags.nodes, clock).await?;
    let change = match (&flags.change, manifest) {
        (ChangeFlag::Change(change), _) => change.clone(),
        (ChangeFlag::File(_), manifest) => Change::Apply(manifest.unwrap_or_default()),
    };
    let request = change.request(&snapshot)?;
    let checked = if flags.dry_run {
        dry_run::send(&connection.client, &target, &request).await?
    } else {
        dry_run::Checked::Embedded { reason: "not requested".to_owned() }
    };
    let (change, dry_run) = checked.into_change(change);
    let mut result = preview(&snapshot, &change, &flags.timings)?;
    result.dry_run = dry_run;
    print!("{}", encode(&result, flags.output)?);
    Ok(exit_code(&result))
}

/// Namespace and name of the Deployment.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

/// Returns the Deployment that the command line names, or else the one of the manifest.
fn target(connection: &Connection, flags: &PreviewFlags, manifest: Option<&Value>) -> Target {
    let of_manifest = |field: &str| {
        let text = manifest.and_then(|manifest| manifest["metadata"][field].as_str());
        text.filter(|text| !text.is_empty()).map(str::to_owned)
    };
    let name = flags.name.clone().or_else(|| of_manifest("name"));
    let namespace = of_manifest("namespace").unwrap_or_else(|| connection.namespace.clone());
    Target { namespace, name: name.unwrap_or_default() }
}

fn encode(preview: &Preview, output: Output) -> Result<String, serde_json::Error> {
    Ok(match output {
        Output::Text => render::text(preview),
        Output::Svg => render::svg(preview),
        Output::Json => serde_json::to_string_pretty(preview)? + "\n",
    })
}

/// Exit code for CI, as those of `why`.
fn exit_code(preview: &Preview) -> u8 {
    let is_unchanged = matches!(preview.effect, Effect::Nothing | Effect::Paused);
    match preview.outcome.end {
        End::Complete | End::Paused => 0,
        _ if is_unchanged => 0,
        _ if preview.deadline.exceeded_at_seconds.is_some() => 4,
        End::Stuck | End::Unfinished => 3,
    }
}

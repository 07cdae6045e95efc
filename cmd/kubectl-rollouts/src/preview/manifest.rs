//! Manifests with a Deployment.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::CommandError;

/// Reads the Deployment of a file, or of standard input for `-`. Other objects of the file are ignored.
///
/// # Errors
///
/// If the file cannot be read or parsed, or does not contain exactly one Deployment of this `name`.
pub(super) fn read(path: &Path, name: Option<&str>) -> Result<Value, CommandError> {
    let failed = |reason: String| CommandError::Manifest { path: PathBuf::from(path), reason };
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    } else {
        text = std::fs::read_to_string(path).map_err(|error| failed(error.to_string()))?;
    }
    select(&text, name).map_err(failed)
}

fn select(text: &str, name: Option<&str>) -> Result<Value, String> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| error.to_string())?;
    let objects = documents.into_iter().flat_map(|document| match document["items"].as_array() {
        Some(items) if document["kind"] == "List" => items.clone(),
        _ => vec![document],
    });
    let mut found: Vec<Value> = objects
        .filter(|object| object["kind"] == "Deployment")
        .filter(|object| name.is_none_or(|name| object["metadata"]["name"] == *name))
        .collect();
    match (found.len(), name) {
        (1, _) => Ok(found.remove(0)),
        (0, Some(name)) => Err(format!("no Deployment {name:?} in the file")),
        (0, None) => Err("no Deployment in the file".to_owned()),
        _ => {
            let names: Vec<_> =
                found.iter().map(|object| object["metadata"]["name"].as_str().unwrap_or_default()).collect();
            Err(format!("several Deployments in the file, name one of them: {}", names.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "kind: Service\nmetadata: {name: web}\n---\nkind: Deployment\nmetadata: {name: web}\n---\n\
                        kind: List\nitems:\n- kind: Deployment\n  metadata: {name: api}\n";

    #[test]
    fn deployment_is_selected_by_name() {
        assert_eq!(select(FILE, Some("api")).unwrap()["metadata"]["name"], "api");
        assert_eq!(
            select(FILE, None).unwrap_err(),
            "several Deployments in the file, name one of them: web, api"
        );
        assert_eq!(select(FILE, Some("db")).unwrap_err(), "no Deployment \"db\" in the file");
        assert_eq!(select("kind: Service", None).unwrap_err(), "no Deployment in the file");
    }
}

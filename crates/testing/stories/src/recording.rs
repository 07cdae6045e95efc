//! Recordings of a manager's writes, and their files.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use kcm_clock::is_generated_name;
use kcm_invariants::Entry;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::scrub::Scrub;

/// Writes of a manager while a story was played, without random values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// Name of the story.
    pub story: String,
    /// Version of the API server.
    pub kubernetes: String,
    /// Writes by step.
    pub steps: Vec<StepWrites>,
}

/// Writes of a step, until the manager was quiet.
///
/// Events are listed separately: they are sent by another task, so their order relative to other writes is arbitrary.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepWrites {
    /// Label of the step.
    pub step: String,
    /// Writes except events, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<Counted<Write>>,
    /// Events, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Counted<RecordedEvent>>,
}

/// Item with the number of its consecutive occurrences.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Counted<T> {
    /// Number of occurrences. Default: 1.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub times: usize,
    /// The item.
    #[serde(flatten)]
    pub what: T,
}

/// Write request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Write {
    /// Verb and resource, for example `update deployments/status`.
    pub write: String,
    /// HTTP status of the response.
    pub code: u16,
    /// Name of the object, if the request path contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Request body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

/// Kubernetes event.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RecordedEvent {
    /// HTTP status of the response.
    pub code: u16,
    /// `true` if the request increased the count of an earlier event. Other fields are unset then.
    #[serde(skip_serializing_if = "is_false")]
    pub again: bool,
    /// Kind and name of the involved object.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// `Normal` or `Warning`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Number of occurrences.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// Reporting component.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
}

/// Error while reading or writing a recording.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// The file cannot be read or written.
    #[error("{}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file is not valid xz data.
    #[error("failed to decompress {}: {reason}", file.display())]
    Xz {
        /// The file.
        file: PathBuf,
        /// Cause.
        reason: String,
    },
    /// The file is not a recording.
    #[error("{}:{}: {source}", file.display(), source.line())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Cause.
        source: serde_json::Error,
    },
    /// The recording was made with another version of Kubernetes.
    #[error("{}:1: recording of Kubernetes {found}, expected {wanted}", file.display())]
    Version {
        /// The file.
        file: PathBuf,
        /// Version of the recording.
        found: String,
        /// Expected version.
        wanted: String,
    },
    /// There is no recording of the story.
    #[error("{}: no recording of story {story:?}", folder.display())]
    Missing {
        /// The searched folder.
        folder: PathBuf,
        /// Name of the story.
        story: String,
    },
}

const fn once() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_once(times: &usize) -> bool {
    *times == 1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_false(value: &bool) -> bool {
    !*value
}

/// Resources without recorded writes: reviews of clients, leases of the process.
const IGNORED_RESOURCES: [&str; 4] =
    ["leases", "subjectaccessreviews", "tokenreviews", "localsubjectaccessreviews"];

impl StepWrites {
    /// Returns the writes in `namespace` among `entries`.
    pub fn of(label: &str, entries: &[Entry], namespace: &str) -> Self {
        let mut step = Self { step: label.to_owned(), ..Self::default() };
        let scrub = Scrub { namespace };
        for entry in entries {
            let elsewhere = !entry.namespace.is_empty() && entry.namespace != namespace;
            if !entry.is_write() || elsewhere || IGNORED_RESOURCES.contains(&entry.resource.as_str()) {
                continue;
            }
            if entry.resource == "events" {
                count(&mut step.events, RecordedEvent::of(entry, scrub));
            } else {
                count(&mut step.writes, Write::of(entry, scrub));
            }
        }
        step
    }
}

fn count<T: PartialEq>(to: &mut Vec<Counted<T>>, what: T) {
    match to.last_mut() {
        Some(last) if last.what == what => last.times += 1,
        _ => to.push(Counted { times: 1, what }),
    }
}

impl Write {
    fn of(entry: &Entry, scrub: Scrub<'_>) -> Self {
        let part = if entry.subresource.is_empty() { "" } else { "/" };
        let mut body = entry.body.clone();
        let is_generated = entry.verb == "create" && body.as_mut().is_some_and(remove_generated_name);
        Self {
            write: format!("{} {}{part}{}", entry.verb, entry.resource, entry.subresource),
            code: entry.code,
            name: (!entry.name.is_empty() && !is_generated).then(|| scrub.text(&entry.name)),
            body: body.as_ref().map(|body| scrub.object(body)),
        }
    }
}

/// Removes a name that the client has generated from `metadata.generateName`. Returns `true` if there was one.
///
/// Names may be generated by the client or by the API server; both are recorded the same way.
fn remove_generated_name(object: &mut Value) -> bool {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let (name, base) = (text("name"), text("generateName"));
    let is_generated = !base.is_empty() && is_generated_name(name, base);
    if is_generated && let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("name");
    }
    is_generated
}

impl RecordedEvent {
    fn of(entry: &Entry, scrub: Scrub<'_>) -> Self {
        let nothing = Value::Null;
        let body = entry.body.as_ref().unwrap_or(&nothing);
        let text = |pointer: &str| body.pointer(pointer)?.as_str().filter(|text| !text.is_empty());
        let count = body["count"].as_i64();
        if entry.verb != "create" {
            return Self { code: entry.code, again: true, count, ..Self::default() };
        }
        let about = if body["involvedObject"].is_object() { "/involvedObject" } else { "/regarding" };
        let kind = text(&format!("{about}/kind")).unwrap_or_default();
        let name = text(&format!("{about}/name")).unwrap_or_default();
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Self {
            code: entry.code,
            again: false,
            on: Some(format!("{kind}/{}", scrub.text(name))),
            kind: owned(text("/type")),
            reason: owned(text("/reason")),
            message: text("/message").or_else(|| text("/note")).map(|text| scrub.text(text)),
            count,
            component: owned(text("/source/component").or_else(|| text("/reportingComponent"))),
        }
    }
}

/// First bytes of an xz stream.
const XZ_MAGIC: &[u8] = b"\xfd7zXZ\0";

impl Recording {
    /// Reads a recording, which may be compressed with xz.
    pub fn read(file: &Path) -> Result<Self, RecordingError> {
        let name = || file.to_owned();
        let bytes = fs::read(file).map_err(|source| RecordingError::File { file: name(), source })?;
        let bytes = if bytes.starts_with(XZ_MAGIC) {
            let mut plain = Vec::new();
            lzma_rs::xz_decompress(&mut bytes.as_slice(), &mut plain)
                .map_err(|error| RecordingError::Xz { file: name(), reason: format!("{error:?}") })?;
            plain
        } else {
            bytes
        };
        serde_json::from_slice(&bytes).map_err(|source| RecordingError::Malformed { file: name(), source })
    }

    /// Reads the recordings of `story` from `folder`, which contains one folder per run. If `version` is given, for example
    /// `v1.36`, all recordings must be of this version.
    pub fn read_runs(folder: &Path, story: &str, version: Option<&str>) -> Result<Vec<Self>, RecordingError> {
        let failed = |source| RecordingError::File { file: folder.to_owned(), source };
        let mut runs: Vec<_> = fs::read_dir(folder)
            .map_err(failed)?
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .map_err(failed)?;
        runs.sort();
        let mut recordings = Vec::new();
        for run in runs {
            let names = [format!("{story}.json"), format!("{story}.json.xz")];
            let Some(file) = names.iter().map(|name| run.join(name)).find(|file| file.is_file()) else {
                continue;
            };
            let recording = Self::read(&file)?;
            let found = &recording.kubernetes;
            if let Some(version) = version
                && found != version
                && !found.starts_with(&format!("{version}."))
            {
                let found = found.clone();
                return Err(RecordingError::Version { file, found, wanted: version.to_owned() });
            }
            recordings.push(recording);
        }
        if recordings.is_empty() {
            return Err(RecordingError::Missing { folder: folder.to_owned(), story: story.to_owned() });
        }
        Ok(recordings)
    }

    /// Writes the recording to `folder/<story>.json`. Creates the folder if needed.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, RecordingError> {
        let file = folder.join(format!("{}.json", self.story));
        let failed = |source| RecordingError::File { file: file.clone(), source };
        fs::create_dir_all(folder).map_err(failed)?;
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        fs::write(&file, text).map_err(failed)?;
        Ok(file)
    }

    /// Number of writes, including events.
    pub fn len(&self) -> usize {
        let writes = |step: &StepWrites| step.writes.iter().map(|counted| counted.times).sum::<usize>();
        let events = |step: &StepWrites| step.events.iter().map(|counted| counted.times).sum::<usize>();
        self.steps.iter().map(|step| writes(step) + events(step)).sum()
    }

    /// `true` if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(verb: &str, resource: &str, name: &str, body: Value) -> Entry {
        Entry {
            verb: verb.to_owned(),
            resource: resource.to_owned(),
            namespace: "n".to_owned(),
            name: name.to_owned(),
            body: Some(body),
            code: 201,
            ..Entry::default()
        }
    }

    #[test]
    fn equal_consecutive_writes_are_counted() {
        let pod = || entry("create", "pods", "", json!({"kind": "Pod"}));
        let other = entry("delete", "pods", "rs-bcdfg", json!({}));
        let elsewhere = Entry { namespace: "other".to_owned(), ..pod() };
        let lease = entry("update", "leases", "l", json!({}));
        let watch = entry("watch", "pods", "", json!({}));
        let step = StepWrites::of("s", &[pod(), elsewhere, lease, pod(), watch, other, pod()], "n");
        let times: Vec<_> = step.writes.iter().map(|c| (c.what.write.as_str(), c.times)).collect();
        assert_eq!(times, [("create pods", 2), ("delete pods", 1), ("create pods", 1)]);
        assert_eq!(step.writes[1].what.name.as_deref(), Some("rs-<rand>"));
    }

    #[test]
    fn create_with_generated_name_equals_create_without_name() {
        let metadata = |metadata: Value| entry("create", "pods", "", json!({"metadata": metadata}));
        let named = |name: &str| Entry {
            name: name.to_owned(),
            ..metadata(json!({"generateName": "rs-", "name": name}))
        };
        let without = metadata(json!({"generateName": "rs-"}));
        let step = StepWrites::of("s", &[without, named("rs-bcdfg"), named("rs-other")], "n");
        let writes: Vec<_> = step.writes.iter().map(|c| (c.times, c.what.name.as_deref())).collect();
        assert_eq!(writes, [(2, None), (1, Some("rs-other"))]);
    }

    #[test]
    fn event_is_recorded() {
        let body = json!({"involvedObject": {"kind": "ReplicaSet", "name": "rs"}, "type": "Normal", "reason": "R",
            "message": "Created pod: rs-bcdfg", "count": 1, "source": {"component": "c"}});
        let again = entry("patch", "events", "e", json!({"count": 2}));
        let step = StepWrites::of("s", &[entry("create", "events", "", body), again], "n");
        let event = &step.events[0].what;
        assert_eq!(event.on.as_deref(), Some("ReplicaSet/rs"));
        assert_eq!(event.message.as_deref(), Some("Created pod: rs-<rand>"));
        assert!(step.events[1].what.again && step.events[1].what.count == Some(2));
    }

    #[test]
    fn recording_round_trips() {
        let folder = tempfile::tempdir().unwrap();
        let steps = vec![StepWrites::of("s", &[entry("create", "pods", "", json!({"kind": "Pod"}))], "n")];
        let recording = Recording { story: "r".to_owned(), kubernetes: "v1.36.2".to_owned(), steps };
        let file = recording.write(&folder.path().join("run-1")).unwrap();
        assert_eq!(Recording::read(&file).unwrap(), recording);
        assert_eq!(Recording::read_runs(folder.path(), "r", Some("v1.36")).unwrap(), [recording]);
    }

    #[test]
    fn recording_of_another_version_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let recording =
            Recording { story: "r".to_owned(), kubernetes: "v1.37.0".to_owned(), steps: Vec::new() };
        recording.write(&folder.path().join("run-1")).unwrap();
        let error = Recording::read_runs(folder.path(), "r", Some("v1.36")).unwrap_err().to_string();
        assert!(error.ends_with("r.json:1: recording of Kubernetes v1.37.0, expected v1.36"), "{error}");
    }

    #[test]
    fn malformed_or_missing_recording_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.json");
        fs::write(&file, "{\n\"story\": 1}").unwrap();
        assert!(Recording::read(&file).unwrap_err().to_string().contains("x.json:2: "));
        fs::write(&file, [XZ_MAGIC, b"invalid"].concat()).unwrap();
        assert!(Recording::read(&file).unwrap_err().to_string().starts_with("failed to decompress"));
        let missing = Recording::read_runs(folder.path(), "r", Some("v1.36")).unwrap_err().to_string();
        assert!(missing.ends_with("no recording of story \"r\""), "{missing}");
    }
}

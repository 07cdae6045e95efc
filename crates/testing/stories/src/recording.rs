//! What a manager wrote in a story, and the files that keep it.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use kcm_clock::is_generated_name;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use thiserror::Error;

use crate::{scrub::Scrub, trail::Entry};

/// What a manager wrote while a story was played, free from chance.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Recording {
    /// The story's name.
    pub story: String,
    /// The version of the API server that it was played on.
    pub kubernetes: String,
    /// What was written, by the labels that it was filed under.
    pub steps: Vec<StepWrites>,
}

/// What was written until the manager was quiet.
///
/// Events are kept apart: they are sent by a task of their own, and where they come in between the other writes
/// means nothing.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepWrites {
    /// The label.
    pub step: String,
    /// What was written but events, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub writes: Vec<Counted<Write>>,
    /// The events, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Counted<Event>>,
}

/// Something that was done several times in a row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Counted<T> {
    /// How often; not written down when it is once.
    #[serde(default = "once", skip_serializing_if = "is_once")]
    pub times: usize,
    /// What.
    #[serde(flatten)]
    pub what: T,
}

/// A write.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Write {
    /// Verb and resource, such as `update deployments/status`.
    pub write: String,
    /// The HTTP status of the answer.
    pub code: u16,
    /// The object's name, where the address has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

/// An event as an object of the API.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Event {
    /// The HTTP status of the answer.
    pub code: u16,
    /// Whether an event of before was counted up, which is all that is known then.
    #[serde(skip_serializing_if = "is_false")]
    pub again: bool,
    /// Kind and name of what it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on: Option<String>,
    /// `Normal` or `Warning`.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// How often it has happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<i64>,
    /// Who says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub component: Option<String>,
}

/// A file that holds no recording.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// It cannot be read or written.
    #[error("{}: {source}", file.display())]
    File {
        /// The file.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// It is no xz data.
    #[error("cannot decompress {}: {reason}", file.display())]
    Xz {
        /// The file.
        file: PathBuf,
        /// Why not.
        reason: String,
    },
    /// It is no recording.
    #[error("{}:{}: {source}", file.display(), source.line())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// It is of another version of Kubernetes.
    #[error("{}:1: this is a recording of Kubernetes {found}, not {wanted}", file.display())]
    Version {
        /// The file.
        file: PathBuf,
        /// What it says it is of.
        found: String,
        /// What it should be of.
        wanted: String,
    },
    /// There is none.
    #[error("{}: there is no recording of the story {story:?}", folder.display())]
    Missing {
        /// Where it was looked for.
        folder: PathBuf,
        /// Which.
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

/// What no controller means by what it does: reviews of its clients, leases of its process.
const ASIDE: [&str; 4] = ["leases", "subjectaccessreviews", "tokenreviews", "localsubjectaccessreviews"];

impl StepWrites {
    /// What `entries` say was written in `namespace`.
    pub fn of(label: &str, entries: &[Entry], namespace: &str) -> Self {
        let mut step = Self { step: label.to_owned(), ..Self::default() };
        let scrub = Scrub { namespace };
        for entry in entries {
            let elsewhere = !entry.namespace.is_empty() && entry.namespace != namespace;
            if !entry.is_write() || elsewhere || ASIDE.contains(&entry.resource.as_str()) {
                continue;
            }
            if entry.resource == "events" {
                count(&mut step.events, Event::of(entry, scrub));
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
/// It makes no difference who generates a name: a manager that leaves it to the API server sends none.
fn remove_generated_name(object: &mut Value) -> bool {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let (name, base) = (text("name"), text("generateName"));
    let is_generated = !base.is_empty() && is_generated_name(name, base);
    if is_generated && let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("name");
    }
    is_generated
}

impl Event {
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

/// What an xz stream starts with.
const XZ_MAGIC: &[u8] = b"\xfd7zXZ\0";

impl Recording {
    /// Reads a recording from its file, which may be xz-compressed.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or holds something else.
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

    /// Reads the recordings of `story` from a folder that holds one folder a run, in the order of their names. All
    /// must be of `version`, such as `v1.36`, if one is given.
    ///
    /// # Errors
    ///
    /// When there is none, or one cannot be read or is of another version.
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

    /// Writes the recording as a file named like its story into `folder`, which is made if it is missing.
    ///
    /// # Errors
    ///
    /// When that cannot be done.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, RecordingError> {
        let file = folder.join(format!("{}.json", self.story));
        let failed = |source| RecordingError::File { file: file.clone(), source };
        fs::create_dir_all(folder).map_err(failed)?;
        let mut text = serde_json::to_vec_pretty(self).map_err(|error| failed(error.into()))?;
        text.push(b'\n');
        fs::write(&file, text).map_err(failed)?;
        Ok(file)
    }

    /// How many writes there are, events among them.
    pub fn len(&self) -> usize {
        let writes = |step: &StepWrites| step.writes.iter().map(|counted| counted.times).sum::<usize>();
        let events = |step: &StepWrites| step.events.iter().map(|counted| counted.times).sum::<usize>();
        self.steps.iter().map(|step| writes(step) + events(step)).sum()
    }

    /// Whether nothing was written.
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
    fn writes_that_are_the_same_are_counted() {
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
    fn create_with_a_generated_name_is_the_same_as_one_without_a_name() {
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
    fn event_is_told_by_what_it_says() {
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
    fn recording_is_read_back_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let steps = vec![StepWrites::of("s", &[entry("create", "pods", "", json!({"kind": "Pod"}))], "n")];
        let recording = Recording { story: "r".to_owned(), kubernetes: "v1.36.2".to_owned(), steps };
        let file = recording.write(&folder.path().join("run-1")).unwrap();
        assert_eq!(Recording::read(&file).unwrap(), recording);
        assert_eq!(Recording::read_runs(folder.path(), "r", Some("v1.36")).unwrap(), [recording]);
    }

    #[test]
    fn recording_of_another_version_is_refused_with_its_file() {
        let folder = tempfile::tempdir().unwrap();
        let recording =
            Recording { story: "r".to_owned(), kubernetes: "v1.37.0".to_owned(), steps: Vec::new() };
        recording.write(&folder.path().join("run-1")).unwrap();
        let error = Recording::read_runs(folder.path(), "r", Some("v1.36")).unwrap_err().to_string();
        assert!(error.ends_with("r.json:1: this is a recording of Kubernetes v1.37.0, not v1.36"), "{error}");
    }

    #[test]
    fn recording_that_is_malformed_or_missing_is_refused_with_its_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x.json");
        fs::write(&file, "{\n\"story\": 1}").unwrap();
        assert!(Recording::read(&file).unwrap_err().to_string().contains("x.json:2: "));
        fs::write(&file, [XZ_MAGIC, b"rubbish"].concat()).unwrap();
        assert!(Recording::read(&file).unwrap_err().to_string().starts_with("cannot decompress"));
        let missing = Recording::read_runs(folder.path(), "r", Some("v1.36")).unwrap_err().to_string();
        assert!(missing.ends_with("there is no recording of the story \"r\""), "{missing}");
    }
}

//! Story files.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use kcm_apiserver::{Fault, FaultError, Faults};
use kcm_invariants::Exemption;
use serde::Deserialize;
use serde_saphyr::Spanned;
use thiserror::Error;

use crate::{seconds::seconds, step::Step};

/// Scripted sequence of API operations while a manager runs.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Story {
    /// Name of the story; must equal the file name.
    #[serde(rename = "story")]
    pub name: String,
    /// Description.
    pub about: String,
    /// Controllers that the manager runs.
    pub controllers: Vec<String>,
    /// Simulated nodes. Without nodes, steps report the status of pods.
    pub cluster: Option<SimulatedNodes>,
    /// Fault injection rules, see [`kcm_apiserver::Fault`].
    #[serde(default)]
    pub faults: Vec<Spanned<String>>,
    /// Invariants that this story violates on purpose, with reasons.
    #[serde(default)]
    pub exempt: Vec<Exemption>,
    /// Steps before the manager starts. Its first writes are recorded as "on start".
    #[serde(default)]
    pub before: Vec<Spanned<Step>>,
    /// Steps while the manager runs.
    pub steps: Vec<Spanned<Step>>,
    /// Path of the file.
    #[serde(skip)]
    pub file: PathBuf,
}

/// Simulated nodes and their delays.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SimulatedNodes {
    /// Number of nodes.
    pub nodes: usize,
    /// Time from binding to readiness of a pod, in seconds, with a jitter of 20%.
    #[serde(default = "half_a_second", deserialize_with = "seconds")]
    pub pod_ready_delay: Duration,
    /// Time from deletion to removal of a pod, in seconds.
    #[serde(default = "half_a_second", deserialize_with = "seconds")]
    pub pod_stop_delay: Duration,
}

const fn half_a_second() -> Duration {
    Duration::from_millis(500)
}

/// Error while reading a story.
#[derive(Debug, Error)]
pub enum StoryError {
    /// The file or folder cannot be read.
    #[error("failed to read {}: {source}", file.display())]
    Read {
        /// The file or folder.
        file: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The file is not a valid story.
    #[error("{}:{line}: {reason}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: u64,
        /// Cause.
        reason: String,
    },
}

impl Story {
    /// Reads a story from a file.
    pub fn read(file: &Path) -> Result<Self, StoryError> {
        let text =
            fs::read_to_string(file).map_err(|source| StoryError::Read { file: file.to_owned(), source })?;
        Self::parse(&text, file)
    }

    /// Parses a story. `file` is used in errors.
    ///
    /// # Errors
    ///
    /// See [`read`](Self::read).
    pub fn parse(text: &str, file: &Path) -> Result<Self, StoryError> {
        let malformed = |line, reason| StoryError::Malformed { file: file.to_owned(), line, reason };
        // YAML 1.2: `y` is a string.
        let options = serde_saphyr::options! { strict_booleans: true };
        let mut story: Self = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let line = error.location().map_or(1, |location| location.line());
            malformed(line, reason(&error))
        })?;
        if file.file_stem().is_some_and(|stem| stem != story.name.as_str()) {
            return Err(malformed(1, format!("story name {:?} differs from the file name", story.name)));
        }
        for fault in &story.faults {
            let parsed: Result<Fault, FaultError> = fault.value.parse();
            parsed.map_err(|error| malformed(fault.referenced.line(), error.to_string()))?;
        }
        story.file = file.to_owned();
        Ok(story)
    }

    /// Fault injection rules of the story.
    pub fn faults(&self) -> Faults {
        // Validated by `parse`.
        Faults::new(self.faults.iter().filter_map(|fault| fault.value.parse().ok()))
    }

    /// `true` if the story requires the in-process cluster.
    pub(crate) fn needs_simulation(&self) -> bool {
        self.cluster.is_some() || !self.faults.is_empty()
    }

    /// Reads all stories in a folder, sorted by name.
    ///
    /// # Errors
    ///
    /// See [`read`](Self::read). Returns the first error.
    pub fn read_all(folder: &Path) -> Result<Vec<Self>, StoryError> {
        let failed = |source| StoryError::Read { file: folder.to_owned(), source };
        let mut files = Vec::new();
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            if path.extension().is_some_and(|extension| extension == "yaml") {
                files.push(path);
            }
        }
        files.sort();
        files.iter().map(|file| Self::read(file)).collect()
    }
}

/// First line of the error, without the quoted text.
fn reason(error: &serde_saphyr::Error) -> String {
    let text = error.without_snippet().to_string();
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Story, String> {
        Story::parse(text, Path::new("test/stories/s.yaml")).map_err(|error| error.to_string())
    }

    const HEAD: &str = "story: s\nabout: Nothing happens.\ncontrollers: [deployment-controller]\n";

    #[test]
    fn all_steps_are_parsed() {
        let story = parse(&format!(
            "{HEAD}before:\n- wait: 1.5\nsteps:\n\
             - create: {{apiVersion: v1, kind: Pod, metadata: {{name: p}}}}\n\
             - patch: {{object: deployment/web, body: {{spec: {{paused: true}}}}}}\n\
             - scale: {{object: replicaset/rs, replicas: 3}}\n\
             - delete: {{object: 'pod#0', gracePeriodSeconds: 0}}\n\
             - replicaSetStatus: {{}}\n\
             - podStatus: {{}}\n\
             - bind: {{object: 'pod#1', node: n1}}\n\
             - repeat: {{times: 2, steps: [{{settle: 'round ${{round}}'}}]}}\n\
             - settle: {{label: end, quiet: 6, limit: 20}}\n\
             - setImage: {{object: deployment/web, image: 'app:2'}}\n\
             - undo: {{object: deployment/web, toRevision: 1}}\n\
             - pause: deployment/web\n\
             - resume: deployment/web\n\
             - evict: 'pod#0'\n\
             - drain: {{node: n1, limit: 20}}\n\
             - uncordon: n1\n\
             - loseNode: n1\n\
             - restartManager: {{}}\n\
             - until: {{object: deployment/web, complete: true, limit: 5}}\n\
             - expect: {{count: {{pod: 2}}}}\n\
             - attempt: [{{evict: 'pod#7'}}]\n"
        ))
        .unwrap();
        assert_eq!((story.before.len(), story.steps.len()), (1, 21));
    }

    #[test]
    fn cluster_faults_and_exemptions_are_parsed() {
        let story = parse(&format!(
            "{HEAD}cluster: {{nodes: 3, podReadyDelay: 2}}\nfaults: ['POST **/pods 500 every=3']\n\
             exempt: [{{invariant: surplus-pods, reason: because}}]\nsteps: []\n"
        ))
        .unwrap();
        let expected = SimulatedNodes {
            nodes: 3,
            pod_ready_delay: Duration::from_secs(2),
            pod_stop_delay: Duration::from_millis(500),
        };
        assert_eq!((story.cluster, story.exempt.len()), (Some(expected), 1));
    }

    #[test]
    fn invalid_fault_is_rejected_with_its_line() {
        let error = parse(&format!("{HEAD}faults:\n- POST **/pods 500\n- POST **/pods 42\nsteps: []\n"));
        let error = error.unwrap_err();
        assert!(error.starts_with("test/stories/s.yaml:6: ") && error.contains("42"), "{error}");
    }

    #[test]
    fn invalid_exemption_is_rejected_with_its_line() {
        for exemption in ["{invariant: gravity, reason: none}", "{invariant: silence}"] {
            let error = parse(&format!("{HEAD}exempt:\n- {exemption}\nsteps: []\n")).unwrap_err();
            assert!(error.starts_with("test/stories/s.yaml:5: "), "{error}");
        }
    }

    #[test]
    fn unknown_kind_is_rejected_with_its_line() {
        let error = parse(&format!("{HEAD}steps:\n- expect: {{count: {{podd: 1}}}}\n")).unwrap_err();
        assert!(error.starts_with("test/stories/s.yaml:5: ") && error.contains("podd"), "{error}");
    }

    #[test]
    fn unknown_step_is_rejected_with_its_line() {
        let error = parse(&format!("{HEAD}steps:\n- settle: a\n- explode: web\n")).unwrap_err();
        assert!(error.starts_with("test/stories/s.yaml:6: "), "{error}");
        assert!(error.contains("explode"), "{error}");
    }

    #[test]
    fn unknown_field_is_rejected_with_its_line() {
        let error =
            parse(&format!("{HEAD}steps:\n- delete:\n    object: pod/p\n    force: true\n")).unwrap_err();
        assert!(error.starts_with("test/stories/s.yaml:7: "), "{error}");
        assert!(error.contains("force"), "{error}");
    }

    #[test]
    fn invalid_target_is_rejected_with_its_line() {
        let error = parse(&format!("{HEAD}steps:\n- scale:\n    object: daemonset/d\n    replicas: 1\n"))
            .unwrap_err();
        assert!(error.starts_with("test/stories/s.yaml:6: "), "{error}");
        assert!(error.contains("daemonset"), "{error}");
    }

    #[test]
    fn invalid_yaml_is_rejected_with_its_line() {
        let error = parse(&format!("{HEAD}steps: [\n")).unwrap_err();
        assert!(error.starts_with("test/stories/s.yaml:"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn story_name_must_equal_the_file_name() {
        let error = parse("story: t\nabout: x\ncontrollers: []\nsteps: []\n").unwrap_err();
        assert_eq!(error, "test/stories/s.yaml:1: story name \"t\" differs from the file name");
    }
}

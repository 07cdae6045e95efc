//! A story as its file tells it.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use kcm_apiserver::{Fault, FaultError, Faults};
use serde::Deserialize;
use serde_saphyr::Spanned;
use thiserror::Error;

use crate::{
    invariants::Exemption,
    step::{Step, seconds},
};

/// What is done to a cluster, step by step, while a manager runs.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Story {
    /// Its name, which is also its file's.
    #[serde(rename = "story")]
    pub name: String,
    /// What it shows.
    pub about: String,
    /// Which controllers the manager runs.
    pub controllers: Vec<String>,
    /// The simulated nodes that run its pods. Without, the story plays the kubelet itself.
    pub cluster: Option<Cluster>,
    /// How the server harms requests, as [`kcm_apiserver::Fault`] has it.
    #[serde(default)]
    pub faults: Vec<Spanned<String>>,
    /// The invariants that do not hold in it, each with the reason.
    #[serde(default)]
    pub exempt: Vec<Exemption>,
    /// What happens before the manager starts. What it writes when it has started is filed as "on start".
    #[serde(default)]
    pub before: Vec<Spanned<Step>>,
    /// What happens while the manager runs.
    pub steps: Vec<Spanned<Step>>,
    /// Where it was read.
    #[serde(skip)]
    pub file: PathBuf,
}

/// Simulated nodes, and how fast they are.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Cluster {
    /// How many.
    pub nodes: usize,
    /// From a pod's being bound to its being ready, in seconds; up to a fifth more, as it happens.
    #[serde(default = "half_a_second", deserialize_with = "seconds")]
    pub pod_ready_delay: Duration,
    /// From a pod's being asked to stop to its being gone, in seconds.
    #[serde(default = "half_a_second", deserialize_with = "seconds")]
    pub pod_stop_delay: Duration,
}

const fn half_a_second() -> Duration {
    Duration::from_millis(500)
}

/// A story that cannot be told.
#[derive(Debug, Error)]
pub enum StoryError {
    /// The file or folder cannot be read.
    #[error("cannot read {}: {source}", file.display())]
    Read {
        /// Which one.
        file: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// The file tells no story.
    #[error("{}:{line}: {reason}", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What is wrong there.
        reason: String,
    },
}

impl Story {
    /// Reads a story from its file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, is no YAML, has a step that there is not, or is not named like its story.
    pub fn read(file: &Path) -> Result<Self, StoryError> {
        let text =
            fs::read_to_string(file).map_err(|source| StoryError::Read { file: file.to_owned(), source })?;
        Self::parse(&text, file)
    }

    /// The story that `text` tells; `file` is for errors.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub fn parse(text: &str, file: &Path) -> Result<Self, StoryError> {
        let malformed = |line, reason| StoryError::Malformed { file: file.to_owned(), line, reason };
        // A label may be `y`, as in YAML 1.2.
        let options = serde_saphyr::options! { strict_booleans: true };
        let mut story: Self = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
            let line = error.location().map_or(1, |location| location.line());
            malformed(line, reason(&error))
        })?;
        if file.file_stem().is_some_and(|stem| stem != story.name.as_str()) {
            return Err(malformed(1, format!("the story is named {:?}, unlike its file", story.name)));
        }
        for fault in &story.faults {
            let parsed: Result<Fault, FaultError> = fault.value.parse();
            parsed.map_err(|error| malformed(fault.referenced.line(), error.to_string()))?;
        }
        story.file = file.to_owned();
        Ok(story)
    }

    /// What the server is to do to requests.
    pub fn faults(&self) -> Faults {
        // They were parsed when the story was.
        Faults::new(self.faults.iter().filter_map(|fault| fault.value.parse().ok()))
    }

    /// Whether it can be told only where time and the server are ours.
    pub(crate) fn needs_simulation(&self) -> bool {
        self.cluster.is_some() || !self.faults.is_empty()
    }

    /// Reads all stories in a folder, in the order of their names.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), for the first that fails.
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

/// The error without the piece of text that it quotes: the line is told apart.
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
    fn story_of_all_kinds_of_steps_is_understood() {
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
    fn story_of_a_cluster_with_faults_and_exemptions_is_understood() {
        let story = parse(&format!(
            "{HEAD}cluster: {{nodes: 3, podReadyDelay: 2}}\nfaults: ['POST **/pods 500 every=3']\n\
             exempt: [{{invariant: surplus-pods, reason: because}}]\nsteps: []\n"
        ))
        .unwrap();
        let expected = Cluster {
            nodes: 3,
            pod_ready_delay: Duration::from_secs(2),
            pod_stop_delay: Duration::from_millis(500),
        };
        assert_eq!((story.cluster, story.exempt.len()), (Some(expected), 1));
    }

    #[test]
    fn story_with_a_fault_that_makes_no_sense_is_refused_with_file_and_line() {
        let error = parse(&format!("{HEAD}faults:\n- POST **/pods 500\n- POST **/pods 42\nsteps: []\n"));
        let error = error.unwrap_err();
        assert!(error.starts_with("test/stories/s.yaml:6: ") && error.contains("42"), "{error}");
    }

    #[test]
    fn story_exempt_from_an_unknown_invariant_or_without_a_reason_is_refused_with_file_and_line() {
        for exemption in ["{invariant: gravity, reason: none}", "{invariant: silence}"] {
            let error = parse(&format!("{HEAD}exempt:\n- {exemption}\nsteps: []\n")).unwrap_err();
            assert!(error.starts_with("test/stories/s.yaml:5: "), "{error}");
        }
    }

    #[test]
    fn story_with_a_kind_that_cannot_be_counted_is_refused_with_file_and_line() {
        let error = parse(&format!("{HEAD}steps:\n- expect: {{count: {{podd: 1}}}}\n")).unwrap_err();
        assert!(error.starts_with("test/stories/s.yaml:5: ") && error.contains("podd"), "{error}");
    }

    #[test]
    fn story_with_an_unknown_step_is_refused_with_file_and_line() {
        let error = parse(&format!("{HEAD}steps:\n- settle: a\n- explode: web\n")).unwrap_err();
        assert!(error.starts_with("test/stories/s.yaml:6: "), "{error}");
        assert!(error.contains("explode"), "{error}");
    }

    #[test]
    fn story_with_an_unknown_field_in_a_step_is_refused_with_file_and_line() {
        let error =
            parse(&format!("{HEAD}steps:\n- delete:\n    object: pod/p\n    force: true\n")).unwrap_err();
        assert!(error.starts_with("test/stories/s.yaml:7: "), "{error}");
        assert!(error.contains("force"), "{error}");
    }

    #[test]
    fn story_with_an_unusable_target_is_refused_with_file_and_line() {
        let error = parse(&format!("{HEAD}steps:\n- scale:\n    object: daemonset/d\n    replicas: 1\n"))
            .unwrap_err();
        assert!(error.starts_with("test/stories/s.yaml:6: "), "{error}");
        assert!(error.contains("daemonset"), "{error}");
    }

    #[test]
    fn story_that_is_no_yaml_is_refused_with_file_and_line() {
        let error = parse(&format!("{HEAD}steps: [\n")).unwrap_err();
        assert!(error.starts_with("test/stories/s.yaml:"), "{error}");
        assert!(!error.contains('\n'), "{error}");
    }

    #[test]
    fn story_unlike_its_file_is_refused() {
        let error = parse("story: t\nabout: x\ncontrollers: []\nsteps: []\n").unwrap_err();
        assert_eq!(error, "test/stories/s.yaml:1: the story is named \"t\", unlike its file");
    }
}

//! Recording of stories with any manager on any API server.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use kcm_stories::{
    ClusterError, PlayError, Recording, RecordingError, Story, StoryError, closest_difference,
    external::{self, ExternalConfig, ServerProgram},
    play,
};
use regex::Regex;
use thiserror::Error;

/// Flags of the task.
#[derive(Debug)]
pub struct Task {
    manager: Option<String>,
    server: Option<String>,
    plain_http: bool,
    stories: PathBuf,
    only: Option<String>,
    against: Option<PathBuf>,
    folder: Option<PathBuf>,
    out: PathBuf,
}

/// Error of the task.
#[derive(Debug, Error)]
pub enum TaskError {
    /// No manager is given.
    #[error("no manager: set --manager or KUBE_CONTROLLER_MANAGER")]
    NoManager,
    /// No API server is given.
    #[error("no API server: set --server, or KUBEBUILDER_ASSETS to a directory with etcd and kube-apiserver")]
    NoServer,
    /// `--only` is not a valid regular expression.
    #[error("invalid --only: {0}")]
    Only(#[from] regex::Error),
    /// No story is selected.
    #[error("no matching story in {}", .0.display())]
    NoStory(PathBuf),
    /// A directory cannot be created.
    #[error("failed to create a directory: {0}")]
    Folder(io::Error),
    /// The async runtime cannot be started.
    #[error("failed to start the async runtime: {0}")]
    Runtime(io::Error),
    /// A story cannot be read.
    #[error(transparent)]
    Story(#[from] StoryError),
    /// A recording cannot be read or written.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The API server cannot be started.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Stories failed or differ. Details have been printed.
    #[error("{failed} of {all} stories failed, {different} differ")]
    NotAll {
        /// Number of stories that failed.
        failed: usize,
        /// Number of stories that differ from the recordings.
        different: usize,
        /// Number of stories.
        all: usize,
    },
}

/// Flags that upstream was recorded with: one worker, high rate limits, no leader election.
const FLAGS: &str = "--kubeconfig={kubeconfig} --authentication-kubeconfig={kubeconfig} \
    --authorization-kubeconfig={kubeconfig} --controllers={controllers} --secure-port={port} \
    --bind-address=127.0.0.1 --cert-dir={dir}/manager-certs --leader-elect=false --kube-api-qps=1000 \
    --kube-api-burst=1000 --concurrent-deployment-syncs=1 --concurrent-replicaset-syncs=1";

impl Task {
    /// Parses the arguments of `record`. Returns `None` if they are invalid.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let mut task = Self {
            manager: None,
            server: None,
            plain_http: false,
            stories: Path::new(env!("CARGO_MANIFEST_DIR")).join("../stories"),
            only: None,
            against: None,
            folder: None,
            out: PathBuf::new(),
        };
        let mut words = words.iter().copied();
        while let Some(word) = words.next() {
            match word {
                "--http" => task.plain_http = true,
                "--manager" => task.manager = Some(words.next()?.to_owned()),
                "--server" => task.server = Some(words.next()?.to_owned()),
                "--stories" => task.stories = words.next()?.into(),
                "--only" => task.only = Some(words.next()?.to_owned()),
                "--against" => task.against = Some(words.next()?.into()),
                "--dir" => task.folder = Some(words.next()?.into()),
                "--out" => task.out = words.next()?.into(),
                _ => return None,
            }
        }
        (!task.out.as_os_str().is_empty()).then_some(task)
    }

    /// Plays and records the stories, prints the results, and compares with recorded runs if requested.
    pub fn run(&self) -> Result<(), TaskError> {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .map_err(TaskError::Runtime)?;
        runtime.block_on(self.record())
    }

    async fn record(&self) -> Result<(), TaskError> {
        let only = self.only.as_deref().map(Regex::new).transpose()?;
        let mut stories = Story::read_all(&self.stories)?;
        stories.retain(|story| only.as_ref().is_none_or(|only| only.is_match(&story.name)));
        if stories.is_empty() {
            return Err(TaskError::NoStory(self.stories.clone()));
        }
        // The directory given by --dir is kept.
        let temporary = tempfile::tempdir().map_err(TaskError::Folder)?;
        let folder = self.folder.clone().unwrap_or_else(|| temporary.path().to_owned());
        std::fs::create_dir_all(&folder).map_err(TaskError::Folder)?;
        let (manager, server) = (self.manager()?, self.server()?);
        let mut external = external::start(ExternalConfig { server, manager, folder }).await?;

        let (mut failed, mut different) = (0, 0);
        for (at, story) in stories.iter().enumerate() {
            // A unique string, so that it can be replaced in the recorded writes.
            let namespace = format!("t{at}x");
            match play(story, &mut external.cluster, &namespace).await {
                Ok(recording) => {
                    recording.write(&self.out)?;
                    let difference = self.compare(&recording)?;
                    different += usize::from(difference.is_some());
                    println!("{}: {} writes", story.name, recording.len());
                    if let Some(difference) = difference {
                        println!("{} differs:\n{difference}", story.name);
                    }
                }
                Err(error) => {
                    failed += 1;
                    println!("{}: {error}", story.name);
                    // If the manager does not start for one story, it does not start for the others.
                    if let PlayError::Cluster { .. } = error {
                        break;
                    }
                }
            }
        }
        if failed + different > 0 {
            return Err(TaskError::NotAll { failed, different, all: stories.len() });
        }
        Ok(())
    }

    fn compare(&self, ours: &Recording) -> Result<Option<kcm_stories::Difference>, TaskError> {
        let Some(folder) = &self.against else { return Ok(None) };
        // The version is not checked: the caller selects the recordings.
        let runs = Recording::read_runs(folder, &ours.story, None)?;
        Ok(closest_difference(&runs, ours))
    }

    fn manager(&self) -> Result<String, TaskError> {
        if let Some(command) = &self.manager {
            return Ok(command.clone());
        }
        let program = env::var("KUBE_CONTROLLER_MANAGER").map_err(|_| TaskError::NoManager)?;
        Ok(format!("'{program}' {FLAGS}"))
    }

    fn server(&self) -> Result<ServerProgram, TaskError> {
        match self.server.as_deref() {
            Some("embedded") => Ok(ServerProgram::Embedded),
            Some(command) => {
                Ok(ServerProgram::Command { command: command.to_owned(), tls: !self.plain_http })
            }
            None => match env::var_os("KUBEBUILDER_ASSETS") {
                Some(folder) => Ok(ServerProgram::Kubebuilder(folder.into())),
                None => Err(TaskError::NoServer),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parse_requires_out() {
        assert!(Task::parse(&["--server", "embedded"]).is_none());
        assert!(Task::parse(&["--out"]).is_none());
        assert!(Task::parse(&["--out", "x", "--what"]).is_none());
    }

    #[test]
    fn parse_selects_the_server() {
        let server = |words: &[&str]| Task::parse(words).unwrap().server().unwrap();
        assert_eq!(server(&["--out", "x", "--server", "embedded"]), ServerProgram::Embedded);
        let expected = ServerProgram::Command { command: "serve {port}".to_owned(), tls: false };
        assert_eq!(server(&["--http", "--server", "serve {port}", "--out", "x"]), expected);
    }

    #[test]
    fn manager_that_does_not_start_fails_the_recording() {
        let out = tempfile::tempdir().unwrap();
        let folder = out.path().display().to_string();
        let words = ["--out", &folder, "--server", "embedded", "--only", "^r0[13]", "--manager", "exit 3"];
        let error = Task::parse(&words).unwrap().run().unwrap_err();
        // The second story is not played.
        assert_eq!(error.to_string(), "1 of 2 stories failed, 0 differ");
    }

    #[test]
    fn pattern_without_matches_is_rejected() {
        let task = Task::parse(&["--out", "x", "--only", "^nothing$"]).unwrap();
        assert!(matches!(task.run(), Err(TaskError::NoStory(_))));
    }
}

//! Recording the stories from any manager on any API server.

use std::{
    env, io,
    path::{Path, PathBuf},
};

use kcm_stories::{
    PlayError, Recording, RecordingError, Story, StoryError, WorldError, closest_difference,
    external::{self, ExternalConfig, ServerProgram},
    play,
};
use regex::Regex;
use thiserror::Error;

/// What to record, with what, and where to.
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

/// Why nothing, or not all, was recorded.
#[derive(Debug, Error)]
pub enum TaskError {
    /// There is nothing to record.
    #[error("give --manager COMMAND, or the program in the environment variable KUBE_CONTROLLER_MANAGER")]
    NoManager,
    /// There is nothing to record it on.
    #[error(
        "give --server COMMAND or --server embedded, or in KUBEBUILDER_ASSETS a folder with etcd and kube-apiserver"
    )]
    NoServer,
    /// `--only` is no pattern.
    #[error("--only: {0}")]
    Only(#[from] regex::Error),
    /// No story is left.
    #[error("no story in {} is meant", .0.display())]
    NoStory(PathBuf),
    /// There is no place for files.
    #[error("cannot make a folder for the programs' files: {0}")]
    Folder(io::Error),
    /// There is no runtime.
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    /// A story cannot be read.
    #[error(transparent)]
    Story(#[from] StoryError),
    /// A recording cannot be read or written.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// The server does not work.
    #[error(transparent)]
    World(#[from] WorldError),
    /// Not all went well; what did not has been told.
    #[error("{failed} of {all} stories broke off, {different} differ")]
    NotAll {
        /// How many could not be played.
        failed: usize,
        /// How many do not equal what they were compared with.
        different: usize,
        /// How many there are.
        all: usize,
    },
}

/// How upstream was recorded: one worker, no rate to speak of, no election.
const FLAGS: &str = "--kubeconfig={kubeconfig} --authentication-kubeconfig={kubeconfig} \
    --authorization-kubeconfig={kubeconfig} --controllers={controllers} --secure-port={port} \
    --bind-address=127.0.0.1 --cert-dir={dir}/manager-certs --leader-elect=false --kube-api-qps=1000 \
    --kube-api-burst=1000 --concurrent-deployment-syncs=1 --concurrent-replicaset-syncs=1";

impl Task {
    /// What the words after `record` mean; `None` if that is nothing.
    pub fn parse(words: &[&str]) -> Option<Self> {
        let mut task = Self {
            manager: None,
            server: None,
            plain_http: false,
            stories: Path::new(env!("CARGO_MANIFEST_DIR")).join("../../test/stories"),
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

    /// Records, tells of each story, and compares where there is something to compare with.
    ///
    /// # Errors
    ///
    /// When something needed is missing or does not work, or a story cannot be played or differs.
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
        // Kept when --dir names one, to be looked at.
        let temporary = tempfile::tempdir().map_err(TaskError::Folder)?;
        let folder = self.folder.clone().unwrap_or_else(|| temporary.path().to_owned());
        std::fs::create_dir_all(&folder).map_err(TaskError::Folder)?;
        let (manager, server) = (self.manager()?, self.server()?);
        let mut external = external::start(ExternalConfig { server, manager, folder }).await?;

        let (mut failed, mut different) = (0, 0);
        for (at, story) in stories.iter().enumerate() {
            // A name that occurs in no other text, to be found again in what is written.
            let namespace = format!("t{at}x");
            match play(story, &mut external.world, &namespace).await {
                Ok(recording) => {
                    recording.write(&self.out)?;
                    let verdict = self.compare(&recording)?;
                    different += usize::from(verdict.is_some());
                    println!("{}: {} writes", story.name, recording.len());
                    if let Some(difference) = verdict {
                        println!("{} differs:\n{difference}", story.name);
                    }
                }
                Err(error) => {
                    failed += 1;
                    println!("{}: {error}", story.name);
                    // A manager that does not come up for one story does not for the next.
                    if let PlayError::World { .. } = error {
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
        // The recordings may be of any version: whoever compares has chosen them.
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
    fn words_without_a_place_for_the_result_mean_nothing() {
        assert!(Task::parse(&["--server", "embedded"]).is_none());
        assert!(Task::parse(&["--out"]).is_none());
        assert!(Task::parse(&["--out", "x", "--what"]).is_none());
    }

    #[test]
    fn words_say_where_the_server_comes_from() {
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
        // The next would not start either, and is not tried.
        assert_eq!(error.to_string(), "1 of 2 stories broke off, 0 differ");
    }

    #[test]
    fn pattern_that_means_no_story_is_refused() {
        let task = Task::parse(&["--out", "x", "--only", "^nothing$"]).unwrap();
        assert!(matches!(task.run(), Err(TaskError::NoStory(_))));
    }
}

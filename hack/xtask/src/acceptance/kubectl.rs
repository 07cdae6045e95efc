//! Running `kubectl`: which versions there are, in which surroundings they run, and what must come of it.

use std::{
    env, fmt, fs,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use kcm_clock::{Clock, RealClock};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    process::{Child, Command},
    sync::mpsc,
};

use super::{failure::Failure, pattern};

/// After this a command is taken to hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// An installed `kubectl`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// The minor version, where the file's name tells it.
    pub minor: Option<u32>,
    /// The program.
    pub program: PathBuf,
    /// The program that picks a version by the server's, if this one was found beside such.
    pub dispatcher: Option<PathBuf>,
}

impl Version {
    /// All that are installed, oldest first: those named `kubectl.1.NN` beside the `kubectl` in the path, without
    /// those older than 1.28, which this server does not support by design; or else the one `kubectl`.
    pub fn installed() -> Vec<Self> {
        let path = env::var_os("PATH").unwrap_or_default();
        let Some(kubectl) =
            env::split_paths(&path).map(|folder| folder.join("kubectl")).find(|file| file.is_file())
        else {
            return Vec::new();
        };
        let real = fs::canonicalize(&kubectl).unwrap_or_else(|_| kubectl.clone());
        let mut found = Vec::new();
        for entry in
            real.parent().and_then(|folder| fs::read_dir(folder).ok()).into_iter().flatten().flatten()
        {
            let name = entry.file_name();
            let minor =
                name.to_str().and_then(|name| name.strip_prefix("kubectl.1.")).and_then(|n| n.parse().ok());
            if let Some(minor) = minor.filter(|minor| *minor >= 28) {
                found.push(Self {
                    minor: Some(minor),
                    program: entry.path(),
                    dispatcher: Some(kubectl.clone()),
                });
            }
        }
        found.sort_by_key(|version| version.minor);
        if found.is_empty() {
            found.push(Self { minor: None, program: kubectl, dispatcher: None });
        }
        found
    }

    /// Whether it is at least this minor version; one that does not tell is taken to be new.
    pub fn is_at_least(&self, minor: u32) -> bool {
        self.minor.is_none_or(|own| own >= minor)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.minor {
            Some(minor) => write!(f, "1.{minor}"),
            None => f.write_str("kubectl"),
        }
    }
}

/// Surroundings to run commands in.
#[derive(Debug, Clone)]
pub(super) struct Kubectl {
    pub(super) version: Version,
    /// None for a `kubectl` that nobody told where to go.
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) home: PathBuf,
    /// Where files of a command line are.
    pub(super) folder: PathBuf,
    /// None for the one that `kubectl` picks by itself.
    pub(super) namespace: Option<String>,
    pub(super) environment: Vec<(String, String)>,
}

impl Kubectl {
    fn command(&self, program: &Path, line: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.home)
            .env("TMPDIR", &self.folder)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        if let Some(kubeconfig) = &self.kubeconfig {
            command.env("KUBECONFIG", kubeconfig);
        }
        command.arg("--cache-dir").arg(self.home.join("cache"));
        if let Some(namespace) = &self.namespace {
            command.args(["--namespace", namespace]);
        }
        command.args(words(line));
        command
    }

    /// Runs a command line to its end. Words are split at blanks, but not within `'…'`.
    pub(super) async fn run(&self, line: &str) -> Result<Ended, Failure> {
        self.run_program(&self.version.program.clone(), line).await
    }

    pub(super) async fn run_program(&self, program: &Path, line: &str) -> Result<Ended, Failure> {
        let cannot = |error| Failure::new(format!("`kubectl {line}`: {error}"));
        let child = self.command(program, line).spawn().map_err(cannot)?;
        let output = tokio::select! {
            output = child.wait_with_output() => output.map_err(cannot)?,
            () = RealClock::new().sleep(PATIENCE) => {
                return Err(Failure::new(format!("`kubectl {line}` has not ended after {} s", PATIENCE.as_secs())));
            }
        };
        Ok(Ended {
            line: line.to_owned(),
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Starts a command line that goes on until it is interrupted.
    pub(super) fn start(&self, line: &str) -> Result<Running, Failure> {
        let cannot = |error| Failure::new(format!("`kubectl {line}`: {error}"));
        let mut child = self.command(&self.version.program, line).spawn().map_err(cannot)?;
        let (sender, lines) = mpsc::unbounded_channel();
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(async move {
                let mut stdout = BufReader::new(stdout).lines();
                while let Ok(Some(line)) = stdout.next_line().await {
                    // Nobody who listens is nobody who misses it.
                    let _ = sender.send(line);
                }
            });
        }
        Ok(Running { line: line.to_owned(), child, lines, seen: Vec::new() })
    }
}

/// A command that runs.
#[derive(Debug)]
pub(super) struct Running {
    line: String,
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
    seen: Vec<String>,
}

impl Running {
    /// Waits until it has printed a line that matches.
    pub(super) async fn until(&mut self, pattern: &str) -> Result<(), Failure> {
        let clock = RealClock::new();
        let patience = clock.sleep(PATIENCE);
        tokio::pin!(patience);
        loop {
            let line = tokio::select! {
                line = self.lines.recv() => line,
                () = &mut patience => None,
            };
            let Some(line) = line else {
                let message = format!(
                    "`kubectl {}` never printed `{pattern}`, but:\n{}",
                    self.line,
                    self.seen.join("\n")
                );
                return Err(Failure::new(message));
            };
            let found = pattern::matches(pattern, &line);
            self.seen.push(line);
            if found {
                return Ok(());
            }
        }
    }

    /// Presses Ctrl-C and gives all that was printed.
    pub(super) async fn interrupt(mut self) -> Result<Ended, Failure> {
        if let Some(id) = self.child.id() {
            Command::new("kill").args(["-INT", &id.to_string()]).status().await?;
        }
        let status = self.child.wait().await?;
        while let Some(line) = self.lines.recv().await {
            self.seen.push(line);
        }
        let mut stderr = String::new();
        if let Some(mut pipe) = self.child.stderr.take() {
            pipe.read_to_string(&mut stderr).await?;
        }
        Ok(Ended { line: self.line, code: status.code(), stdout: self.seen.join("\n"), stderr })
    }
}

/// What came of a command.
#[derive(Debug, Clone)]
pub(super) struct Ended {
    pub(super) line: String,
    /// None if it was ended by a signal.
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl Ended {
    /// It went well and printed these lines, among others.
    pub(super) fn prints(&self, patterns: &str) -> Result<&Self, Failure> {
        self.exits(0)?;
        match pattern::missing(patterns, &self.stdout) {
            None => Ok(self),
            Some(pattern) => Err(self.but(&format!("does not print `{pattern}`"))),
        }
    }

    /// It went well and printed these lines and no others.
    pub(super) fn prints_exactly(&self, patterns: &str) -> Result<&Self, Failure> {
        self.exits(0)?;
        if pattern::is_exactly(patterns, &self.stdout) {
            return Ok(self);
        }
        Err(self.but(&format!("does not print just `{}`", patterns.trim())))
    }

    /// It failed with these lines among its errors.
    pub(super) fn fails(&self, patterns: &str) -> Result<&Self, Failure> {
        self.exits(1)?.warns(patterns)
    }

    /// These lines are among its errors or warnings.
    pub(super) fn warns(&self, patterns: &str) -> Result<&Self, Failure> {
        match pattern::missing(patterns, &self.stderr) {
            None => Ok(self),
            Some(pattern) => Err(self.but(&format!("does not say `{pattern}`"))),
        }
    }

    /// It says nothing beside its output.
    pub(super) fn is_quiet(&self) -> Result<&Self, Failure> {
        if self.stderr.trim().is_empty() { Ok(self) } else { Err(self.but("is not quiet")) }
    }

    pub(super) fn exits(&self, code: i32) -> Result<&Self, Failure> {
        if self.code == Some(code) { Ok(self) } else { Err(self.but(&format!("does not exit {code}"))) }
    }

    /// None of its lines has `text` in it.
    pub(super) fn lacks(&self, text: &str) -> Result<&Self, Failure> {
        if self.stdout.contains(text) { Err(self.but(&format!("prints {text:?}"))) } else { Ok(self) }
    }

    /// The lines of its output.
    pub(super) fn lines(&self) -> Vec<&str> {
        self.stdout.lines().filter(|line| !line.trim().is_empty()).collect()
    }

    /// The requests it made, as `GET /path?query`; it must have been run with `-v=6`.
    pub(super) fn requests(&self) -> Vec<String> {
        self.stderr.lines().filter_map(request).collect()
    }

    /// A failure that shows what happened.
    pub(super) fn but(&self, what: &str) -> Failure {
        let code = self.code.map_or_else(|| "a signal".to_owned(), |code| code.to_string());
        Failure::new(format!(
            "`kubectl {}` {what}\n  exit: {code}\n  stdout: {}\n  stderr: {}",
            self.line,
            indented(&self.stdout),
            indented(&self.stderr)
        ))
    }
}

fn indented(text: &str) -> String {
    const ENOUGH: usize = 4000;
    let text: String = text.trim_end().chars().take(ENOUGH).collect();
    text.replace('\n', "\n    ")
}

/// A request from a line of the log, in the form of before 1.33 or in the structured one.
fn request(line: &str) -> Option<String> {
    let quoted =
        |name: &str| line.split(&format!(" {name}=\"")).nth(1).and_then(|rest| rest.split('"').next());
    let (method, url) = if let (Some(verb), Some(url)) = (quoted("verb"), quoted("url")) {
        (verb, url)
    } else {
        let mut words = line.split("] ").nth(1)?.split(' ');
        (words.next()?, words.next()?)
    };
    let path = url.split_once("://")?.1.split_once('/')?.1;
    ["GET", "POST", "PUT", "PATCH", "DELETE"].contains(&method).then(|| format!("{method} /{path}"))
}

/// Splits at blanks, but not within `'…'`.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quoted = false;
    for character in line.chars() {
        match character {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            ' ' | '\n' if !quoted => words.extend(word.take()),
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_at_blanks_but_not_within_quotes() {
        assert_eq!(words("get  pods -l 'app notin (web)'"), ["get", "pods", "-l", "app notin (web)"]);
        assert_eq!(words("label x a='b c' ''"), ["label", "x", "a=b c", ""]);
    }

    #[test]
    fn requests_are_read_from_both_forms_of_the_log() {
        let ended = |stderr: &str| Ended {
            line: String::new(),
            code: Some(0),
            stdout: String::new(),
            stderr: stderr.into(),
        };
        let old = "I1 1 2 round_trippers.go:553] GET http://127.0.0.1:1/api/v1/pods?limit=1 200 OK in 1 milliseconds";
        let new =
            r#"I1 1 2 round_trippers.go:632] "Response" verb="PATCH" url="https://h:1/apis" status="200 OK""#;
        let other = "I1 1 2 loader.go:395] Config loaded from file:  /x";
        assert_eq!(
            ended(&[old, new, other].join("\n")).requests(),
            ["GET /api/v1/pods?limit=1", "PATCH /apis"]
        );
    }
}

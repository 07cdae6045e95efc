//! `kubectl` commands: installed versions, environment, and expected output.

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

/// Timeout of a command.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Installed `kubectl`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// Minor version, if the file name contains it.
    pub minor: Option<u32>,
    /// Path of the program.
    pub program: PathBuf,
    /// Path of the program that selects a version by the version of the server, if installed.
    pub dispatcher: Option<PathBuf>,
}

impl Version {
    /// Returns the installed versions, oldest first: files named `kubectl.1.NN` (1.28 or newer) next to the `kubectl` in
    /// the path, or else this `kubectl`.
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

    /// `true` if the minor version is at least `minor` or unknown.
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

/// Environment of `kubectl` commands.
#[derive(Debug, Clone)]
pub(super) struct Kubectl {
    pub(super) version: Version,
    /// `None` to run without a kubeconfig.
    pub(super) kubeconfig: Option<PathBuf>,
    pub(super) home: PathBuf,
    /// Working directory.
    pub(super) folder: PathBuf,
    /// `None` for the default namespace.
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

    /// Runs a command line. Words are split at spaces outside of `'…'`.
    pub(super) async fn run(&self, line: &str) -> Result<CommandOutput, Failure> {
        self.run_program(&self.version.program.clone(), line).await
    }

    pub(super) async fn run_program(&self, program: &Path, line: &str) -> Result<CommandOutput, Failure> {
        let cannot = |error| Failure::new(format!("`kubectl {line}`: {error}"));
        let child = self.command(program, line).spawn().map_err(cannot)?;
        let output = tokio::select! {
            output = child.wait_with_output() => output.map_err(cannot)?,
            () = RealClock::new().sleep(TIMEOUT) => {
                return Err(Failure::new(format!("`kubectl {line}` timed out after {}s", TIMEOUT.as_secs())));
            }
        };
        Ok(CommandOutput {
            line: line.to_owned(),
            code: output.status.code(),
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// Starts a command line that runs until it is interrupted.
    pub(super) fn start(&self, line: &str) -> Result<Running, Failure> {
        let cannot = |error| Failure::new(format!("`kubectl {line}`: {error}"));
        let mut child = self.command(&self.version.program, line).spawn().map_err(cannot)?;
        let (sender, lines) = mpsc::unbounded_channel();
        if let Some(stdout) = child.stdout.take() {
            tokio::spawn(async move {
                let mut stdout = BufReader::new(stdout).lines();
                while let Ok(Some(line)) = stdout.next_line().await {
                    // Ignored if the receiver was dropped.
                    let _ = sender.send(line);
                }
            });
        }
        Ok(Running { line: line.to_owned(), child, lines, seen: Vec::new() })
    }
}

/// Running command.
#[derive(Debug)]
pub(super) struct Running {
    line: String,
    child: Child,
    lines: mpsc::UnboundedReceiver<String>,
    seen: Vec<String>,
}

impl Running {
    /// Waits for a line that matches.
    pub(super) async fn until(&mut self, pattern: &str) -> Result<(), Failure> {
        let clock = RealClock::new();
        let timeout = clock.sleep(TIMEOUT);
        tokio::pin!(timeout);
        loop {
            let line = tokio::select! {
                line = self.lines.recv() => line,
                () = &mut timeout => None,
            };
            let Some(line) = line else {
                let message = format!(
                    "`kubectl {}` did not print `{pattern}`. Output:\n{}",
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

    /// Sends SIGINT. Returns the output.
    pub(super) async fn interrupt(mut self) -> Result<CommandOutput, Failure> {
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
        Ok(CommandOutput { line: self.line, code: status.code(), stdout: self.seen.join("\n"), stderr })
    }
}

/// Result of a command.
#[derive(Debug, Clone)]
pub(super) struct CommandOutput {
    pub(super) line: String,
    /// `None` if the command was killed by a signal.
    pub(super) code: Option<i32>,
    pub(super) stdout: String,
    pub(super) stderr: String,
}

impl CommandOutput {
    /// Checks that the command succeeded and that these lines are part of stdout.
    pub(super) fn prints(&self, patterns: &str) -> Result<&Self, Failure> {
        self.exits(0)?;
        match pattern::missing(patterns, &self.stdout) {
            None => Ok(self),
            Some(pattern) => Err(self.failure(&format!("does not print `{pattern}`"))),
        }
    }

    /// Checks that the command succeeded and that stdout consists of these lines.
    pub(super) fn prints_exactly(&self, patterns: &str) -> Result<&Self, Failure> {
        self.exits(0)?;
        if pattern::is_exactly(patterns, &self.stdout) {
            return Ok(self);
        }
        Err(self.failure(&format!("does not print exactly `{}`", patterns.trim())))
    }

    /// Checks that the command failed and that these lines are part of stderr.
    pub(super) fn fails(&self, patterns: &str) -> Result<&Self, Failure> {
        self.exits(1)?.warns(patterns)
    }

    /// Checks that these lines are part of stderr.
    pub(super) fn warns(&self, patterns: &str) -> Result<&Self, Failure> {
        match pattern::missing(patterns, &self.stderr) {
            None => Ok(self),
            Some(pattern) => Err(self.failure(&format!("does not print `{pattern}` to stderr"))),
        }
    }

    /// Checks that stderr is empty.
    pub(super) fn has_empty_stderr(&self) -> Result<&Self, Failure> {
        if self.stderr.trim().is_empty() { Ok(self) } else { Err(self.failure("prints to stderr")) }
    }

    pub(super) fn exits(&self, code: i32) -> Result<&Self, Failure> {
        if self.code == Some(code) { Ok(self) } else { Err(self.failure(&format!("does not exit {code}"))) }
    }

    /// Checks that stdout does not contain `text`.
    pub(super) fn lacks(&self, text: &str) -> Result<&Self, Failure> {
        if self.stdout.contains(text) { Err(self.failure(&format!("prints {text:?}"))) } else { Ok(self) }
    }

    /// Non-empty lines of stdout.
    pub(super) fn lines(&self) -> Vec<&str> {
        self.stdout.lines().filter(|line| !line.trim().is_empty()).collect()
    }

    /// Requests in the log, as `GET /path?query`. Requires `-v=6`.
    pub(super) fn requests(&self) -> Vec<String> {
        self.stderr.lines().filter_map(request).collect()
    }

    /// Returns a failure with the output of the command.
    pub(super) fn failure(&self, what: &str) -> Failure {
        let code = self.code.map_or_else(|| "signal".to_owned(), |code| code.to_string());
        Failure::new(format!(
            "`kubectl {}` {what}\n  exit: {code}\n  stdout: {}\n  stderr: {}",
            self.line,
            indented(&self.stdout),
            indented(&self.stderr)
        ))
    }
}

fn indented(text: &str) -> String {
    const MAX_LENGTH: usize = 4000;
    let text: String = text.trim_end().chars().take(MAX_LENGTH).collect();
    text.replace('\n', "\n    ")
}

/// Parses a request from a log line, unstructured (before 1.33) or structured.
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

/// Splits at spaces outside of `'…'`.
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
    fn words_are_split_at_spaces_outside_of_quotes() {
        assert_eq!(words("get  pods -l 'app notin (web)'"), ["get", "pods", "-l", "app notin (web)"]);
        assert_eq!(words("label x a='b c' ''"), ["label", "x", "a=b c", ""]);
    }

    #[test]
    fn requests_are_parsed_from_both_log_formats() {
        let output = |stderr: &str| CommandOutput {
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
            output(&[old, new, other].join("\n")).requests(),
            ["GET /api/v1/pods?limit=1", "PATCH /apis"]
        );
    }
}

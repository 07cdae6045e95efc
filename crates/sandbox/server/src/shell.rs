//! Simulated processes of containers: a shell with the commands that the tests of clients run.
//!
//! [`commands`] has the commands. Words have quotes, variables of the container's environment and command substitution. Lists, pipes,
//! `for`, `while`, `if` and redirections to the other stream and to `/dev/null` work as in a POSIX shell. There are no
//! files but `/dev/null`, no background jobs, no functions, no arithmetic and no patterns. An interactive shell prints no
//! prompt. A terminal echoes its input and ends it at Control-D.

mod commands;
mod parse;

use std::{collections::HashMap, sync::Arc};

use bytes::{Buf as _, Bytes, BytesMut};
use kcm_clock::Clock;
use parking_lot::Mutex;
use parse::{Join, Node, Part, Redirect, SyntaxError, Word};
use tokio::sync::mpsc;

use crate::{executor::end_turn, streams::Output};

/// Maximum number of commands of a process: an endless loop would use the processor until the client leaves.
const MAX_COMMANDS: u32 = 10_000;

/// Maximum size of a line, of the words of a command, and of the output that a pipe or a substitution stores.
const MAX_BUFFER: usize = 1 << 20;

/// Maximum size of a command that an interactive shell reads in several lines. It is parsed after each of them.
const MAX_INTERACTIVE: usize = 16 << 10;

/// Maximum nesting of commands and shells, whose futures are polled within each other.
const MAX_NESTED: u8 = 64;

const CONTROL_D: u8 = 4;

/// Exit code of a shell that is given an invalid script, or that exceeds a limit.
const MISUSE: i32 = 2;

/// Exit code of a command that does not exist.
const NOT_FOUND: i32 = 127;

/// Exit code of a process whose output is closed.
const BROKEN_PIPE: i32 = 141;

/// Program of a process.
pub(crate) enum Program {
    /// Command of an `exec`.
    Command(Vec<String>),
    /// Command of the container itself, which starts when a client attaches. One that is not simulated is an echo of its
    /// input that does not end.
    Attached(Vec<String>),
}

/// Process in a container.
pub(crate) struct Process {
    pub(crate) program: Program,
    pub(crate) env: Vec<(String, String)>,
    pub(crate) clock: Arc<dyn Clock>,
    /// `true` if the client sends input.
    pub(crate) stdin: bool,
    /// Channel of the standard output. Without one it is discarded.
    pub(crate) stdout: Option<u8>,
    /// Channel of the standard error.
    pub(crate) stderr: Option<u8>,
    /// `true` if the streams are those of a terminal.
    pub(crate) tty: bool,
}

impl Process {
    /// Runs the program. Returns its exit code.
    pub(crate) async fn run(self, stdin: Option<mpsc::Receiver<Bytes>>, output: Output) -> i32 {
        let target = |channel: Option<u8>| channel.map_or(Target::Null, Target::Channel);
        let io = Io { out: target(self.stdout), err: target(self.stderr) };
        let mut shell = Shell {
            clock: self.clock,
            stdin,
            unread: Bytes::new(),
            piped: None,
            output,
            terminal: self.stdout.filter(|_| self.tty),
            variables: self.env.into_iter().collect(),
            commands: 0,
            nested: 0,
            last: 0,
        };
        let ended = match self.program {
            Program::Attached(command) if !commands::is_known(&command) => {
                shell.copy(&io).await.ok();
                std::future::pending().await
            }
            Program::Command(command) | Program::Attached(command) => {
                commands::run(&mut shell, &command, &io).await
            }
        };
        ended.unwrap_or_else(|(Stop::Shell(code) | Stop::Process(code))| code)
    }
}

/// End of a shell, with its exit code.
enum Stop {
    /// The shell has executed `exit`.
    Shell(i32),
    /// The output is closed, or a limit is exceeded. Ends all shells of the process.
    Process(i32),
}

impl Stop {
    /// Result of a shell within another one.
    fn contained(self) -> Result<i32, Self> {
        match self {
            Self::Shell(code) => Ok(code),
            Self::Process(_) => Err(self),
        }
    }
}

/// Destination of output.
#[derive(Clone)]
enum Target {
    Channel(u8),
    Buffer(Arc<Mutex<BytesMut>>),
    Null,
}

/// Streams of a command.
#[derive(Clone)]
struct Io {
    out: Target,
    err: Target,
}

struct Shell {
    clock: Arc<dyn Clock>,
    /// Input of the process. `None` after its end.
    stdin: Option<mpsc::Receiver<Bytes>>,
    /// Input that was received and not read.
    unread: Bytes,
    /// Input of a command in a pipe.
    piped: Option<Bytes>,
    output: Output,
    /// Channel of the output, if it is a terminal.
    terminal: Option<u8>,
    variables: HashMap<String, String>,
    commands: u32,
    /// Number of commands that are evaluated within each other.
    nested: u8,
    /// Exit code of the last command.
    last: i32,
}

impl Shell {
    async fn write(&self, target: &Target, text: impl Into<Bytes>) -> Result<(), Stop> {
        let text: Bytes = text.into();
        match target {
            _ if text.is_empty() => Ok(()),
            Target::Null => Ok(()),
            Target::Channel(channel) => {
                let text = match self.terminal {
                    Some(_) => String::from_utf8_lossy(&text).replace('\n', "\r\n").into(),
                    None => text,
                };
                self.output.send((*channel, text)).await.map_err(|_| Stop::Process(BROKEN_PIPE))
            }
            Target::Buffer(buffer) => {
                let mut buffer = buffer.lock();
                if buffer.len() + text.len() > MAX_BUFFER {
                    return Err(Stop::Process(MISUSE));
                }
                buffer.extend_from_slice(&text);
                Ok(())
            }
        }
    }

    /// Writes a message to the standard error and returns the exit code.
    async fn fail(&self, io: &Io, code: i32, message: &str) -> Result<i32, Stop> {
        self.write(&io.err, format!("{message}\n")).await?;
        Ok(code)
    }

    /// Returns input. `None` at its end.
    async fn read(&mut self) -> Option<Bytes> {
        if let Some(piped) = &mut self.piped {
            return Some(std::mem::take(piped)).filter(|data| !data.is_empty());
        }
        if !self.unread.is_empty() {
            return Some(std::mem::take(&mut self.unread));
        }
        let data = self.stdin.as_mut()?.recv().await?;
        let Some(terminal) = self.terminal else { return Some(data) };
        let end = data.iter().position(|byte| *byte == CONTROL_D);
        if end.is_some() {
            self.stdin = None;
        }
        let typed = data.iter().take(end.unwrap_or(data.len()));
        let typed: Vec<u8> = typed.map(|byte| if *byte == b'\r' { b'\n' } else { *byte }).collect();
        self.write(&Target::Channel(terminal), typed.clone()).await.ok()?;
        (end.is_none() || !typed.is_empty()).then(|| typed.into())
    }

    /// Reads a line without its end. `None` at the end of the input, or if the line is too long.
    async fn read_line(&mut self) -> Option<String> {
        let mut line = BytesMut::new();
        while line.len() < MAX_BUFFER {
            let Some(mut data) = self.read().await else {
                return (!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned());
            };
            if let Some(end) = data.iter().position(|byte| *byte == b'\n') {
                line.extend_from_slice(&data.split_to(end));
                data.advance(1);
                let rest = self.piped.as_mut().unwrap_or(&mut self.unread);
                *rest = data;
                return Some(String::from_utf8_lossy(&line).trim_end_matches('\r').to_owned());
            }
            line.extend_from_slice(&data);
        }
        None
    }

    /// Copies the input to the output.
    async fn copy(&mut self, io: &Io) -> Result<i32, Stop> {
        while let Some(data) = self.read().await {
            self.write(&io.out, data).await?;
        }
        Ok(0)
    }

    /// Counts a command, and lets other clients take their turns: input and output may be ready all the time.
    async fn step(&mut self, io: &Io) -> Result<(), Stop> {
        self.commands += 1;
        if self.commands > MAX_COMMANDS {
            self.fail(io, MISUSE, "too many commands for a simulated container").await?;
            return Err(Stop::Process(MISUSE));
        }
        end_turn().await;
        Ok(())
    }

    /// Runs a script.
    async fn script(&mut self, text: &str, io: &Io) -> Result<i32, Stop> {
        match parse::parse(text) {
            Ok(node) => self.evaluate(&node, io).await,
            Err(error) => self.fail(io, MISUSE, &format!("sh: syntax error: {error}")).await,
        }
    }

    /// Runs the commands of the input, line by line.
    async fn interactive(&mut self, io: &Io) -> Result<i32, Stop> {
        let (mut code, mut text) = (0, String::new());
        while let Some(line) = self.read_line().await {
            self.step(io).await?;
            text += &line;
            text.push('\n');
            code = match parse::parse(&text) {
                Ok(node) => self.evaluate(&node, io).await?,
                Err(SyntaxError::Incomplete) if text.len() < MAX_INTERACTIVE => continue,
                Err(error) => self.fail(io, MISUSE, &format!("sh: syntax error: {error}")).await?,
            };
            text.clear();
        }
        Ok(code)
    }

    fn evaluate<'a>(&'a mut self, node: &'a Node, io: &'a Io) -> BoxedResult<'a> {
        Box::pin(async move {
            self.step(io).await?;
            if self.nested == MAX_NESTED {
                return self.fail(io, MISUSE, "sh: too many commands in each other").await;
            }
            self.nested += 1;
            let ended = self.evaluate_node(node, io).await;
            self.nested -= 1;
            if let Ok(code) = ended {
                self.last = code;
            }
            ended
        })
    }

    async fn evaluate_node(&mut self, node: &Node, io: &Io) -> Result<i32, Stop> {
        match node {
            Node::Simple { words, redirects } => {
                let words = self.expand(words, io).await?;
                let io = io.redirected(redirects);
                match words.as_slice() {
                    [] => Ok(0),
                    words => commands::run(self, words, &io).await,
                }
            }
            Node::Pipe(commands) => {
                let Some((last, first)) = commands.split_last() else { return Ok(0) };
                // The first command reads the input of the pipe.
                let mut outer = None;
                for (index, command) in first.iter().enumerate() {
                    let output = self.capture(command, io).await?;
                    let input = self.piped.replace(output);
                    if index == 0 {
                        outer = input;
                    }
                }
                let code = self.subshell(last, io).await;
                self.piped = outer;
                code
            }
            Node::List(commands) => {
                let mut code = 0;
                for (join, command) in commands {
                    code = match (join, code) {
                        (Join::And, 1..) => continue,
                        (Join::Or, 0) => continue,
                        _ => self.evaluate(command, io).await?,
                    };
                }
                Ok(code)
            }
            Node::For { name, words, body } => {
                let mut code = 0;
                for word in self.expand(words, io).await? {
                    self.variables.insert(name.clone(), word);
                    code = self.evaluate(body, io).await?;
                }
                Ok(code)
            }
            Node::While { condition, body } => {
                let mut code = 0;
                while self.evaluate(condition, io).await? == 0 {
                    code = self.evaluate(body, io).await?;
                }
                Ok(code)
            }
            Node::If { condition, then, otherwise } => {
                let is_true = self.evaluate(condition, io).await? == 0;
                match (is_true, otherwise) {
                    (true, _) => self.evaluate(then, io).await,
                    (false, Some(otherwise)) => self.evaluate(otherwise, io).await,
                    (false, None) => Ok(0),
                }
            }
        }
    }

    /// Runs a command whose `exit` does not end this shell.
    async fn subshell(&mut self, node: &Node, io: &Io) -> Result<i32, Stop> {
        self.evaluate(node, io).await.or_else(Stop::contained)
    }

    /// Runs a command and returns its output.
    async fn capture(&mut self, node: &Node, io: &Io) -> Result<Bytes, Stop> {
        let buffer = Arc::new(Mutex::new(BytesMut::new()));
        let io = Io { out: Target::Buffer(Arc::clone(&buffer)), err: io.err.clone() };
        self.subshell(node, &io).await?;
        Ok(std::mem::take(&mut *buffer.lock()).freeze())
    }

    async fn expand(&mut self, words: &[Word], io: &Io) -> Result<Vec<String>, Stop> {
        let (mut expanded, mut size) = (Vec::new(), 0);
        for Word(parts) in words {
            // `None` if no part has given the word yet: an empty value without quotes is no word.
            let mut word: Option<String> = None;
            for part in parts {
                let (value, is_quoted) = match part {
                    Part::Text(text) => {
                        word.get_or_insert_default().push_str(text);
                        continue;
                    }
                    Part::Variable { name, is_quoted } if name == "?" => (self.last.to_string(), *is_quoted),
                    Part::Variable { name, is_quoted } => {
                        (self.variables.get(name).cloned().unwrap_or_default(), *is_quoted)
                    }
                    Part::Command { script, is_quoted } => {
                        let output = self.capture(script, io).await?;
                        let text = String::from_utf8_lossy(&output);
                        (text.trim_end_matches('\n').to_owned(), *is_quoted)
                    }
                };
                size += value.len();
                if size > MAX_BUFFER {
                    return Err(Stop::Process(MISUSE));
                }
                if is_quoted {
                    word.get_or_insert_default().push_str(&value);
                    continue;
                }
                if value.starts_with(char::is_whitespace) {
                    expanded.extend(word.take());
                }
                for (index, field) in value.split_whitespace().enumerate() {
                    if index > 0 {
                        expanded.extend(word.take());
                    }
                    word.get_or_insert_default().push_str(field);
                }
                if value.ends_with(char::is_whitespace) {
                    expanded.extend(word.take());
                }
            }
            expanded.extend(word);
        }
        Ok(expanded)
    }
}

/// Result of a command: its exit code, or the end of the shell.
type BoxedResult<'a> = std::pin::Pin<Box<dyn Future<Output = Result<i32, Stop>> + Send + 'a>>;

impl Io {
    fn redirected(&self, redirects: &[Redirect]) -> Self {
        let mut io = self.clone();
        for redirect in redirects {
            match redirect {
                Redirect::OutToErr => io.out = io.err.clone(),
                Redirect::ErrToOut => io.err = io.out.clone(),
                Redirect::OutToNull => io.out = Target::Null,
                Redirect::ErrToNull => io.err = Target::Null,
            }
        }
        io
    }
}

#[cfg(test)]
mod tests;

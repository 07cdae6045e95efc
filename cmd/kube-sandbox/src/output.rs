//! Output of the demo: a table that is redrawn in place, or plain lines.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use kcm_rollouts::{Cause, State};
use kcm_sandbox::demo::{DemoOutput, Frame};

/// Returns the output that suits stdout: a table for terminals, lines otherwise.
pub(crate) fn for_stdout() -> Box<dyn DemoOutput> {
    if io::stdout().is_terminal() { Box::new(Table { drawn: 0 }) } else { Box::new(Lines::default()) }
}

/// Table in a terminal, redrawn after each change.
struct Table {
    /// Number of lines of the last frame.
    drawn: usize,
}

impl DemoOutput for Table {
    fn step(&mut self, title: &str) {
        self.drawn = 0;
        print(&format!("\n\x1b[1m▶ {title}\x1b[0m\n"));
    }

    fn frame(&mut self, frame: &Frame) {
        let table = frame.table();
        let mut out = String::new();
        if self.drawn > 0 {
            // Moves the cursor to the first line of the last frame.
            let _ = write!(out, "\x1b[{}A", self.drawn);
        }
        for line in table.lines() {
            let _ = writeln!(out, "\x1b[2K{line}");
        }
        // Clears the remaining lines of the last frame.
        out.push_str("\x1b[0J");
        self.drawn = table.lines().count();
        print(&out);
    }

    fn frame_interval(&self) -> Duration {
        Duration::from_millis(50)
    }
}

/// One line per change, for files and pipes.
#[derive(Default)]
struct Lines {
    last: String,
    cause: Option<(State, Cause)>,
}

impl DemoOutput for Lines {
    fn step(&mut self, title: &str) {
        print(&format!("== {title}\n"));
    }

    fn frame(&mut self, frame: &Frame) {
        let line = frame.line();
        if line != self.last {
            print(&format!("  {line}\n"));
            self.last = line;
        }
        let cause = frame.cause();
        if cause != self.cause {
            self.cause = cause;
            if let Some(why) = frame.why() {
                print(&format!("  {why}\n"));
            }
        }
    }

    fn frame_interval(&self) -> Duration {
        Duration::from_millis(200)
    }
}

fn print(text: &str) {
    let mut out = io::stdout().lock();
    // Write errors are ignored: the pipe may be closed.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

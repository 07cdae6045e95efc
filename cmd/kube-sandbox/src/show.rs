//! How the demo is shown: a table that is drawn over, or lines.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
    time::Duration,
};

use kcm_sandbox::demo::{Frame, Show};

/// What suits standard output.
pub(crate) fn for_stdout() -> Box<dyn Show> {
    if io::stdout().is_terminal() { Box::new(Table { drawn: 0 }) } else { Box::new(Lines::default()) }
}

/// A table in a terminal, drawn over at each change.
struct Table {
    /// How many lines the last frame took.
    drawn: usize,
}

impl Show for Table {
    fn chapter(&mut self, title: &str) {
        self.drawn = 0;
        print(&format!("\n\x1b[1m▶ {title}\x1b[0m\n"));
    }

    fn frame(&mut self, frame: &Frame) {
        let table = frame.table();
        let mut out = String::new();
        if self.drawn > 0 {
            // Up to where the last frame began.
            let _ = write!(out, "\x1b[{}A", self.drawn);
        }
        for line in table.lines() {
            let _ = writeln!(out, "\x1b[2K{line}");
        }
        // What the last frame had more.
        out.push_str("\x1b[0J");
        self.drawn = table.lines().count();
        print(&out);
    }

    fn frame_interval(&self) -> Duration {
        Duration::from_millis(50)
    }
}

/// A line a change, for files and pipes.
#[derive(Default)]
struct Lines {
    last: String,
}

impl Show for Lines {
    fn chapter(&mut self, title: &str) {
        print(&format!("== {title}\n"));
    }

    fn frame(&mut self, frame: &Frame) {
        let line = frame.line();
        if line != self.last {
            print(&format!("  {line}\n"));
            self.last = line;
        }
    }

    fn frame_interval(&self) -> Duration {
        Duration::from_millis(200)
    }
}

fn print(text: &str) {
    let mut out = io::stdout().lock();
    // Whoever has closed the pipe has seen enough.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

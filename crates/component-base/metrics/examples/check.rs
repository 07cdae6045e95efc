//! Checks the exposition of any program.
//!
//! ```sh
//! curl --silent http://localhost:8080/metrics | cargo run -p kcm-metrics --example check
//! ```

use std::{
    io::{self, Read},
    process::ExitCode,
};

fn main() -> io::Result<ExitCode> {
    let mut text = String::new();
    io::stdin().read_to_string(&mut text)?;
    let problems = kcm_metrics::lint(&text);
    for problem in &problems {
        println!("{problem}");
    }
    println!("{} lines, {} problems", text.lines().count(), problems.len());
    Ok(if problems.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

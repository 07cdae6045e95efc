//! Parsing of arbitrary command lines.
//!
//! The property takes the bytes of one input. It must not panic, and must not exhaust the stack or the memory. The test
//! runs it on mutations of `fuzz/seeds`, the target in `fuzz` runs it under libFuzzer.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, unreachable_pub, reason = "a test")]
#![cfg_attr(not(test), allow(dead_code, reason = "a target uses one property"))]

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use kcm_controller_manager::{Command, FLAGS, FlagKind, Flags};

#[cfg(test)]
#[path = "../../../fuzz/mutate.rs"]
mod mutate;

/// A command line, one argument per line, is parsed or rejected with a one-line message. Formatted numbers, durations and
/// booleans are parsed to the same value.
pub fn command(data: &[u8]) {
    let arguments = || data.split(|byte| *byte == b'\n').map(|word| OsStr::from_bytes(word).to_owned());
    if let Err(error) = Command::parse(arguments()) {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    let Ok(flags) = Flags::parse(arguments()) else { return };
    for (name, formatted) in flags.flagz() {
        let kind = FLAGS.iter().find(|flag| flag.name == name).unwrap().kind;
        let has_one_form = matches!(
            kind,
            FlagKind::Bool | FlagKind::Int32 | FlagKind::Int | FlagKind::Float32 | FlagKind::Duration
        );
        if has_one_form && flags.is_given(&name) {
            let again = Flags::parse([format!("--{name}={formatted}").into()]).unwrap();
            assert!(again.flagz().contains(&(name, formatted)));
        }
    }
}

#[test]
fn parses_mutated_command_lines() {
    mutate::check("flags", 2000, command);
}

//! Reading of arbitrary command lines.
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

/// A command line, one word a line, is understood or refused in one line. A number, time or truth value that is understood
/// is written as text that is understood the same.
pub fn command(data: &[u8]) {
    let words = || data.split(|byte| *byte == b'\n').map(|word| OsStr::from_bytes(word).to_owned());
    if let Err(error) = Command::parse(words()) {
        assert!(!error.to_string().contains('\n'), "{error}");
    }
    let Ok(flags) = Flags::parse(words()) else { return };
    for (name, written) in flags.flagz() {
        let kind = FLAGS.iter().find(|flag| flag.name == name).unwrap().kind;
        let has_one_form = matches!(
            kind,
            FlagKind::Bool | FlagKind::Int32 | FlagKind::Int | FlagKind::Float32 | FlagKind::Duration
        );
        if has_one_form && flags.is_given(&name) {
            let again = Flags::parse([format!("--{name}={written}").into()]).unwrap();
            assert!(again.flagz().contains(&(name, written)));
        }
    }
}

#[test]
fn reads_mutated_command_lines() {
    mutate::check("flags", 2000, command);
}

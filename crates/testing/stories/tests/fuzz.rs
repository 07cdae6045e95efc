//! Reading of arbitrary story files.
//!
//! The property takes the bytes of one input. It must not panic, and must not exhaust the stack or the memory. The test
//! runs it on mutations of `fuzz/seeds`; the target in `fuzz` runs it under libFuzzer.
#![allow(missing_docs, unreachable_pub, reason = "a test")]
#![cfg_attr(not(test), allow(dead_code, reason = "a target uses one property"))]

use std::path::Path;

use kcm_stories::Story;

#[cfg(test)]
#[path = "../../../../fuzz/mutate.rs"]
mod mutate;

/// Parses a story.
pub fn story(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(story) = Story::parse(text, Path::new("")) {
        drop(story.faults());
    }
}

#[test]
fn reads_mutated_stories() {
    mutate::check("story", 300, story);
}

#![no_main]

#[path = "../../crates/testing/stories/tests/fuzz.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::story(data));

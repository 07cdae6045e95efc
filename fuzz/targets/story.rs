#![no_main]

#[path = "../../crates/stories/tests/fuzz.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::story(data));

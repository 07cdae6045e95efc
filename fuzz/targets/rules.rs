#![no_main]

#[path = "../../crates/sandbox/server/tests/fuzz.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::rules(data));

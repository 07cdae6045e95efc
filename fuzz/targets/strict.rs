#![no_main]

#[path = "../../crates/sandbox/apiserver/tests/fuzz.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::strict(data));

#![no_main]

#[path = "../../crates/controller-manager/tests/fuzz.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::command(data));

#![no_main]

#[path = "../../crates/testing/apiserver/tests/fuzz.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::patches(data));

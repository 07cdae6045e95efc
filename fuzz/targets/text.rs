#![no_main]

#[path = "../../crates/apimachinery/api/tests/fuzz.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::text(data));

#![no_main]

#[path = "../../crates/client-go/client/tests/fuzz.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::object(data));

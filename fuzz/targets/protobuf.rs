#![no_main]

#[path = "../../crates/apiserver/tests/fuzz.rs"]
mod properties;

libfuzzer_sys::fuzz_target!(|data: &[u8]| properties::protobuf(data));

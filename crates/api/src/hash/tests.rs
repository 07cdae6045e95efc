use std::io::BufReader;

use serde_json::json;

use super::*;

/// The text that is hashed.
fn rendered(template: &Value) -> String {
    let schema = Schema::of(Version::default());
    let decoded = Decoded::template(schema, template).unwrap();
    let mut text = String::new();
    Renderer { schema, sink: &mut text }.typed(schema.root(), &decoded).unwrap();
    text
}

impl Sink for String {
    fn put(&mut self, text: &str) {
        self.push_str(text);
    }
}

#[test]
fn hash_of_every_recorded_template_is_as_recorded() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../test/recordings/v1.36/vectors/hash.jsonl.xz");
    let mut lines = Vec::new();
    lzma_rs::xz_decompress(&mut BufReader::new(std::fs::File::open(path).unwrap()), &mut lines).unwrap();
    let lines = String::from_utf8(lines).unwrap();
    assert_eq!(lines.lines().count(), 1000);

    let answer = |line: &str| {
        let case: Value = serde_json::from_str(line).unwrap();
        let count = case["collisionCount"].as_i64().map(|count| i32::try_from(count).unwrap());
        let text = case["template"].to_string();
        assert_eq!(compute(&case["template"], count), compute_json(&text, count));
        (compute(&case["template"], count), case["hash"].as_str().unwrap().to_owned())
    };
    let wrong: Vec<_> = lines
        .lines()
        .enumerate()
        .map(|(id, line)| (id, answer(line)))
        .filter(|(_, (ours, recorded))| ours.as_ref() != Ok(recorded))
        .collect();
    assert!(wrong.is_empty(), "{} answers differ: {wrong:?}", wrong.len());
}

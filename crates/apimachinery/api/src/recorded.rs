//! Recorded hashes of v1.36: 1000 random templates that set every field at least once.

use std::{fs::File, io::BufReader, sync::OnceLock};

use serde_json::Value;

pub(crate) struct Case {
    pub(crate) template: Value,
    pub(crate) collision_count: Option<i32>,
    pub(crate) hash: String,
}

pub(crate) fn cases() -> &'static [Case] {
    static CASES: OnceLock<Vec<Case>> = OnceLock::new();
    CASES.get_or_init(|| {
        let path =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../../../test/recordings/v1.36/vectors/hash.jsonl.xz");
        let mut lines = Vec::new();
        lzma_rs::xz_decompress(&mut BufReader::new(File::open(path).unwrap()), &mut lines).unwrap();
        let cases: Vec<Case> = String::from_utf8(lines).unwrap().lines().map(case).collect();
        assert_eq!(cases.len(), 1000, "{path}");
        cases
    })
}

fn case(line: &str) -> Case {
    let mut case: Value = serde_json::from_str(line).unwrap();
    Case {
        template: case["template"].take(),
        collision_count: case["collisionCount"].as_i64().map(|count| i32::try_from(count).unwrap()),
        hash: case["hash"].as_str().unwrap().to_owned(),
    }
}

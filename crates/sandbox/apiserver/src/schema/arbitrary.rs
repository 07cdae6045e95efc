//! Random objects of any kind for property tests.

use proptest::test_runner::Config;
use serde_json::{Map, Value};

use super::{SCHEMA, StructId, Type, Wire};

/// Configuration of property tests over seeds. The message of a failure contains the seed.
pub(crate) fn cases(cases: u32) -> Config {
    Config { cases, failure_persistence: None, ..Config::default() }
}

/// Generator of objects from a seed.
pub(crate) struct Arbitrary {
    state: u64,
    /// Reciprocal probability of a field.
    sparsity: u64,
}

/// Values with a meaning for some field, default or validation.
const TEXTS: &[&str] = &[
    "",
    "a",
    "b",
    "web",
    "name-1",
    "nginx:latest",
    "nginx",
    "TCP",
    "Always",
    "Never",
    "RollingUpdate",
    "Recreate",
    "/data",
    "50%",
    "ClusterIP",
    "ExternalName",
    "ClientIP",
    "HTTP",
    "OnFailure",
    "Indexed",
    "In",
    "Exists",
];
const QUANTITIES: &[&str] = &["0", "1", "100m", "64Mi", "1Gi", "2k", "1u", "5e3"];

impl Arbitrary {
    pub(crate) fn new(seed: u64) -> Self {
        let sparsity = 2 + seed % 5;
        Self { state: seed ^ 0x9e37_79b9_7f4a_7c15, sparsity }
    }

    /// Returns a random object of this kind.
    pub(crate) fn object(&mut self, api_version: &str, kind: &str) -> Value {
        let id = SCHEMA.kind(api_version, kind).unwrap();
        Value::Object(self.fields(id, 0))
    }

    /// Returns a number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        // SplitMix64.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit
    }

    pub(crate) fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        let index = self.below(from.len() as u64);
        from[usize::try_from(index).unwrap()]
    }

    fn fields(&mut self, id: StructId, depth: u64) -> Map<String, Value> {
        let mut map = Map::new();
        let within = SCHEMA.get(id);
        for (position, field) in within.fields.iter().enumerate() {
            // Type information of nested objects is ignored and absent in protobuf.
            let has_number = |wire: &Wire| matches!(wire, Wire::Field(of) if *of == position);
            if matches!(field.name, "apiVersion" | "kind") && !within.wire.values().any(has_number) {
                continue;
            }
            let likely =
                matches!(field.name, "metadata" | "spec" | "template" | "containers" | "name" | "volumes");
            if likely && self.below(8) > 0 || self.below(self.sparsity + depth / 3) == 0 {
                let value = match field.name {
                    "openAPIV3Schema" => serde_json::json!({"type": "object"}),
                    _ => self.value(&field.ty, depth + 1),
                };
                map.insert(field.name.to_owned(), value);
            }
        }
        map
    }

    fn value(&mut self, ty: &Type, depth: u64) -> Value {
        match ty {
            Type::Bool => Value::Bool(self.below(2) == 0),
            Type::Int32 | Type::Int64 => Value::from(i64::try_from(self.below(5)).unwrap() - 1),
            Type::Text => Value::from(self.pick(TEXTS)),
            Type::Bytes => Value::from(self.pick(&["", "YQ==", "aGVsbG8="])),
            Type::Time => Value::from(self.pick(&["2026-01-02T03:04:05Z", "1970-01-01T00:00:00Z"])),
            Type::MicroTime => Value::from(self.pick(&["2026-01-02T03:04:05.123456Z"])),
            Type::Quantity => Value::from(self.pick(QUANTITIES)),
            Type::IntOrString if self.below(2) == 0 => Value::from(self.below(3)),
            Type::IntOrString => Value::from(self.pick(&["25%", "0%", "http", "200%"])),
            Type::Any => serde_json::json!({"f:a": {"x": self.below(3)}}),
            Type::List(element) => (0..self.below(4)).map(|_| self.value(element, depth + 1)).collect(),
            Type::Map(element) => {
                let mut map = Map::new();
                for _ in 0..self.below(3) {
                    let key = self.pick(&["a", "b", "cpu", "memory", "example.com/c"]);
                    map.insert(key.to_owned(), self.value(element, depth + 1));
                }
                Value::Object(map)
            }
            Type::Struct(id) => Value::Object(self.fields(*id, depth + 1)),
        }
    }
}

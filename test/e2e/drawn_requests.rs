//! Requests drawn from a table of kinds, fields and values.
//!
//! A sequence uses one namespace and one kind, with objects of three names, so that most requests change or read what
//! earlier ones left. `{rv}`, `{uid}` and `{continue}` stand for the values that the server returned before.

use fastrand::Rng;
use serde_json::{Map, Value, json};

const TABLE: &str = include_str!("drawn_requests.json");

/// Number of requests of a sequence.
const LENGTH: usize = 20;

/// A request, the same for each server but for the values of its placeholders.
#[derive(Debug, Clone)]
pub(crate) struct DrawnRequest {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) accept: &'static str,
    pub(crate) media_type: &'static str,
    pub(crate) body: String,
}

/// Table of kinds.
#[derive(Debug)]
pub(crate) struct Table {
    metadata: Vec<Value>,
    kinds: Vec<Value>,
}

impl Table {
    pub(crate) fn new() -> Self {
        let mut table: Map<String, Value> = serde_json::from_str(TABLE).unwrap();
        let mut list = |name: &str| match table.remove(name) {
            Some(Value::Array(list)) => list,
            _ => panic!("no list {name}"),
        };
        let (metadata, rows) = (list("metadata"), list("kinds"));
        let weighted = |row: Value| {
            let weight = row["weight"].as_u64().unwrap_or(1);
            vec![row; usize::try_from(weight).unwrap()]
        };
        Self { metadata, kinds: rows.into_iter().flat_map(weighted).collect() }
    }

    /// Returns the requests of a sequence. The first creates its namespace.
    pub(crate) fn sequence(&self, seed: u64) -> Vec<DrawnRequest> {
        let mut random = Rng::with_seed(seed);
        let kind = &self.kinds[random.usize(..self.kinds.len())];
        let mut sequence =
            Sequence { table: self, kind, random, namespace: format!("d{seed}"), valid: false };
        let namespace =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": sequence.namespace}});
        let first = DrawnRequest {
            body: namespace.to_string(),
            ..DrawnRequest::new("POST", "/api/v1/namespaces".to_owned())
        };
        std::iter::once(first).chain((1..LENGTH).map(|_| sequence.request())).collect()
    }
}

impl DrawnRequest {
    /// Request without a body.
    pub(crate) fn new(method: &'static str, path: String) -> Self {
        Self { method, path, accept: JSON, media_type: JSON, body: String::new() }
    }
}

const JSON: &str = "application/json";

const METADATA: &str = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io";
const METADATA_LIST: &str = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io";

/// Media types of answers. JSON is drawn most.
const ACCEPTED: [&str; 7] = [
    "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    METADATA,
    "application/yaml",
    "*/*",
    "text/html",
    "application/json;as=Bogus;v=v1;g=meta.k8s.io",
];

struct Sequence<'a> {
    table: &'a Table,
    kind: &'a Value,
    random: Rng,
    namespace: String,
    /// If `true`, fields are valid.
    valid: bool,
}

impl Sequence<'_> {
    fn request(&mut self) -> DrawnRequest {
        let mut request = match self.random.u32(..100) {
            0..25 => self.create(),
            25..35 => self.get(),
            35..47 => self.list(),
            47..59 => self.update(),
            59..83 => self.patch(),
            83..91 => self.delete(),
            91..93 => self.delete_collection(),
            _ => self.invalid(),
        };
        if self.random.u32(..10) == 0 {
            request.accept = self.one_of(&ACCEPTED);
            let is_list =
                request.path.split('?').next() == Some(&self.collection()) && request.method != "POST";
            if is_list && request.accept == METADATA {
                request.accept = METADATA_LIST;
            }
        }
        request
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.random.usize(..values.len())]
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.u32(..100) < percent
    }

    fn has(&self, subresource: &str) -> bool {
        self.kind[subresource] == true
    }

    /// Path of the objects.
    fn collection(&self) -> String {
        let (path, plural) = (self.kind["path"].as_str().unwrap(), self.kind["plural"].as_str().unwrap());
        if self.has("cluster") {
            format!("{path}/{plural}")
        } else {
            format!("{path}/namespaces/{}/{plural}", self.namespace)
        }
    }

    fn name(&mut self) -> String {
        let name = self.one_of(&["a", "a", "a", "b", "c"]);
        if self.has("cluster") { format!("{}-{name}", self.namespace) } else { name.to_owned() }
    }

    fn item(&mut self) -> (String, String) {
        let name = self.name();
        let path = format!("{}/{name}", self.collection());
        (name, path)
    }

    /// Draws a subresource with its path, or the object.
    fn part(&mut self, percent: u32) -> &'static str {
        let parts: Vec<&str> = ["status", "scale"].into_iter().filter(|part| self.has(part)).collect();
        match (self.chance(percent), parts.is_empty()) {
            (true, false) => match self.one_of(&parts) {
                "status" => "/status",
                _ => "/scale",
            },
            _ => "",
        }
    }

    /// Path with a drawn query.
    fn query(&mut self, path: &str, percent: u32, parameters: &[&str]) -> String {
        let mut path = path.to_owned();
        let mut separator = '?';
        while self.chance(percent) {
            path.push(separator);
            path.push_str(self.one_of(parameters));
            separator = '&';
        }
        path
    }

    const WRITE_PARAMETERS: [&'static str; 12] = [
        "dryRun=All",
        "dryRun=All",
        "dryRun=Bogus",
        "fieldValidation=Strict",
        "fieldValidation=Strict",
        "fieldValidation=Warn",
        "fieldValidation=Ignore",
        "fieldValidation=Bogus",
        "fieldManager=m1",
        "fieldManager=m2",
        "pretty=true",
        "unknown=x",
    ];

    /// Draws a field: its pointer and one of its values, of which the first is valid.
    fn field(&mut self) -> (String, Value) {
        let fields = match (self.chance(40), self.kind["fields"].as_array()) {
            (false, Some(fields)) => fields,
            _ => &self.table.metadata,
        };
        let field = &fields[self.random.usize(..fields.len())];
        let values = field[1].as_array().unwrap();
        let count = if self.valid { 1 } else { values.len() };
        (field[0].as_str().unwrap().to_owned(), values[self.random.usize(..count)].clone())
    }

    /// An object with up to two drawn fields.
    fn object(&mut self, name: &str) -> Value {
        let mut object = self.kind["object"].clone();
        object["metadata"] = json!({"name": name, "labels": {"app": self.one_of(&["a", "b"])}});
        for _ in 0..self.one_of(&[0, 0, 1, 1, 1, 2]) {
            let (pointer, value) = self.field();
            set(&mut object, &pointer, value);
        }
        object
    }

    /// The text of an object, sometimes as YAML, with a member twice, or cut off.
    fn body(&mut self, object: &Value) -> (&'static str, String) {
        let text = object.to_string();
        match self.random.u32(..40) {
            0 => (JSON, text.replacen("\"kind\":", "\"kind\":\"Other\",\"kind\":", 1)),
            1 => (JSON, text.replacen("\"metadata\":{", "\"metadata\":{\"name\":\"first\",", 1)),
            2 => (JSON, text[..text.len() - 1].to_owned()),
            3 => ("application/yaml", text),
            5 => ("text/plain", text),
            6 => ("", text),
            7 => (JSON, String::new()),
            8 => (JSON, self.one_of(&["[]", "1", "\"x\"", "x", "{\"a\":}"]).to_owned()),
            _ => (JSON, text),
        }
    }

    fn create(&mut self) -> DrawnRequest {
        let name = self.name();
        let object = self.object(&name);
        let (media_type, body) = self.body(&object);
        let collection = self.collection();
        let path = self.query(&collection, 20, &Self::WRITE_PARAMETERS);
        DrawnRequest { media_type, body, ..DrawnRequest::new("POST", path) }
    }

    fn get(&mut self) -> DrawnRequest {
        let (_, path) = self.item();
        let part = self.part(30);
        let parameters = ["resourceVersion=0", "resourceVersion=x", "pretty=true", "unknown=x"];
        let path = self.query(&format!("{path}{part}"), 15, &parameters);
        DrawnRequest::new("GET", path)
    }

    fn list(&mut self) -> DrawnRequest {
        let collection = self.collection();
        // Upstream continues a list with selectors even if no other object matches.
        let selectors = [
            "labelSelector=app%3Da",
            "labelSelector=app+in+(a,b),!tier",
            "labelSelector=app!%3Da",
            "labelSelector=app%3D%3D%3D",
            "labelSelector=app+in+()",
            "labelSelector=-bad",
            "fieldSelector=metadata.name%3Da",
            "fieldSelector=metadata.name!%3Da",
            "fieldSelector=metadata.name%3Da,metadata.namespace%3Dother",
            "fieldSelector=status.phase%3DPending",
            "fieldSelector=spec.nodeName%3D",
            "fieldSelector=status.replicas%3D0",
            "fieldSelector=type%3DOpaque",
            "fieldSelector=x",
        ];
        let parameters = [
            "limit=1",
            "limit=1",
            "limit=2",
            "limit=-1",
            "limit=x",
            "limit=1&continue={continue}",
            "continue={continue}",
            "continue=bogus",
            "limit=1&continue={continue}&resourceVersion=0",
            "resourceVersion=0",
            "resourceVersion=x",
            "resourceVersion={rv}",
            "resourceVersion=99999999999",
            "resourceVersion={rv}&resourceVersionMatch=Exact",
            "resourceVersion={rv}&resourceVersionMatch=NotOlderThan",
            "resourceVersion=0&resourceVersionMatch=Exact",
            "resourceVersionMatch=Exact",
            "resourceVersionMatch=Bogus",
            "sendInitialEvents=true",
            "timeoutSeconds=x",
            "unknown=x",
        ];
        let parameters =
            if self.chance(40) || self.has("cluster") { &selectors[..] } else { &parameters[..] };
        let path = self.query(&collection, 50, parameters);
        let path = if self.has("cluster") {
            let (separator, rest) = path.split_once('?').map_or(("", ""), |(_, rest)| ("&", rest));
            format!("{collection}?fieldSelector=metadata.name%3D{}-a{separator}{rest}", self.namespace)
        } else {
            path
        };
        DrawnRequest::new("GET", path)
    }

    fn update(&mut self) -> DrawnRequest {
        let (name, path) = self.item();
        let part = self.part(30);
        let mut object = if part == "/scale" { self.scale(&name) } else { self.object(&name) };
        match self.random.u32(..10) {
            0..4 => set(&mut object, "/metadata/resourceVersion", json!("{rv}")),
            4 => set(&mut object, "/metadata/resourceVersion", json!("1")),
            _ => (),
        }
        let (media_type, body) =
            if part == "/scale" { (JSON, object.to_string()) } else { self.body(&object) };
        let path = self.query(&format!("{path}{part}"), 15, &Self::WRITE_PARAMETERS);
        DrawnRequest { media_type, body, ..DrawnRequest::new("PUT", path) }
    }

    fn scale(&mut self, name: &str) -> Value {
        let replicas = self.one_of(&[json!(2), json!(0), json!(3), Value::Null].each_ref()).clone();
        let namespace = &self.namespace;
        json!({
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"replicas": replicas},
        })
    }

    fn patch(&mut self) -> DrawnRequest {
        let (name, path) = self.item();
        let part = self.part(25);
        let path = format!("{path}{part}");
        // Without server-side apply of a scale.
        let (media_type, patch) = match self.random.u32(..if part == "/scale" { 3 } else { 4 }) {
            0 => ("application/json-patch+json", self.json_patch()),
            1 => ("application/merge-patch+json", self.merge_patch(part)),
            2 => {
                let strategic = self.kind["strategic"].as_array();
                let patch = match strategic {
                    Some(patches) if self.chance(60) => patches[self.random.usize(..patches.len())].clone(),
                    _ => self.merge_patch(part),
                };
                ("application/strategic-merge-patch+json", patch)
            }
            _ => {
                // Upstream's messages about invalid configurations are those of another library.
                self.valid = true;
                let configuration = self.apply(&name, part);
                self.valid = false;
                ("application/apply-patch+yaml", configuration)
            }
        };
        let mut parameters = Self::WRITE_PARAMETERS.to_vec();
        let mut path = path;
        if media_type.contains("apply") {
            path = match self.random.u32(..12) {
                0 => path,
                1..5 => format!("{path}?fieldManager=m1"),
                5..8 => format!("{path}?fieldManager=m2"),
                _ => format!("{path}?fieldManager=m2&force=true"),
            };
            parameters.retain(|parameter| !parameter.starts_with("fieldManager"));
        } else {
            parameters.push("force=true");
        }
        let drawn = self.query("", 15, &parameters);
        let path = if path.contains('?') { path + &drawn.replacen('?', "&", 1) } else { path + &drawn };
        let (_, body) = match self.body(&patch) {
            // Messages about YAML depend on the parser.
            (JSON, body) if !media_type.contains("yaml") => (JSON, body),
            _ => (JSON, patch.to_string()),
        };
        DrawnRequest { media_type, body, ..DrawnRequest::new("PATCH", path) }
    }

    fn json_patch(&mut self) -> Value {
        let mut operations = Vec::new();
        for _ in 0..self.random.usize(1..4) {
            let (mut pointer, value) = self.field();
            if self.chance(10) {
                pointer += self.one_of(&["/-", "/0", "/x", "~2", "/"]);
            }
            let from = self.field().0;
            let op =
                self.one_of(&["add", "add", "replace", "replace", "remove", "test", "copy", "move", "bogus"]);
            operations.push(match op {
                "copy" | "move" => json!({"op": op, "from": from, "path": pointer}),
                "remove" => json!({"op": op, "path": pointer}),
                _ => json!({"op": op, "path": pointer, "value": value}),
            });
        }
        json!(operations)
    }

    /// Object with drawn fields only, without those in lists.
    fn merge_patch(&mut self, part: &str) -> Value {
        let mut patch = json!({});
        if part == "/scale" {
            return json!({"spec": {"replicas": self.random.u32(..4)}});
        }
        for _ in 0..self.random.usize(1..3) {
            let (pointer, value) = self.field();
            if !pointer.contains("/0/") {
                set(&mut patch, &pointer, value);
            }
        }
        patch
    }

    fn apply(&mut self, name: &str, part: &str) -> Value {
        // Upstream's validation of the other kinds reports more about incomplete objects.
        if self.kind.get("strategic").is_none() || self.chance(50) {
            return self.object(name);
        }
        let mut patch = self.merge_patch(part);
        for member in ["apiVersion", "kind"] {
            if patch.get(member).is_none() {
                patch[member] = self.kind["object"][member].clone();
            }
        }
        if patch["metadata"].is_object() && patch["metadata"].get("name").is_none()
            || patch.get("metadata").is_none()
        {
            patch["metadata"]["name"] = json!(name);
        }
        patch
    }

    fn delete(&mut self) -> DrawnRequest {
        let (_, path) = self.item();
        let parameters = [
            "dryRun=All",
            "gracePeriodSeconds=0",
            "gracePeriodSeconds=5",
            "gracePeriodSeconds=-1",
            "gracePeriodSeconds=x",
            "propagationPolicy=Foreground",
            "propagationPolicy=Orphan",
            "propagationPolicy=Bogus",
            "orphanDependents=true",
        ];
        let path = self.query(&path, 20, &parameters);
        let options = [
            "",
            "",
            "",
            r#"{"kind":"DeleteOptions","apiVersion":"v1"}"#,
            r#"{"kind":"DeleteOptions","apiVersion":"v1","propagationPolicy":"Foreground"}"#,
            r#"{"propagationPolicy":"Background","gracePeriodSeconds":3}"#,
            r#"{"propagationPolicy":"Orphan","orphanDependents":true}"#,
            r#"{"preconditions":{"uid":"{uid}"}}"#,
            r#"{"preconditions":{"uid":"x"}}"#,
            r#"{"preconditions":{"resourceVersion":"{rv}"}}"#,
            r#"{"preconditions":{"resourceVersion":"1"}}"#,
            r#"{"dryRun":["All"]}"#,
            r#"{"dryRun":["Bogus"]}"#,
            r#"{"gracePeriodSeconds":"x"}"#,
            r#"{"unknown":1}"#,
            r#"{"kind":"Pod","apiVersion":"v1"}"#,
            "[]",
            "{",
        ];
        DrawnRequest { body: self.one_of(&options).to_owned(), ..DrawnRequest::new("DELETE", path) }
    }

    fn delete_collection(&mut self) -> DrawnRequest {
        let collection = self.collection();
        if self.has("cluster") {
            // Other sequences have objects there.
            return DrawnRequest::new(
                "DELETE",
                format!("{collection}?fieldSelector=metadata.name%3D{}-b", self.namespace),
            );
        }
        let parameters = [
            "labelSelector=app%3Da",
            "labelSelector=-bad",
            "fieldSelector=metadata.name%3Db",
            "dryRun=All",
            "limit=1",
            "propagationPolicy=Orphan",
            "gracePeriodSeconds=0",
        ];
        let path = self.query(&collection, 60, &parameters);
        DrawnRequest::new("DELETE", path)
    }

    /// A request with a path, method or media type that is not served.
    fn invalid(&mut self) -> DrawnRequest {
        let (name, path) = self.item();
        let collection = self.collection();
        let body = self.object(&name).to_string();
        match self.random.u32(..12) {
            // Upstream creates a custom resource whatever name the path has.
            0 if !collection.contains("/widgets") => DrawnRequest { body, ..DrawnRequest::new("POST", path) },
            1 => DrawnRequest { body, ..DrawnRequest::new("PUT", collection) },
            2 => DrawnRequest::new("PATCH", collection),
            3 => DrawnRequest::new("GET", format!("{path}/bogus")),
            4 => DrawnRequest { body, ..DrawnRequest::new("POST", format!("{path}/status")) },
            5 => DrawnRequest { body, ..DrawnRequest::new("PATCH", path) },
            6 => DrawnRequest {
                body,
                media_type: "application/json-patch+json",
                ..DrawnRequest::new("PATCH", path)
            },
            7 => DrawnRequest::new("GET", collection.replacen("/v", "/v9", 1)),
            8 => DrawnRequest::new("DELETE", format!("{path}/status")),
            9 => DrawnRequest { accept: "application/xml", ..DrawnRequest::new("GET", path) },
            10 => DrawnRequest::new("GET", format!("{path}/scale")),
            _ => DrawnRequest { body, ..DrawnRequest::new("POST", format!("{collection}/")) },
        }
    }
}

/// Sets the value at a pointer, with objects for missing members of its path. A pointer into a value that is no object or
/// list, or behind the end of a list, has no effect.
fn set(object: &mut Value, pointer: &str, value: Value) {
    let mut place = object;
    for member in pointer.split('/').skip(1) {
        let member = member.replace("~1", "/");
        if place.is_null() {
            *place = json!({});
        }
        let next = match place {
            Value::Object(map) => map.entry(member).or_insert(Value::Null),
            Value::Array(list) => match member.parse::<usize>().ok().and_then(|index| list.get_mut(index)) {
                Some(item) => item,
                None => return,
            },
            _ => return,
        };
        place = next;
    }
    *place = value;
}

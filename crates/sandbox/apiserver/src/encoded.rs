//! Compact form of an object: its JSON text, in which parts that other objects contain, too, are held once.

use std::{
    borrow::Borrow,
    collections::HashSet,
    fmt,
    hash::{Hash, Hasher},
    sync::Arc,
};

use parking_lot::Mutex;
use serde_json::{Map, Value};

use crate::{
    Resource,
    json::{bool_at, list_at, str_at, write_json},
    schema::ordered::{Order, Ordered},
};

/// Minimum length in bytes of a shared part. A reference to a shorter part takes about as much memory as its text.
const MIN_SHARED: usize = 64;

/// Numbers of shared texts, and of their bytes, at which unused texts are first removed.
const SWEEP_TEXTS: usize = 1024;
const SWEEP_BYTES: usize = 1 << 20;

/// Immutable text that several objects may refer to. A reference is one pointer, because there are more of them than
/// texts.
#[derive(Clone)]
pub(crate) struct SharedText(Arc<Box<[u8]>>);

impl SharedText {
    /// `true` if both refer to the same memory.
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Borrow<[u8]> for SharedText {
    fn borrow(&self) -> &[u8] {
        &self.0
    }
}

impl Hash for SharedText {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl PartialEq for SharedText {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for SharedText {}

/// Set of the shared texts of a store.
///
/// Unused texts are removed when the set has doubled since the last removal, so it contains at most about twice as much
/// as the objects refer to.
#[derive(Default)]
pub(crate) struct SharedTexts(Mutex<TextSet>);

#[derive(Default)]
struct TextSet {
    texts: HashSet<SharedText>,
    bytes: usize,
    /// Numbers after the last removal.
    swept: (usize, usize),
}

impl SharedTexts {
    /// Returns the shared copy of `text`.
    fn share(&self, text: &[u8]) -> SharedText {
        let mut set = self.0.lock();
        if let Some(found) = set.texts.get(text) {
            return found.clone();
        }
        let shared = SharedText(Arc::new(text.into()));
        set.bytes += text.len();
        set.texts.insert(shared.clone());
        let unused = set.sweep();
        drop(set);
        drop(unused);
        shared
    }

    /// Number of texts and of their bytes.
    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize) {
        let set = self.0.lock();
        (set.texts.len(), set.bytes)
    }
}

impl TextSet {
    /// Removes the unused texts if there may be many.
    fn sweep(&mut self) -> Vec<SharedText> {
        let (texts, bytes) = self.swept;
        if self.texts.len() < 2 * texts.max(SWEEP_TEXTS) && self.bytes < 2 * bytes.max(SWEEP_BYTES) {
            return Vec::new();
        }
        let unused: Vec<SharedText> = self.texts.extract_if(|text| Arc::strong_count(&text.0) == 1).collect();
        self.bytes -= unused.iter().map(|text| text.0.len()).sum::<usize>();
        self.texts.shrink_to(2 * self.texts.len());
        self.swept = (self.texts.len(), self.bytes);
        unused
    }
}

impl fmt::Debug for SharedTexts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedTexts").finish_non_exhaustive()
    }
}

/// JSON text of an object, without its resource version.
#[derive(Clone)]
pub(crate) struct Encoded {
    /// Text without the shared parts.
    own: Box<[u8]>,
    /// Parts to insert at offsets of `own`, in order.
    parts: Box<[(u32, Part)]>,
    /// Length of the text with its parts, without the revision.
    len: u32,
    /// Length of the leading `apiVersion` and `kind`, which list items of built-in kinds do not have.
    header: u16,
}

#[derive(Clone)]
enum Part {
    Shared(SharedText),
    /// Decimal digits of the revision.
    Revision,
}

/// Fields of an object that are read without decoding it.
#[derive(Clone)]
pub(crate) struct Index {
    /// `metadata.uid`.
    pub(crate) uid: Arc<str>,
    /// Keys and values of `metadata.labels`.
    labels: SharedText,
    /// UIDs of the owners, each followed by [`BLOCKS`] or an empty string.
    owners: SharedText,
    /// `true` if there is a deletion timestamp.
    pub(crate) is_deleting: bool,
}

/// Start of the text of a custom resource.
const API_VERSION: &[u8] = b"{\"apiVersion\":";

/// Start of the path element of a pod's IP address.
const IP_KEY: &[u8] = br#""k:{\"ip\":"#;

/// Position of `part` in `text`.
fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// Separator of packed strings.
const SEPARATOR: u8 = 0;

/// Mark of an owner reference with `blockOwnerDeletion`.
const BLOCKS: &str = "blocks";

impl Index {
    /// Reads the fields. The UID is shared with `old`, the version before.
    pub(crate) fn new(object: &Value, old: Option<&Self>, texts: &SharedTexts) -> Self {
        let uid = str_at(object, &["metadata", "uid"]);
        let old_uid = old.map(|old| &old.uid).filter(|old| ***old == *uid);
        let mut labels = Vec::new();
        let members = crate::json::at(object, &["metadata", "labels"]).and_then(Value::as_object);
        for (key, value) in members.into_iter().flatten() {
            if let Some(value) = value.as_str() {
                pack(&mut labels, key);
                pack(&mut labels, value);
            }
        }
        let mut owners = Vec::new();
        for owner in list_at(object, &["metadata", "ownerReferences"]) {
            pack(&mut owners, str_at(owner, &["uid"]));
            pack(&mut owners, if bool_at(owner, &["blockOwnerDeletion"]) { BLOCKS } else { "" });
        }
        Self {
            uid: old_uid.map_or_else(|| uid.into(), Arc::clone),
            labels: texts.share(&labels),
            owners: texts.share(&owners),
            is_deleting: !str_at(object, &["metadata", "deletionTimestamp"]).is_empty(),
        }
    }

    /// Value of a label.
    pub(crate) fn label(&self, key: &str) -> Option<&str> {
        let mut strings = unpack(&self.labels);
        while let (Some(found), Some(value)) = (strings.next(), strings.next()) {
            if found == key {
                return Some(value);
            }
        }
        None
    }

    /// UIDs of the owners, and `blockOwnerDeletion` of each reference.
    pub(crate) fn owners(&self) -> impl Iterator<Item = (&str, bool)> {
        let mut strings = unpack(&self.owners);
        std::iter::from_fn(move || Some((strings.next()?, strings.next()? == BLOCKS)))
    }
}

fn pack(packed: &mut Vec<u8>, text: &str) {
    packed.extend_from_slice(text.as_bytes());
    packed.push(SEPARATOR);
}

fn unpack(packed: &SharedText) -> impl Iterator<Item = &str> {
    let strings = packed.0.strip_suffix(&[SEPARATOR]).map(|packed| packed.split(|byte| *byte == SEPARATOR));
    strings.into_iter().flatten().map(|text| std::str::from_utf8(text).unwrap_or_default())
}

impl Encoded {
    /// Encodes `object`. The place of `metadata.resourceVersion` is filled in by [`write`](Self::write).
    pub(crate) fn new(resource: Resource, object: &Value, texts: &SharedTexts) -> Self {
        let mut encoder = Encoder { texts, own: Vec::with_capacity(1024), parts: Vec::new(), shared: 0 };
        let header = encoder.object(resource, object);
        let Encoder { own, parts, shared, .. } = encoder;
        Self {
            len: u32::try_from(own.len() + shared).unwrap_or(u32::MAX),
            own: own.into(),
            parts: parts.into(),
            header: u16::try_from(header).unwrap_or_default(),
        }
    }

    /// Appends the text with `revision` as its resource version.
    pub(crate) fn write(&self, revision: u64, text: &mut Vec<u8>) {
        self.write_from(0, revision, text);
    }

    /// Appends the text as a list item, without `apiVersion` and `kind`.
    pub(crate) fn write_without_header(&self, revision: u64, text: &mut Vec<u8>) {
        text.push(b'{');
        // The byte after the header is the comma before the next member, or the closing brace.
        let next = usize::from(self.header);
        self.write_from(if self.own.get(next) == Some(&b',') { next + 1 } else { next }, revision, text);
    }

    fn write_from(&self, start: usize, revision: u64, text: &mut Vec<u8>) {
        let mut written = start;
        for (at, part) in &self.parts {
            let at = *at as usize;
            text.extend_from_slice(self.own.get(written..at).unwrap_or_default());
            written = at;
            match part {
                Part::Shared(shared) => text.extend_from_slice(&shared.0),
                Part::Revision => text.extend_from_slice(revision.to_string().as_bytes()),
            }
        }
        text.extend_from_slice(self.own.get(written..).unwrap_or_default());
    }

    /// `apiVersion` of a custom resource. It contains no escaped characters.
    pub(crate) fn api_version(&self) -> &str {
        let text =
            self.own.strip_prefix(API_VERSION).and_then(|text| text.strip_prefix(b"\"")).unwrap_or_default();
        let end = text.iter().position(|byte| *byte == b'"').unwrap_or_default();
        text.get(..end).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
    }

    /// Approximate length of the text in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len as usize + 20
    }

    /// Approximate memory in bytes that is used if the object is kept beside `successor`, its next version.
    pub(crate) fn memory(&self, successor: Option<&Self>) -> usize {
        let own = self.own.len() + size_of_val(&*self.parts);
        let is_kept = |part: &SharedText| {
            successor.is_some_and(|successor| successor.shared().any(|other| other.is_same(part)))
        };
        own + self.shared().filter(|part| !is_kept(part)).map(|part| part.0.len()).sum::<usize>()
    }

    fn shared(&self) -> impl Iterator<Item = &SharedText> {
        self.parts.iter().filter_map(|(_, part)| match part {
            Part::Shared(text) => Some(text),
            Part::Revision => None,
        })
    }
}

struct Encoder<'a> {
    texts: &'a SharedTexts,
    own: Vec<u8>,
    parts: Vec<(u32, Part)>,
    /// Bytes in shared parts.
    shared: usize,
}

impl Encoder<'_> {
    /// Encodes an object. Returns the length of the header.
    fn object(&mut self, resource: Resource, object: &Value) -> usize {
        let order = if resource.is_custom() {
            self.own.extend_from_slice(API_VERSION);
            write_json(&mut self.own, str_at(object, &["apiVersion"]));
            Order::Names
        } else {
            self.own.extend_from_slice(resource.type_header().as_bytes());
            Order::of_kind(resource.api_version(), resource.kind())
        };
        let header = self.own.len();
        for (key, member, order) in object.as_object().into_iter().flat_map(|object| order.members(object)) {
            if key == "apiVersion" || (key == "kind" && !resource.is_custom()) {
                continue;
            }
            self.own.push(b',');
            self.key(key);
            match (key, member) {
                ("metadata", Value::Object(metadata)) => self.members(metadata, order, Self::metadata),
                // The spec of a workload: replicas and other fields vary, and the template is the same.
                ("spec", Value::Object(spec)) if spec.contains_key("template") => {
                    self.members(spec, order, |encoder, key, value| match key {
                        "template" => encoder.shared(value),
                        _ => encoder.value(value),
                    });
                }
                ("kind" | "status", _) => self.value(Ordered(member, order)),
                _ => self.shared(Ordered(member, order)),
            }
        }
        self.own.push(b'}');
        header
    }

    fn metadata(&mut self, key: &str, value: Ordered<'_>) {
        match (key, value.0) {
            ("resourceVersion", _) => {
                self.own.push(b'"');
                self.part(Part::Revision);
                self.own.push(b'"');
            }
            ("labels" | "annotations" | "ownerReferences", _) => self.shared(value),
            ("managedFields", Value::Array(managers)) => {
                self.own.push(b'[');
                for (index, manager) in managers.iter().enumerate() {
                    if index > 0 {
                        self.own.push(b',');
                    }
                    match manager {
                        Value::Object(manager) => self.manager(manager, value.1.of_elements()),
                        other => self.value(Ordered::new(other)),
                    }
                }
                self.own.push(b']');
            }
            _ => self.value(value),
        }
    }

    /// Encodes an entry of the managed fields. Many objects have the same entry with another time, and some field sets
    /// contain the IP address of a pod.
    fn manager(&mut self, manager: &Map<String, Value>, order: Order<'_>) {
        let mut start = self.own.len();
        self.members(manager, order, |encoder, key, value| match (key, value.0) {
            ("time", time) => {
                encoder.share_from(start);
                encoder.value(Ordered::new(time));
                start = encoder.own.len();
            }
            ("fieldsV1", _) => {
                let fields = encoder.own.len();
                encoder.value(value);
                if let Some(key) = find(&encoder.own[fields..], IP_KEY) {
                    let rest = encoder.own.split_off(fields + key);
                    encoder.share_from(start);
                    let (key, rest) = rest.split_at(find(&rest, b"}").unwrap_or_default());
                    encoder.own.extend_from_slice(key);
                    start = encoder.own.len();
                    encoder.own.extend_from_slice(rest);
                }
            }
            _ => encoder.value(value),
        });
        self.share_from(start);
    }

    fn members(
        &mut self,
        members: &Map<String, Value>,
        order: Order<'_>,
        mut encode: impl FnMut(&mut Self, &str, Ordered<'_>),
    ) {
        self.own.push(b'{');
        for (index, (key, value, order)) in order.members(members).into_iter().enumerate() {
            if index > 0 {
                self.own.push(b',');
            }
            self.key(key);
            encode(self, key, Ordered(value, order));
        }
        self.own.push(b'}');
    }

    fn key(&mut self, key: &str) {
        write_json(&mut self.own, key);
        self.own.push(b':');
    }

    fn value(&mut self, value: Ordered<'_>) {
        write_json(&mut self.own, &value);
    }

    /// Encodes a value that other objects or versions are likely to contain, too.
    fn shared(&mut self, value: Ordered<'_>) {
        let start = self.own.len();
        self.value(value);
        self.share_from(start);
    }

    /// Shares the text from `start` on, if it is long.
    fn share_from(&mut self, start: usize) {
        if self.own.len() - start >= MIN_SHARED {
            let text = self.texts.share(&self.own[start..]);
            self.shared += text.0.len();
            self.own.truncate(start);
            self.part(Part::Shared(text));
        }
    }

    fn part(&mut self, part: Part) {
        // Objects are limited to 1.5 MiB.
        self.parts.push((u32::try_from(self.own.len()).unwrap_or(u32::MAX), part));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(name: &str, phase: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {"app": "web", "pod-template-hash": "7d4b9c6f58", "tier": "frontend-of-the-shop"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u-1"}],
                "resourceVersion": "",
                "uid": name,
            },
            "spec": {"containers": [{"name": "main", "image": "registry.example/a-long-name/of-an-image:1"}]},
            "status": {"phase": phase},
        })
    }

    fn text(encoded: &Encoded, revision: u64) -> Value {
        let mut text = Vec::new();
        encoded.write(revision, &mut text);
        serde_json::from_slice(&text).unwrap()
    }

    #[test]
    fn managed_fields_are_shared_without_times_and_addresses() {
        let encode = |texts: &SharedTexts, second: u8| {
            let fields = json!({"f:status": {"f:phase": {}, "f:podIPs": {
                format!(r#"k:{{"ip":"10.0.0.{second}"}}"#): {".": {}, "f:ip": {}}}, "f:startTime": {}}});
            let mut object = pod("a", "Running");
            object["metadata"]["managedFields"] = json!([{
                "manager": "kubelet-of-the-shop", "operation": "Update", "apiVersion": "v1",
                "time": format!("2026-01-01T00:00:0{second}Z"), "fieldsType": "FieldsV1", "fieldsV1": fields,
                "subresource": "status",
            }]);
            let encoded = Encoded::new(Resource::PODS, &object, texts);
            object["metadata"]["resourceVersion"] = json!("1");
            assert_eq!(text(&encoded, 1), object);
        };
        let texts = SharedTexts::default();
        encode(&texts, 1);
        let before = texts.len();
        encode(&texts, 2);
        assert_eq!(texts.len(), before);
    }

    #[test]
    fn text_is_that_of_the_object() {
        let texts = SharedTexts::default();
        let mut object = pod("a", "Running");
        let encoded = Encoded::new(Resource::PODS, &object, &texts);
        object["metadata"]["resourceVersion"] = json!("42");
        assert_eq!(text(&encoded, 42), object);
        let mut item = Vec::new();
        encoded.write_without_header(42, &mut item);
        let members = object.as_object_mut().unwrap();
        members.remove("apiVersion");
        members.remove("kind");
        assert_eq!(serde_json::from_slice::<Value>(&item).unwrap(), object);
    }

    #[test]
    fn object_without_members_has_a_header_only() {
        let encoded = Encoded::new(Resource::PODS, &json!({}), &SharedTexts::default());
        assert_eq!(text(&encoded, 1), json!({"apiVersion": "v1", "kind": "Pod"}));
        let custom = Resource::custom("example.com", "websites", "Website", true).unwrap();
        let encoded = Encoded::new(custom, &json!({"apiVersion": "example.com/v1"}), &SharedTexts::default());
        assert_eq!(encoded.api_version(), "example.com/v1");
        let mut item = Vec::new();
        encoded.write_without_header(1, &mut item);
        assert_eq!(item, b"{}");
    }

    #[test]
    fn equal_parts_are_held_once() {
        let texts = SharedTexts::default();
        let first = Encoded::new(Resource::PODS, &pod("a", "Pending"), &texts);
        let held = texts.len();
        let later = Encoded::new(Resource::PODS, &pod("a", "Running"), &texts);
        assert_eq!(texts.len(), held);
        assert_eq!(later.shared().count(), 3, "labels, owners and spec");
        assert!(first.memory(Some(&later)) < first.memory(None) - 3 * MIN_SHARED);
    }

    #[test]
    fn template_of_a_workload_is_shared_between_scales() {
        let texts = SharedTexts::default();
        let deployment = |replicas| {
            let template = &pod("", "")["spec"];
            let object =
                json!({"metadata": {}, "spec": {"replicas": replicas, "template": {"spec": template}}});
            Encoded::new(Resource::DEPLOYMENTS, &object, &texts)
        };
        let (one, two) = (deployment(1), deployment(2));
        assert!(one.shared().next().unwrap().is_same(two.shared().next().unwrap()));
    }

    #[test]
    fn unused_texts_are_removed() {
        let texts = SharedTexts::default();
        let kept = texts.share(b"kept");
        for number in 0..100_000 {
            texts.share(format!("text {number}").as_bytes());
        }
        assert!(texts.len().0 <= 2 * SWEEP_TEXTS, "{:?}", texts.len());
        assert!(texts.share(b"kept").is_same(&kept));
        for number in 0..100 {
            texts.share(format!("{number}{}", "x".repeat(SWEEP_BYTES / 2)).as_bytes());
        }
        assert!(texts.len().1 <= 3 * SWEEP_BYTES, "{:?}", texts.len());
    }

    #[test]
    fn index_has_labels_and_owners() {
        let mut pod = pod("a", "");
        let blocks = json!({"uid": "u-2", "blockOwnerDeletion": true});
        pod["metadata"]["ownerReferences"].as_array_mut().unwrap().push(blocks);
        let index = Index::new(&pod, None, &SharedTexts::default());
        assert_eq!((index.label("app"), index.label("web"), &*index.uid), (Some("web"), None, "a"));
        assert_eq!(index.owners().collect::<Vec<_>>(), [("u-1", false), ("u-2", true)]);
        assert!(!index.is_deleting);
        let index = Index::new(&json!({}), None, &SharedTexts::default());
        assert_eq!((index.label(""), index.owners().count()), (None, 0));
    }
}

//! Reads the types from `types.txt`, which explains its format. Tests compare the file with k8s-openapi.

use std::collections::{BTreeMap, HashMap};

use super::{
    DOCUMENT_TYPES, DOCUMENTS, Field, KINDS, Presence, Schema, Struct, StructId, Type, Wire, find, order,
};

pub(super) const TYPES: &str = include_str!("types.txt");

/// Type, or type that Go embeds in others.
pub(super) struct Message {
    pub(super) package: &'static str,
    pub(super) name: &'static str,
    pub(super) entries: Vec<(u32, Entry)>,
}

/// Meaning of a field number.
pub(super) enum Entry {
    Field { name: &'static str, presence: Presence, go_name: Option<&'static str>, ty: &'static str },
    Inline(&'static str),
}

/// Fields of every kind, which protobuf lacks.
const TYPE_META: &[&str] = &["kind", "apiVersion"];

/// Returns the schema of [`KINDS`] and [`DOCUMENTS`].
pub(super) fn read() -> Schema {
    let messages = parse().into_iter().map(|message| ((message.package, message.name), message.entries));
    let mut reader = Reader { messages: &messages.collect(), schema: Schema::default() };
    for (api_version, kind) in KINDS {
        let id = reader.type_of(&package_of(api_version, kind), kind, TYPE_META);
        reader.schema.kinds.push((api_version, kind, id));
    }
    for kind in DOCUMENTS {
        let id = reader.type_of(DOCUMENT_TYPES, kind, TYPE_META);
        reader.schema.documents.push((kind, id));
    }
    reader.schema
}

/// Returns `core/v1` for `v1`, and `apiextensions/v1` for `apiextensions.k8s.io/v1`.
fn package_of(api_version: &str, kind: &str) -> String {
    let (group, version) = api_version.split_once('/').unwrap_or(("core", api_version));
    let group = if kind == "DeleteOptions" { "meta" } else { group };
    format!("{}/{version}", group.split('.').next().unwrap_or_default())
}

struct Reader<'a> {
    /// Entries by package and name.
    messages: &'a HashMap<(&'static str, &'static str), Vec<(u32, Entry)>>,
    schema: Schema,
}

impl Reader<'_> {
    /// Returns the ID of a type. A new type is added, with the fields `unnumbered`, which protobuf lacks.
    fn type_of(&mut self, package: &str, name: &str, unnumbered: &[&'static str]) -> StructId {
        let structs = &mut self.schema.structs;
        let known = structs.iter().position(|known| known.name == name && known.package == package);
        let index = known.unwrap_or(structs.len());
        if known.is_none() {
            structs.push(Struct {
                package: package.to_owned(),
                name: name.to_owned(),
                fields: Vec::new(),
                wire: BTreeMap::new(),
            });
            let mut fields = Vec::new();
            for name in unnumbered {
                let (ty, rank) = (Type::Text, fields.len());
                fields.push(Field { name, ty, presence: Presence::NotEmpty, go_name: None, rank });
            }
            self.add_fields(package, name, &mut fields);
            fields.sort_by_key(|field| order(field.name));
            let wire = self.wire(package, name, &fields);
            if let Some(new) = self.schema.structs.get_mut(index) {
                (new.fields, new.wire) = (fields, wire);
            }
        }
        StructId(u16::try_from(index).unwrap_or(u16::MAX))
    }

    /// Adds the fields of a message and of those that it embeds.
    fn add_fields(&mut self, package: &str, message: &str, fields: &mut Vec<Field>) {
        let messages = self.messages;
        for (_, entry) in messages.get(&(package, message)).into_iter().flatten() {
            match *entry {
                Entry::Inline(inlined) => self.add_fields(package, inlined, fields),
                Entry::Field { name, presence, go_name, ty } => {
                    let ty = self.field_type(package, ty);
                    let presence = match (&ty, presence) {
                        // A struct that Go does not always write is behind a pointer.
                        (Type::Struct(_), Presence::NotEmpty) => Presence::Given,
                        _ => presence,
                    };
                    fields.push(Field { name, ty, presence, go_name, rank: fields.len() });
                }
            }
        }
    }

    fn field_type(&mut self, package: &str, ty: &str) -> Type {
        let (list, map) = (ty.strip_prefix("[]"), ty.strip_prefix("map[string]"));
        match (ty, list.or(map)) {
            ("[]byte", _) => Type::Bytes,
            (_, Some(element)) => {
                let element = Box::new(self.field_type(package, element));
                if list.is_some() { Type::List(element) } else { Type::Map(element) }
            }
            ("bool", _) => Type::Bool,
            ("int32", _) => Type::Int32,
            ("int64", _) => Type::Int64,
            ("string", _) => Type::Text,
            ("Time", _) => Type::Time,
            ("MicroTime", _) => Type::MicroTime,
            ("Quantity", _) => Type::Quantity,
            ("IntOrString", _) => Type::IntOrString,
            ("any", _) => Type::Any,
            _ => {
                let (package, name) = ty.rsplit_once('.').unwrap_or((package, ty));
                Type::Struct(self.type_of(package, name, &[]))
            }
        }
    }

    /// Returns the wire format of a message. Its fields belong to the type with `fields`.
    fn wire(&self, package: &str, message: &str, fields: &[Field]) -> BTreeMap<u32, Wire> {
        let wire = |(number, entry): &(u32, Entry)| match *entry {
            Entry::Inline(name) => Some((*number, Wire::Inline(name, self.wire(package, name, fields)))),
            Entry::Field { name, .. } => Some((*number, Wire::Field(find(fields, name)?))),
        };
        self.messages.get(&(package, message)).into_iter().flatten().filter_map(wire).collect()
    }
}

/// Returns the messages in the order of the file.
pub(super) fn parse() -> Vec<Message> {
    let mut messages: Vec<Message> = Vec::new();
    let mut package = "";
    for line in TYPES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(section) = line.strip_prefix('[') {
            package = section.trim_end_matches(']');
            continue;
        }
        let mut entries = line;
        if let Some((name, first)) = line.split_once(": ").filter(|_| !line.starts_with(' ')) {
            messages.push(Message { package, name, entries: Vec::new() });
            entries = first;
        }
        if let Some(message) = messages.last_mut() {
            message.entries.extend(entries.split(',').filter_map(|entry| parse_entry(entry.trim())));
        }
    }
    messages
}

fn parse_entry(text: &'static str) -> Option<(u32, Entry)> {
    let (number, rest) = text.split_once(' ')?;
    let number = number.parse().ok()?;
    if let Some(inlined) = rest.strip_prefix('+') {
        return Some((number, Entry::Inline(inlined)));
    }
    let (rest, ty) = rest.split_once(' ').unwrap_or((rest, "string"));
    let (rest, go_name) = rest.split_once(':').map_or((rest, None), |(rest, name)| (rest, Some(name)));
    let (name, presence) = match (rest.strip_suffix('*'), rest.strip_suffix('!')) {
        (Some(name), _) => (name, Presence::Given),
        (_, Some(name)) => (name, Presence::Always),
        _ => (rest, Presence::NotEmpty),
    };
    Some((number, Entry::Field { name, presence, go_name, ty }))
}

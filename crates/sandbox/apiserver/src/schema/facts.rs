//! Properties of fields that JSON schemas lack: protobuf numbers, pointers, always-written fields.
//!
//! The data is in `facts.txt`, which explains its format. Fields that are not listed are decoded as optional fields
//! without protobuf number. Tests check that all fields are listed.

use std::collections::{BTreeMap, HashMap};

use super::{Field, Presence, Schema, Type, Wire, find};

const FACTS: &str = include_str!("facts.txt");

/// Meaning of a field number.
enum Entry {
    Field { name: &'static str, presence: Presence, go_name: Option<&'static str> },
    Inline(&'static str),
}

type Facts = HashMap<(&'static str, &'static str), Vec<(u32, Entry)>>;

/// Adds the properties to the types of `schema`.
pub(super) fn apply(schema: &mut Schema) {
    let facts = parse();
    for target in &mut schema.structs {
        target.wire = message(&facts, &target.package, &target.name, &mut target.fields);
    }
}

/// Parses the protobuf message `name`. Its fields belong to the struct with `fields`.
fn message(facts: &Facts, package: &str, name: &str, fields: &mut [Field]) -> BTreeMap<u32, Wire> {
    let mut wire = BTreeMap::new();
    for (number, entry) in facts.get(&(package, name)).into_iter().flatten() {
        match entry {
            Entry::Inline(inlined) => {
                wire.insert(*number, Wire::Inline(inlined, message(facts, package, inlined, fields)));
            }
            Entry::Field { name, presence, go_name } => {
                let Some(position) = find(fields, name) else { continue };
                if let Some(field) = fields.get_mut(position) {
                    field.go_name = *go_name;
                    field.presence = match (&field.ty, presence) {
                        // A struct that Go does not always write is behind a pointer.
                        (Type::Struct(_), Presence::NotEmpty) => Presence::Given,
                        _ => *presence,
                    };
                    wire.insert(*number, Wire::Field(position));
                }
            }
        }
    }
    wire
}

fn parse() -> Facts {
    let mut facts = Facts::new();
    let (mut package, mut name) = ("", "");
    for line in FACTS.lines().filter(|line| !line.starts_with('#')) {
        if let Some(section) = line.strip_prefix('[') {
            package = section.trim_end_matches(']');
            continue;
        }
        let entries = match line.split_once(": ") {
            Some((start, entries)) if !line.starts_with(' ') => {
                name = start;
                entries
            }
            _ => line,
        };
        let entries = entries.split(',').filter_map(|entry| parse_entry(entry.trim()));
        facts.entry((package, name)).or_default().extend(entries);
    }
    facts
}

fn parse_entry(text: &'static str) -> Option<(u32, Entry)> {
    let (number, rest) = text.split_once(' ')?;
    let number = number.parse().ok()?;
    if let Some(inlined) = rest.strip_prefix('+') {
        return Some((number, Entry::Inline(inlined)));
    }
    let (rest, go_name) = match rest.split_once(':') {
        Some((rest, go_name)) => (rest, Some(go_name)),
        None => (rest, None),
    };
    let (name, presence) = match (rest.strip_suffix('*'), rest.strip_suffix('!')) {
        (Some(name), _) => (name, Presence::Given),
        (_, Some(name)) => (name, Presence::Always),
        _ => (rest, Presence::NotEmpty),
    };
    Some((number, Entry::Field { name, presence, go_name }))
}

//! The API's types as data: what fields each object has, and what Go makes of them.
//!
//! Two sources make it up. The structure — which struct has which field of which type — is
//! [traced](trace) from k8s-openapi, so it is exactly that of the Kubernetes version the workspace chose.
//! What JSON schemas cannot say — protobuf numbers, which fields are pointers in Go and so keep an explicit
//! zero, which are written even when they are zero — comes from `facts.txt` (see [`facts`]).
//!
//! Decoding ([`crate::strict`], [`crate::protobuf`]) and strategic merges ([`crate::patch`]) walk this table;
//! none of them has code for a single type.

use std::{collections::HashMap, sync::LazyLock};

#[cfg(test)]
pub(crate) mod arbitrary;
mod facts;
mod kinds;
#[cfg(test)]
mod tests;
mod trace;

#[cfg(test)]
pub(crate) use kinds::ALL as ALL_KINDS;

/// Which struct, within a [`Schema`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct StructId(u16);

/// The type of a field, as it looks in JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Type {
    Bool,
    Int32,
    Int64,
    Text,
    /// Base64 in JSON.
    Bytes,
    /// Whole seconds.
    Time,
    /// Six digits of a second.
    MicroTime,
    Quantity,
    IntOrString,
    /// JSON that is kept as it is: `RawExtension`, `FieldsV1`.
    Any,
    List(Box<Self>),
    /// Keys are strings.
    Map(Box<Self>),
    Struct(StructId),
}

/// When Go's JSON has a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Presence {
    /// Not when it is zero or empty (`omitempty` on a plain value).
    #[default]
    NotEmpty,
    /// When it was given, be it zero (a pointer).
    Given,
    /// Always (no `omitempty`, or a struct that is not a pointer, which `omitempty` does not concern).
    Always,
}

/// A field of a [`Struct`].
#[derive(Debug, Clone)]
pub(crate) struct Field {
    /// In JSON.
    pub(crate) name: &'static str,
    pub(crate) ty: Type,
    pub(crate) presence: Presence,
    /// The name of its type in Go where that is a named string, such as `RestartPolicy`.
    pub(crate) go_name: Option<&'static str>,
}

/// What stands under a number of a protobuf message.
#[derive(Debug, Clone)]
pub(crate) enum Wire {
    /// The field with this index.
    Field(usize),
    /// A message whose fields belong to the struct around it (Go embeds it), and its name.
    Inline(&'static str, HashMap<u32, Self>),
}

/// A type with fields.
#[derive(Debug)]
pub(crate) struct Struct {
    /// The group and version that define it, `core/v1`; `meta/v1` for those of all groups.
    pub(crate) package: String,
    /// Without package.
    pub(crate) name: String,
    /// Sorted as [`order`] has it.
    pub(crate) fields: Vec<Field>,
    /// By protobuf number.
    pub(crate) wire: HashMap<u32, Wire>,
}

/// The order of a struct's fields: by length, then by name. Looking one up is mostly comparing lengths.
fn order(name: &str) -> (usize, &str) {
    (name.len(), name)
}

/// The place of the field called `name`.
fn find(fields: &[Field], name: &str) -> Option<usize> {
    fields.binary_search_by(|field| order(field.name).cmp(&order(name))).ok()
}

impl Struct {
    /// The place of the field called `name` in `fields`.
    pub(crate) fn position(&self, name: &str) -> Option<usize> {
        find(&self.fields, name)
    }

    /// The field called `name`.
    pub(crate) fn field(&self, name: &str) -> Option<&Field> {
        self.position(name).and_then(|position| self.fields.get(position))
    }

    /// As Go prints it: the last element of the package, and the name.
    pub(crate) fn go_type(&self) -> String {
        format!("{}.{}", self.go_package(), self.name)
    }

    fn go_package(&self) -> &str {
        self.package.rsplit('/').next().unwrap_or(&self.package)
    }
}

/// All kinds this server can decode, and all types they are made of.
#[derive(Debug, Default)]
pub(crate) struct Schema {
    structs: Vec<Struct>,
    kinds: Vec<(&'static str, &'static str, StructId)>,
}

/// The table. Built when first used; that takes about a millisecond.
pub(crate) static SCHEMA: LazyLock<Schema> = LazyLock::new(|| {
    let mut schema = Schema::default();
    kinds::trace_all(&mut schema);
    facts::apply(&mut schema);
    schema
});

impl Schema {
    /// The type with this id.
    pub(crate) fn get(&self, id: StructId) -> &Struct {
        // Ids are only made together with the entry they stand for.
        &self.structs[usize::from(id.0)]
    }

    /// The kind as it is in `api_version`. `DeleteOptions` is part of every group.
    pub(crate) fn kind(&self, api_version: &str, kind: &str) -> Option<StructId> {
        self.kinds
            .iter()
            .find(|(version, name, _)| *name == kind && (*version == api_version || kind == "DeleteOptions"))
            .map(|(_, _, id)| *id)
    }

    /// The kind in the first version that is known: the newest where there are several.
    pub(crate) fn kind_in_any_version(&self, kind: &str) -> Option<StructId> {
        self.kinds.iter().find(|(_, name, _)| *name == kind).map(|(_, _, id)| *id)
    }

    /// The types of this name, in whatever package.
    #[cfg(test)]
    pub(crate) fn structs_named(&self, name: &str) -> impl Iterator<Item = &Struct> {
        self.structs.iter().filter(move |known| known.name == name)
    }

    /// `ty` as Go's error messages print it.
    pub(crate) fn go_type(&self, ty: &Type, within: &Struct, field: &Field) -> String {
        match ty {
            Type::Bool => "bool".to_owned(),
            Type::Int32 => "int32".to_owned(),
            Type::Int64 => "int64".to_owned(),
            Type::Text => match field.go_name {
                Some(name) if name.contains('.') => name.to_owned(),
                Some(name) => format!("{}.{name}", within.go_package()),
                None => "string".to_owned(),
            },
            Type::Bytes => "[]uint8".to_owned(),
            Type::Time => "v1.Time".to_owned(),
            Type::MicroTime => "v1.MicroTime".to_owned(),
            Type::Quantity => "resource.Quantity".to_owned(),
            Type::IntOrString => "intstr.IntOrString".to_owned(),
            Type::Any => "interface {}".to_owned(),
            Type::List(element) => format!("[]{}", self.go_type(element, within, field)),
            Type::Map(element) if **element == Type::Quantity => "v1.ResourceList".to_owned(),
            Type::Map(element) => format!("map[string]{}", self.go_type(element, within, field)),
            Type::Struct(id) => self.get(*id).go_type(),
        }
    }
}

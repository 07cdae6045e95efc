//! Go types of pod templates.
//!
//! The pod template hash is computed from a text rendering of the Go value, so it depends on the names, types and
//! order of all fields, including unset ones (US-3.5). Templates are equal if their Go values are equal (US-4.8). The
//! types are read from a file per Kubernetes version in `schema/`.

use std::{collections::HashMap, sync::OnceLock};

use thiserror::Error;

/// Kubernetes version of the types.
///
/// A new version needs a file `schema/VERSION.txt` and a variant here.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Version {
    /// Kubernetes v1.36.
    #[default]
    V1_36,
}

/// Go types of one Kubernetes version.
#[derive(Debug)]
pub struct Schema {
    types: Vec<Type>,
    root: TypeId,
}

/// Index of a type in a [`Schema`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct TypeId(u16);

#[derive(Debug)]
pub(crate) struct Type {
    /// Name as printed by Go's `reflect`.
    pub(crate) name: Box<str>,
    pub(crate) shape: Shape,
}

#[derive(Debug)]
pub(crate) enum Shape {
    Bool,
    Int32,
    Int64,
    /// `string`, or a type defined as `string`.
    Text,
    Pointer(TypeId),
    List(TypeId),
    /// Map with string keys.
    Map(TypeId),
    Struct(Struct),
    /// `resource.Quantity`
    Quantity,
    /// `intstr.IntOrString`
    IntOrString,
    /// `v1.Time`
    Time,
    /// `v1.FieldsV1`: uninterpreted JSON.
    RawJson,
}

#[derive(Debug)]
pub(crate) struct Struct {
    pub(crate) fields: Vec<Field>,
    /// Sorted JSON names with the path to the field: its index, preceded by the indices of embedded structs.
    by_json: Vec<(Box<str>, Box<[u8]>)>,
}

#[derive(Debug)]
pub(crate) struct Field {
    /// Name in Go.
    pub(crate) name: Box<str>,
    /// `None` for an embedded struct, whose fields are members of the parent's JSON object.
    pub(crate) json: Option<Box<str>>,
    pub(crate) type_: TypeId,
    /// Protobuf field number, if it is known.
    pub(crate) number: Option<u32>,
}

/// Invalid schema file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The line has none of the four forms.
    #[error("schema line {0}: not understood")]
    Line(usize),
    /// A type is used but not defined.
    #[error("schema type {0}: not defined")]
    Undefined(Box<str>),
    /// A type is defined twice.
    #[error("schema type {0}: defined twice")]
    Twice(Box<str>),
    /// An embedded field is not a struct, or embeds its own type.
    #[error("schema type {0}: embeds what is no struct")]
    Embedded(Box<str>),
    /// The file defines no struct, or too many types.
    #[error("schema: no types, or too many")]
    Size,
}

impl Schema {
    /// Returns the types of `version`.
    pub fn of(version: Version) -> &'static Self {
        static V1_36: OnceLock<Schema> = OnceLock::new();
        let (cell, text, numbers) = match version {
            Version::V1_36 => {
                (&V1_36, include_str!("../schema/v1.36.txt"), include_str!("../schema/v1.36.protobuf.txt"))
            }
        };
        // A test parses every file, so this does not fail. Otherwise all fields would be unknown: templates would be
        // compared as JSON.
        cell.get_or_init(|| {
            let mut schema = Self::parse(text).unwrap_or_else(|_| Self::unknown());
            schema.number_fields(numbers);
            schema
        })
    }

    /// Adds protobuf field numbers. `schema/v1.36.protobuf.txt` documents the format. Fields that are not listed have none,
    /// which a test excludes.
    fn number_fields(&mut self, numbers: &str) {
        let mut by_field: HashMap<(&str, &str), u32> = HashMap::new();
        let mut type_ = "";
        for line in numbers.lines().filter(|line| !line.starts_with('#')) {
            let fields = match line.split_once(": ") {
                Some((name, fields)) if !line.starts_with(' ') => {
                    type_ = name;
                    fields
                }
                _ => line,
            };
            for (number, field) in fields.split(',').filter_map(|field| field.trim().split_once(' ')) {
                if let Ok(number) = number.parse() {
                    by_field.insert((type_, field), number);
                }
            }
        }
        let names: Vec<_> = self.types.iter().map(|type_| type_.name.clone()).collect();
        for (index, type_) in self.types.iter_mut().enumerate() {
            let Shape::Struct(shape) = &mut type_.shape else { continue };
            for field in &mut shape.fields {
                let key = match &field.json {
                    Some(json) => json.to_string(),
                    None => format!("+{}", names[usize::from(field.type_.0)]),
                };
                field.number = by_field.get(&(&*names[index], &*key)).copied();
            }
        }
    }

    /// Parses a schema file. `schema/v1.36.txt` documents the format.
    ///
    /// # Errors
    ///
    /// If `text` is invalid or incomplete.
    pub fn parse(text: &str) -> Result<Self, SchemaError> {
        Parser::default().parse(text)
    }

    fn unknown() -> Self {
        let nothing = Struct { fields: Vec::new(), by_json: Vec::new() };
        Self { types: vec![Type { name: "unknown".into(), shape: Shape::Struct(nothing) }], root: TypeId(0) }
    }

    /// Returns the type of a pod template.
    pub(crate) fn root(&self) -> TypeId {
        self.root
    }

    pub(crate) fn type_(&self, id: TypeId) -> &Type {
        // Ids are created by the parser only, so the index is in range.
        &self.types[usize::from(id.0)]
    }

    /// Returns the type that a pointer points to, or the type itself.
    pub(crate) fn pointee(&self, id: TypeId) -> TypeId {
        match self.type_(id).shape {
            Shape::Pointer(inner) => self.pointee(inner),
            _ => id,
        }
    }
}

impl Struct {
    /// Returns the index of the field with the protobuf field number `number`.
    pub(crate) fn by_number(&self, number: u32) -> Option<usize> {
        self.fields.iter().position(|field| field.number == Some(number))
    }

    /// Returns the path to the field with the JSON name `name`.
    pub(crate) fn path(&self, name: &str) -> Option<&[u8]> {
        let index = self.by_json.binary_search_by(|(json, _)| (**json).cmp(name)).ok()?;
        self.by_json.get(index).map(|(_, path)| &**path)
    }
}

#[derive(Default)]
struct Parser {
    ids: HashMap<Box<str>, TypeId>,
    /// The shape is `None` until the definition is read.
    types: Vec<(Box<str>, Option<Shape>)>,
}

impl Parser {
    fn parse(mut self, text: &str) -> Result<Schema, SchemaError> {
        let mut current: Option<TypeId> = None;
        let mut root = None;
        for (index, line) in text.lines().enumerate() {
            let is_field = line.starts_with(' ');
            let words: Vec<&str> = line.split_whitespace().collect();
            match words.as_slice() {
                [] => {}
                [first, ..] if first.starts_with('#') => {}
                [name, type_, json] if is_field => {
                    let type_ = self.id(type_)?;
                    let json = (*json != ",inline").then(|| Box::from(*json));
                    let fields =
                        current.and_then(|id| self.fields_mut(id)).ok_or(SchemaError::Line(index + 1))?;
                    fields.push(Field { name: Box::from(*name), json, type_, number: None });
                }
                ["string", name] if !is_field => {
                    self.define(name, Shape::Text)?;
                }
                ["map", name, type_] if !is_field => {
                    let id = self.id(type_)?;
                    let Some((_, Some(Shape::Map(value)))) = self.types.get(usize::from(id.0)) else {
                        return Err(SchemaError::Line(index + 1));
                    };
                    let shape = Shape::Map(*value);
                    self.define(name, shape)?;
                }
                [name] if !is_field => {
                    let nothing = Struct { fields: Vec::new(), by_json: Vec::new() };
                    let id = self.define(name, Shape::Struct(nothing))?;
                    current = Some(id);
                    root = root.or(current);
                }
                _ => return Err(SchemaError::Line(index + 1)),
            }
        }
        self.finish(root.ok_or(SchemaError::Size)?)
    }

    fn fields_mut(&mut self, id: TypeId) -> Option<&mut Vec<Field>> {
        match self.types.get_mut(usize::from(id.0)) {
            Some((_, Some(Shape::Struct(shape)))) => Some(&mut shape.fields),
            _ => None,
        }
    }

    /// Returns the id of the type `name`, which may be defined later.
    fn id(&mut self, name: &str) -> Result<TypeId, SchemaError> {
        if let Some(id) = self.ids.get(name) {
            return Ok(*id);
        }
        let shape = match name {
            "bool" => Some(Shape::Bool),
            "int32" => Some(Shape::Int32),
            "int64" => Some(Shape::Int64),
            "string" => Some(Shape::Text),
            "resource.Quantity" => Some(Shape::Quantity),
            "intstr.IntOrString" => Some(Shape::IntOrString),
            "v1.Time" => Some(Shape::Time),
            "v1.FieldsV1" => Some(Shape::RawJson),
            _ => {
                let map_value = name.strip_prefix("map[").and_then(|rest| rest.split_once(']'));
                if let Some(inner) = name.strip_prefix('*') {
                    Some(Shape::Pointer(self.id(inner)?))
                } else if let Some(inner) = name.strip_prefix("[]") {
                    Some(Shape::List(self.id(inner)?))
                } else if let Some((_, inner)) = map_value {
                    Some(Shape::Map(self.id(inner)?))
                } else {
                    None
                }
            }
        };
        let id = TypeId(u16::try_from(self.types.len()).map_err(|_| SchemaError::Size)?);
        self.types.push((name.into(), shape));
        self.ids.insert(name.into(), id);
        Ok(id)
    }

    fn define(&mut self, name: &str, shape: Shape) -> Result<TypeId, SchemaError> {
        let id = self.id(name)?;
        match self.types.get_mut(usize::from(id.0)) {
            Some((_, undefined @ None)) => *undefined = Some(shape),
            _ => return Err(SchemaError::Twice(name.into())),
        }
        Ok(id)
    }

    fn finish(self, root: TypeId) -> Result<Schema, SchemaError> {
        let defined = |(name, shape): (Box<str>, Option<Shape>)| match shape {
            Some(shape) => Ok(Type { name, shape }),
            None => Err(SchemaError::Undefined(name)),
        };
        let types = self.types.into_iter().map(defined).collect::<Result<Vec<_>, _>>()?;
        let mut schema = Schema { types, root };
        let mut lookups = Vec::new();
        for (index, type_) in schema.types.iter().enumerate() {
            if let Shape::Struct(shape) = &type_.shape {
                let mut by_json = Vec::new();
                let name = &type_.name;
                schema.collect_names(name, shape, &mut Vec::new(), &mut by_json)?;
                by_json.sort();
                lookups.push((index, by_json));
            }
        }
        for (index, by_json) in lookups {
            if let Some(Type { shape: Shape::Struct(shape), .. }) = schema.types.get_mut(index) {
                shape.by_json = by_json;
            }
        }
        Ok(schema)
    }
}

impl Schema {
    /// The JSON names of `shape`, which has been reached by `path` from the struct `name`.
    fn collect_names(
        &self,
        name: &str,
        shape: &Struct,
        path: &mut Vec<u8>,
        by_json: &mut Vec<(Box<str>, Box<[u8]>)>,
    ) -> Result<(), SchemaError> {
        /// Embedding goes one level deep in practice.
        const DEEPEST: usize = 8;
        for (index, field) in shape.fields.iter().enumerate() {
            path.push(u8::try_from(index).map_err(|_| SchemaError::Size)?);
            match (&field.json, &self.type_(field.type_).shape) {
                (Some(json), _) => by_json.push((json.clone(), path.as_slice().into())),
                (None, Shape::Struct(embedded)) if path.len() < DEEPEST => {
                    self.collect_names(name, embedded, path, by_json)?;
                }
                (None, _) => return Err(SchemaError::Embedded(name.into())),
            }
            path.pop();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_version_parses() {
        let schema = Schema::parse(include_str!("../schema/v1.36.txt")).unwrap();
        assert_eq!(&*schema.type_(schema.root()).name, "v1.PodTemplateSpec");
        assert_eq!(&*Schema::of(Version::default()).type_(schema.root()).name, "v1.PodTemplateSpec");
    }

    #[test]
    fn every_field_has_a_number() {
        for type_ in &Schema::of(Version::V1_36).types {
            if let Shape::Struct(shape) = &type_.shape {
                let mut numbers: Vec<_> = shape.fields.iter().map(|field| field.number).collect();
                numbers.sort_unstable();
                assert!(numbers.is_sorted_by(|a, b| a < b) && !numbers.contains(&None), "{}", type_.name);
            }
        }
    }

    #[test]
    fn path_of_embedded_field() {
        let schema = Schema::of(Version::V1_36);
        let volume = schema.types.iter().find(|type_| &*type_.name == "v1.Volume").unwrap();
        let Shape::Struct(volume) = &volume.shape else { panic!("a struct") };
        assert_eq!(volume.path("name"), Some(&[0][..]));
        assert_eq!(volume.path("emptyDir"), Some(&[1, 1][..]));
        assert_eq!(volume.path("volumeSource"), None);
    }

    #[test]
    fn json_names_are_unique() {
        for type_ in &Schema::of(Version::V1_36).types {
            if let Shape::Struct(shape) = &type_.shape {
                assert!(shape.by_json.is_sorted_by(|a, b| a.0 < b.0), "{}", type_.name);
            }
        }
    }

    #[test]
    fn invalid_schema_is_an_error() {
        let fault = |text| Schema::parse(text).unwrap_err();
        assert_eq!(fault(""), SchemaError::Size);
        assert_eq!(fault("# nothing\nA\n  b"), SchemaError::Line(3));
        assert_eq!(fault("  X string x"), SchemaError::Line(1));
        assert_eq!(fault("map A string"), SchemaError::Line(1));
        assert_eq!(fault("A\n  X []B x"), SchemaError::Undefined("B".into()));
        assert_eq!(fault("A\nA"), SchemaError::Twice("A".into()));
        assert_eq!(fault("string bool"), SchemaError::Twice("bool".into()));
        assert_eq!(fault("A\n  B string ,inline"), SchemaError::Embedded("A".into()));
        assert_eq!(fault("A\n  A A ,inline"), SchemaError::Embedded("A".into()));
    }
}

//! Printer columns of custom resources.
//!
//! Upstream counterpart: `apiextensions-apiserver/pkg/registry/customresource/tableconvertor`.

use jiff::Timestamp;
use kcm_apiserver::{
    JsonPath, Table,
    json::{i64_at, str_at},
};
use serde_json::{Value, json};

use super::age::since;

/// Columns of a version.
pub(super) struct Columns(Vec<Column>);

struct Column {
    definition: Value,
    ty: String,
    path: JsonPath,
}

impl Columns {
    /// Reads `additionalPrinterColumns` of a version. Without any, there is a column with the age.
    pub(super) fn parse(columns: &Value) -> Self {
        let given = columns.as_array().map_or(&[][..], Vec::as_slice);
        let age = json!({
            "name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp",
            "description": "Time since the creation of the object.",
        });
        let age = std::slice::from_ref(&age);
        Self((if given.is_empty() { age } else { given }).iter().filter_map(Column::parse).collect())
    }
}

impl Table for Columns {
    fn columns(&self) -> Value {
        let name = json!({
            "name": "Name", "type": "string", "format": "name", "priority": 0,
            "description": "Name of the object, unique within its namespace.",
        });
        std::iter::once(name).chain(self.0.iter().map(|column| column.definition.clone())).collect()
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let name = json!(str_at(object, &["metadata", "name"]));
        std::iter::once(name).chain(self.0.iter().map(|column| column.cell(object, now))).collect()
    }
}

impl Column {
    fn parse(column: &Value) -> Option<Self> {
        let text = |field: &str| str_at(column, &[field]).to_owned();
        let (path, ty) = (text("jsonPath"), text("type"));
        let description = match text("description") {
            given if given.is_empty() => {
                format!("Custom resource definition column (in JSONPath format): {path}")
            }
            given => given,
        };
        let definition = json!({
            "name": text("name"), "type": ty, "format": text("format"), "description": description,
            "priority": i64_at(column, &["priority"]).unwrap_or_default(),
        });
        Some(Self { definition, ty, path: JsonPath::parse(&path).ok()? })
    }

    /// The first value at the path. A value of another type than the column's is not shown.
    fn cell(&self, object: &Value, now: Timestamp) -> Value {
        let found = self.path.find(object);
        match (self.ty.as_str(), found.first()) {
            (_, None | Some(Value::Null)) => Value::Null,
            ("string", Some(Value::String(text))) => json!(text),
            ("string", Some(other)) => json!(other.to_string()),
            ("integer", Some(Value::Number(number))) => number
                .as_i64()
                .or(number.as_f64().map(|number| number as i64))
                .map_or(Value::Null, Value::from),
            ("number", Some(Value::Number(number))) => json!(number),
            ("boolean", Some(value @ Value::Bool(_))) => (*value).clone(),
            ("date", Some(Value::String(time))) => match time.parse::<Timestamp>() {
                Ok(_) => json!(since(time, now)),
                Err(_) => json!("<invalid>"),
            },
            _ => Value::Null,
        }
    }
}

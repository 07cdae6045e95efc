//! Kinds that are only stored: columns from the table `stored.txt`.

use jiff::Timestamp;
use kcm_apiserver::{JsonPath, Table};
use serde_json::{Value, json};

use super::{AGE, NAME, age::age, workload};

const COLUMNS: &str = include_str!("stored.txt");

/// Columns of a kind.
pub(super) struct Columns(Vec<Column>);

enum Column {
    Age,
    Other { title: &'static str, ty: &'static str, priority: i32, cell: Vec<Part> },
}

/// Part of a cell.
enum Part {
    Text(&'static str),
    Values { path: JsonPath, form: Form, absent: &'static str, texts: Vec<(&'static str, &'static str)> },
}

#[derive(PartialEq, Eq)]
enum Form {
    Plain,
    Count,
    Selector,
}

/// Returns the columns of a kind, if the table has it.
pub(super) fn columns(kind: &str) -> Option<Columns> {
    let mut lines = COLUMNS.lines().filter(|line| !line.starts_with('#'));
    let line = lines.find_map(|line| line.strip_prefix(kind)?.strip_prefix(": "))?;
    let mut columns: Vec<Column> =
        line.split("; ").filter(|column| *column != "-").filter_map(parse_column).collect();
    let is_aged = columns.iter().any(|column| matches!(column, Column::Age)) || line.ends_with("; -");
    if !is_aged {
        columns.push(Column::Age);
    }
    Some(Columns(columns))
}

fn parse_column(text: &'static str) -> Option<Column> {
    if text == "Age" {
        return Some(Column::Age);
    }
    let (head, cell) = text.split_once(" =")?;
    let (head, priority) = head.strip_suffix(" wide").map_or((head, 0), |head| (head, 1));
    let typed = ["integer", "boolean", "date"]
        .into_iter()
        .find_map(|ty| Some((head.strip_suffix(ty)?.strip_suffix(' ')?, ty)));
    let (title, ty) = typed.unwrap_or((head, "string"));
    Some(Column::Other { title, ty, priority, cell: parse_cell(cell.trim_start())? })
}

fn parse_cell(mut text: &'static str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    while !text.is_empty() {
        let (plain, rest) = text.split_at(text.find('{').unwrap_or(text.len()));
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        let Some((placeholder, rest)) = rest.strip_prefix('{').and_then(|rest| rest.split_once('}')) else {
            break;
        };
        let mut words = placeholder.split('|');
        let path = words.next()?;
        let (form, path) = match (path.strip_prefix('#'), path.strip_prefix('=')) {
            (Some(path), _) => (Form::Count, path),
            (_, Some(path)) => (Form::Selector, path),
            _ => (Form::Plain, path),
        };
        parts.push(Part::Values {
            path: JsonPath::parse(path).ok()?,
            form,
            absent: words.next().unwrap_or_default(),
            texts: words.filter_map(|word| word.split_once('=')).collect(),
        });
        text = rest;
    }
    Some(parts)
}

impl Part {
    fn text(&self, object: &Value) -> String {
        let Self::Values { path, form, absent, texts } = self else {
            let Self::Text(text) = self else { return String::new() };
            return (*text).to_owned();
        };
        let found = path.find(object);
        let mut values: Vec<String> = match form {
            Form::Plain => found.iter().filter(|value| !value.is_null()).map(|value| plain(value)).collect(),
            Form::Count => {
                let count = found.first().and_then(|list| list.as_array()).map_or(0, Vec::len);
                if count == 0 { Vec::new() } else { vec![count.to_string()] }
            }
            Form::Selector => vec![workload::selector(found.first().copied())],
        };
        values.retain(|value| !value.is_empty());
        if values.is_empty() {
            return (*absent).to_owned();
        }
        let known = |value: String| {
            let text = texts.iter().find(|(from, _)| *from == value || *from == "*");
            text.map_or(value, |(_, text)| (*text).to_owned())
        };
        values.into_iter().map(known).collect::<Vec<_>>().join(",")
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

impl Table for Columns {
    fn columns(&self) -> Value {
        let own = self.0.iter().map(|column| match column {
            Column::Age => json!(AGE),
            Column::Other { title, ty, priority, .. } => json!({
                "name": title, "type": ty, "format": "", "priority": priority,
                "description": format!("{title} of the object."),
            }),
        });
        std::iter::once(json!(NAME)).chain(own).collect()
    }

    fn row(&self, object: &Value, now: Timestamp) -> Vec<Value> {
        let own = self.0.iter().map(|column| match column {
            Column::Age => age(object, now),
            Column::Other { ty, cell, .. } => {
                let text: String = cell.iter().map(|part| part.text(object)).collect();
                let is_typed = matches!(*ty, "integer" | "boolean");
                let typed = serde_json::from_str(&text).ok().filter(|_| is_typed);
                typed.unwrap_or(Value::String(text))
            }
        });
        std::iter::once(workload::name(object)).chain(own).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kind: &str, object: &Value) -> Vec<Value> {
        columns(kind).unwrap().row(object, Timestamp::UNIX_EPOCH)
    }

    /// Each line of the table is read completely, and its kind exists.
    #[test]
    fn table_is_valid() {
        for line in COLUMNS.lines().filter(|line| line.contains(": ") && !line.starts_with('#')) {
            let (kind, text) = line.split_once(": ").unwrap();
            let mut stored = kcm_apiserver::Resource::all().map(kcm_apiserver::Resource::kind);
            assert!(kind == "ComponentStatus" || stored.any(|stored| stored == kind), "{kind}");
            let given = text.split("; ").filter(|column| !matches!(*column, "-" | "Age")).count();
            let parsed = columns(kind).unwrap().0;
            assert_eq!(parsed.iter().filter(|c| matches!(c, Column::Other { .. })).count(), given, "{kind}");
        }
    }

    #[test]
    fn cells() {
        let set = json!({"metadata": {"name": "db"}, "spec": {"replicas": 3,
            "template": {"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]}}}});
        assert_eq!(row("StatefulSet", &set), ["db", "0/3", "<unknown>", "a,b", "x,y"].map(Value::from));
        let ingress = json!({"metadata": {"name": "web"}, "spec": {"tls": [{}], "rules": [{"host": "a"}, {"host": "b"}]}});
        assert_eq!(
            row("Ingress", &ingress),
            ["web", "<none>", "a,b", "", "80, 443", "<unknown>"].map(Value::from)
        );
        let driver = json!({"metadata": {"name": "d"}, "spec": {"drivers": [{}, {}]}});
        assert_eq!(row("CSINode", &driver)[1], json!(2));
        let claim = json!({"metadata": {"name": "c"}, "spec": {}, "status": {"accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}});
        assert_eq!(row("PersistentVolumeClaim", &claim)[4], json!("RWO,ROX"));
        let set = json!({"metadata": {"name": "ds"}, "spec": {"selector": {"matchLabels": {"a": "b"}}}});
        assert_eq!(row("DaemonSet", &set)[10], json!("a=b"));
        let condition = json!({"type": "Healthy", "status": "True", "message": "ok"});
        let etcd = json!({"metadata": {"name": "etcd-0"}, "conditions": [condition]});
        assert_eq!(row("ComponentStatus", &etcd), ["etcd-0", "Healthy", "ok", ""].map(Value::from));
    }
}

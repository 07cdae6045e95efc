//! Values of flags: parsed, validated and formatted as pflag does.

use std::{collections::BTreeMap, fmt, net::IpAddr};

use kcm_api::{GoDuration, quantity::Quantity};
use serde_json::json;

use crate::go_syntax::{format_csv, format_float, parse_bool, parse_csv, parse_float, parse_int, parse_uint};

/// Type of a flag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlagKind {
    /// `true` or `false`. `true` without a value.
    Bool,
    /// Text.
    Text,
    /// Comma-separated texts. Repeated flags extend the list.
    List,
    /// 32-bit integer.
    Int32,
    /// 64-bit integer.
    Int,
    /// Comma-separated 32-bit integers. Repeated flags extend the list.
    Int32List,
    /// Single-precision number.
    Float32,
    /// Double-precision number.
    Float,
    /// Go duration, such as `1m30s`.
    Duration,
    /// IP address, or empty.
    Address,
    /// Quantity, such as `512`, `1Ki` or `3M`.
    Quantity,
    /// `certFile,keyFile` or `certFile,keyFile:name,name`. Repeated flags extend the list.
    CertKeys,
    /// Comma-separated `key=value`. Repeated flags extend the map.
    Map,
    /// Comma-separated `component:setting` or `setting`. Repeated flags extend the list.
    Gates,
    /// Log verbosity.
    Level,
    /// Comma-separated `pattern=verbosity`.
    Modules,
    /// `true`, `false` or `raw`. `true` without a value.
    Version,
}

/// Types by their names in upstream's `--help`.
const KINDS: [(&str, FlagKind); 17] = [
    ("bool", FlagKind::Bool),
    ("string", FlagKind::Text),
    ("strings", FlagKind::List),
    ("int32", FlagKind::Int32),
    ("int", FlagKind::Int),
    ("int32Slice", FlagKind::Int32List),
    ("float32", FlagKind::Float32),
    ("float", FlagKind::Float),
    ("duration", FlagKind::Duration),
    ("ip", FlagKind::Address),
    ("quantity", FlagKind::Quantity),
    ("namedCertKey", FlagKind::CertKeys),
    ("stringToString", FlagKind::Map),
    ("colonSeparatedMultimapStringString", FlagKind::Gates),
    ("Level", FlagKind::Level),
    ("pattern=N,...", FlagKind::Modules),
    ("version", FlagKind::Version),
];

impl FlagKind {
    pub(super) fn of_name(name: &str) -> Option<Self> {
        KINDS.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind)
    }

    /// Name of the type in upstream's `--help`.
    pub fn name(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map_or("", |(name, _)| name)
    }

    /// Value of a flag without a value. `None` if the value is required.
    pub(crate) fn implied(self) -> Option<&'static str> {
        matches!(self, Self::Bool | Self::Version).then_some("true")
    }
}

/// Parsed value of a flag.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Bool(bool),
    /// Also values of other types that are only shown.
    Text(String),
    List(Vec<String>),
    Int(i64),
    Ints(Vec<i64>),
    Float(f64),
    Duration(GoDuration),
    Address(Option<IpAddr>),
    CertKeys(Vec<CertKey>),
    Map(BTreeMap<String, String>),
    /// Pairs of component and setting. The component may be empty.
    Gates(Vec<(String, String)>),
    Modules(Vec<(String, i64)>),
}

/// Element of [`FlagKind::CertKeys`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CertKey {
    pub(crate) cert_file: String,
    pub(crate) key_file: String,
    pub(crate) names: Vec<String>,
}

impl Value {
    /// Parses a value of type `kind`.
    ///
    /// # Errors
    ///
    /// Upstream's message.
    pub(crate) fn parse(kind: FlagKind, text: &str) -> Result<Self, String> {
        Ok(match kind {
            FlagKind::Bool => Self::Bool(parse_bool(text)?),
            FlagKind::Text => Self::Text(text.to_owned()),
            FlagKind::List => Self::List(parse_csv(text)?),
            FlagKind::Int32 => Self::Int(parse_int(text, 32)?),
            FlagKind::Int => Self::Int(parse_int(text, 64)?),
            FlagKind::Int32List => Self::Ints(integers(text)?),
            FlagKind::Float32 => Self::Float(parse_float(text, 32)?),
            FlagKind::Float => Self::Float(parse_float(text, 64)?),
            FlagKind::Duration => Self::Duration(GoDuration::parse(text).map_err(|error| error.to_string())?),
            FlagKind::Address => Self::Address(address(text)?),
            FlagKind::Quantity => Self::Text(quantity(text)?),
            FlagKind::CertKeys => Self::CertKeys(vec![CertKey::parse(text)?]),
            FlagKind::Map => Self::Map(map(text)?),
            FlagKind::Gates => Self::Gates(gates(text)),
            FlagKind::Level => Self::Int(level(text)?),
            FlagKind::Modules => Self::Modules(modules(text)?),
            FlagKind::Version => Self::Text(version(text)?),
        })
    }

    /// Adds the value of a repeated flag: extends lists and maps, replaces other values.
    pub(crate) fn add(&mut self, more: Self) {
        match (self, more) {
            (Self::List(all), Self::List(more)) => all.extend(more),
            (Self::Ints(all), Self::Ints(more)) => all.extend(more),
            (Self::CertKeys(all), Self::CertKeys(more)) => all.extend(more),
            (Self::Map(all), Self::Map(more)) => all.extend(more),
            (Self::Gates(all), Self::Gates(more)) => all.extend(more),
            (this, last) => *this = last,
        }
    }

    /// JSON in a configuration object.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Bool(value) => json!(value),
            Self::List(values) => json!(values),
            Self::Int(value) => json!(value),
            // 20, not 20.0, as Go.
            Self::Float(value) if value.fract() == 0.0 && value.abs() < 1e15 => json!(*value as i64),
            Self::Float(value) => json!(value),
            other => json!(other.to_string()),
        }
    }
}

impl fmt::Display for Value {
    /// Formats as pflag's `String`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => write!(f, "{value}"),
            Self::Text(text) => f.write_str(text),
            Self::List(values) => write!(f, "[{}]", format_csv(values.iter().map(String::as_str))),
            Self::Int(value) => write!(f, "{value}"),
            Self::Ints(values) => write!(f, "[{}]", joined(values, ",")),
            Self::Float(value) => f.write_str(&format_float(*value)),
            Self::Duration(value) => write!(f, "{value}"),
            Self::Address(Some(address)) => write!(f, "{address}"),
            Self::Address(None) => f.write_str("<nil>"),
            Self::CertKeys(values) => write!(f, "[{}]", joined(values, ";")),
            Self::Map(values) => {
                let pairs: Vec<_> = values.iter().map(|(key, value)| format!("{key}={value}")).collect();
                write!(f, "[{}]", format_csv(pairs.iter().map(String::as_str)))
            }
            Self::Gates(values) => {
                let mut values: Vec<_> = values.iter().collect();
                values.sort_by_key(|(component, _)| component);
                let pairs = values.iter().map(|(component, setting)| format!("{component}:{setting}"));
                f.write_str(&joined(pairs, ","))
            }
            Self::Modules(values) => {
                f.write_str(&joined(values.iter().map(|(pattern, level)| format!("{pattern}={level}")), ","))
            }
        }
    }
}

fn joined<T: ToString>(values: impl IntoIterator<Item = T>, separator: &str) -> String {
    values.into_iter().map(|value| value.to_string()).collect::<Vec<_>>().join(separator)
}

fn integers(text: &str) -> Result<Vec<i64>, String> {
    text.split(',').map(|text| parse_int(text, 32)).collect()
}

fn address(text: &str) -> Result<Option<IpAddr>, String> {
    match text.trim() {
        "" => Ok(None),
        trimmed => trimmed.parse().map(Some).map_err(|_| format!("failed to parse IP: {text:?}")),
    }
}

/// Validates a quantity and returns its canonical form.
fn quantity(text: &str) -> Result<String, String> {
    text.parse::<Quantity>().map(|quantity| quantity.to_string()).map_err(|_| {
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            .to_owned()
    })
}

impl CertKey {
    fn parse(text: &str) -> Result<Self, String> {
        let (files, names) = match text.split_once(':') {
            Some((_, names)) if names.trim().is_empty() => {
                return Err("empty names list is not allowed".to_owned());
            }
            Some((files, names)) => (files, names.split(',').map(|name| name.trim().to_owned()).collect()),
            None => (text, Vec::new()),
        };
        match files.split(',').map(str::trim).collect::<Vec<_>>()[..] {
            [cert_file, key_file] => {
                Ok(Self { cert_file: cert_file.to_owned(), key_file: key_file.to_owned(), names })
            }
            _ => Err("expected comma separated certificate and key file paths".to_owned()),
        }
    }
}

impl fmt::Display for CertKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.cert_file, self.key_file)?;
        if self.names.is_empty() { Ok(()) } else { write!(f, ":{}", self.names.join(",")) }
    }
}

/// Parses a map. With a single `=`, commas belong to the key or the value, as in pflag.
fn map(text: &str) -> Result<BTreeMap<String, String>, String> {
    let pairs = match text.bytes().filter(|byte| *byte == b'=').count() {
        0 => return Err(format!("{text} must be formatted as key=value")),
        1 => vec![text.trim_matches('"').to_owned()],
        _ => parse_csv(text)?,
    };
    let split = |pair: &String| match pair.split_once('=') {
        Some((key, value)) => Ok((key.to_owned(), value.to_owned())),
        None => Err(format!("{pair} must be formatted as key=value")),
    };
    pairs.iter().map(split).collect()
}

fn level(text: &str) -> Result<i64, String> {
    parse_uint(text, 31).map(|level| i64::try_from(level).unwrap_or(i64::MAX))
}

fn gates(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(',').filter(|pair| !pair.is_empty());
    let split = |pair: &str| {
        let (component, setting) = pair.split_once(':').unwrap_or(("", pair));
        (component.trim().to_owned(), setting.trim().to_owned())
    };
    pairs.map(split).collect()
}

fn modules(text: &str) -> Result<Vec<(String, i64)>, String> {
    let items = text.split(',').filter(|item| !item.is_empty());
    let split = |item: &str| match item.split('=').collect::<Vec<_>>()[..] {
        [pattern, level] if !pattern.is_empty() && !level.is_empty() => {
            let level =
                self::level(level).map_err(|error| format!("parsing verbosity in {item:?}: {error}"))?;
            Ok((pattern.to_owned(), level))
        }
        _ => Err(format!("{item:?} does not have the pattern=N format")),
    };
    items.map(split).collect()
}

fn version(text: &str) -> Result<String, String> {
    match text {
        "raw" => Ok(text.to_owned()),
        // DEVIATION: upstream accepts a version that differs from its own in the suffix only, and reports it.
        _ if text.starts_with('v') => Err("the reported version cannot be changed".to_owned()),
        _ => parse_bool(text).map(|value| value.to_string()),
    }
}

//! Format of log lines.

use std::{
    fmt::{self, Write as _},
    sync::Arc,
};

use kcm_clock::Clock;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, format::Writer},
    registry::{LookupSpan, Scope},
};

use super::{
    options::{FLAG_TARGET, LogFormat},
    verbosity::Verbosity,
};

/// Formats events.
pub(super) struct Line {
    pub(super) format: LogFormat,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) process: u32,
    pub(super) verbosity: Verbosity,
}

/// Formats the fields of spans as those of events.
pub(super) struct SpanFields(pub(super) LogFormat);

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut to: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut fields = Fields::new(self.format);
        event.record(&mut fields);
        match self.format {
            LogFormat::Text => self.text_head(&mut to, event, &fields.message)?,
            LogFormat::Json => self.json_head(&mut to, event, &fields.message)?,
        }
        let mut span_fields = String::new();
        for span in context.event_scope().into_iter().flat_map(Scope::from_root) {
            if let Some(fields) = span.extensions().get::<FormattedFields<N>>() {
                span_fields.push_str(fields.as_str());
            }
        }
        to.write_str(&span_fields)?;
        // Fields that equal a span's, such as the key of a sync, are not repeated.
        fields
            .each()
            .filter(|field| !has_field(&span_fields, field))
            .try_for_each(|field| to.write_str(field))?;
        to.write_str(match self.format {
            LogFormat::Text => "\n",
            LogFormat::Json => "}\n",
        })
    }
}

impl Line {
    fn text_head(&self, to: &mut Writer<'_>, event: &Event<'_>, message: &str) -> fmt::Result {
        let meta = event.metadata();
        let severity = match *meta.level() {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            _ => 'I',
        };
        let time = self.clock.now();
        let file = meta.file().map_or("???", short);
        let line = meta.line().unwrap_or_default();
        write!(to, "{severity}{} {:>7} {file}:{line}] ", time.strftime("%m%d %H:%M:%S%.6f"), self.process)?;
        // Upstream logs flags with klog's unstructured functions, which do not quote the message.
        if meta.target() == FLAG_TARGET { to.write_str(message) } else { write!(to, "{message:?}") }
    }

    fn json_head(&self, to: &mut Writer<'_>, event: &Event<'_>, message: &str) -> fmt::Result {
        let meta = event.metadata();
        // Milliseconds with a fraction, as zap.
        let micros = self.clock.now().as_microsecond();
        let (millis, fraction) = (micros.div_euclid(1000), micros.rem_euclid(1000));
        let file = meta.file().map_or("???", short);
        let library = meta.target().split("::").next().unwrap_or_default();
        let line = meta.line().unwrap_or_default();
        write!(
            to,
            "{{\"ts\":{millis}.{fraction:03},\"caller\":\"{library}/{file}:{line}\",\"msg\":{}",
            Json(message)
        )?;
        match *meta.level() {
            Level::ERROR => Ok(()),
            _ => write!(to, ",\"v\":{}", self.verbosity.required(meta).unwrap_or_default()),
        }
    }
}

/// Returns `true` if `fields` contains `field`, which includes its separator.
fn has_field(fields: &str, field: &str) -> bool {
    let ends = |at: usize| matches!(fields.as_bytes().get(at + field.len()), None | Some(b' ' | b','));
    fields.match_indices(field).any(|(at, _)| ends(at))
}

/// File name. For `mod.rs`, with the directory.
fn short(path: &str) -> &str {
    let parents = usize::from(path.ends_with("/mod.rs"));
    path.rmatch_indices('/').nth(parents).map_or(path, |(slash, _)| &path[slash + 1..])
}

impl<'w> FormatFields<'w> for SpanFields {
    fn format_fields<R: tracing_subscriber::field::RecordFields>(
        &self,
        mut to: Writer<'w>,
        fields: R,
    ) -> fmt::Result {
        let mut text = Fields::new(self.0);
        fields.record(&mut text);
        to.write_str(&text.text)
    }

    /// Appends fields that are recorded later.
    fn add_fields(
        &self,
        current: &'w mut FormattedFields<Self>,
        fields: &tracing::span::Record<'_>,
    ) -> fmt::Result {
        self.format_fields(current.as_writer(), fields)
    }
}

/// String in JSON.
struct Json<'a>(&'a str);

impl fmt::Display for Json<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&serde_json::to_string(self.0).unwrap_or_default())
    }
}

/// Message and formatted fields: ` name=value`, or `,"name":value`. Contains no newline.
struct Fields {
    format: LogFormat,
    message: String,
    text: String,
    /// End of each field in `text`.
    ends: Vec<usize>,
}

impl Fields {
    fn new(format: LogFormat) -> Self {
        Self { format, message: String::new(), text: String::new(), ends: Vec::new() }
    }

    /// Fields with their separators.
    fn each(&self) -> impl Iterator<Item = &str> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).filter_map(|(begin, end)| self.text.get(begin..*end))
    }

    /// Adds a formatted value.
    fn add(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        // klog's key for errors.
        let name = match field.name() {
            "error" => "err",
            name => name,
        };
        // Writing to a `String` does not fail.
        let _ = match self.format {
            LogFormat::Text => write!(self.text, " {name}={value}"),
            LogFormat::Json => write!(self.text, ",\"{name}\":{value}"),
        };
        self.ends.push(self.text.len());
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        match self.format {
            _ if field.name() == "message" => value.clone_into(&mut self.message),
            LogFormat::Text => self.add(field, format_args!("{value:?}")),
            LogFormat::Json => self.add(field, format_args!("{}", Json(value))),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        // The debug format of strings is quoted.
        let is_quoted = text.len() > 1 && text.starts_with('"') && text.ends_with('"');
        match self.format {
            LogFormat::Text if is_quoted && field.name() != "message" => {
                self.add(field, format_args!("{text}"));
            }
            LogFormat::Json if is_quoted && serde_json::from_str::<String>(&text).is_ok() => {
                self.add(field, format_args!("{text}"));
            }
            _ => self.record_str(field, &text),
        }
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(field, format_args!("{value}"));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(field, format_args!("{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(field, format_args!("{value}"));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        match self.format {
            LogFormat::Json if !value.is_finite() => self.record_str(field, &value.to_string()),
            _ => self.add(field, format_args!("{value}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::short;

    #[test]
    fn file_name_of_mod_rs_contains_the_directory() {
        assert_eq!(short("crates/client-go/client/src/list.rs"), "list.rs");
        assert_eq!(short("crates/client-go/informer/src/reflector/mod.rs"), "reflector/mod.rs");
        assert_eq!(short("list.rs"), "list.rs");
        assert_eq!(short("src/mod.rs"), "src/mod.rs");
    }
}

//! Log lines as klog writes them.
//!
//! `I1121 04:56:07.123456    4242 controllers.rs:88] "Starting controller" controller="deployment"`: severity, date
//! and time (in UTC), process, place, message, and what else there is to say.

use std::{fmt, io, path::Path, sync::Arc};

use kcm_clock::Clock;
use tracing::{
    Event, Level, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    Layer,
    filter::{LevelFilter, Targets},
    fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields, format::Writer},
    layer::SubscriberExt,
    registry::{LookupSpan, Scope},
};

/// What is logged, and how. The defaults are upstream's (US-1.5).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoggingOptions {
    /// `--logging-format`.
    pub format: LogFormat,
    /// `--v`: how much to log, as klog counts.
    pub verbosity: u8,
    /// `--vmodule`: how much to log from files whose names match.
    pub vmodule: Vec<ModuleVerbosity>,
}

/// `--logging-format`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// Lines as klog writes them.
    #[default]
    Text,
    /// A JSON object in each line.
    Json,
}

/// One element of `--vmodule`: `pattern=N`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleVerbosity {
    /// What a file is called, without directory and ending; `*` and `?` stand for others.
    pub pattern: String,
    /// How much to log from it.
    pub verbosity: u8,
}

/// Changes what is logged while it is.
#[derive(Clone)]
pub struct Handle(Arc<dyn Fn(u8) + Send + Sync>);

impl Handle {
    /// From now on, as if `--v` had said so.
    pub fn set_verbosity(&self, verbosity: u8) {
        (self.0)(verbosity);
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Handle").finish_non_exhaustive()
    }
}

/// Logs to standard error from now on. For binaries; a library leaves it to whoever embeds it.
///
/// If somebody has set up logging already, that stays, and the handle has no effect.
pub fn init(options: &LoggingOptions, clock: Arc<dyn Clock>) -> Handle {
    let (filter, reload) = tracing_subscriber::reload::Layer::new(filter(options.verbosity));
    let subscriber = tracing_subscriber::registry().with(layer(clock, io::stderr).with_filter(filter));
    // An error means that somebody else was first.
    let _ = tracing::subscriber::set_global_default(subscriber);
    Handle(Arc::new(move |verbosity| drop(reload.reload(self::filter(verbosity)))))
}

/// What writes lines to `writer`.
fn layer<S, W>(clock: Arc<dyn Clock>, writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> tracing_subscriber::fmt::MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt::layer()
        .event_format(Klog { clock, process: std::process::id() })
        .fmt_fields(Fields)
        .with_writer(writer)
}

/// Upstream says what it does at 0, what happens to objects from 2 on, and every step from 5 on.
fn filter(verbosity: u8) -> Targets {
    let ours = match verbosity {
        0..=1 => LevelFilter::INFO,
        2..=4 => LevelFilter::DEBUG,
        5.. => LevelFilter::TRACE,
    };
    Targets::new()
        .with_default(LevelFilter::WARN)
        .with_target("kcm_", ours)
        // Below an error it quotes whole answers.
        .with_target("kube_client", LevelFilter::ERROR)
}

struct Klog {
    clock: Arc<dyn Clock>,
    process: u32,
}

impl<S, N> FormatEvent<S, N> for Klog
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
        let meta = event.metadata();
        let severity = match *meta.level() {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            _ => 'I',
        };
        let time = self.clock.now();
        let file = meta.file().and_then(|file| Path::new(file).file_name()?.to_str()).unwrap_or("???");
        let line = meta.line().unwrap_or_default();
        write!(to, "{severity}{} {:>7} {file}:{line}] ", time.strftime("%m%d %H:%M:%S%.6f"), self.process)?;
        let mut text = Text::default();
        event.record(&mut text);
        write!(to, "{:?}", text.message)?;
        for span in context.event_scope().into_iter().flat_map(Scope::from_root) {
            if let Some(fields) = span.extensions().get::<FormattedFields<N>>() {
                to.write_str(fields.as_str())?;
            }
        }
        writeln!(to, "{}", text.fields)
    }
}

/// The fields of a span, as those of an event.
struct Fields;

impl<'w> FormatFields<'w> for Fields {
    fn format_fields<R: tracing_subscriber::field::RecordFields>(
        &self,
        mut to: Writer<'w>,
        fields: R,
    ) -> fmt::Result {
        let mut text = Text::default();
        fields.record(&mut text);
        to.write_str(&text.fields)
    }
}

/// A message, and ` name=value` for each field. Quoted as in Rust and Go, so it stays one line.
#[derive(Default)]
struct Text {
    message: String,
    fields: String,
}

impl Text {
    fn add(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        use fmt::Write as _;
        // Writing to a string does not fail.
        let _ = write!(self.fields, " {}={value}", field.name());
    }
}

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.add(field, format_args!("{value:?}"));
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        // The debug form of a text is quoted already.
        if field.name() != "message" && text.starts_with('"') && text.ends_with('"') && text.len() > 1 {
            self.add(field, format_args!("{text}"));
        } else {
            self.record_str(field, &text);
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
        self.add(field, format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use kcm_clock::FakeClock;

    use super::*;

    #[derive(Clone, Default)]
    struct Sink(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Sink {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(verbosity: u8, what: impl FnOnce()) -> String {
        let sink = Sink::default();
        let clock = Arc::new(FakeClock::new("2026-11-21T04:05:06.123456789Z".parse().unwrap()));
        let to = sink.clone();
        let subscriber = tracing_subscriber::registry()
            .with(layer(clock, move || to.clone()).with_filter(filter(verbosity)));
        tracing::subscriber::with_default(subscriber, what);
        String::from_utf8(sink.0.lock().unwrap().clone()).unwrap()
    }

    #[test]
    fn line_has_klogs_form() {
        let text = logged(0, || {
            let key = kcm_api::ObjectKey::new("shop", "web");
            tracing::warn!(target: "kcm_test", %key, err = "two\nlines", count = 3, names = ?["a"], "Did \"it\"");
        });
        let (head, tail) = text.split_once("] ").unwrap();
        assert!(head.starts_with("W1121 04:05:06.123456 ") && head.contains(" logging.rs:"), "{head}");
        let expected = r#""Did \"it\"" key="shop/web" err="two\nlines" count=3 names="[\"a\"]""#;
        assert_eq!(tail, format!("{expected}\n"));
    }

    #[test]
    fn line_within_a_span_has_the_fields_of_the_span() {
        let text = logged(0, || {
            let _in = tracing::info_span!(target: "kcm_test", "sync", controller = "deployment").entered();
            tracing::error!(target: "kcm_test", "Failed");
        });
        assert!(
            text.starts_with('E') && text.ends_with("] \"Failed\" controller=\"deployment\"\n"),
            "{text}"
        );
    }

    #[test]
    fn verbosity_lets_through_what_upstreams_does() {
        let lines = |verbosity| {
            let text = logged(verbosity, || {
                tracing::info!(target: "kcm_test", "info");
                tracing::debug!(target: "kcm_test", "debug");
                tracing::trace!(target: "kcm_test", "trace");
                tracing::info!(target: "hyper", "foreign");
                tracing::warn!(target: "kube_client::client", "whole answers");
            });
            text.lines().count()
        };
        assert_eq!([0, 1, 2, 4, 5, 10].map(lines), [1, 1, 2, 2, 3, 3]);
    }
}

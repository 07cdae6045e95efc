//! Log lines as klog writes them.
//!
//! Upstream counterpart: `k8s.io/klog` and `k8s.io/component-base/logs`.
//!
//! Text: `I1121 04:56:07.123456    4242 controllers.rs:88] "Starting controller" controller="deployment"`: severity,
//! date and time (in UTC), process, place, message, and what else there is to say. JSON, as upstream's:
//! `{"ts":1795236967123.456,"caller":"kcm_controller_manager/controllers.rs:88","msg":"Starting controller","v":0,
//! "controller":"deployment"}`; errors have `err` and no `v`.
//!
//! What `--v` lets through:
//!
//! | `--v` | what | levels here |
//! |---|---|---|
//! | 0 | what an operator should know | error, warn, info |
//! | 1 | the flags | |
//! | 2 | what happens to objects | debug |
//! | 3 | lists and watches; requests that the rate limit delayed by over 50 ms | debug of `kcm_informer`, trace of `kcm_client::throttle` |
//! | 4 | each event, and each step of a sync; each try for the lease | trace |
//! | 6 | each request | trace of `kcm_client` |
//!
//! Delays of over a second by the rate limit are logged at 0 every ten seconds, at 2 every second, as upstream. Nothing else
//! is held back: a line is written when it is logged. Whole objects, and what a kubeconfig holds, are logged at
//! no level; of other people's crates only warnings are, and of the one that quotes answers in them only errors.

use std::{fmt, io, sync::Arc};

use kcm_clock::Clock;
use tracing::Subscriber;
use tracing_subscriber::{
    Layer,
    fmt::{MakeWriter, writer::EitherWriter},
    layer::SubscriberExt,
    registry::LookupSpan,
};

mod line;
mod verbosity;

use line::{Line, SpanFields};
use verbosity::Verbosity;

/// The target of the lines that tell the flags, and that klog would neither quote nor show below 1.
pub(crate) const FLAG_TARGET: &str = "kcm_controller_manager::FLAG";

/// What is logged, and how. The defaults are upstream's (US-1.5).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoggingOptions {
    /// `--logging-format`.
    pub format: LogFormat,
    /// `--v`: how much to log, as klog counts.
    pub verbosity: u8,
    /// `--vmodule`: how much to log from files whose names match.
    pub vmodule: Vec<ModuleVerbosity>,
    /// `--log-text-split-stream`, `--log-json-split-stream`: what is no error goes to standard output. In text, warnings
    /// count as errors.
    pub split_streams: bool,
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
#[derive(Debug, Clone)]
pub struct Handle(Verbosity);

impl Handle {
    /// From now on, as if `--v` had said so.
    pub fn set_verbosity(&self, verbosity: u8) {
        self.0.set(verbosity);
    }

    /// How much is logged, as klog counts.
    pub fn verbosity(&self) -> u8 {
        self.0.get()
    }
}

/// Logs to standard error from now on. For binaries; a library leaves it to whoever embeds it.
///
/// If somebody has set up logging already, that stays, and the handle has no effect.
pub fn init(options: &LoggingOptions, clock: Arc<dyn Clock>) -> Handle {
    let verbosity = Verbosity::new(options);
    let streams = Streams { is_split: options.split_streams, format: options.format };
    let layer = layer(options.format, clock, streams);
    // An error means that somebody else was first.
    let _ = tracing::subscriber::set_global_default(
        tracing_subscriber::registry().with(layer).with(verbosity.clone()),
    );
    Handle(verbosity)
}

/// What writes lines to `writer`.
fn layer<S, W>(format: LogFormat, clock: Arc<dyn Clock>, writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt::layer()
        .event_format(Line { format, clock, process: std::process::id() })
        .fmt_fields(SpanFields(format))
        .with_writer(writer)
}

/// Where lines go.
struct Streams {
    is_split: bool,
    format: LogFormat,
}

impl<'a> MakeWriter<'a> for Streams {
    type Writer = EitherWriter<io::Stdout, io::Stderr>;

    fn make_writer(&'a self) -> Self::Writer {
        EitherWriter::B(io::stderr())
    }

    fn make_writer_for(&'a self, meta: &tracing::Metadata<'_>) -> Self::Writer {
        let is_error = match self.format {
            LogFormat::Text => *meta.level() <= tracing::Level::WARN,
            LogFormat::Json => *meta.level() == tracing::Level::ERROR,
        };
        if self.is_split && !is_error { EitherWriter::A(io::stdout()) } else { self.make_writer() }
    }
}

impl fmt::Debug for Verbosity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Verbosity").field(&self.get()).finish()
    }
}

#[cfg(test)]
mod tests;

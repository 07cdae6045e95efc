//! Log lines in klog's format.
//!
//! Text: severity, date and time (UTC), process ID, source location, message and fields:
//!
//! ```text
//! I1121 04:56:07.123456    4242 controllers.rs:88] "Starting controller" controller="deployment"
//! ```
//!
//! JSON, as upstream. Errors have no `v`:
//!
//! ```text
//! {"ts":1795236967123.456,"caller":"kcm_manager/controllers.rs:88","msg":"Starting controller","v":0,"controller":"deployment"}
//! ```
//!
//! | `--v` | Lines | Levels of `tracing` |
//! |---|---|---|
//! | 0 | start, stop, warnings and errors | error, warn, info |
//! | 1 | flags | |
//! | 2 | changes to objects | debug |
//! | 3 | lists and watches; requests that were throttled for more than 50 ms | debug of `kcm_informer`, trace of `kcm_client::throttle` |
//! | 4 | watch events, steps of syncs, attempts to acquire the lease | trace |
//! | 6 | requests to the API server | trace of `kcm_client` |
//!
//! Throttling for more than a second is logged every ten seconds at 0 and every second at 2, as upstream. Other lines are
//! not rate limited, and lines are not buffered.
//!
//! Objects and the contents of kubeconfigs are not logged at any level. Crates other than this project's and those of
//! [`LoggingOptions::targets`] log warnings and errors only, and
//! `kube_client`, whose warnings contain responses, errors only.
//!
//! Upstream counterpart: `k8s.io/klog` and `k8s.io/component-base/logs`.

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
mod options;
mod verbosity;

pub use options::{FLAG_TARGET, LogFormat, LoggingOptions, ModuleVerbosity};

use line::{Line, SpanFields};
use verbosity::Verbosity;

/// Handle for changes of the verbosity at run time.
#[derive(Debug, Clone)]
pub struct Handle(Verbosity);

impl Handle {
    /// Sets the verbosity.
    pub fn set_verbosity(&self, verbosity: u8) {
        self.0.set(verbosity);
    }

    /// Current verbosity.
    pub fn verbosity(&self) -> u8 {
        self.0.get()
    }
}

/// Installs the global subscriber, which logs to stderr. For binaries only.
///
/// If a global subscriber exists already, it stays, and the handle has no effect.
pub fn init(options: &LoggingOptions, clock: Arc<dyn Clock>) -> Handle {
    let verbosity = Verbosity::new(options);
    let streams = Streams { is_split: options.split_streams, format: options.format };
    let layer = layer(options.format, clock, verbosity.clone(), streams);
    // An error means that a subscriber exists.
    let _ = tracing::subscriber::set_global_default(
        tracing_subscriber::registry().with(layer).with(verbosity.clone()),
    );
    Handle(verbosity)
}

/// Layer that writes lines to `writer`.
fn layer<S, W>(format: LogFormat, clock: Arc<dyn Clock>, verbosity: Verbosity, writer: W) -> impl Layer<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt::layer()
        .event_format(Line { format, clock, process: std::process::id(), verbosity })
        .fmt_fields(SpanFields(format))
        .with_writer(writer)
}

/// Selects stdout or stderr.
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

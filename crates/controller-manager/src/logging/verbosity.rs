//! What `--v` and `--vmodule` let through.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use tracing::{Level, Metadata, Subscriber, level_filters::LevelFilter, subscriber::Interest};
use tracing_subscriber::{Layer, layer::Context};

use super::{FLAG_TARGET, LoggingOptions, ModuleVerbosity};

/// How the targets of this project's crates begin, and of its binaries.
const OURS: [&str; 2] = ["kcm_", "kube_controller_manager"];

/// Who quotes whole answers in warnings.
const INDISCREET: &str = "kube_client";

/// Lines of some crates are finer than their level says.
const FINER: [(&str, Level, u8); 6] = [
    ("kcm_client::throttle", Level::TRACE, 3),
    ("kcm_client", Level::TRACE, 6),
    ("kcm_events", Level::DEBUG, 3),
    ("kcm_informer", Level::DEBUG, 3),
    ("kcm_leader_election", Level::DEBUG, 4),
    ("kcm_leader_election", Level::TRACE, 5),
];

/// From which verbosity on a line is written, as klog counts; `None`: never.
pub(super) fn required(meta: &Metadata<'_>) -> Option<u8> {
    let (target, level) = (meta.target(), *meta.level());
    if !OURS.iter().any(|prefix| target.starts_with(prefix)) {
        let least = if target.starts_with(INDISCREET) { Level::ERROR } else { Level::WARN };
        return (level <= least).then_some(0);
    }
    if target == FLAG_TARGET {
        return Some(1);
    }
    let finer = FINER.iter().find(|(prefix, at, _)| *at == level && target.starts_with(prefix));
    Some(match (finer, level) {
        (Some((_, _, verbosity)), _) => *verbosity,
        (None, Level::DEBUG) => 2,
        (None, Level::TRACE) => 4,
        (None, _) => 0,
    })
}

/// The filter. All clones are the same one.
///
/// Which lines pass is asked once for each place in the code, and again when the verbosity is set: a line that does not
/// pass costs a load and a comparison.
#[derive(Clone)]
pub(super) struct Verbosity(Arc<State>);

struct State {
    verbosity: AtomicU8,
    modules: Vec<ModuleVerbosity>,
}

impl Verbosity {
    pub(super) fn new(options: &LoggingOptions) -> Self {
        let verbosity = AtomicU8::new(options.verbosity);
        Self(Arc::new(State { verbosity, modules: options.vmodule.clone() }))
    }

    pub(super) fn get(&self) -> u8 {
        self.0.verbosity.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, verbosity: u8) {
        self.0.verbosity.store(verbosity, Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
    }

    fn lets_through(&self, meta: &Metadata<'_>) -> bool {
        let Some(required) = required(meta) else { return false };
        required <= self.get()
            || (!self.0.modules.is_empty()
                && self.of_module(meta).is_some_and(|verbosity| required <= verbosity))
    }

    /// As klog: the first pattern that matches decides.
    fn of_module(&self, meta: &Metadata<'_>) -> Option<u8> {
        let name = file_name(meta.file()?)?;
        self.0.modules.iter().find(|module| matches(&module.pattern, name)).map(|module| module.verbosity)
    }
}

/// A filter of the whole subscriber. A filter of one layer (`Layer::with_filter`) would not do: `tracing::enabled!` leaves
/// its answer behind in the thread, and the next event is then dropped.
impl<S: Subscriber> Layer<S> for Verbosity {
    fn enabled(&self, meta: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.lets_through(meta)
    }

    fn register_callsite(&self, meta: &'static Metadata<'static>) -> Interest {
        if self.lets_through(meta) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let most = self.0.modules.iter().map(|module| module.verbosity).fold(self.get(), u8::max);
        Some(match most {
            0..2 => LevelFilter::INFO,
            2 => LevelFilter::DEBUG,
            3.. => LevelFilter::TRACE,
        })
    }
}

/// What `--vmodule` calls a file: without directories and ending, and one called `mod.rs` by its directory.
fn file_name(path: &str) -> Option<&str> {
    let mut parts = path.rsplit('/');
    let name = parts.next()?;
    let name = name.strip_suffix(".rs").unwrap_or(name);
    if name == "mod" { parts.next() } else { Some(name) }
}

/// `*` stands for any text, `?` for any one character.
fn matches(pattern: &str, name: &str) -> bool {
    let Some(first) = pattern.chars().next() else { return name.is_empty() };
    let rest = &pattern[first.len_utf8()..];
    let tail = name.chars().next().map(|head| &name[head.len_utf8()..]);
    match (first, tail) {
        ('*', None) => matches(rest, name),
        ('*', Some(tail)) => matches(rest, name) || matches(pattern, tail),
        ('?', Some(tail)) => matches(rest, tail),
        (literal, Some(tail)) => name.starts_with(literal) && matches(rest, tail),
        (_, None) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_shells_do() {
        for (pattern, name) in
            [("run", "run"), ("*", ""), ("*", "run"), ("r*n", "ran"), ("?un", "run"), ("*a*b*", "xaybz")]
        {
            assert!(matches(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in [("run", "runs"), ("", "run"), ("?", ""), ("r?n", "raan"), ("*a*b", "xaybz")] {
            assert!(!matches(pattern, name), "{pattern} {name}");
        }
    }

    #[test]
    fn files_are_called_by_their_stem() {
        assert_eq!(file_name("crates/client-go/informer/src/reflector/mod.rs"), Some("reflector"));
        assert_eq!(file_name("crates/client-go/client/src/list.rs"), Some("list"));
        assert_eq!(file_name("list"), Some("list"));
    }
}

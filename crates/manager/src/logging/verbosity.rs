//! Filter by `--v` and `--vmodule`.

use std::sync::{
    Arc,
    atomic::{AtomicU8, Ordering},
};

use tracing::{Level, Metadata, Subscriber, level_filters::LevelFilter, subscriber::Interest};
use tracing_subscriber::{Layer, layer::Context};

use super::options::{FLAG_TARGET, LoggingOptions, ModuleVerbosity};

/// Prefix of the targets of this project's crates.
const OWN_TARGETS: &str = "kcm_";

/// Crates with warnings that are not logged: they contain responses, or any client of the secure port can cause them
/// without limit.
const ERRORS_ONLY: [&str; 2] = ["kube_client", "h2::"];

/// Verbosity of targets and levels that differs from the level's default.
const OVERRIDES: [(&str, Level, u8); 6] = [
    ("kcm_client::throttle", Level::TRACE, 3),
    ("kcm_client", Level::TRACE, 6),
    ("kcm_events", Level::DEBUG, 3),
    ("kcm_informer", Level::DEBUG, 3),
    ("kcm_leader_election", Level::DEBUG, 4),
    ("kcm_leader_election", Level::TRACE, 5),
];

/// Minimum verbosity at which a line is logged. `None` if it is never logged. `targets` are those of the program.
fn required(targets: &[String], meta: &Metadata<'_>) -> Option<u8> {
    let (target, level) = (meta.target(), *meta.level());
    let is_own = |prefix: &String| target.starts_with(prefix);
    if !target.starts_with(OWN_TARGETS) && !targets.iter().any(is_own) {
        let is_quiet = ERRORS_ONLY.iter().any(|prefix| target.starts_with(prefix));
        let max_level = if is_quiet { Level::ERROR } else { Level::WARN };
        return (level <= max_level).then_some(0);
    }
    if target == FLAG_TARGET {
        return Some(1);
    }
    let verbosity = OVERRIDES.iter().find(|(prefix, at, _)| *at == level && target.starts_with(prefix));
    Some(match (verbosity, level) {
        (Some((_, _, verbosity)), _) => *verbosity,
        (None, Level::DEBUG) => 2,
        (None, Level::TRACE) => 4,
        (None, _) => 0,
    })
}

/// Filter. Clones share the verbosity.
///
/// `tracing` caches the decision per call site until the verbosity changes. A filtered line costs a load and a comparison.
#[derive(Clone)]
pub(super) struct Verbosity(Arc<State>);

struct State {
    verbosity: AtomicU8,
    modules: Vec<ModuleVerbosity>,
    targets: Vec<String>,
}

impl Verbosity {
    pub(super) fn new(options: &LoggingOptions) -> Self {
        let verbosity = AtomicU8::new(options.verbosity);
        let (modules, targets) = (options.vmodule.clone(), options.targets.clone());
        Self(Arc::new(State { verbosity, modules, targets }))
    }

    /// Minimum verbosity at which a line is logged. `None` if it is never logged.
    pub(super) fn required(&self, meta: &Metadata<'_>) -> Option<u8> {
        required(&self.0.targets, meta)
    }

    pub(super) fn get(&self) -> u8 {
        self.0.verbosity.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, verbosity: u8) {
        self.0.verbosity.store(verbosity, Ordering::Relaxed);
        tracing::callsite::rebuild_interest_cache();
    }

    fn is_enabled(&self, meta: &Metadata<'_>) -> bool {
        let Some(required) = self.required(meta) else { return false };
        required <= self.get()
            || (!self.0.modules.is_empty()
                && self.module_verbosity(meta).is_some_and(|verbosity| required <= verbosity))
    }

    /// Verbosity of the first matching pattern, as klog.
    fn module_verbosity(&self, meta: &Metadata<'_>) -> Option<u8> {
        let name = file_name(meta.file()?)?;
        self.0.modules.iter().find(|module| matches(&module.pattern, name)).map(|module| module.verbosity)
    }
}

/// A filter of the whole subscriber. A per-layer filter (`Layer::with_filter`) drops the next event after a call of
/// `tracing::enabled!`.
impl<S: Subscriber> Layer<S> for Verbosity {
    fn enabled(&self, meta: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.is_enabled(meta)
    }

    fn register_callsite(&self, meta: &'static Metadata<'static>) -> Interest {
        if self.is_enabled(meta) { Interest::always() } else { Interest::never() }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        let max = self.0.modules.iter().map(|module| module.verbosity).fold(self.get(), u8::max);
        Some(match max {
            0..2 => LevelFilter::INFO,
            2 => LevelFilter::DEBUG,
            3.. => LevelFilter::TRACE,
        })
    }
}

/// Name of a file for `--vmodule`: without directory and extension. For `mod.rs`, the name of the directory.
fn file_name(path: &str) -> Option<&str> {
    let mut parts = path.rsplit('/');
    let name = parts.next()?;
    let name = name.strip_suffix(".rs").unwrap_or(name);
    if name == "mod" { parts.next() } else { Some(name) }
}

/// Matches `name` with a pattern: `*` matches any text, `?` any character.
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
    fn matches_wildcards() {
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
    fn file_name_is_the_stem() {
        assert_eq!(file_name("crates/client-go/informer/src/reflector/mod.rs"), Some("reflector"));
        assert_eq!(file_name("crates/client-go/client/src/list.rs"), Some("list"));
        assert_eq!(file_name("list"), Some("list"));
    }
}

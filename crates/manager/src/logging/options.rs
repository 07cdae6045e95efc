//! Options of log lines.

/// Target of the lines with flags. Their messages are not quoted, and they require verbosity 1.
pub const FLAG_TARGET: &str = "kcm_manager::FLAG";

/// Options of log lines. The defaults are upstream's (US-1.5).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LoggingOptions {
    /// `--logging-format`.
    pub format: LogFormat,
    /// `--v`: klog's verbosity.
    pub verbosity: u8,
    /// `--vmodule`: verbosity of matching source files.
    pub vmodule: Vec<ModuleVerbosity>,
    /// `--log-text-split-stream`, `--log-json-split-stream`: if `true`, only errors are written to stderr, and in text format
    /// also warnings. Other lines are written to stdout.
    pub split_streams: bool,
    /// Prefixes of the targets of the program's crates, such as `website_operator`. Their lines are logged as those of this
    /// project's crates, whose targets begin with `kcm_`.
    pub targets: Vec<String>,
}

/// `--logging-format`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// klog's text format.
    #[default]
    Text,
    /// One JSON object per line.
    Json,
}

/// Element of `--vmodule`: `pattern=N`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModuleVerbosity {
    /// File name without directory and extension. `*` and `?` are wildcards.
    pub pattern: String,
    /// Verbosity.
    pub verbosity: u8,
}

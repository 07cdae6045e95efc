//! Options of log lines.
//!
//! Upstream counterpart: `k8s.io/component-base/logs/api/v1`.

use super::Diagnostics;
use crate::{
    feature_gates::FeatureGates,
    flags::{Flags, Value},
    logging::{LogFormat, LoggingOptions, ModuleVerbosity},
};

pub(crate) fn logging(flags: &Flags, gates: &FeatureGates, diagnostics: &mut Diagnostics) -> LoggingOptions {
    let flush = flags.duration("log-flush-frequency");
    if flush.nanos() <= 0 {
        diagnostics.error(format!(
            "flushFrequency: Invalid value: {:?}: Must be greater than zero",
            flush.to_string()
        ));
    }
    let format = format(flags.text("logging-format"), gates, diagnostics);
    let vmodule = modules(flags);
    if format == LogFormat::Json && !vmodule.is_empty() {
        diagnostics.error("vmodule: Forbidden: Only supported for text log format");
    }
    let is_alpha_on = gates.is_enabled("LoggingAlphaOptions");
    for (format, field) in [("text", "options.text"), ("json", "options.json")] {
        let (split, size) = (format!("log-{format}-split-stream"), format!("log-{format}-info-buffer-size"));
        if flags.bool(&split) && !is_alpha_on {
            diagnostics
                .error(format!("{field}.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled"));
        }
        if flags.text(&size) != "0" {
            if !is_alpha_on {
                diagnostics.error(format!(
                    "{field}.infoBufferSize: Forbidden: Feature LoggingAlphaOptions is disabled"
                ));
            }
            diagnostics.warning(format!("--{size} has no effect: lines are written immediately"));
        }
    }
    LoggingOptions {
        format,
        verbosity: level(flags.int("v")),
        vmodule,
        split_streams: flags.bool(match format {
            LogFormat::Text => "log-text-split-stream",
            LogFormat::Json => "log-json-split-stream",
        }),
        targets: Vec::new(),
    }
}

fn format(name: &str, gates: &FeatureGates, diagnostics: &mut Diagnostics) -> LogFormat {
    match name {
        "text" => {}
        "json" if gates.is_enabled("LoggingBetaOptions") => return LogFormat::Json,
        "json" => {
            diagnostics
                .error("format: Forbidden: Log format json is disabled, see LoggingBetaOptions feature");
        }
        other => diagnostics.error(format!("format: Invalid value: {other:?}: Unsupported log format")),
    }
    LogFormat::Text
}

fn modules(flags: &Flags) -> Vec<ModuleVerbosity> {
    let Value::Modules(modules) = flags.value("vmodule") else { return Vec::new() };
    let module = |(pattern, verbosity): &(String, i64)| ModuleVerbosity {
        pattern: pattern.clone(),
        verbosity: level(*verbosity),
    };
    modules.iter().map(module).collect()
}

fn level(verbosity: i64) -> u8 {
    u8::try_from(verbosity.clamp(0, u8::MAX.into())).unwrap_or_default()
}

//! Parsing of the command line.

use std::{ffi::OsString, fmt};

use kcm_client::{ContentType, Server};
use kcm_metrics::MetricsOptions;
use kcm_serving::{AuthenticationOptions, AuthorizationOptions, ServingOptions};
use thiserror::Error;

use crate::{
    KUBERNETES_VERSION, ManagerConfig, VERSION,
    config::{self, Diagnostics, OptionsError},
    feature_gates::{self, FeatureGates},
    flags::{self, FlagError, Flags, Value},
    logging::{FLAG_TARGET, LoggingOptions},
    selection,
    version::BINARY,
};

/// Parsed command line.
#[derive(Debug)]
pub enum Command {
    /// Print the text and exit.
    Print(String),
    /// Run the manager.
    Run(Box<Options>),
}

/// Options of the manager process.
///
/// Upstream counterpart: `KubeControllerManagerOptions`.
#[derive(Debug)]
pub struct Options {
    /// API server.
    pub server: Server,
    /// Encoding of requests to the API server.
    pub content_type: ContentType,
    /// Configuration of the controllers and of leader election.
    pub manager: ManagerConfig,
    /// Options of the secure port.
    pub serving: ServingOptions,
    /// Authentication of requests to the secure port.
    pub authentication: AuthenticationOptions,
    /// Authorization of requests to the secure port.
    pub authorization: AuthorizationOptions,
    /// Options of exported metrics.
    pub metrics: MetricsOptions,
    /// Options of log lines.
    pub logging: LoggingOptions,
    /// Feature gates.
    pub features: FeatureGates,
    /// If `true`, `/debug/pprof/` and `/debug/flags/v` are served.
    pub profiling: bool,
    /// `--contention-profiling`. Has no effect.
    pub contention_profiling: bool,
    /// If `true`, each controller uses its own service account.
    pub service_account_credentials: bool,
    /// Flags that were set and are only used by controllers that are not part of this binary.
    pub ignored: Vec<&'static str>,
    /// Warnings about flags, one line each.
    pub warnings: Vec<String>,
    /// All flags with their values.
    pub flags: Flags,
}

impl Options {
    /// Logs each flag with its value, as upstream, and the warnings.
    pub fn log_flags(&self) {
        for (name, value) in self.flags.flagz() {
            tracing::info!(target: FLAG_TARGET, "FLAG: --{name}={value:?}");
        }
        if !self.ignored.is_empty() {
            let flags = self.ignored.join(",");
            tracing::warn!(flags, "Ignoring flags of controllers that are not part of this binary");
        }
        for warning in &self.warnings {
            tracing::warn!("{warning}");
        }
    }
}

/// Invalid command line. The message is one line.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CommandError {
    /// An argument or the value of a flag is invalid.
    #[error(transparent)]
    Flag(#[from] FlagError),
    /// The values of flags contradict each other or are not supported.
    #[error(transparent)]
    Config(#[from] OptionsError),
}

impl Command {
    /// Parses the arguments of the program, without its name.
    ///
    /// # Errors
    ///
    /// As upstream: the first invalid argument; or else all invalid feature gates and versions; or else all invalid
    /// logging options; or else all other invalid options.
    pub fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Self, CommandError> {
        let flags = Flags::parse(arguments)?;
        if flags.bool("help") {
            return Ok(Self::Print(help()));
        }
        flags.no_arguments()?;
        let mut diagnostics = Diagnostics::default();
        for (name, message) in flags.deprecated() {
            diagnostics.warning(format!("--{name} is deprecated: {message}"));
        }
        config::check_versions(&flags, &mut diagnostics);
        let features = features(&flags, &mut diagnostics);
        diagnostics = diagnostics.into_result()?;
        match flags.text("version") {
            "raw" => return Ok(Self::Print(format!("{RawVersion}\n"))),
            "true" => {
                return Ok(Self::Print(format!("{BINARY} {VERSION} (Kubernetes {KUBERNETES_VERSION})\n")));
            }
            _ => {}
        }
        let logging = config::logging(&flags, &features, &mut diagnostics);
        diagnostics = diagnostics.into_result()?;
        let manager = ManagerConfig::from_flags(&flags, &features, &mut diagnostics);
        let content_type = config::content_type(&flags, &mut diagnostics);
        config::check_foreign(&flags, &mut diagnostics);
        let serving = config::serving(&flags, &mut diagnostics);
        let authentication = config::authentication(&flags, &mut diagnostics);
        let authorization = config::authorization(&flags, &mut diagnostics);
        let metrics = config::metrics(&flags, &mut diagnostics);
        diagnostics = diagnostics.into_result()?;
        Ok(Self::Run(Box::new(Options {
            server: config::server(&flags),
            content_type,
            manager,
            serving,
            authentication,
            authorization,
            metrics,
            logging,
            features,
            profiling: flags.bool("profiling"),
            contention_profiling: flags.bool("contention-profiling"),
            service_account_credentials: flags.bool("use-service-account-credentials"),
            ignored: flags.foreign(),
            warnings: diagnostics.warnings,
            flags,
        })))
    }
}

fn features(flags: &Flags, diagnostics: &mut Diagnostics) -> FeatureGates {
    let Value::Gates(settings) = flags.value("feature-gates") else { return FeatureGates::default() };
    match FeatureGates::new(settings) {
        Ok(gates) => {
            gates.warnings().into_iter().for_each(|warning| diagnostics.warning(warning));
            gates
        }
        Err(errors) => {
            diagnostics.errors(errors);
            FeatureGates::default()
        }
    }
}

fn help() -> String {
    flags::help(&[("controllers", selection::help()), ("feature-gates", feature_gates::help())])
}

/// Text of `--version=raw`.
struct RawVersion;

impl fmt::Display for RawVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commit = option_env!("KUBE_GIT_COMMIT").unwrap_or("unknown");
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        write!(
            f,
            "version={VERSION:?} kubernetes={KUBERNETES_VERSION:?} commit={commit:?} platform=\"{os}/{arch}\""
        )
    }
}

#[cfg(test)]
mod tests;

//! From the words of a command line to something to do.

use std::{ffi::OsString, fmt};

use kcm_client::Server;
use kcm_metrics::MetricsOptions;
use kcm_serving::{AuthenticationOptions, AuthorizationOptions, ServingOptions};
use thiserror::Error;

use crate::{
    KUBERNETES_VERSION, ManagerConfig, VERSION,
    config::{self, Diagnostics, OptionsError},
    feature_gates::FeatureGates,
    flags::{self, FlagError, Flags, Value},
    logging::{FLAG_TARGET, LoggingOptions},
    version::BINARY,
};

/// What a command line asks for.
#[derive(Debug)]
pub enum Command {
    /// To print this and be done.
    Print(String),
    /// To run.
    Run(Box<Options>),
}

/// How to run.
#[derive(Debug)]
pub struct Options {
    /// Where the API server is.
    pub server: Server,
    /// What to do there.
    pub manager: ManagerConfig,
    /// Where and how to serve health, metrics and the rest.
    pub serving: ServingOptions,
    /// Who those are that ask there.
    pub authentication: AuthenticationOptions,
    /// What they may.
    pub authorization: AuthorizationOptions,
    /// Which metrics are shown.
    pub metrics: MetricsOptions,
    /// What is logged, and how.
    pub logging: LoggingOptions,
    /// Which features are on.
    pub features: FeatureGates,
    /// Whether `/debug/pprof/` and `/debug/flags/v` are served.
    pub profiling: bool,
    /// Whether waiting for locks is profiled, too.
    pub contention_profiling: bool,
    /// Whether each controller acts as its own service account.
    pub service_account_credentials: bool,
    /// The flags given that only controllers use that are not built in.
    pub ignored: Vec<&'static str>,
    /// What else whoever gave the flags should know, a line each.
    pub warnings: Vec<String>,
    /// The flags that led here.
    pub flags: Flags,
}

impl Options {
    /// Logs each flag with its value, as upstream does, and what of them has no effect.
    pub fn log_flags(&self) {
        for (name, value) in self.flags.flagz() {
            tracing::info!(target: FLAG_TARGET, "FLAG: --{name}={value:?}");
        }
        if !self.ignored.is_empty() {
            let flags = self.ignored.join(",");
            tracing::warn!(
                flags,
                "Flags have no effect, for only controllers use them that are not built in"
            );
        }
        for warning in &self.warnings {
            tracing::warn!("{warning}");
        }
    }
}

/// A command line that asks for nothing sensible. One line, as all errors of this crate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CommandError {
    /// A word is no flag, or no value.
    #[error(transparent)]
    Flag(#[from] FlagError),
    /// The flags do not add up.
    #[error(transparent)]
    Config(#[from] OptionsError),
}

impl Command {
    /// Understands the words of a command line, without the program's name.
    ///
    /// # Errors
    ///
    /// When they make no sense: the first word that is none; else all that is wrong with features; else with logging;
    /// else with all the rest. So does upstream.
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Self, CommandError> {
        let flags = Flags::parse(words)?;
        if flags.bool("help") {
            return Ok(Self::Print(flags::help()));
        }
        flags.no_arguments()?;
        let mut diagnostics = Diagnostics::default();
        for (name, why) in flags.deprecated() {
            diagnostics.warning(format!("--{name} is deprecated: {why}"));
        }
        config::check_versions(&flags, &mut diagnostics);
        let features = features(&flags, &mut diagnostics);
        diagnostics = diagnostics.into_result()?;
        match flags.text("version") {
            "raw" => return Ok(Self::Print(format!("{RawVersion}\n"))),
            "true" => {
                return Ok(Self::Print(format!(
                    "{BINARY} {VERSION}, behaving as Kubernetes {KUBERNETES_VERSION}\n"
                )));
            }
            _ => {}
        }
        let logging = config::logging(&flags, &features, &mut diagnostics);
        diagnostics = diagnostics.into_result()?;
        let manager = ManagerConfig::from_flags(&flags, &features, &mut diagnostics);
        config::check_foreign(&flags, &mut diagnostics);
        let serving = config::serving(&flags, &mut diagnostics);
        let authentication = config::authentication(&flags, &mut diagnostics);
        let authorization = config::authorization(&flags, &mut diagnostics);
        let metrics = config::metrics(&flags, &mut diagnostics);
        diagnostics = diagnostics.into_result()?;
        Ok(Self::Run(Box::new(Options {
            server: config::server(&flags),
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
        Err(problems) => {
            diagnostics.problems(problems);
            FeatureGates::default()
        }
    }
}

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

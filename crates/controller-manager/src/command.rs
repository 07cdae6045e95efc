//! From the words of a command line to something to do.

use std::{ffi::OsString, fmt};

use kcm_client::Server;
use kcm_metrics::MetricsOptions;
use kcm_serving::{AuthenticationOptions, AuthorizationOptions, ServingOptions};
use thiserror::Error;

use crate::{
    BEHAVES_AS, ManagerConfig, VERSION,
    config::{self, ConfigError},
    flags::{self, FlagError, Flags},
    logging::LoggingOptions,
    version::BINARY,
};

/// What a command line asks for.
#[derive(Debug)]
pub enum Command {
    /// To print this and be done.
    Print(String),
    /// To run.
    Run(Box<Invocation>),
}

/// How to run.
#[derive(Debug)]
pub struct Invocation {
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
    /// Whether `/debug/pprof/` and `/debug/flags/v` are served.
    pub profiling: bool,
    /// Whether waiting for locks is profiled, too.
    pub contention_profiling: bool,
    /// Whether each controller acts as its own service account.
    pub service_account_credentials: bool,
    /// The flags given that only controllers use that are not built in. One warning line names them.
    pub ignored: Vec<&'static str>,
    /// The flags that led here, for the log.
    pub flags: Flags,
}

impl Invocation {
    /// Logs each flag with its value, as upstream does.
    pub fn log_flags(&self) {
        for (name, value) in self.flags.all() {
            tracing::debug!("FLAG: --{name}={value:?}");
        }
    }
}

/// A command line that asks for nothing sensible. One line, as all errors of this crate.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(transparent)]
pub struct CommandError(#[from] ConfigError);

impl From<FlagError> for CommandError {
    fn from(error: FlagError) -> Self {
        Self(error.into())
    }
}

impl Command {
    /// Understands the words of a command line, without the program's name.
    ///
    /// # Errors
    ///
    /// When they make no sense.
    pub fn parse(words: impl IntoIterator<Item = OsString>) -> Result<Self, CommandError> {
        let flags = Flags::parse(words)?;
        if flags.bool("help")? {
            return Ok(Self::Print(flags::help()));
        }
        if flags.text("version") == "raw" {
            return Ok(Self::Print(format!("{RawVersion}\n")));
        }
        if flags.bool("version")? {
            return Ok(Self::Print(format!("{BINARY} {VERSION}, behaving as Kubernetes {BEHAVES_AS}\n")));
        }
        Ok(Self::Run(Box::new(Invocation {
            server: config::server(&flags),
            manager: ManagerConfig::from_flags(&flags)?,
            serving: ServingOptions::default(),
            authentication: AuthenticationOptions::default(),
            authorization: AuthorizationOptions::default(),
            metrics: MetricsOptions::default(),
            logging: LoggingOptions { verbosity: config::verbosity(&flags)?, ..LoggingOptions::default() },
            profiling: true,
            contention_profiling: false,
            service_account_credentials: false,
            ignored: Vec::new(),
            flags,
        })))
    }
}

struct RawVersion;

impl fmt::Display for RawVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let commit = option_env!("KUBE_GIT_COMMIT").unwrap_or("unknown");
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        write!(f, "version={VERSION:?} kubernetes={BEHAVES_AS:?} commit={commit:?} platform=\"{os}/{arch}\"")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Command, CommandError> {
        Command::parse(line.split_whitespace().map(OsString::from))
    }

    fn printed(line: &str) -> String {
        match parse(line) {
            Ok(Command::Print(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn command_that_asks_for_help_or_version_prints_it() {
        assert!(printed("--kubeconfig=x -h").contains("--concurrent-deployment-syncs"));
        assert!(printed("--version").starts_with("kube-controller-manager v"));
        assert!(printed("--version=raw").starts_with("version=\"v"));
        assert!(matches!(parse("--version=false"), Ok(Command::Run(_))));
    }

    #[test]
    fn command_with_a_bad_flag_is_refused() {
        assert_eq!(parse("--help --nonsense").unwrap_err().to_string(), "unknown flag: --nonsense");
        assert_eq!(
            parse("--version=maybe").unwrap_err().to_string(),
            "invalid argument \"maybe\" for \"--version\" flag: neither true nor false"
        );
    }
}

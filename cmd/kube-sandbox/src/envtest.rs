//! The programs that envtest starts, `kube-apiserver` and `etcd`: this program under other names.

mod api_server;
mod arguments;
mod etcd;

use std::{
    env,
    ffi::OsString,
    fs, io,
    os::unix::{fs::symlink, process::parent_id},
    path::{Path, PathBuf},
    time::Duration,
};

use kcm_apiserver::ApiServerConfig;
use kcm_clock::Clock;

pub(crate) use self::{api_server::CertificatesError, arguments::Arguments};
use crate::{
    SandboxError,
    flags::{Flags, Task},
};

/// Variable of the environment. If it is set, kube-apiserver also runs the simulated components and controllers.
const CONTROLLERS: &str = "KUBE_SANDBOX_CONTROLLERS";

/// Interval at which the program checks if its parent has ended.
const PARENT_INTERVAL: Duration = Duration::from_millis(500);

/// Program that this process was started as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    ApiServer,
    Etcd,
}

impl Program {
    /// Returns the program that `name`, the first argument of the process, names. `None` for `kube-sandbox`.
    pub(crate) fn of(name: Option<&OsString>) -> Option<Self> {
        match Path::new(name?).file_name()?.to_str()? {
            "kube-apiserver" => Some(Self::ApiServer),
            "etcd" => Some(Self::Etcd),
            _ => None,
        }
    }

    /// Parses the arguments after the name. Returns the text to print for `--help` and `--version`.
    pub(crate) fn parse(self, arguments: impl Iterator<Item = OsString>) -> Result<Arguments, String> {
        let (arguments, unknown) = match self {
            Self::ApiServer => {
                let version = format!("Kubernetes {}", ApiServerConfig::default().advertise_version);
                arguments::parse("kube-apiserver", &version, api_server::FLAGS, arguments)?
            }
            Self::Etcd => {
                let version = format!("etcd Version: {}", etcd::VERSION);
                arguments::parse("etcd", &version, etcd::FLAGS, arguments)?
            }
        };
        for name in unknown {
            eprintln!("Warning: flag --{name} has no effect");
        }
        Ok(arguments)
    }

    /// Returns the flags of kube-sandbox with the effect of `arguments`.
    pub(crate) fn flags(self, arguments: Arguments) -> Flags {
        let mut flags = Flags {
            verbosity: arguments.last("v").and_then(|level| level.parse().ok()).unwrap_or(0),
            bare: env::var_os(CONTROLLERS).is_none(),
            ..Flags::default()
        };
        flags.with_controllers = !flags.bare;
        flags.task = match self {
            Self::Etcd => Task::Etcd(arguments),
            Self::ApiServer => {
                let path = |name| arguments.last(name).filter(|path| !path.is_empty()).map(PathBuf::from);
                flags.token_auth_file = path("token-auth-file");
                let modes = arguments.last("authorization-mode").unwrap_or_default();
                flags.service_account_issuer = arguments
                    .last("service-account-issuer")
                    .filter(|issuer| !issuer.is_empty())
                    .map(str::to_owned);
                flags.rbac = modes.split(',').any(|mode| mode == "RBAC");
                let anonymous = arguments.last("anonymous-auth").unwrap_or_default();
                flags.anonymous_auth = !matches!(anonymous, "false" | "False" | "FALSE" | "f" | "F" | "0");
                flags.audit_log_path = path("audit-log-path").filter(|path| path != Path::new("-"));
                flags.audit_policy_file =
                    path("audit-policy-file").filter(|_| flags.audit_log_path.is_some());
                Task::ApiServer(arguments)
            }
        };
        flags
    }
}

pub(crate) use api_server::serve as serve_api;
pub(crate) use etcd::serve as serve_etcd;

/// Makes the folder of the programs: `kube-apiserver` and `etcd` are links to this program, `kubectl` is a link to the first
/// one in `PATH`, if there is one. Returns its path.
pub(crate) fn make_folder(folder: Option<PathBuf>) -> Result<PathBuf, SandboxError> {
    let folder = match folder {
        Some(folder) => folder,
        None => crate::kubeconfig::cache_folder()?.join("envtest"),
    };
    let failed = |source| SandboxError::Envtest { folder: folder.clone(), source };
    let program = env::current_exe().map_err(failed)?;
    fs::create_dir_all(&folder).map_err(failed)?;
    let folder = folder.canonicalize().map_err(failed)?;
    let mut links = vec![("kube-apiserver", program.clone()), ("etcd", program)];
    links.extend(installed("kubectl", &folder).map(|kubectl| ("kubectl", kubectl)));
    for (name, target) in links {
        replace_link(&folder.join(name), &target).map_err(failed)?;
    }
    Ok(folder)
}

/// Points `link` to `target`. Another process that does the same at the same time is not disturbed.
fn replace_link(link: &Path, target: &Path) -> io::Result<()> {
    if fs::read_link(link).is_ok_and(|current| current == target) {
        return Ok(());
    }
    let temporary = link.with_extension(std::process::id().to_string());
    symlink(target, &temporary)?;
    fs::rename(&temporary, link)
}

/// Returns the first program called `name` in `PATH`, outside of `folder`.
fn installed(name: &str, folder: &Path) -> Option<PathBuf> {
    let folders = env::var_os("PATH")?;
    let programs = env::split_paths(&folders).filter(|other| other != folder).map(|folder| folder.join(name));
    programs.filter_map(|program| program.canonicalize().ok()).find(|program| program.is_file())
}

/// Process that has started this one.
///
/// Test frameworks do not stop the programs if a test is killed. A signal at the death of the parent would be sent too early:
/// Linux sends it when the thread ends that has started the program, and Go's runtime ends threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parent(u32);

impl Parent {
    /// Returns the parent. To be called first: it may end at any time.
    pub(crate) fn of_this_process() -> Self {
        Self(parent_id())
    }

    /// Waits until the parent has ended.
    pub(crate) async fn ended(self, clock: &dyn Clock) {
        while parent_id() == self.0 {
            clock.sleep(PARENT_INTERVAL).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_is_the_name_without_its_folder() {
        let of = |name: &str| Program::of(Some(&name.into()));
        assert_eq!(of("/assets/kube-apiserver"), Some(Program::ApiServer));
        assert_eq!(of("etcd"), Some(Program::Etcd));
        assert_eq!(of("/usr/bin/kube-sandbox"), None);
        assert_eq!(Program::of(None), None);
    }
}

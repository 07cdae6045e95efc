//! The file that points `kubectl` at the sandbox.

use std::{
    env, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use base64::Engine as _;
use thiserror::Error;

/// A kubeconfig that cannot be written.
#[derive(Debug, Error)]
pub(crate) enum KubeconfigError {
    #[error(
        "cannot tell where to write the kubeconfig: neither XDG_CACHE_HOME nor HOME is set; give --kubeconfig"
    )]
    NoCache,
    #[error("cannot write kubeconfig {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
}

/// What a client must know of the server.
#[derive(Debug, Default)]
pub(crate) struct Access {
    /// The certificate to trust, PEM, if the server speaks TLS.
    pub(crate) certificate: Option<String>,
    /// The token to show.
    pub(crate) token: Option<String>,
}

/// Writes a kubeconfig for the server at `url`, readable by its owner only; tells where it is.
pub(crate) fn write(url: &str, access: &Access, path: Option<PathBuf>) -> Result<PathBuf, KubeconfigError> {
    let path = path.or_else(default_path).ok_or(KubeconfigError::NoCache)?;
    let authority = access.certificate.as_ref().map_or(String::new(), |pem| {
        format!("\n    certificate-authority-data: {}", base64::engine::general_purpose::STANDARD.encode(pem))
    });
    // Tokens can have any characters but quotes, which the file they come from would have doubled.
    let user = access.token.as_ref().map_or("{}".to_owned(), |token| format!("{{token: {token:?}}}"));
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: sandbox\nclusters:\n- name: sandbox\n  cluster:\n    server: {url}{authority}\n\
         contexts:\n- name: sandbox\n  context: {{cluster: sandbox, user: sandbox}}\nusers:\n- name: sandbox\n  user: {user}\n"
    );
    write_private(&path, &text).map_err(|source| KubeconfigError::Write { path: path.clone(), source })?;
    Ok(path)
}

fn default_path() -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")))?;
    Some(cache.join("kube-sandbox").join("kubeconfig"))
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    // A file that was there keeps the rights it had, so it goes first.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)?.write_all(text.as_bytes())
}

//! Writes the kubeconfig of the sandbox.

use std::{
    env, fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use base64::Engine as _;
use thiserror::Error;

/// Error while writing files.
#[derive(Debug, Error)]
pub(crate) enum KubeconfigError {
    #[error("no folder for files: set XDG_CACHE_HOME or HOME, or give a path by --kubeconfig or --dir")]
    NoPath,
    #[error("failed to write kubeconfig {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
}

/// Credentials that clients need.
#[derive(Debug, Default)]
pub(crate) struct Access {
    /// PEM-encoded CA certificate, if the server uses TLS.
    pub(crate) certificate: Option<String>,
    /// Bearer token, if the server requires one.
    pub(crate) token: Option<String>,
}

/// Writes a kubeconfig for the server at `url`, readable by its owner only. Returns its path.
pub(crate) fn write(url: &str, access: &Access, path: Option<PathBuf>) -> Result<PathBuf, KubeconfigError> {
    let path = match path {
        Some(path) => path,
        None => cache_folder()?.join("kubeconfig"),
    };
    let authority = access.certificate.as_ref().map_or(String::new(), |pem| {
        format!("\n    certificate-authority-data: {}", base64::engine::general_purpose::STANDARD.encode(pem))
    });
    // Tokens contain no quotes: the token file is CSV.
    // Over TLS, `kubectl --server` prompts for a password if there are no credentials. A server without tokens ignores them.
    let token = access.token.as_deref().or(access.certificate.as_ref().map(|_| "anonymous"));
    let user = token.map_or("{}".to_owned(), |token| format!("{{token: {token:?}}}"));
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: sandbox\nclusters:\n- name: sandbox\n  cluster:\n    server: {url}{authority}\n\
         contexts:\n- name: sandbox\n  context: {{cluster: sandbox, user: sandbox}}\nusers:\n- name: sandbox\n  user: {user}\n"
    );
    write_private(&path, &text).map_err(|source| KubeconfigError::Write { path: path.clone(), source })?;
    Ok(path)
}

/// Folder of the program in the cache folder of the user.
pub(crate) fn cache_folder() -> Result<PathBuf, KubeconfigError> {
    let cache = env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    Ok(cache.ok_or(KubeconfigError::NoPath)?.join("kube-sandbox"))
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    // An existing file would keep its permissions.
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

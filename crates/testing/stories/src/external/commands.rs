//! Commands of external programs.

use std::{
    io,
    net::{Ipv4Addr, TcpListener},
    path::Path,
};

use crate::cluster::ClusterError;

/// Returns a free port. Another process may take it before it is used; starting the program then fails.
pub(super) fn free_port() -> Result<u16, ClusterError> {
    let failed = |source: io::Error| ClusterError::File { file: "free port".to_owned(), source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    Ok(listener.local_addr().map_err(failed)?.port())
}

/// Replaces `{name}` in `command` by the values.
pub(super) fn fill(command: &str, values: &[(&str, &str)]) -> String {
    values.iter().fold(command.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

/// Path as text.
pub(super) fn text(path: &Path) -> String {
    path.display().to_string()
}

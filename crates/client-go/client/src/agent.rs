//! User agents.

use std::env::consts;

use http::HeaderValue;

/// User agent of a binary.
///
/// The API server uses the part before the first `/` as the field manager of writes, so `binary` appears in
/// `managedFields` (US-1.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserAgent {
    binary: String,
    version: String,
    commit: String,
}

impl UserAgent {
    /// Creates the user agent of `binary` in `version`, built from `commit`. Seven digits of the commit are used.
    ///
    /// ```
    /// let agent = kcm_client::UserAgent::new("example-operator", "v1.0.0", "0123456789abcdef");
    /// let text = agent.for_client("example-controller");
    /// assert!(text.starts_with("example-operator/v1.0.0 ("));
    /// assert!(text.ends_with(") kubernetes/0123456/example-controller"));
    /// ```
    pub fn new(binary: impl Into<String>, version: impl Into<String>, commit: &str) -> Self {
        let commit = if commit.is_empty() { "unknown" } else { commit.get(..7).unwrap_or(commit) };
        Self { binary: binary.into(), version: version.into(), commit: commit.to_owned() }
    }

    /// Returns `<binary>/<version> (<os>/<arch>) kubernetes/<commit>/<client>`, with Go's names of systems. A client without
    /// a name has no last part, as that of `kubectl`.
    pub fn for_client(&self, client: &str) -> String {
        let Self { binary, version, commit } = self;
        let slash = if client.is_empty() { "" } else { "/" };
        format!("{binary}/{version} ({}/{}) kubernetes/{commit}{slash}{client}", go_os(), go_arch())
    }

    pub(crate) fn header(&self, client: &str) -> HeaderValue {
        let text: String = self.for_client(client).chars().filter(|c| matches!(c, ' '..='~')).collect();
        HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("unknown"))
    }
}

fn go_os() -> &'static str {
    match consts::OS {
        "macos" => "darwin",
        other => other,
    }
}

fn go_arch() -> &'static str {
    match consts::ARCH {
        "x86_64" => "amd64",
        "x86" => "386",
        "aarch64" => "arm64",
        "powerpc64" => "ppc64le",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn form_is_upstreams() {
        let agent = UserAgent::new("kube-controller-manager", "v0.1.0", "0123456789abcdef");
        let expected = format!(
            "kube-controller-manager/v0.1.0 ({}/{}) kubernetes/0123456/deployment-controller",
            go_os(),
            go_arch()
        );
        assert_eq!(agent.for_client("deployment-controller"), expected);
        assert!(agent.for_client("").ends_with(" kubernetes/0123456"));
    }

    #[test]
    fn invalid_characters_are_removed() {
        let agent = UserAgent::new("b\n", "v1", "");
        assert!(agent.header("c\u{e9}").to_str().unwrap().ends_with("kubernetes/unknown/c"));
    }
}

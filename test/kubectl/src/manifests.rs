//! Manifests used by the checks.

/// Deployment `web` with three replicas.
pub(super) const WEB: &str = include_str!("manifests/web.yaml");

/// [`WEB`] with additional lines in its `spec`.
pub(super) fn web_with(lines: &[&str]) -> String {
    lines.iter().fold(WEB.to_owned(), |text, line| {
        text.replacen("  replicas: 3\n", &format!("  replicas: 3\n  {line}\n"), 1)
    })
}

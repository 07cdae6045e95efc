//! Manifests used by the checks.

/// Deployment `web` with three replicas.
pub(super) const WEB: &str = "\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 3
  selector:
    matchLabels:
      app: web
  template:
    metadata:
      labels:
        app: web
    spec:
      containers:
      - name: nginx
        image: nginx:1
";

/// [`WEB`] with additional lines in its `spec`.
pub(super) fn web_with(lines: &[&str]) -> String {
    lines.iter().fold(WEB.to_owned(), |text, line| {
        text.replacen("  replicas: 3\n", &format!("  replicas: 3\n  {line}\n"), 1)
    })
}

use std::os::unix::fs::PermissionsExt as _;

use std::path::Path;

use super::*;

fn config(folder: &Path, command: &str) -> ExternalConfig {
    let server = ServerProgram::Command { command: command.to_owned(), tls: false };
    ExternalConfig { server, manager: "true".to_owned(), folder: folder.to_owned() }
}

/// Returns the error of a server with a timeout of zero.
async fn failure(config: ExternalConfig) -> String {
    start_within(Duration::ZERO, config).await.unwrap_err().to_string()
}

/// Returns the error of a manager with a short timeout, on the embedded API server.
async fn manager_failure(command: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let manager = command.to_owned();
    let config = ExternalConfig { server: ServerProgram::Embedded, manager, ..config(folder.path(), "") };
    let mut external = start_within(Duration::from_millis(300), config).await.unwrap();
    let controllers = ["deployment-controller".to_owned()];
    external.cluster.start_manager(&controllers).await.unwrap_err().to_string()
}

#[tokio::test]
async fn exited_server_is_reported_with_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let command = "echo 'no etcd at {port}' | sed 's/[0-9]*$/x/' >&2; exit 3";
    let error = start(config(folder.path(), command)).await.unwrap_err().to_string();
    assert!(error.starts_with("API server exited (exit status: 3)"), "{error}");
    assert!(error.ends_with("no etcd at x"), "{error}");
}

#[tokio::test]
async fn unreachable_server_is_reported_with_the_last_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = failure(config(folder.path(), "echo 'listening nowhere'; exec sleep 1000")).await;
    assert!(error.starts_with("API server is not ready after 0s: GET http://127.0.0.1:"), "{error}");
    assert!(error.contains(": Connection refused"), "{error}");
}

#[tokio::test]
async fn missing_server_program_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let error = start(config(folder.path(), "/nowhere/kube-apiserver --port={port}")).await.unwrap_err();
    let error = error.to_string();
    assert!(error.starts_with("API server exited (exit status: 127)"), "{error}");
    assert!(error.contains("/nowhere/kube-apiserver: not found"), "{error}");
}

#[tokio::test]
async fn assets_without_programs_are_reported() {
    let folder = tempfile::tempdir().unwrap();
    let assets = folder.path().join("assets");
    let config = ExternalConfig { server: ServerProgram::Kubebuilder(assets), ..config(folder.path(), "") };
    let error = failure(config).await;
    assert!(error.starts_with("failed to start \"") && error.contains("assets/etcd"), "{error}");
}

#[tokio::test]
async fn exited_kube_apiserver_is_reported_with_its_log() {
    let folder = tempfile::tempdir().unwrap();
    for (name, script) in
        [("etcd", "exec sleep 1000"), ("kube-apiserver", "echo 'bind: address already in use' >&2; exit 1")]
    {
        let file = folder.path().join(name);
        let source = folder.path().join(format!("{name}.sh"));
        std::fs::write(&source, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&source, std::fs::Permissions::from_mode(0o755)).unwrap();
        // Another process writes the program: a process that is forked by another test would otherwise inherit the open
        // file for a moment, and a file that is open for writing cannot be executed.
        assert!(std::process::Command::new("cp").args([&source, &file]).status().unwrap().success());
    }
    let server = ServerProgram::Kubebuilder(folder.path().to_owned());
    let config = ExternalConfig { server, ..config(folder.path(), "") };
    let error = start(config).await.unwrap_err().to_string();
    assert!(error.starts_with("kube-apiserver exited (exit status: 1)"), "{error}");
    assert!(error.ends_with("bind: address already in use"), "{error}");
}

#[tokio::test]
async fn unwritable_folder_is_reported() {
    let error = failure(config(Path::new("/nowhere/at/all"), "true")).await;
    assert!(error.contains("/nowhere/at/all/"), "{error}");
}

#[tokio::test]
async fn exited_manager_is_reported_with_its_log() {
    let error = manager_failure("echo 'unknown flag {controllers}'; exit 1").await;
    assert!(error.starts_with("manager exited (exit status: 1)"), "{error}");
    assert!(error.ends_with("unknown flag deployment-controller"), "{error}");
}

#[tokio::test]
async fn missing_manager_program_is_reported() {
    let error = manager_failure("'/nowhere/kube-controller-manager' --kubeconfig={kubeconfig}").await;
    assert!(error.starts_with("manager exited (exit status: 127)"), "{error}");
    assert!(error.contains("/nowhere/kube-controller-manager: not found"), "{error}");
}

#[tokio::test]
async fn manager_without_watches_is_reported() {
    let error = manager_failure("echo 'standing by'; exec sleep 1000").await;
    assert!(
        error.starts_with("manager is not ready after 0s: no watch of deployments, pods, replicasets;"),
        "{error}"
    );
    assert!(error.ends_with("standing by"), "{error}");
}

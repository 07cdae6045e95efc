//! A crate outside the workspace that depends on all packaged crates.

use std::{fmt::Write as _, fs, path::Path, process::Command};

use crate::{
    TaskError, failed,
    workspace::{Workspace, cargo, run},
};

/// Program of the crate.
const PROGRAM: &str = include_str!("../consumer/main.rs");

/// Published crates whose feature `kube` the program uses.
const WITH_KUBE: [&str; 2] = ["kcm-client", "kcm-informer"];

/// Packages all published crates, and builds and runs the crate.
pub(crate) fn check(workspace: &Workspace) -> Result<(), TaskError> {
    package(workspace)?;
    let folder = tempfile::tempdir().map_err(failed("create a temporary folder"))?;
    let folder = folder.path();
    unpack(workspace, folder)?;
    write(workspace, folder)?;
    let target = workspace.target.join("consumer");
    let output = run(cargo(folder).arg("run").arg("--target-dir").arg(target))?;
    print!("{output}");
    Ok(())
}

fn package(workspace: &Workspace) -> Result<(), TaskError> {
    let mut command = cargo(&workspace.root);
    // The consumer verifies the packages.
    command.args(["package", "--no-verify", "--allow-dirty", "--locked"]);
    for published in &workspace.published {
        command.args(["--package", &published.name]);
    }
    run(&mut command).map(drop)
}

fn unpack(workspace: &Workspace, folder: &Path) -> Result<(), TaskError> {
    for published in &workspace.published {
        let file = workspace.target.join("package").join(format!("{}.crate", published.folder()));
        run(Command::new("tar").arg("-xzf").arg(file).arg("-C").arg(folder))?;
    }
    Ok(())
}

/// Writes the crate. Its lock file is that of the workspace, from which cargo drops the rest.
fn write(workspace: &Workspace, folder: &Path) -> Result<(), TaskError> {
    let mut manifest = String::from(
        "[package]\nname = \"consumer\"\nversion = \"0.1.0\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\n\
         k8s-openapi = { version = \"*\", default-features = false, features = [\"v1_36\"] }\n\
         bytes = \"*\"\nhttp = \"*\"\nhttp-body-util = \"*\"\n\
         tokio = { version = \"*\", features = [\"macros\", \"rt\"] }\ntokio-util = \"*\"\n\
         tower = { version = \"*\", features = [\"util\"] }\n",
    );
    // All, so that all packages are compiled.
    for published in &workspace.published {
        // Writing to a string does not fail.
        let _ = writeln!(
            manifest,
            "{} = {{ version = \"{}\", features = {} }}",
            published.name,
            published.version,
            if WITH_KUBE.contains(&&*published.name) { "[\"kube\"]" } else { "[]" },
        );
    }
    manifest.push_str("\n[patch.crates-io]\n");
    for published in &workspace.published {
        let _ = writeln!(manifest, "{} = {{ path = \"{}\" }}", published.name, published.folder());
    }
    let file = |name: &str| folder.join(name);
    fs::create_dir(file("src")).map_err(failed("create the folder src"))?;
    fs::write(file("Cargo.toml"), manifest).map_err(failed("write Cargo.toml"))?;
    fs::write(file("src/main.rs"), PROGRAM).map_err(failed("write main.rs"))?;
    fs::copy(workspace.root.join("Cargo.lock"), file("Cargo.lock")).map_err(failed("copy Cargo.lock"))?;
    Ok(())
}

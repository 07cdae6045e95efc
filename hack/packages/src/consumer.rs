//! A crate outside of the workspace that depends on the packages: the operator of the tutorial, copied from its blocks.

use std::{env, fmt::Write as _, fs, path::Path, process::Command};

use crate::{
    TaskError, failed,
    workspace::{Published, Workspace, cargo, run},
};

/// Path of the facade in the manifest of the tutorial.
const CHECKOUT: &str = "../kcm/crates/kcm";

/// Packages all published crates, follows the tutorial in an empty folder, and checks its program and tests, which are those of
/// `examples/website-operator`.
pub(crate) fn check(workspace: &Workspace) -> Result<(), TaskError> {
    package(workspace)?;
    // The same folder each time, so that cargo replaces its results.
    let folder = &workspace.target.join("package/consumer");
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(failed("remove the unpacked packages"))?;
    }
    fs::create_dir_all(folder).map_err(failed("create a folder for the packages"))?;
    unpack(workspace, folder)?;
    let operator = folder.join("website-operator");
    let page = workspace.root.join("docs/tutorial.md");
    let page = fs::read_to_string(page).map_err(failed("read docs/tutorial.md"))?;
    copy_blocks(&page, &operator)?;
    let manifest = operator.join("Cargo.toml");
    let block = page.split_once("```toml\n").and_then(|(_, rest)| rest.split_once("```"));
    let (block, _) = block.ok_or_else(|| TaskError::Tutorial("no manifest".to_owned()))?;
    let root = workspace.root.join("Cargo.toml");
    let root = fs::read_to_string(root).map_err(failed("read Cargo.toml"))?;
    let text = manifest_of_packages(workspace, block, &root);
    fs::write(&manifest, text).map_err(failed("write Cargo.toml"))?;
    // Cargo drops what the operator does not need.
    fs::copy(workspace.root.join("Cargo.lock"), operator.join("Cargo.lock"))
        .map_err(failed("copy Cargo.lock"))?;

    // Cargo reads the configuration of the folder in which it runs, which must not be that of the workspace. Dependencies that the
    // workspace has compiled with the same features and profile are not compiled again.
    let elsewhere = env::temp_dir();
    // The second time without the dependencies of the tests, so that the features in the manifest suffice.
    for targets in ["--all-targets", "--bins"] {
        let mut cargo = cargo(&elsewhere);
        cargo.args(["check", targets, "--manifest-path"]).arg(&manifest);
        run(cargo.arg("--target-dir").arg(&workspace.target))?;
    }
    Ok(())
}

/// Writes the blocks after comments that name a file.
fn copy_blocks(page: &str, folder: &Path) -> Result<(), TaskError> {
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let named = line.strip_prefix("<!-- ").and_then(|line| line.strip_suffix(" -->"));
        let Some(name) = named.filter(|named| !named.contains(": ")) else { continue };
        let block: Vec<_> = lines.by_ref().skip(1).take_while(|line| *line != "```").collect();
        let file = folder.join(name);
        let parent = file.parent().unwrap_or(folder);
        fs::create_dir_all(parent).map_err(failed(format!("create the folder of {name}")))?;
        fs::write(&file, block.join("\n") + "\n").map_err(failed(format!("write {name}")))?;
    }
    Ok(())
}

/// Returns the manifest of the tutorial with the packages in place of a checkout, and with the development profile of `root`, the
/// manifest of the workspace. All packages are dependencies of the tests, so that all are compiled.
fn manifest_of_packages(workspace: &Workspace, tutorial: &str, root: &str) -> String {
    let mut manifest = tutorial.to_owned();
    for published in &workspace.published {
        let Published { name, version } = published;
        // Writing to a string does not fail.
        if name == "kcm" {
            manifest = manifest.replace(CHECKOUT, &format!("../{}", published.folder()));
        } else {
            let _ = writeln!(manifest, "{name} = \"{version}\"");
        }
    }
    manifest.push_str("\n[workspace]\n");
    for section in root.split("\n[").filter(|section| section.starts_with("profile.dev")) {
        let _ = writeln!(manifest, "\n[{section}");
    }
    manifest.push_str("\n[patch.crates-io]\n");
    for published in workspace.published.iter().filter(|published| published.name != "kcm") {
        let _ = writeln!(manifest, "{} = {{ path = \"../{}\" }}", published.name, published.folder());
    }
    manifest
}

/// Packages all published crates.
fn package(workspace: &Workspace) -> Result<(), TaskError> {
    let mut command = cargo(&workspace.root);
    // The consumer verifies the packages, and has a lock file. Those of the packages would be resolved one by one.
    command.args(["package", "--no-verify", "--allow-dirty", "--locked", "--exclude-lockfile"]);
    for published in &workspace.published {
        command.args(["--package", &published.name]);
    }
    run(&mut command).map(drop)
}

fn unpack(workspace: &Workspace, folder: &Path) -> Result<(), TaskError> {
    for published in &workspace.published {
        let file = workspace.target.join("package").join(format!("{}.crate", published.folder()));
        // Packages have fixed times, by which cargo does not find changes.
        run(Command::new("tar").arg("-xzmf").arg(file).arg("-C").arg(folder))?;
    }
    Ok(())
}

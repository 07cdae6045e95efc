//! Citations and links: every citation of `docs/behaviour`, every link of a document and every document that a source
//! file names must exist.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
    sync::LazyLock,
};

use regex::Regex;

/// Pages that are cited as `US-n.n`.
const BEHAVIOUR: &str = "docs/behaviour";

/// Extensions of the files that are searched for citations.
const EXTENSIONS: &[&str] = &["rs", "md", "yaml", "toml", "txt", "patch"];

/// Folders without text of the project: build results and inputs of fuzz targets.
const SKIPPED: &[&str] = &["target", ".git", "corpus"];

/// This file, which contains citations and names that must not resolve.
const THIS: &str = "hack/xtask/tests/it/citations.rs";

static CITATION: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\bUS-[0-9A-Z]+(\.[0-9]+[a-z]?)?").unwrap());
static ANCHOR: LazyLock<Regex> = LazyLock::new(|| Regex::new(r#"<a id="([^"]*)">"#).unwrap());
static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\[([^\]]*)\]\(([^()\s]+)\)").unwrap());
static DOCUMENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"[A-Za-z0-9_./-]+\.md\b").unwrap());

/// Texts of the repository by their path from its root.
type Tree = BTreeMap<PathBuf, String>;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns all files that are searched.
fn tree() -> Tree {
    let root = root();
    let mut tree = Tree::new();
    let mut folders = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy();
            if path.is_dir() {
                if !SKIPPED.contains(&&*name) {
                    folders.push(path);
                }
            } else if path.extension().is_some_and(|it| EXTENSIONS.iter().any(|known| it == *known)) {
                // A file that is not UTF-8, such as a seed of a fuzz target, contains no citation.
                if let Ok(text) = fs::read_to_string(&path) {
                    tree.insert(path.strip_prefix(&root).unwrap().to_owned(), text);
                }
            }
        }
    }
    assert!(tree.contains_key(Path::new("README.md")), "{} is not the repository", root.display());
    tree
}

fn is_document(path: &Path) -> bool {
    path.extension().is_some_and(|it| it == "md")
}

/// Returns the identifiers of explicit anchors, `<a id="…">`, in order.
fn explicit_anchors(text: &str) -> Vec<String> {
    ANCHOR.captures_iter(text).map(|found| found[1].to_owned()).collect()
}

/// Returns the anchors that a renderer makes of the headings, as GitHub does, and the explicit ones.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors: BTreeSet<String> = explicit_anchors(text).into_iter().collect();
    let mut count = BTreeMap::<String, u32>::new();
    for line in without_code(text).lines() {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let title = LINK.replace_all(title.trim(), "$1").to_lowercase();
        let slug: String = title
            .chars()
            .filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'))
            .map(|letter| if letter == ' ' { '-' } else { letter })
            .collect();
        let before = count.entry(slug.clone()).or_default();
        anchors.insert(if *before == 0 { slug } else { format!("{slug}-{before}") });
        *before += 1;
    }
    anchors
}

/// Returns `text` with the lines of fenced code blocks emptied.
fn without_code(text: &str) -> String {
    let mut in_code = false;
    let lines = text.lines().map(|line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        if is_fence || in_code { "" } else { line }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the citations in `text` that none of `known` resolves.
fn unresolved_citations(text: &str, known: &BTreeSet<String>) -> Vec<String> {
    let anchor = |cited: &str| cited.to_lowercase().replace('.', "-");
    CITATION
        .find_iter(text)
        .map(|found| found.as_str())
        .filter(|cited| !known.contains(&anchor(cited)))
        .map(str::to_owned)
        .collect()
}

/// Returns the path of `target`, relative to the folder `base`, from the root. `None` if it is outside of the root.
fn resolve(base: &Path, target: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in base.join(target).components() {
        match part {
            Component::Normal(name) => path.push(name),
            Component::CurDir => {}
            Component::ParentDir => path.pop().then_some(())?,
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// Returns the links of the document `path` that lead to no file, or to no anchor of a document.
fn broken_links(path: &Path, tree: &Tree, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let text = without_code(&tree[path]);
    let is_broken = |target: &&str| {
        if target.contains("://") || target.starts_with("mailto:") {
            return false;
        }
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let folder = path.parent().unwrap_or(Path::new(""));
        let Some(file) = (if file.is_empty() { Some(path.to_owned()) } else { resolve(folder, file) }) else {
            return true;
        };
        let has_anchor = || match tree.get(&file) {
            Some(text) if is_document(&file) => anchors(text).contains(anchor),
            _ => true,
        };
        !exists(&file) || (!anchor.is_empty() && !has_anchor())
    };
    let targets: Vec<_> = LINK.captures_iter(&text).map(|found| found.get(2).unwrap().as_str()).collect();
    targets.into_iter().filter(is_broken).map(str::to_owned).collect()
}

/// Returns the documents that `text`, the file `path`, names by a path and that do not exist. A path is relative to the
/// root, to `docs`, or to the file's own folder.
fn missing_documents(path: &Path, text: &str, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let bases = [Path::new(""), Path::new("docs"), path.parent().unwrap_or(Path::new(""))];
    let is_missing =
        |name: &&str| !bases.iter().any(|base| resolve(base, name).is_some_and(|found| exists(&found)));
    DOCUMENT.find_iter(text).map(|found| found.as_str()).filter(is_missing).map(str::to_owned).collect()
}

fn exists(path: &Path) -> bool {
    root().join(path).exists()
}

#[test]
fn citations_resolve() {
    let tree = tree();
    let pages = tree.iter().filter(|(path, _)| path.starts_with(BEHAVIOUR));
    let anchors: BTreeSet<_> = pages.flat_map(|(_, text)| explicit_anchors(text)).collect();
    let unresolved: Vec<_> = tree
        .iter()
        .filter(|(path, _)| path.as_path() != Path::new(THIS))
        .flat_map(|(path, text)| {
            let cited = unresolved_citations(text, &anchors);
            cited.into_iter().map(move |cited| format!("{}: {cited}", path.display()))
        })
        .collect();
    assert!(unresolved.is_empty(), "no anchor in {BEHAVIOUR} for:\n{}", unresolved.join("\n"));
}

#[test]
fn anchors_of_behaviour_are_unique() {
    let mut seen = BTreeSet::new();
    let twice: Vec<_> = tree()
        .iter()
        .filter(|(path, _)| path.starts_with(BEHAVIOUR))
        .flat_map(|(_, text)| explicit_anchors(text))
        .filter(|anchor| !seen.insert(anchor.clone()))
        .collect();
    assert!(!seen.is_empty() && twice.is_empty(), "{} anchors, twice: {twice:?}", seen.len());
}

#[test]
fn links_of_documents_resolve() {
    let tree = tree();
    let broken: Vec<_> = tree
        .keys()
        .filter(|path| is_document(path))
        .flat_map(|path| {
            let links = broken_links(path, &tree, exists);
            links.into_iter().map(move |link| format!("{}: {link}", path.display()))
        })
        .collect();
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn named_documents_exist() {
    let missing: Vec<_> = tree()
        .iter()
        .filter(|(path, _)| !is_document(path) && path.as_path() != Path::new(THIS))
        .flat_map(|(path, text)| {
            let missing = missing_documents(path, text, exists);
            missing.into_iter().map(move |name| format!("{}: {name}", path.display())).collect::<Vec<_>>()
        })
        .collect();
    assert!(missing.is_empty(), "{}", missing.join("\n"));
}

mod finds {
    use super::*;

    #[test]
    fn citation_without_anchor() {
        let known = BTreeSet::from(["us-4-8".to_owned(), "us-4-8a".to_owned(), "us-9".to_owned()]);
        let text = "US-4.8, US-4.8a and US-9, 3 exist. US-4.8b, US-4.99, US-10 and US-A.5 do not.";
        assert_eq!(unresolved_citations(text, &known), ["US-4.8b", "US-4.99", "US-10", "US-A.5"]);
    }

    #[test]
    fn broken_link() {
        let page = "# One `two`\n## Same\n## Same\n<a id=\"x\"></a>\n\
                    [a](#one-two) [b](#same-1) [c](#x) [d](../b.md#title) [e](https://example.com/none)\n\
                    [f](#same-2) [g](../b.md#x) [h](c.md) [i](../../outside.md)\n```\n[j](none.md)\n```";
        let tree = Tree::from([
            (PathBuf::from("docs/a.md"), page.to_owned()),
            (PathBuf::from("b.md"), "# Title".to_owned()),
        ]);
        let broken = broken_links(Path::new("docs/a.md"), &tree, |path| tree.contains_key(path));
        assert_eq!(broken, ["#same-2", "../b.md#x", "c.md", "../../outside.md"]);
    }

    #[test]
    fn missing_document() {
        let exists = |path: &Path| path == Path::new("docs/a.md") || path == Path::new("crates/x/src/b.md");
        let text = "docs/a.md, a.md and b.md exist. c.md and docs/b.md do not.";
        let missing = missing_documents(Path::new("crates/x/src/lib.rs"), text, exists);
        assert_eq!(missing, ["c.md", "docs/b.md"]);
    }
}

//! The patches of planted bugs apply to the source tree.

use std::path::Path;

use simulation_tasks::planted_bugs::{FOLDER, patch::Patch, planted};

#[test]
fn all_patches_apply_together() {
    let tree = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let patches = Patch::read_all(&tree.join(FOLDER)).unwrap();
    assert!(patches.len() >= 25, "{} planted bugs", patches.len());
    let sources = planted(&patches, &tree).unwrap_or_else(|error| panic!("{error}"));
    for patch in &patches {
        let is_planted = sources.values().any(|text| text.contains(&format!("bug == \"{}\"", patch.name)));
        assert!(is_planted, "{} has no effect", patch.name);
    }
}

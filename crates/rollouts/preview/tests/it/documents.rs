//! The output in the documentation is that of the program.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{fs, path::Path, time::Duration};

use kcm_preview::{Change, TimingOptions, preview, render};
use serde_json::json;

use crate::world::{Timing, World, deployment, simulate};

/// Document with the output, and its picture.
const DOCUMENT: &str = "docs/rollouts-preview.md";
const PICTURE: &str = "docs/images/preview.svg";

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..").join(path)).unwrap()
}

#[test]
fn document_contains_the_output() {
    simulate(async {
        let timing = Timing { ready: Duration::from_secs(12), stop: Duration::from_secs(5) };
        let world = World::new(timing);
        let mut manifest = deployment(10, "web:1");
        manifest["spec"]["strategy"]["rollingUpdate"] = json!({ "maxSurge": 2, "maxUnavailable": 1 });
        world.create(manifest).await;
        let change = Change::Image { container: None, image: "web:2".to_owned() };
        let timings = TimingOptions { stop_after: Some(timing.stop), ..TimingOptions::default() };
        let preview = preview(&world.snapshot(), &change, &timings).unwrap();
        let text = render::text(&preview);
        assert!(read(DOCUMENT).contains(&text), "{DOCUMENT} does not contain:\n{text}");
        // The README has the first two paragraphs.
        let (head, _) = text.split_once("\n\n    TIME").unwrap();
        assert!(read("README.md").contains(head), "README.md does not contain:\n{head}");
        let svg = render::svg(&preview);
        assert!(read(PICTURE) == svg, "{PICTURE} must be:\n{svg}");
    });
}

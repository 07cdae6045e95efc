//! Rules of the tree: documents, manifests and layers.

mod citations;
mod layers;
mod readmes;
mod upstream_tests;

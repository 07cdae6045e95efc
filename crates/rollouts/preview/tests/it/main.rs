//! Previews of the embedded cluster, and of snapshots of real ones.

mod documents;
mod rules;
mod truth;
mod warnings;
mod world;

/// The body of a pod create request: the same for every pod of a ReplicaSet, so it is made once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodManifest(std::sync::Arc<str>);

impl PodManifest {
    /// The pod as JSON text.
    pub fn as_json(&self) -> &str {
        &self.0
    }
}

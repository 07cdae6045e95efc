use std::sync::Arc;

use kcm_api::ReplicaSet;
use kcm_events::{EventRecorder, EventType, ObjectReference};

use crate::KindConfig;

/// Records events of ReplicaSets.
pub(crate) struct ReplicaSetEvents {
    pub(crate) kind_config: KindConfig,
    pub(crate) recorder: Arc<dyn EventRecorder>,
}

impl ReplicaSetEvents {
    pub(crate) fn record(&self, replica_set: &ReplicaSet, type_: EventType, reason: &str, message: String) {
        let metadata = &replica_set.metadata;
        let regarding = ObjectReference {
            api_version: self.kind_config.api_version.into(),
            kind: self.kind_config.kind.into(),
            namespace: Arc::clone(&metadata.namespace),
            name: Arc::clone(&metadata.name),
            uid: Arc::clone(&metadata.uid),
            resource_version: metadata.resource_version.clone(),
        };
        self.recorder.event(&regarding, type_, reason, message);
    }
}

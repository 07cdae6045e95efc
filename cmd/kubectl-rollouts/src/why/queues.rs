//! State of the controllers' queues, from the debug endpoint of a controller manager.

use kcm_api::ApiError;
use kcm_client::ApiClient;
use kcm_rollouts::ControllerState;

use crate::reader::Reader;

/// Maximum number of ReplicaSets whose state is read.
const MAX_REPLICA_SETS: usize = 3;

/// Reads the state of a Deployment and of its ReplicaSets with pods.
///
/// # Errors
///
/// If the state of the Deployment cannot be read: the manager has no such endpoint, does not lead, or refuses the caller.
pub(super) async fn read(
    client: &ApiClient,
    namespace: &str,
    name: &str,
) -> Result<Vec<ControllerState>, ApiError> {
    let reader = Reader::new(client);
    let path = |kind: &str, name: &str| format!("/debug/controllers/{kind}/{namespace}/{name}");
    let deployment = reader.get(&path("deployment", name)).await?;
    let mut states = vec![ControllerState::parse("deployment", &deployment)];
    let sets = deployment["replicaSets"].as_array().map(Vec::as_slice).unwrap_or_default();
    let active = sets.iter().filter(|set| set["replicas"].as_i64().unwrap_or(0) > 0);
    for name in active.take(MAX_REPLICA_SETS).filter_map(|set| set["name"].as_str()) {
        // The ReplicaSet controller can run in another process.
        if let Ok(set) = reader.get(&path("replicaset", name)).await {
            states.push(ControllerState::parse("replicaset", &set));
        }
    }
    // A settled object has nothing to report.
    states.retain(|state| !state.is_settled());
    Ok(states)
}

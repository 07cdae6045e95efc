use std::{borrow::Cow, sync::Arc};

use async_trait::async_trait;
use kcm_api::{
    ApiError, Labels, ObjectKey, Phase, Pod, PodControllerRef, Ready, ReplicaSet, Selector, Time,
    error::reason,
};
use serde_json::json;
use tokio::sync::Mutex;

use super::*;

const OWNER_UID: &str = "owner-uid";

fn owner() -> OwnerIdentity {
    OwnerIdentity {
        api_version: "v1".into(),
        kind: "ReplicationController".into(),
        namespace: "default".into(),
        name: "owner".into(),
        uid: OWNER_UID.into(),
        deleting: false,
    }
}

fn selector(value: serde_json::Value) -> Selector {
    Selector::new(Some(&serde_json::from_value(value).unwrap())).unwrap()
}

fn production() -> Selector {
    selector(json!({"matchLabels": {"type": "production"}}))
}

fn pod(name: &str, type_: Option<&str>, controller_uid: Option<&str>) -> Pod {
    let labels: Labels = type_.iter().map(|type_| ("type".to_owned(), (*type_).to_owned())).collect();
    let controller = controller_uid.map(|uid| {
        Arc::new(PodControllerRef {
            api_version: "v1".into(),
            kind: "ReplicationController".into(),
            name: "owner".into(),
            uid: uid.into(),
            block_owner_deletion: Some(true),
        })
    });
    Pod {
        key: ObjectKey::new("default", name),
        uid: format!("{name}-uid").into(),
        resource_version: "1".into(),
        labels: Arc::new(labels),
        controller,
        creation_timestamp: None,
        deletion_timestamp: None,
        node_name: None,
        phase: Phase::Running,
        ready: Ready::default(),
        deletion_cost: 0,
        max_restarts: 0,
        max_sidecar_restarts: 0,
        waiting: kcm_api::Waiting::NoFailure,
    }
}

/// Fake API server that records requests.
struct Cluster {
    live: Result<LiveOwner, ApiError>,
    /// Errors of patches, by name of the pod.
    patch_errors: Vec<(&'static str, ApiError)>,
    /// Resource version of patched pods.
    patched_version: &'static str,
    requests: Mutex<Vec<String>>,
}

impl Cluster {
    fn new() -> Self {
        Self {
            live: Ok(LiveOwner { uid: OWNER_UID.into(), deletion_timestamp: None }),
            patch_errors: Vec::new(),
            patched_version: "2",
            requests: Mutex::new(Vec::new()),
        }
    }
}

#[async_trait]
impl OwnerControl<Pod> for Cluster {
    fn kind(&self) -> Cow<'static, str> {
        "Pod".into()
    }

    async fn live_owner(&self) -> Result<LiveOwner, ApiError> {
        self.requests.lock().await.push("get".to_owned());
        self.live.clone()
    }

    async fn patch(&self, object: &Pod, patch: &OwnerPatch) -> Result<Pod, ApiError> {
        let verb = if patch.is_adoption() { "adopt" } else { "release" };
        self.requests.lock().await.push(format!("{verb} {}", object.key.name));
        if let Some((_, error)) = self.patch_errors.iter().find(|(name, _)| *name == &*object.key.name) {
            return Err(error.clone());
        }
        let adopted = (verb == "adopt").then_some(OWNER_UID);
        Ok(Pod {
            resource_version: self.patched_version.into(),
            ..pod(&object.key.name, Some("production"), adopted)
        })
    }
}

struct ClaimResult {
    claimed: Vec<String>,
    requests: Vec<String>,
    error: Option<String>,
}

async fn run(cluster: Cluster, owner: &OwnerIdentity, selector: &Selector, pods: Vec<Pod>) -> ClaimResult {
    let outcome = claim(owner, selector, pods.into_iter().map(Arc::new), &cluster).await;
    ClaimResult {
        claimed: outcome.objects.iter().map(|pod| pod.key.name.to_string()).collect(),
        requests: cluster.requests.into_inner(),
        error: outcome.error.map(|error| error.to_string()),
    }
}

/// Upstream: TestClaimPods, "Claim pods with correct label".
#[tokio::test]
async fn test_claim_pods_claim_pods_with_correct_label() {
    let pods = vec![pod("pod1", Some("production"), None), pod("pod2", Some("testing"), None)];
    let outcome = run(Cluster::new(), &owner(), &production(), pods).await;
    assert_eq!(outcome.claimed, ["pod1"]);
    assert_eq!(outcome.requests, ["get", "adopt pod1"]);
}

/// Upstream: TestClaimPods, "Controller marked for deletion can not claim pods".
#[tokio::test]
async fn test_claim_pods_controller_marked_for_deletion_can_not_claim_new_pods() {
    let deleting = OwnerIdentity { deleting: true, ..owner() };
    let pods = vec![pod("pod1", Some("production"), None), pod("pod2", Some("production"), None)];
    let outcome = run(Cluster::new(), &deleting, &production(), pods).await;
    assert!(outcome.claimed.is_empty() && outcome.requests.is_empty());
}

/// Upstream: TestClaimPods, "Controller marked for deletion can not claim new pods".
#[tokio::test]
async fn test_claim_pods_controller_marked_for_deletion_can_not_claim_new_pods_but_keeps_its_own() {
    let deleting = OwnerIdentity { deleting: true, ..owner() };
    let pods = vec![
        pod("pod1", Some("production"), Some(OWNER_UID)),
        pod("pod2", Some("production"), None),
        // Owned, and does not match: neither claimed nor released.
        pod("pod3", Some("testing"), Some(OWNER_UID)),
    ];
    let outcome = run(Cluster::new(), &deleting, &production(), pods).await;
    assert_eq!(outcome.claimed, ["pod1"]);
    assert!(outcome.requests.is_empty());
}

/// Upstream: TestClaimPods, "Controller can not claim pods owned by another controller".
#[tokio::test]
async fn test_claim_pods_controller_can_not_claim_pods_owned_by_another_controller() {
    let pods = vec![
        pod("pod1", Some("production"), Some(OWNER_UID)),
        pod("pod2", Some("production"), Some("other-uid")),
    ];
    let outcome = run(Cluster::new(), &owner(), &production(), pods).await;
    assert_eq!(outcome.claimed, ["pod1"]);
    assert!(outcome.requests.is_empty());
}

/// Upstream: TestClaimPods, "Controller releases claimed pods when selector doesn't match".
#[tokio::test]
async fn test_claim_pods_controller_releases_claimed_pods_when_selector_does_not_match() {
    let pods =
        vec![pod("pod1", Some("production"), Some(OWNER_UID)), pod("pod2", Some("testing"), Some(OWNER_UID))];
    let outcome = run(Cluster::new(), &owner(), &production(), pods).await;
    assert_eq!(outcome.claimed, ["pod1"]);
    assert_eq!(outcome.requests, ["release pod2"]);
}

/// Upstream: TestClaimPods, "Controller does not claim orphaned pods marked for deletion".
#[tokio::test]
async fn test_claim_pods_controller_does_not_claim_orphaned_pods_marked_for_deletion() {
    let terminating = |pod: Pod| Pod { deletion_timestamp: Some(Time::from_unix(1)), ..pod };
    let pods = vec![
        terminating(pod("pod1", Some("production"), None)),
        // Owned pods remain claimed while they are deleted.
        terminating(pod("pod2", Some("production"), Some(OWNER_UID))),
    ];
    let outcome = run(Cluster::new(), &owner(), &production(), pods).await;
    assert_eq!(outcome.claimed, ["pod2"]);
    assert!(outcome.requests.is_empty());
}

/// Upstream: TestClaimPods, "Controller does not claim pods of different namespace".
#[tokio::test]
async fn test_claim_pods_controller_can_not_claim_pods_of_different_namespace() {
    let elsewhere = Pod { key: ObjectKey::new("elsewhere", "pod2"), ..pod("pod2", Some("production"), None) };
    let pods = vec![pod("pod1", Some("production"), None), elsewhere];
    let outcome = run(Cluster::new(), &owner(), &production(), pods).await;
    assert_eq!(outcome.claimed, ["pod1"]);
}

/// Upstream: TestClaimPods, "Cluster scoped controller claims pods of specified namespace".
#[tokio::test]
async fn test_claim_pods_cluster_scoped_controller_can_claim_pods_of_specified_namespace() {
    let cluster_scoped = OwnerIdentity { namespace: "".into(), ..owner() };
    let elsewhere = Pod { key: ObjectKey::new("elsewhere", "pod2"), ..pod("pod2", Some("production"), None) };
    let pods = vec![pod("pod1", Some("production"), None), elsewhere];
    let outcome = run(Cluster::new(), &cluster_scoped, &production(), pods).await;
    assert_eq!(outcome.claimed, ["pod1", "pod2"]);
}

#[tokio::test]
async fn missing_selector_matches_nothing_and_empty_selector_everything() {
    let pods = || vec![pod("pod1", None, None)];
    let nothing = Selector::new(None).unwrap();
    assert!(run(Cluster::new(), &owner(), &nothing, pods()).await.claimed.is_empty());
    let everything = selector(json!({}));
    assert_eq!(run(Cluster::new(), &owner(), &everything, pods()).await.claimed, ["pod1"]);
}

#[tokio::test]
async fn reads_the_owner_once_and_adopts_in_order_of_names() {
    let pods = ["c", "a", "b"].map(|name| pod(name, Some("production"), None)).into();
    let outcome = run(Cluster::new(), &owner(), &production(), pods).await;
    assert_eq!(outcome.requests, ["get", "adopt a", "adopt b", "adopt c"]);
}

#[tokio::test]
async fn adopts_nothing_if_the_owner_is_deleted_or_cannot_be_read() {
    let refused = async |live| {
        let cluster = Cluster { live, ..Cluster::new() };
        let pods = ["a", "b"].map(|name| pod(name, Some("production"), None)).into();
        let outcome = run(cluster, &owner(), &production(), pods).await;
        assert_eq!(outcome.requests, ["get"]);
        outcome.error.unwrap()
    };
    assert_eq!(
        refused(Ok(LiveOwner { uid: "later".into(), deletion_timestamp: None })).await,
        "[can't adopt Pod default/a (a-uid): can't recheck DeletionTimestamp: original ReplicationController \
         default/owner is gone: got uid later, wanted owner-uid, \
         can't adopt Pod default/b (b-uid): can't recheck DeletionTimestamp: original ReplicationController \
         default/owner is gone: got uid later, wanted owner-uid]"
    );
    let at = Some(Time::from_unix(0));
    assert!(
        refused(Ok(LiveOwner { uid: OWNER_UID.into(), deletion_timestamp: at }))
            .await
            .contains("default/owner has just been deleted at 1970-01-01T00:00:00Z")
    );
    // A missing owner is an error. A missing object is not.
    assert!(
        refused(Err(ApiError::status(404, reason::NOT_FOUND, "no such owner")))
            .await
            .contains("can't recheck DeletionTimestamp: no such owner")
    );
}

#[tokio::test]
async fn adoption_of_a_deleted_object_is_no_error() {
    let patch_errors = vec![("pod1", ApiError::status(404, reason::NOT_FOUND, "gone"))];
    let outcome = run(
        Cluster { patch_errors, ..Cluster::new() },
        &owner(),
        &production(),
        vec![pod("pod1", Some("production"), None)],
    )
    .await;
    assert!(outcome.claimed.is_empty() && outcome.error.is_none());
}

#[tokio::test]
async fn release_of_a_deleted_or_released_object_is_no_error() {
    let patch_errors = vec![
        ("pod1", ApiError::status(404, reason::NOT_FOUND, "gone")),
        ("pod2", ApiError::status(422, reason::INVALID, "uid mismatch")),
    ];
    let pods = ["pod1", "pod2"].map(|name| pod(name, Some("testing"), Some(OWNER_UID))).into();
    let outcome = run(Cluster { patch_errors, ..Cluster::new() }, &owner(), &production(), pods).await;
    assert!(outcome.error.is_none());
}

#[tokio::test]
async fn continues_after_an_error_and_reports_equal_errors_once() {
    let patch_errors = vec![
        // 422 if the object has another managing owner. Only a release ignores it.
        ("a", ApiError::status(422, reason::INVALID, "only one managing owner")),
        ("c", ApiError::status(422, reason::INVALID, "only one managing owner")),
    ];
    let pods = ["a", "b", "c"].map(|name| pod(name, Some("production"), None)).into();
    let outcome = run(Cluster { patch_errors, ..Cluster::new() }, &owner(), &production(), pods).await;
    assert_eq!(outcome.claimed, ["b"]);
    assert_eq!(outcome.error.as_deref(), Some("only one managing owner"));
}

#[tokio::test]
async fn adopted_object_is_the_patched_one_if_its_version_differs() {
    for (patched_version, expected) in [("2", Some(OWNER_UID)), ("1", None)] {
        let cluster = Cluster { patched_version, ..Cluster::new() };
        let orphan = Arc::new(pod("pod1", Some("production"), None));
        let claimed = claim(&owner(), &production(), [orphan], &cluster).await.into_result().unwrap();
        let controller_uid = claimed[0].controller.as_ref().map(|controller| &*controller.uid);
        assert_eq!(controller_uid, expected);
    }
}

#[test]
fn controller_reference_of_a_replica_set() {
    let replica_set: ReplicaSet =
        serde_json::from_value(json!({"metadata": {"name": "web", "namespace": "n", "uid": "u"}})).unwrap();
    let owner = OwnerIdentity::from(&replica_set);
    assert_eq!(
        serde_json::to_value(owner.controller_reference()).unwrap(),
        json!({
            "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "u",
            "controller": true, "blockOwnerDeletion": true,
        })
    );
    assert_eq!(owner.key().to_string(), "n/web");
}

#[test]
fn claim_displays_its_reason() {
    let decision = classify(&owner(), &production(), &pod("pod1", None, None));
    assert_eq!(decision, Claim::Ignore(Ignored::NoMatch));
    assert_eq!(decision.to_string(), "ignored: orphan, labels do not match");
}

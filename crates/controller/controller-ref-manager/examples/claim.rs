//! Claims objects of a custom type.
//!
//! `cargo run -p kcm-controller-ref-manager --example claim`

use std::{error::Error, sync::Arc};

use async_trait::async_trait;
use kcm_api::{ApiError, LabelSelector, Labels, ObjectKey, Selector};
use kcm_controller_ref_manager::{
    Claimable, LiveOwner, ObjectView, OwnerControl, OwnerIdentity, OwnerPatch, claim,
};
use kcm_meta::Object;

/// A custom type with the fields that claiming requires.
struct Machine {
    key: ObjectKey,
    uid: Arc<str>,
    labels: Labels,
    owner_uid: Option<Arc<str>>,
}

impl Object for Machine {
    fn key(&self) -> ObjectKey {
        self.key.clone()
    }

    fn uid(&self) -> &Arc<str> {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        "1"
    }
}

impl Claimable for Machine {
    const KIND: &'static str = "Machine";

    fn view(&self) -> ObjectView<'_> {
        ObjectView {
            namespace: &self.key.namespace,
            labels: &self.labels,
            controller_uid: self.owner_uid.as_deref(),
            deleting: false,
        }
    }
}

/// Fake API server that prints requests and accepts all of them.
struct Server {
    owner_uid: Arc<str>,
}

#[async_trait]
impl OwnerControl<Machine> for Server {
    async fn live_owner(&self) -> Result<LiveOwner, ApiError> {
        println!("GET the owner");
        Ok(LiveOwner { uid: Arc::clone(&self.owner_uid), deletion_timestamp: None })
    }

    async fn patch(&self, object: &ObjectKey, patch: &OwnerPatch) -> Result<Machine, ApiError> {
        println!("PATCH {object} {}", patch.as_json());
        let owner_uid = Some(Arc::clone(&self.owner_uid));
        Ok(Machine { key: object.clone(), uid: "m-1".into(), labels: Labels::new(), owner_uid })
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let owner = OwnerIdentity {
        api_version: "example.org/v1",
        kind: "MachineSet",
        namespace: "default".into(),
        name: "workers".into(),
        uid: "set-1".into(),
        deleting: false,
    };
    let labels = Labels::from([("role".to_owned(), "worker".to_owned())]);
    let selector =
        Selector::new(Some(&LabelSelector { match_labels: labels.clone(), ..LabelSelector::default() }))?;
    let orphan =
        Machine { key: ObjectKey::new("default", "worker-1"), uid: "m-1".into(), labels, owner_uid: None };

    let server = Server { owner_uid: Arc::clone(&owner.uid) };
    let claimed = claim(&owner, &selector, [Arc::new(orphan)], &server).await.into_result()?;
    println!("{} owns {} machine(s)", owner.key(), claimed.len());
    Ok(())
}

//! Wrong variants of the operator.

use std::{future::ready, sync::Arc};

use config_copies::{ConfigCopy, Error, delete_copies, reconcile, retry, write_copies, write_status};
use futures_util::{StreamExt, TryStreamExt};
use kube_client::{Api, Client};
use kube_core::ResourceExt;
use kube_runtime::{Controller, WatchStreamExt, controller::Action, watcher};

/// Lists ConfigCopies from the watch cache of any API server. After a restart, the specification may be older than before.
pub(crate) async fn with_old_lists(client: Client) {
    // A list with a limit is never from a cache.
    let config = watcher::Config { page_size: None, ..watcher::Config::default().any_semantic() };
    Controller::new(Api::<ConfigCopy>::all(client.clone()), config)
        .run(reconcile, retry, Arc::new(client))
        .for_each(|_| ready(()))
        .await;
}

/// Deletes the ConfigMaps of a ConfigCopy when it receives the event of its deletion, from a watch that ends at its first error.
pub(crate) async fn without_finalizer(client: Client) {
    async fn reconcile(copy: Arc<ConfigCopy>, client: Arc<Client>) -> Result<Action, Error> {
        write_copies(&client, &copy).await?;
        delete_copies(&client, &copy, &copy.spec.namespaces).await?;
        write_status(&client, &copy).await?;
        Ok(Action::await_change())
    }
    let api = Api::<ConfigCopy>::all(client.clone());
    let deletions = watcher(api.clone(), watcher::Config::default()).default_backoff();
    let deletions = deletions.try_for_each(|event| {
        let client = client.clone();
        async move {
            if let watcher::Event::Delete(copy) = event {
                while delete_copies(&client, &copy, &[]).await.is_err() {}
            }
            Ok(())
        }
    });
    let controller = Controller::new(api, watcher::Config::default());
    let controller = controller.run(reconcile, retry, Arc::new(client.clone())).for_each(|_| ready(()));
    let _ = tokio::join!(deletions, controller);
}

/// Writes the status before the ConfigMaps, and does nothing if the status is for the current generation.
pub(crate) async fn status_first(client: Client) {
    async fn reconcile(copy: Arc<ConfigCopy>, client: Arc<Client>) -> Result<Action, Error> {
        let observed = copy.status.as_ref().and_then(|status| status.observed_generation);
        if copy.metadata.deletion_timestamp.is_none() && observed == copy.metadata.generation {
            return Ok(Action::await_change());
        }
        if copy.metadata.deletion_timestamp.is_none() && !copy.finalizers().is_empty() {
            write_status(&client, &copy).await?;
        }
        config_copies::reconcile(copy, client).await
    }
    Controller::new(Api::<ConfigCopy>::all(client.clone()), watcher::Config::default())
        .run(reconcile, retry, Arc::new(client))
        .for_each(|_| ready(()))
        .await;
}

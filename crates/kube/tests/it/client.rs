//! The traits of the informer, the election, events and adoption over a kube client, against the embedded API server.

use std::{sync::Arc, time::Duration};

use crate::support::{
    clock, cluster, cluster_and_server, config_map, create, names, pass, run, settle, synced,
};
use futures_util::StreamExt;
use k8s_openapi::api::{
    coordination::v1::Lease,
    core::v1::{ConfigMap, Event, Pod, Secret},
};
use kcm_api::{Selector, error::reason};
use kcm_clock::SeededRandom;
use kcm_controller_ref_manager::{OwnerIdentity, claim};
use kcm_events::{EventSink, EventType, ObjectReference};
use kcm_informer::{
    InformerOptions, ListOptions, ListWatchErrorKind, Object, ObjectKey, SharedInformer, Sources,
    WatchOptions, testing::RecordingHandler,
};
use kcm_kube::{
    EventClient, LeaderGateLayer, LeaseClient, OwnerClient, api_client, api_error, list_watch, sources,
};
use kcm_leader_election::{LeaderElectionConfig, LeaderElector, LeaseLock};
use kcm_testkit::{FakeApiServer, FakeResponse};
use kube_client::{
    Api, Client,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, PartialObjectMeta},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tower::Layer;

mod informer {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn follows_typed_objects() {
        let client = cluster().await;
        let api = Api::<ConfigMap>::namespaced(client.clone(), "a");
        create(&api, config_map("a", "first")).await;
        let source = list_watch(Api::<ConfigMap>::namespaced(client.clone(), "a"), ListParams::default());
        let (informer, _running) = run(Sources::One(source), |_| {});
        let handler = Arc::new(RecordingHandler::new());
        informer.add_handler(handler.clone());
        synced(&informer).await;
        create(&api, config_map("a", "second")).await;
        create(&Api::<ConfigMap>::namespaced(client, "b"), config_map("b", "other")).await;
        let patch = Patch::Merge(json!({"data": {"key": "new"}}));
        api.patch("first", &PatchParams::default(), &patch).await.unwrap();
        api.delete("second", &DeleteParams::default()).await.unwrap();
        settle().await;
        let calls = handler.take_texts();
        let verbs: Vec<_> = calls.iter().map(|call| call.split('@').next().unwrap()).collect();
        assert_eq!(verbs, ["add a/first", "add a/second", "update a/first", "delete a/second"]);
    }

    #[tokio::test(start_paused = true)]
    async fn follows_dynamic_objects_of_several_namespaces() {
        let client = cluster().await;
        let resource = ApiResource::erase::<ConfigMap>(&());
        for namespace in ["a", "b", "default"] {
            create(&Api::<ConfigMap>::namespaced(client.clone(), namespace), config_map(namespace, "web"))
                .await;
        }
        let options = InformerOptions::new("configmaps").namespace("a").namespace("b").labels("app=web");
        let (informer, _running): (SharedInformer<DynamicObject>, _) =
            run(sources(&client, &resource, &options), |_| {});
        synced(&informer).await;
        assert_eq!(names(&informer), ["a/web", "b/web"]);
    }

    #[tokio::test(start_paused = true)]
    async fn reads_metadata_only() {
        let client = cluster().await;
        create(&Api::<ConfigMap>::namespaced(client.clone(), "a"), config_map("a", "web")).await;
        for streaming_lists in [true, false] {
            let api = Api::<PartialObjectMeta<ConfigMap>>::namespaced(client.clone(), "a");
            let (informer, _running) = run(Sources::One(list_watch(api, ListParams::default())), |config| {
                config.streaming_lists = streaming_lists;
            });
            synced(&informer).await;
            assert_eq!(names(&informer), ["a/web"]);
            let object = &informer.store().list()[0];
            assert_eq!(
                (object.label("app"), object.types.as_ref().unwrap().kind.as_str()),
                (Some("web"), "PartialObjectMetadata")
            );
            settle().await;
            create(&Api::<ConfigMap>::namespaced(client.clone(), "a"), config_map("a", "later")).await;
            settle().await;
            assert_eq!(names(&informer), ["a/later", "a/web"]);
            Api::<ConfigMap>::namespaced(client.clone(), "a")
                .delete("later", &DeleteParams::default())
                .await
                .unwrap();
        }
    }

    /// A watch that ends is opened again, and nothing is lost meanwhile.
    #[tokio::test(start_paused = true)]
    async fn survives_the_timeout_of_watches() {
        let client = cluster().await;
        let api = Api::<ConfigMap>::namespaced(client.clone(), "a");
        let source = list_watch(Api::<ConfigMap>::all(client), ListParams::default());
        let (informer, _running) = run(Sources::One(source), |_| {});
        synced(&informer).await;
        for n in 0..20 {
            create(&api, config_map("a", &format!("web-{n}"))).await;
            pass(Duration::from_secs(100)).await;
            assert_eq!(informer.store().len(), n + 1);
        }
    }
}

mod requests {
    use super::*;

    fn server(pages: impl IntoIterator<Item = FakeResponse>) -> (FakeApiServer, Client) {
        let server = FakeApiServer::scripted(pages);
        let client = Client::new(server.service(), "default");
        (server, client)
    }

    fn page(names: &[&str], next: &str) -> FakeResponse {
        let items: Vec<_> = names.iter().map(|name| json!({"metadata": {"name": name}})).collect();
        FakeResponse::ok(json!({"metadata": {"resourceVersion": "9", "continue": next}, "items": items}))
    }

    async fn list(client: Client, version: Option<&str>) -> Vec<String> {
        let params = ListParams::default().labels("app in (web, db)").limit(2);
        let source = list_watch(Api::<ConfigMap>::namespaced(client, "a"), params);
        let options = ListOptions { resource_version: version.map(str::to_owned) };
        let list = source.list(&options).await.unwrap();
        assert_eq!(list.resource_version, "9");
        list.items.iter().map(|object| object.key().name.to_string()).collect()
    }

    const LIST: &str = "GET /api/v1/namespaces/a/configmaps?labelSelector=app%20in%20%28web%2C%20db%29";

    #[tokio::test(start_paused = true)]
    async fn consistent_lists_are_paged() {
        let (server, client) = server([page(&["a", "b"], "token"), page(&["c"], "")]);
        assert_eq!(list(client, None).await, ["a", "b", "c"]);
        assert_eq!(
            server.request_lines(),
            [format!("{LIST}&limit=2"), format!("{LIST}&limit=2&continue=token")]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn expired_continue_token_reads_the_list_again_as_a_whole() {
        let expired = FakeResponse::failure(410, reason::EXPIRED, "token expired");
        let (server, client) = server([page(&["a", "b"], "token"), expired, page(&["a", "c", "d"], "")]);
        assert_eq!(list(client, None).await, ["a", "c", "d"]);
        assert_eq!(server.request_lines()[2], LIST);
    }

    #[tokio::test(start_paused = true)]
    async fn watch_that_ends_within_a_line_is_a_lost_connection() {
        let cut = FakeResponse::stream([r#"{"type":"ADDED","object":{"metadata":{"name":"a"#.to_owned()]);
        let (server, client) = server([cut]);
        let source = list_watch(Api::<ConfigMap>::all(client), ListParams::default());
        let options = WatchOptions {
            resource_version: Some("7".to_owned()),
            send_initial_events: true,
            timeout: Duration::from_secs(400),
        };
        let events: Vec<_> = source.watch(&options).await.unwrap().collect().await;
        let [Err(error)] = events.as_slice() else { panic!("{events:?}") };
        assert_eq!(error.kind(), ListWatchErrorKind::Connection);
        assert_eq!(
            server.request_lines(),
            [
                "GET /api/v1/configmaps?watch=true&allowWatchBookmarks=true&resourceVersion=7&sendInitialEvents=true\
              &resourceVersionMatch=NotOlderThan&timeoutSeconds=400"
            ]
        );
        assert_eq!(server.requests()[0].header("accept-encoding"), Some("identity"));
    }

    #[tokio::test(start_paused = true)]
    async fn lists_of_a_cached_state_are_not_paged() {
        let (server, client) = server([page(&["a"], "")]);
        assert_eq!(list(client, Some("0")).await, ["a"]);
        assert_eq!(server.request_lines(), [format!("{LIST}&resourceVersion=0")]);
    }
}

#[tokio::test(start_paused = true)]
async fn lease_client_elects_a_leader() {
    let client = cluster().await;
    let key = ObjectKey::new("default", "operator");
    let lock = LeaseClient::new(&api_client(client.clone()));
    assert!(lock.get(&key).await.unwrap_err().is_not_found());
    let config = LeaderElectionConfig {
        release_on_cancel: true,
        ..LeaderElectionConfig::new(
            key.clone(),
            "pod-1".to_owned(),
            Arc::new(lock.clone()),
            clock(),
            Arc::new(SeededRandom::new(1)),
        )
    };
    let mut elector = LeaderElector::new(config).unwrap();
    let leases = Api::<Lease>::namespaced(client, "default");
    let holder = async || leases.get("operator").await.unwrap().spec.unwrap().holder_identity;
    let cancel = CancellationToken::new();
    elector
        .run(&cancel, async |_| {
            assert_eq!(holder().await.as_deref(), Some("pod-1"));
            // Renewals need the version that was written last.
            pass(Duration::from_secs(60)).await;
            assert_eq!(holder().await.as_deref(), Some("pod-1"));
            cancel.cancel();
        })
        .await;
    assert_eq!(holder().await.unwrap_or_default(), "", "released");

    let stale = lock.get(&key).await.unwrap();
    lock.update(&stale).await.unwrap();
    let mut changed = stale.clone();
    changed.metadata.resource_version = "1".to_owned();
    assert!(lock.update(&changed).await.unwrap_err().is_conflict());
}

#[tokio::test(start_paused = true)]
async fn leader_gate_refuses_writes_of_a_process_that_does_not_lead() {
    let (client, server) = cluster_and_server().await;
    let config = LeaderElectionConfig::new(
        ObjectKey::new("default", "operator"),
        "pod-1".to_owned(),
        Arc::new(LeaseClient::new(&api_client(client))),
        clock(),
        Arc::new(SeededRandom::new(1)),
    );
    let mut elector = LeaderElector::new(config).unwrap();
    let gated = LeaderGateLayer::new(elector.gate()).layer(server.service());
    let gated = Client::new(gated, "default");
    let api = Api::<ConfigMap>::namespaced(gated, "a");
    let write = async |name: &str| {
        let object = serde_json::from_value(config_map("a", name)).unwrap();
        api.create(&PostParams::default(), &object).await.map(drop).map_err(api_error)
    };
    let refused = write("early").await.unwrap_err();
    assert!(refused.is_not_leading(), "{refused:?}");
    assert_eq!(refused.to_string(), "POST /api/v1/namespaces/a/configmaps: this process does not lead");
    assert!(api.list(&ListParams::default()).await.unwrap().items.is_empty());
    let cancel = CancellationToken::new();
    elector
        .run(&cancel, async |_| {
            write("leader").await.unwrap();
            cancel.cancel();
        })
        .await;
    assert!(write("late").await.unwrap_err().is_not_leading());
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn event_client_creates_and_patches() {
    let client = cluster().await;
    let sink = EventClient::new(&api_client(client.clone()));
    let regarding = ObjectReference {
        kind: "ConfigMap".into(),
        namespace: "a".into(),
        name: "web".into(),
        ..ObjectReference::default()
    };
    let time = "2026-01-01T00:00:00Z".parse().unwrap();
    let event = kcm_events::Event {
        name: "web.1".to_owned(),
        regarding,
        type_: EventType::Normal,
        reason: "Scaled".into(),
        message: "Scaled up".to_owned(),
        component: "test".into(),
        is_combined: false,
        count: 1,
        first_timestamp: time,
        last_timestamp: time,
    };
    assert_eq!(sink.create(&event).await.unwrap().name.as_deref(), Some("web.1"));
    // Only what a repetition changes is patched.
    let repeated = kcm_events::Event { count: 2, reason: "Other".into(), ..event };
    sink.patch(&repeated).await.unwrap();
    let events = Api::<Event>::namespaced(client, "a");
    let patched = events.get("web.1").await.unwrap();
    assert_eq!((patched.count, patched.reason.as_deref()), (Some(2), Some("Scaled")));
    let missing = kcm_events::Event { name: "missing".to_owned(), ..repeated };
    assert!(sink.patch(&missing).await.unwrap_err().is_not_found());
}

mod owner_control {
    use super::*;

    fn selector() -> Selector {
        Selector::new(Some(&serde_json::from_value(json!({"matchLabels": {"app": "web"}})).unwrap())).unwrap()
    }

    fn other(uid: &str) -> Value {
        json!({"apiVersion": "v1", "kind": "Secret", "name": "other", "uid": uid})
    }

    /// Adopts and releases ConfigMaps for a Secret, as an operator does with two custom resources.
    async fn claims(strategic: bool) {
        let client = cluster().await;
        let secret = json!({"metadata": {"namespace": "a", "name": "owner"}});
        let owner: Secret = create(&Api::namespaced(client.clone(), "a"), secret).await;
        let owner_uid = owner.uid_str().to_owned();
        let ours = json!({
            "apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": owner_uid, "controller": true,
        });
        let api = Api::<ConfigMap>::namespaced(client.clone(), "a");
        let mut orphan = config_map("a", "orphan");
        orphan["metadata"]["ownerReferences"] = json!([other("u-1")]);
        let mut owned = config_map("a", "owned");
        owned["metadata"]["ownerReferences"] = json!([other("u-1"), ours]);
        owned["metadata"]["labels"] = json!({"app": "db"});
        let cached = [create(&api, orphan).await, create(&api, owned).await];

        let identity = OwnerIdentity::of(&owner);
        let control = OwnerClient::<ConfigMap>::new(&api_client(client), &owner);
        let control = if strategic { control.strategic() } else { control };
        let claimed =
            claim(&identity, &selector(), cached.map(Arc::new), &control).await.into_result().unwrap();
        assert_eq!(claimed.len(), 1);
        let owners = async |name: &str| -> Vec<String> {
            let references = api.get(name).await.unwrap().metadata.owner_references.unwrap_or_default();
            let mut uids: Vec<_> = references.into_iter().map(|reference| reference.uid).collect();
            uids.sort();
            uids
        };
        let mut both = ["u-1", &owner_uid];
        both.sort();
        assert_eq!(owners("orphan").await, both);
        assert_eq!(owners("owned").await, ["u-1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn claims_by_merge_patch() {
        claims(false).await;
    }

    #[tokio::test(start_paused = true)]
    async fn claims_by_strategic_merge_patch() {
        claims(true).await;
    }

    #[tokio::test(start_paused = true)]
    async fn merge_patch_fails_if_the_object_has_changed() {
        let client = cluster().await;
        let secret = json!({"metadata": {"namespace": "a", "name": "owner"}});
        let owner: Secret = create(&Api::namespaced(client.clone(), "a"), secret).await;
        let api = Api::<ConfigMap>::namespaced(client.clone(), "a");
        let cached = create(&api, config_map("a", "web")).await;
        let patch = Patch::Merge(json!({"metadata": {"ownerReferences": [other("u-1")]}}));
        api.patch("web", &PatchParams::default(), &patch).await.unwrap();
        let identity = OwnerIdentity::of(&owner);
        let control = OwnerClient::<ConfigMap>::new(&api_client(client), &owner);
        let claimed = claim(&identity, &selector(), [Arc::new(cached)], &control).await;
        assert!(claimed.error.unwrap().to_string().contains("the object has been modified"));
        assert_eq!(api.get("web").await.unwrap().metadata.owner_references.unwrap().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn adopts_nothing_if_the_owner_is_gone() {
        let client = cluster().await;
        let owner: Secret =
            serde_json::from_value(json!({"metadata": {"namespace": "a", "name": "gone", "uid": "u-1"}}))
                .unwrap();
        let cached = create(&Api::namespaced(client.clone(), "a"), config_map("a", "web")).await;
        let identity = OwnerIdentity::of(&owner);
        let control = OwnerClient::<ConfigMap>::new(&api_client(client), &owner);
        let error = claim(&identity, &selector(), [Arc::new(cached)], &control).await.error.unwrap();
        assert!(error.to_string().starts_with("can't adopt ConfigMap a/web ("), "{error}");
        assert!(
            error.to_string().contains("can't recheck DeletionTimestamp: secrets \"gone\" not found"),
            "{error}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn field_selector_limits_an_informer_to_one_object() {
    let client = cluster().await;
    let pod = |name: &str| json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pods = Api::<Pod>::namespaced(client.clone(), "a");
    create(&pods, pod("web")).await;
    create(&pods, pod("db")).await;
    let options = InformerOptions::new("pods").namespace("a").fields("metadata.name=web");
    let (informer, _running): (SharedInformer<Pod>, _) = run(sources(&client, &(), &options), |_| {});
    synced(&informer).await;
    assert_eq!(names(&informer), ["a/web"]);
}

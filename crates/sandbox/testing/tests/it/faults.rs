//! Faults that begin while the test runs, for both kinds of client.

use std::{pin::pin, time::Duration};

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kcm_client::Patch;
use kcm_testing::TestEnv;
use kube_client::api::{ListParams, PatchParams, PostParams, WatchParams};
use serde_json::json;

use crate::{config_map, watches};

fn kube_api(env: &TestEnv) -> kube_client::Api<ConfigMap> {
    kube_client::Api::default_namespaced(env.kube_client())
}

#[tokio::test(start_paused = true)]
async fn all_watches_are_cut_now() {
    let env = TestEnv::builder().start().await;
    let manager = env.manager("operator");
    let cached = manager.informer::<ConfigMap>(kcm_client::ListParams::default()).store();
    let _operator = env.run(manager);
    env.eventually("the informer watches", async || watches(&env) == 1).await;
    let api = kube_api(&env);
    let mut stream = pin!(api.watch(&WatchParams::default(), "0").await.unwrap());

    assert_eq!(env.faults().cut_watches("/**/pods"), 0);
    assert_eq!(env.faults().cut_watches("/**/configmaps"), 2);
    assert_eq!(env.faults().cut_watches("/**"), 0);
    assert!(stream.next().await.is_none());
    env.api().create(&config_map("web")).await.unwrap();
    env.eventually("the informer follows", async || cached.list().len() == 1).await;
    assert_eq!(watches(&env), 3);
}

#[tokio::test(start_paused = true)]
async fn next_create_fails() {
    let env = TestEnv::builder().start().await;
    env.api().create(&config_map("before")).await.unwrap();

    let refused = env.fault("POST /**/configmaps 500 times=1");
    let error = env.api().create(&config_map("a")).await.unwrap_err();
    assert_eq!(error.code(), Some(500), "{error}");
    env.api().create(&config_map("a")).await.unwrap();

    let refused_again = env.fault("POST /**/configmaps 409 times=1");
    let (api, options) = (kube_api(&env), PostParams::default());
    let error = api.create(&options, &config_map("b")).await.unwrap_err();
    assert!(matches!(&error, kube_client::Error::Api(status) if status.code == 409), "{error}");
    api.create(&options, &config_map("b")).await.unwrap();
    assert_eq!([refused.applied(), refused_again.applied()], [1, 1]);
}

#[tokio::test(start_paused = true)]
async fn answer_of_the_third_patch_is_lost() {
    let env = TestEnv::builder().start().await;
    let (api, kube_api) = (env.api::<ConfigMap>(), kube_api(&env));
    api.create(&config_map("web")).await.unwrap();
    let value = async || api.get("web").await.unwrap().data.unwrap()["value"].clone();

    let lost = env.fault("PATCH /**/configmaps/web late:0s skip=2 times=1");
    let patch = async |value| api.patch("web", &Patch::merge(&json!({"data": {"value": value}}))).await;
    assert!(patch("1").await.is_ok() && patch("2").await.is_ok());
    assert!(patch("3").await.is_err());
    assert_eq!((value().await.as_str(), lost.applied()), ("3", 1));
    assert!(patch("4").await.is_ok());

    let lost = env.fault("PATCH /**/configmaps/web late:0s skip=2 times=1");
    let patch = async |value| {
        let patch = kube_client::api::Patch::Merge(json!({"data": {"value": value}}));
        kube_api.patch("web", &PatchParams::default(), &patch).await
    };
    assert!(patch("5").await.is_ok() && patch("6").await.is_ok());
    assert!(patch("7").await.is_err());
    assert_eq!((value().await.as_str(), lost.applied()), ("7", 1));
    lost.remove();
    assert!(patch("8").await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn events_of_a_watch_are_late() {
    let env = TestEnv::builder().start().await;
    let late = env.fault("WATCH /**/configmaps lag:2s");
    let mut stream = pin!(kube_api(&env).watch(&WatchParams::default(), "0").await.unwrap());
    let clock = env.clock();
    let start = clock.monotonic();
    for name in ["a", "b"] {
        env.api().create(&config_map(name)).await.unwrap();
    }
    stream.next().await.unwrap().unwrap();
    assert!(clock.monotonic() - start >= Duration::from_secs(2));
    stream.next().await.unwrap().unwrap();
    assert!(clock.monotonic() - start < Duration::from_secs(4));
    assert_eq!(late.applied(), 1);
}

#[tokio::test(start_paused = true)]
async fn continued_list_has_expired() {
    let env = TestEnv::builder().start().await;
    for name in ["a", "b"] {
        env.api().create(&config_map(name)).await.unwrap();
    }
    env.fault("CONTINUE /**/configmaps 410 times=1");
    let api = kube_api(&env);
    let first = ListParams { limit: Some(1), ..ListParams::default() };
    let list = api.list(&first).await.unwrap();
    let next = ListParams { continue_token: list.metadata.continue_, ..first };
    let error = api.list(&next).await.unwrap_err();
    assert!(matches!(&error, kube_client::Error::Api(status) if status.reason == "Expired"), "{error}");
    assert_eq!(api.list(&next).await.unwrap().items.len(), 1);
}

#[tokio::test(start_paused = true)]
#[should_panic(expected = "unknown action \"418\"")]
async fn invalid_rule_fails_the_test() {
    TestEnv::builder().start().await.fault("POST /** 418");
}

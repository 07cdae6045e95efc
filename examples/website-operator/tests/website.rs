//! The operator in simulated time, with an API server in this process.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::Deployment;
use kcm::testing::TestEnv;
use website_operator::{
    dns::FakeDns,
    operator,
    website::{Website, WebsiteSpec},
};

fn website(replicas: i32) -> Website {
    let (host, image) = ("shop.example.org".to_owned(), "nginx:1".to_owned());
    Website::new("web", WebsiteSpec { host, image, replicas })
}

#[tokio::test(start_paused = true)]
async fn website_has_a_deployment() {
    let env = TestEnv::builder().crd::<Website>().start().await;
    let mut manager = env.manager("website-operator");
    operator::add_to(&mut manager, Arc::new(FakeDns::default()));
    let _operator = env.run(manager);
    env.api::<Website>().create(&website(2)).await.unwrap();
    let deployments = env.api::<Deployment>();
    env.eventually("the Deployment exists", async || deployments.find("web").await.unwrap().is_some()).await;
}

#[tokio::test(start_paused = true)]
async fn host_is_published_after_failed_requests() {
    let env = TestEnv::builder().crd::<Website>().start().await;
    let mut manager = env.manager("website-operator");
    let dns = Arc::new(FakeDns::default());
    operator::add_to(&mut manager, Arc::clone(&dns) as _);
    let _operator = env.run(manager);
    let refused = env.fault("PATCH /apis/apps/**/deployments/* 500 times=2");
    let lost = env.fault("PATCH /apis/example.org/**/status late:0s times=1");
    env.api::<Website>().create(&website(2)).await.unwrap();
    env.eventually("the host is published", async || dns.hosts() == ["shop.example.org"]).await;
    assert_eq!((refused.applied(), lost.applied()), (2, 1));
}

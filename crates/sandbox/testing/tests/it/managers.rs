//! Managers of an environment.

use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use kcm_manager::{LeaderElectionSettings, Manager, Settings};
use kcm_testing::TestEnv;

fn elected(env: &TestEnv) -> Manager {
    let leader_election = Some(LeaderElectionSettings::new(env.namespace(), "operator"));
    Manager::new(Settings { leader_election, ..Settings::new("operator") }, env.dependencies()).unwrap()
}

async fn holder(env: &TestEnv) -> Option<String> {
    let lease = env.api::<Lease>().find("operator").await.unwrap()?;
    lease.spec?.holder_identity.filter(|holder| !holder.is_empty())
}

#[tokio::test(start_paused = true)]
async fn stopped_manager_releases_its_lease() {
    let env = TestEnv::builder().start().await;
    let operator = env.run(elected(&env));
    env.eventually("the manager leads", async || holder(&env).await.is_some()).await;
    operator.stop().await.unwrap();
    assert_eq!(holder(&env).await, None);
}

#[tokio::test(start_paused = true)]
async fn dropped_manager_stops() {
    let env = TestEnv::builder().start().await;
    let operator = env.run(elected(&env));
    env.eventually("the manager leads", async || holder(&env).await.is_some()).await;
    drop(operator);
    env.eventually("the Lease is released", async || holder(&env).await.is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn killed_manager_leaves_its_lease() {
    let env = TestEnv::builder().start().await;
    let operator = env.run(elected(&env));
    env.eventually("the manager leads", async || holder(&env).await.is_some()).await;
    let first = holder(&env).await;
    operator.kill().await;
    let revision = env.server().revision();
    env.advance(Duration::from_secs(60)).await;
    assert_eq!((holder(&env).await, env.server().revision()), (first.clone(), revision));
    // The next one waits until the Lease has expired.
    let _next = env.run(elected(&env));
    env.eventually("another manager leads", async || holder(&env).await != first).await;
}

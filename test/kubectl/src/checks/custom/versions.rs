//! Checks of custom kinds with several versions.

use serde_json::json;

use super::{CREATED, DEFINITION, Kind, WEBSITE};
use crate::{checks::CheckResult, failure::same, test_env::TestEnv};

/// [`DEFINITION`] with the version `v1beta1`, which has no tier.
fn two_versions() -> String {
    let start = DEFINITION.find("  - name: v1\n").unwrap_or_default();
    let version = &DEFINITION[start..];
    let beta = version
        .replacen("name: v1\n", "name: v1beta1\n    deprecated: true\n", 1)
        .replacen("storage: true", "storage: false", 1)
        .replace("              tier: {type: string, enum: [free, paid]}\n", "")
        .replace("    - {name: Tier, type: string, jsonPath: .spec.tier, priority: 1}\n", "");
    format!("{DEFINITION}{beta}")
}

pub(crate) async fn several(env: &TestEnv) -> CheckResult {
    let kind = Kind::define_as(env, &two_versions()).await?;
    kind.create("  tier: paid\n").await?.prints(CREATED)?;
    kind.run("get websites.v1beta1.GROUP a -o jsonpath='{.apiVersion} {.spec}'")
        .await?
        .prints_exactly("*/v1beta1 {\"host\":\"example.org\",\"replicas\":1}")?;
    kind.run("get websites.GROUP a -o jsonpath='{.apiVersion} {.spec.tier}'")
        .await?
        .prints_exactly("*/v1 paid")?;
    let versions = env.http.get(&kind.text("/apis/GROUP")).await?.expect(200)?;
    same("the preferred version", &versions["preferredVersion"]["version"], &json!("v1"))?;
    kind.delete().await
}

pub(crate) async fn deprecated(env: &TestEnv) -> CheckResult {
    let kind = Kind::define_as(env, &two_versions()).await?;
    kind.file("a.yaml", &WEBSITE.replace("/v1", "/v1beta1"))?;
    kind.run("create -f a.yaml")
        .await?
        .prints(CREATED)?
        .warns("Warning: */v1beta1 Website is deprecated*")?;
    kind.run("get websites.GROUP a -o jsonpath={.apiVersion}").await?.prints_exactly("*/v1")?;
    kind.run("get websites.v1beta1.GROUP").await?.warns("Warning: */v1beta1 Website is deprecated*")?;
    kind.delete().await
}

//! Checks 73 to 112: CustomResourceDefinitions and custom resources.
//!
//! Each check defines a kind `Website` in a separate group.

use serde_json::Value;

use super::CheckResult;
use crate::{failure::Failure, kubectl::CommandOutput, test_env::TestEnv};

pub(super) mod definitions;
pub(super) mod explain;
pub(super) mod objects;
pub(super) mod versions;

/// Definition. `GROUP` is the group of the check, `SHORT` a short name that only this check uses.
const DEFINITION: &str = include_str!("custom/definition.yaml");

/// Object of the kind.
const WEBSITE: &str = "\
apiVersion: GROUP/v1
kind: Website
metadata:
  name: a
spec:
  host: example.org
";

const CREATED: &str = "website.*/a created";

/// Kind of a check.
struct Kind<'a> {
    env: &'a TestEnv,
    group: String,
}

impl<'a> Kind<'a> {
    fn new(env: &'a TestEnv) -> Self {
        Self { env, group: format!("{}.example.com", env.namespace) }
    }

    /// Defines the kind and waits until it is served.
    async fn define(env: &'a TestEnv) -> Result<Self, Failure> {
        Self::define_as(env, DEFINITION).await
    }

    async fn define_as(env: &'a TestEnv, definition: &str) -> Result<Self, Failure> {
        let kind = Self::new(env);
        kind.file("crd.yaml", definition)?;
        kind.run("create -f crd.yaml")
            .await?
            .prints("customresourcedefinition.apiextensions.k8s.io/websites.* created")?;
        kind.run("wait --for=condition=Established crd/websites.GROUP").await?.prints("* condition met")?;
        // An API server may serve the kind a moment later.
        env.until("the custom kind", async || {
            let found = env.http.get(&kind.text("/apis/GROUP/v1/websites")).await?;
            Ok((found.status == 200).then_some(()))
        })
        .await?;
        Ok(kind)
    }

    /// Waits until the kind is found by its short name and has a schema in the OpenAPI document.
    async fn until_described(&self) -> CheckResult {
        self.env
            .until("the OpenAPI document", async || {
                let document = self.env.http.get(&self.text("/openapi/v3/apis/GROUP/v1")).await?;
                let is_listed = document.status == 200 && document.body.to_string().contains("\"Website\"");
                Ok(is_listed.then_some(()))
            })
            .await?;
        // Fills the discovery cache.
        self.run("get websites.GROUP").await?.exits(0)?;
        Ok(())
    }

    fn text(&self, text: &str) -> String {
        let short = self.env.namespace.replace("check-", "w").replace('-', "x");
        text.replace("GROUP", &self.group).replace("SHORT", &short).replace("CATEGORY", &format!("{short}s"))
    }

    fn file(&self, name: &str, text: &str) -> Result<(), Failure> {
        self.env.file(name, &self.text(text))
    }

    async fn run(&self, line: &str) -> Result<CommandOutput, Failure> {
        self.env.run(&self.text(line)).await
    }

    /// Creates the website `a` with more lines in its spec.
    async fn create(&self, lines: &str) -> Result<CommandOutput, Failure> {
        self.file("a.yaml", &format!("{WEBSITE}{lines}"))?;
        self.run("create -f a.yaml").await
    }

    fn path(&self, what: &str) -> String {
        self.text(&format!("/apis/GROUP/v1/namespaces/{}/websites{what}", self.env.namespace))
    }

    async fn get(&self, what: &str) -> Result<Value, Failure> {
        self.env.http.get(&self.path(what)).await?.expect(200)
    }

    async fn exists(&self, what: &str) -> Result<bool, Failure> {
        Ok(self.env.http.get(&self.path(what)).await?.status == 200)
    }

    /// Removes the definition.
    async fn delete(self) -> CheckResult {
        self.run("delete crd websites.GROUP")
            .await?
            .prints("customresourcedefinition.* \"websites.*\" deleted*")?;
        Ok(())
    }
}

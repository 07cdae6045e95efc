//! JSON reports of Ginkgo, the framework of the e2e tests.

use serde::Deserialize;

/// Result of a suite.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Suite {
    spec_reports: Vec<Spec>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Spec {
    #[serde(default)]
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_type: String,
    leaf_node_text: String,
    state: String,
    #[serde(default)]
    failure: Failure,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    message: String,
}

/// Test that was selected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Test {
    pub(super) name: String,
    /// First line of the failure, or the reason why the test skipped itself. `None` if the test passed.
    pub(super) failure: Option<String>,
}

/// Returns the tests that a report selects. In the report of a dry run, all of them pass.
pub(super) fn tests(json: &[u8]) -> Result<Vec<Test>, serde_json::Error> {
    let suites: Vec<Suite> = serde_json::from_slice(json)?;
    let specs = suites.into_iter().flat_map(|suite| suite.spec_reports);
    Ok(specs.filter(|spec| spec.leaf_node_type == "It").filter_map(Spec::into_test).collect())
}

impl Spec {
    /// Returns `None` if the flags exclude the test.
    fn into_test(self) -> Option<Test> {
        let message = self.failure.message.lines().next().unwrap_or_default();
        let failure = match self.state.as_str() {
            "passed" => None,
            "skipped" if message.is_empty() => return None,
            state if message.is_empty() => Some(state.to_owned()),
            _ => Some(message.to_owned()),
        };
        let mut words = self.container_hierarchy_texts.unwrap_or_default();
        words.push(self.leaf_node_text);
        Some(Test { name: words.join(" "), failure })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selected_tests_have_a_name_and_a_failure() {
        let json = br#"[{"SpecReports": [
            {"LeafNodeType": "ReportBeforeSuite", "LeafNodeText": "", "State": "passed"},
            {"ContainerHierarchyTexts": ["[a]", "b"], "LeafNodeType": "It", "LeafNodeText": "passes", "State": "passed"},
            {"ContainerHierarchyTexts": ["[a]"], "LeafNodeType": "It", "LeafNodeText": "other", "State": "skipped"},
            {"ContainerHierarchyTexts": ["[a]"], "LeafNodeType": "It", "LeafNodeText": "skips itself", "State": "skipped",
             "Failure": {"Message": "no disk"}},
            {"ContainerHierarchyTexts": ["[a]"], "LeafNodeType": "It", "LeafNodeText": "fails", "State": "failed",
             "Failure": {"Message": "timeout\nafter 1s"}},
            {"ContainerHierarchyTexts": ["[a]"], "LeafNodeType": "It", "LeafNodeText": "ends", "State": "interrupted"}
        ]}]"#;
        let test =
            |name: &str, failure: Option<&str>| Test { name: name.into(), failure: failure.map(Into::into) };
        assert_eq!(
            tests(json).unwrap(),
            [
                test("[a] b passes", None),
                test("[a] skips itself", Some("no disk")),
                test("[a] fails", Some("timeout")),
                test("[a] ends", Some("interrupted")),
            ]
        );
    }
}

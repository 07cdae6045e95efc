use serde_json::json;

use super::{
    super::{GroupVersionKind, Operation},
    *,
};
use crate::{ApiServer, ApiServerConfig, User, WriteOptions};

const DEPLOYMENTS: GroupVersionResource<'_> =
    GroupVersionResource { group: "apps", version: "v1", resource: "deployments" };

/// A server with a policy, and its binding `bound` with the action `Deny`.
fn server(spec: &Value, binding: &Value) -> Arc<ApiServer> {
    let server = ApiServer::new(ApiServerConfig::default());
    let create = |resource: &Option<Resource>, namespace: &str, object: Value| {
        server.create(resource.unwrap(), namespace, object, &WriteOptions::default()).unwrap();
    };
    let rule = json!({
        "apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["deployments"],
    });
    let mut policy = json!({
        "metadata": {"name": "limits"},
        "spec": {"failurePolicy": "Fail", "matchConstraints": {"resourceRules": [rule]}},
    });
    for (name, value) in spec.as_object().unwrap() {
        policy["spec"][name] = value.clone();
    }
    create(&POLICIES, "", policy);
    let mut bound = json!({
        "metadata": {"name": "bound"},
        "spec": {"policyName": "limits", "validationActions": ["Deny"]},
    });
    for (name, value) in binding.as_object().unwrap() {
        bound["spec"][name] = value.clone();
    }
    create(&BINDINGS, "", bound);
    for (name, most) in [("small", "1"), ("large", "10")] {
        let labels = json!({"size": name});
        let params = json!({"metadata": {"name": name, "labels": labels}, "data": {"most": most}});
        create(&Some(Resource::CONFIG_MAPS), "default", params);
    }
    server
}

/// Creates the Deployment `web` with 5 replicas. Returns the warnings, or the code and the message.
fn create(server: &ApiServer) -> Result<Vec<String>, (u16, String)> {
    let (user, options) = (User::admin(), json!({}));
    let object = json!({"metadata": {"name": "web"}, "spec": {"replicas": 5}});
    let attributes = Attributes {
        operation: Operation::Create,
        kind: GroupVersionKind { group: "apps", version: "v1", kind: "Deployment" },
        resource: DEPLOYMENTS,
        subresource: "",
        namespace: "default",
        name: "web",
        object: Some(&object),
        old_object: None,
        options: &options,
        user: &user,
        dry_run: false,
    };
    let validated = Policies::default().validate(&server.registry, &attributes, &[DEPLOYMENTS]);
    validated.map_err(|error| (error.code(), error.message))
}

fn denied(message: &str) -> Result<Vec<String>, (u16, String)> {
    let prefix = "deployments.apps \"web\" is forbidden: ValidatingAdmissionPolicy 'limits'";
    Err((422, format!("{prefix} {message}")))
}

#[test]
fn validations() {
    struct Case {
        validation: Value,
        expected: Result<Vec<String>, (u16, String)>,
    }
    let cases = [
        Case { validation: json!({"expression": "object.spec.replicas <= 5"}), expected: Ok(vec![]) },
        Case {
            validation: json!({"expression": "object.spec.replicas < 5"}),
            expected: denied(
                "with binding 'bound' denied request: failed expression: object.spec.replicas < 5",
            ),
        },
        Case {
            validation: json!({"expression": "false", "message": "no"}),
            expected: denied("with binding 'bound' denied request: no"),
        },
        Case {
            validation: json!({
                "expression": "false", "message": "no", "messageExpression": "'has ' + string(object.spec.replicas)",
            }),
            expected: denied("with binding 'bound' denied request: has 5"),
        },
        Case {
            validation: json!({"expression": "object.spec.missing == 1"}),
            expected: denied(
                "with binding 'bound' denied request: expression 'object.spec.missing == 1' resulted in error: no such \
                 key: missing",
            ),
        },
        Case {
            validation: json!({
                "expression": "request.operation == 'CREATE' && request.userInfo.username == 'system:admin' && \
                               oldObject == null && namespaceObject.metadata.name == 'default' && params == null",
            }),
            expected: Ok(vec![]),
        },
    ];
    for Case { validation, expected } in cases {
        let server = server(&json!({"validations": [validation]}), &json!({}));
        assert_eq!(create(&server), expected, "{validation}");
    }
}

#[test]
fn reasons_and_actions() {
    let validations = json!([{"expression": "false", "message": "no", "reason": "Forbidden"}]);
    let spec = json!({"validations": validations});
    assert_eq!(create(&server(&spec, &json!({}))).map_err(|(code, _)| code), Err(403));
    let warnings = create(&server(&spec, &json!({"validationActions": ["Warn", "Audit"]}))).unwrap();
    let warning = "Validation failed for ValidatingAdmissionPolicy 'limits' with binding 'bound': no";
    assert_eq!(warnings, [warning]);
    assert_eq!(create(&server(&spec, &json!({"validationActions": ["Audit"]}))), Ok(vec![]));
}

#[test]
fn conditions_and_variables() {
    let spec = |condition: &str, policy: &str| {
        json!({
            "failurePolicy": policy,
            "matchConditions": [{"name": "a", "expression": condition}],
            "variables": [
                {"name": "replicas", "expression": "object.spec.replicas"},
                {"name": "double", "expression": "variables.replicas * 2"},
                {"name": "own", "expression": "variables.own"},
            ],
            "validations": [{"expression": "variables.double == 0", "messageExpression": "string(variables.double)"}],
        })
    };
    let of = |condition: &str, policy: &str| create(&server(&spec(condition, policy), &json!({})));
    assert_eq!(of("true", "Fail"), denied("with binding 'bound' denied request: 10"));
    assert_eq!(of("false", "Fail"), Ok(vec![]));
    assert_eq!(
        of("object.missing", "Fail"),
        denied(
            "with binding 'bound' denied request: expression 'object.missing' resulted in error: no such key: missing",
        )
    );
    assert_eq!(of("object.missing", "Ignore"), Ok(vec![]));
}

#[test]
fn parameters() {
    let spec = json!({
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "object.spec.replicas <= int(params.data.most)", "message": "too many"}],
    });
    let with = |reference: Value| create(&server(&spec, &json!({"paramRef": reference})));
    assert_eq!(with(json!({"name": "large", "parameterNotFoundAction": "Deny"})), Ok(vec![]));
    let too_many = denied("with binding 'bound' denied request: too many");
    assert_eq!(with(json!({"name": "small", "parameterNotFoundAction": "Deny"})), too_many);
    assert_eq!(with(json!({"selector": {}, "parameterNotFoundAction": "Deny"})), too_many);
    let large = json!({"selector": {"matchLabels": {"size": "large"}}, "parameterNotFoundAction": "Deny"});
    assert_eq!(with(large), Ok(vec![]));
    assert_eq!(with(json!({"name": "none", "parameterNotFoundAction": "Allow"})), Ok(vec![]));
    let missing = "with binding 'bound' denied request: failed to configure binding: no params found for policy binding \
                   with `Deny` parameterNotFoundAction";
    assert_eq!(with(json!({"name": "none", "parameterNotFoundAction": "Deny"})), denied(missing));
}

#[test]
fn long_chains_of_variables() {
    let chain = |last: &str, next: &dyn Fn(usize) -> String| -> Result<Vec<String>, (u16, String)> {
        let first = json!({"name": "v0", "expression": "[1]"});
        let others = (1..500).map(|n| json!({"name": format!("v{n}"), "expression": next(n - 1)}));
        let variables: Vec<Value> = std::iter::once(first).chain(others).collect();
        let spec = json!({"variables": variables, "validations": [{"expression": last}]});
        create(&server(&spec, &json!({})))
    };
    assert_eq!(chain("variables.v499 == [1]", &|n| format!("variables.v{n}")), Ok(vec![]));
    // A value that is nested too deeply is an error.
    let error = chain("variables.v499 == [1]", &|n| format!("[variables.v{n}]")).unwrap_err();
    assert!(error.1.contains("fails to evaluate"), "{}", error.1.len());
    // A variable does not read later ones.
    let error = chain("variables.v1 == [1]", &|n| format!("variables.v{}", n + 2)).unwrap_err();
    assert!(error.1.contains("no such attribute(s): variables"), "{}", error.1);
}

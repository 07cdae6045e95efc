//! Server-side apply of custom resources.

use serde_json::{Value, json};

use crate::{
    client::{Answer, Client},
    custom::with_definition,
    website::{WEBSITES, website},
};

async fn apply(client: &Client, manager: &str, spec: Value, more: &str) -> Answer {
    let path = format!("{WEBSITES}/a?fieldManager={manager}{more}");
    let headers = [("content-type", "application/apply-patch+yaml")];
    client.call("PATCH", &path, &headers, website("a", spec).to_string()).await
}

#[tokio::test]
async fn merges_by_list_type() {
    let client = with_definition().await;
    let first = json!({"host": "abc", "paths": [{"path": "/a", "weight": 1}], "tags": ["x"], "list": ["1"],
        "labels": {"a": "1"}, "atomic": {"a": "1"}});
    apply(&client, "one", first, "").await.expect(201);
    let second = json!({"host": "abc", "paths": [{"path": "/b"}, {"path": "/a"}], "tags": ["y"],
        "labels": {"b": "2"}, "extra": {"m": {"n": 1}}});
    let both = apply(&client, "two", second, "").await.expect(200);
    assert_eq!(both["spec"]["paths"], json!([{"path": "/b"}, {"path": "/a", "weight": 1}]));
    assert_eq!(both["spec"]["tags"], json!(["x", "y"]));
    assert_eq!(both["spec"]["labels"], json!({"a": "1", "b": "2"}));
    assert_eq!(both["spec"]["extra"], json!({"m": {"n": 1}}));

    // The first manager gives its items up.
    let less = apply(&client, "one", json!({"host": "abc", "list": ["1"]}), "").await.expect(200);
    assert_eq!(less["spec"]["paths"], json!([{"path": "/b"}, {"path": "/a"}]));
    assert_eq!(less["spec"]["tags"], json!(["y"]));
    assert_eq!(less["spec"]["atomic"], Value::Null);
}

#[tokio::test]
async fn reports_conflicts_and_unknown_fields() {
    let client = with_definition().await;
    apply(&client, "one", json!({"host": "abc", "list": ["1"]}), "").await.expect(201);
    let conflict = apply(&client, "two", json!({"host": "abd", "list": ["1", "2"]}), "").await;
    assert_eq!(
        conflict.refused(409, "Conflict"),
        "Apply failed with 2 conflicts: conflicts with \"one\":\n- .spec.host\n- .spec.list"
    );
    apply(&client, "two", json!({"host": "abd", "list": ["1", "2"]}), "&force=true").await.expect(200);
    assert_eq!(
        apply(&client, "two", json!({"host": "abd", "hots": 1}), "").await.refused(500, ""),
        "failed to create typed patch object (/a; example.com/v1, Kind=Website): .spec.hots: field not declared in \
         schema"
    );
}

#[tokio::test]
async fn tracks_other_writes() {
    let client = with_definition().await;
    apply(&client, "one", json!({"host": "abc"}), "").await.expect(201);
    client.patch(&format!("{WEBSITES}/a"), &json!({"spec": {"host": "abd"}})).await.expect(200);
    let conflict = apply(&client, "one", json!({"host": "abc"}), "").await;
    assert_eq!(
        conflict.refused(409, "Conflict"),
        "Apply failed with 1 conflict: conflict with \"test\" using example.com/v1: .spec.host"
    );
}

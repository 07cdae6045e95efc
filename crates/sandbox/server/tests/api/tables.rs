//! Tables.

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::{Value, json};

use crate::{
    client::{DEPLOYMENTS, PODS, deployment, pod},
    website::{DEFINITIONS, WEBSITES, definition, website},
};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

#[tokio::test]
async fn table_has_a_row_per_object() {
    let client = crate::client();
    client.post(DEPLOYMENTS, &deployment("web")).await.expect(201);
    client.clock.step(std::time::Duration::from_secs(90));
    let get = async |query: &str| {
        client.call("GET", &format!("{DEPLOYMENTS}{query}"), &[("accept", TABLE)], "").await.expect(200)
    };
    let table = get("").await;
    assert_eq!((&table["kind"], &table["apiVersion"]), (&json!("Table"), &json!("meta.k8s.io/v1")));
    let columns: Vec<&str> = table["columnDefinitions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| column["name"].as_str().unwrap())
        .collect();
    assert_eq!(columns[..5], ["Name", "Ready", "Up-to-date", "Available", "Age"]);
    assert_eq!(
        table["rows"][0]["cells"].as_array().unwrap()[..5],
        [json!("web"), json!("0/3"), json!(0), json!(0), json!("90s")]
    );
    assert_eq!(table["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    assert_eq!(get("?includeObject=Object").await["rows"][0]["object"]["kind"], "Deployment");
    assert!(get("?includeObject=None").await["rows"][0].get("object").is_none());
    assert_eq!(get("/web").await["rows"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn watch_has_columns_once() {
    let client = crate::client();
    client.post(PODS, &pod("a")).await.expect(201);
    client.post(PODS, &pod("b")).await.expect(201);
    let request = Request::get(format!("{PODS}?watch=true")).header("accept", TABLE);
    let mut body = client.send(request.body(Full::<Bytes>::default()).unwrap()).await.into_body();
    let mut text = Vec::new();
    while text.iter().filter(|byte| **byte == b'\n').count() < 2 {
        text.extend_from_slice(body.frame().await.unwrap().unwrap().data_ref().unwrap());
    }
    let lines: Vec<Value> =
        text.split(|byte| *byte == b'\n').take(2).map(|l| serde_json::from_slice(l).unwrap()).collect();
    let columns = |line: &Value| line["object"]["columnDefinitions"].as_array().unwrap().len();
    assert_eq!(lines[0]["object"]["rows"][0]["cells"][0], "a");
    assert!(columns(&lines[0]) > 0);
    assert_eq!(columns(&lines[1]), 0);
}

#[tokio::test]
async fn tables_have_printer_columns() {
    let client = crate::client();
    client.post(DEFINITIONS, &definition()).await.expect(201);
    let spec = json!({"host": "abc", "paths": [{"path": "/a"}, {"path": "/b"}]});
    client.post(WEBSITES, &website("a", spec)).await.expect(201);
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    client.patch(&format!("{WEBSITES}/a/status"), &status).await.expect(200);
    let accept = [("accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = client.call("GET", WEBSITES, &accept, "").await.expect(200);
    let names: Vec<&Value> =
        table["columnDefinitions"].as_array().unwrap().iter().map(|c| &c["name"]).collect();
    assert_eq!(names, ["Name", "Host", "Replicas", "Paths", "Ready", "Age"]);
    assert_eq!(table["columnDefinitions"][3]["priority"], 1);
    assert_eq!(table["rows"][0]["cells"], json!(["a", "abc", 1, "/a", "True", "0s"]));
}

//! OpenAPI documents and the web page.

use serde_json::json;

use crate::website::{DEFINITION, DEFINITIONS, definition};

#[tokio::test]
async fn unchanged_document_is_not_sent() {
    let client = crate::client();
    for path in ["/openapi/v2", "/openapi/v3", "/openapi/v3/apis/apps/v1"] {
        let first = client.get(path).await;
        first.expect(200);
        let again = client.call("GET", path, &[("if-none-match", first.header("etag"))], "").await;
        assert_eq!((again.code, again.text.as_str()), (304, ""), "{path}");
    }
    client.get("/openapi/v1").await.refused(404, "NotFound");
    client.call("POST", "/openapi/v2", &[], "{}").await.refused(405, "MethodNotAllowed");
}

#[tokio::test]
async fn openapi_has_what_kubectl_requires() {
    let client = crate::client();
    let index = client.get("/openapi/v3?timeout=32s").await.expect(200);
    let url = index["paths"]["apis/apps/v1"]["serverRelativeURL"].as_str().unwrap();
    let document = client.get(&format!("{url}&timeout=32s")).await.expect(200);
    let operation = &document["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"];
    assert_eq!(
        operation["x-kubernetes-group-version-kind"],
        json!({"group": "apps", "version": "v1", "kind": "Deployment"})
    );
    let parameters = operation["parameters"].as_array().unwrap();
    assert!(parameters.iter().any(|parameter| parameter["name"] == "fieldValidation"));
}

#[tokio::test]
async fn open_api_has_the_schema() {
    let client = crate::client();
    client.post(DEFINITIONS, &definition()).await.expect(201);
    let index = client.get("/openapi/v3").await.expect(200);
    let url = index["paths"]["apis/example.com/v1"]["serverRelativeURL"].as_str().unwrap();
    let document = client.get(url).await.expect(200);
    let object = &document["paths"]["/apis/example.com/v1/namespaces/{namespace}/websites/{name}"];
    assert_eq!(
        object["patch"]["x-kubernetes-group-version-kind"],
        json!({"group": "example.com", "version": "v1", "kind": "Website"})
    );
    let schemas = &document["components"]["schemas"];
    let website = &schemas["com.example.v1.Website"];
    assert_eq!(website["description"], "A website.");
    assert_eq!(website["properties"]["spec"]["required"], json!(["host"]));
    let metadata = website["properties"]["metadata"]["allOf"][0]["$ref"].as_str().unwrap();
    assert!(schemas[metadata.rsplit('/').next().unwrap()]["properties"]["labels"].is_object());
    let template = &website["properties"]["spec"]["properties"]["template"]["properties"];
    assert_eq!(template["kind"]["type"], "string");

    let v2 = client.get("/openapi/v2").await.expect(200);
    let website = &v2["definitions"]["com.example.v1.Website"];
    assert_eq!(website["properties"]["spec"]["required"], json!(["host"]));
    let metadata = website["properties"]["metadata"]["$ref"].as_str().unwrap();
    let name = metadata.strip_prefix("#/definitions/").unwrap();
    assert!(v2["definitions"][name]["properties"]["labels"].is_object());

    // A changed schema has another address.
    let mut changed = client.get(DEFINITION).await.expect(200);
    changed["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["description"] = json!("Another.");
    client.put(DEFINITION, &changed).await.expect(200);
    let index = client.get("/openapi/v3").await.expect(200);
    assert_ne!(index["paths"]["apis/example.com/v1"]["serverRelativeURL"], url);
}

#[tokio::test]
async fn browsers_are_redirected_to_the_page() {
    let client = crate::client();
    let html = ("accept", "text/html,application/xhtml+xml,*/*;q=0.8");
    let redirect = client.call("GET", "/", &[html], "").await;
    assert_eq!((redirect.code, redirect.header("location"), redirect.header("vary")), (302, "/ui", "Accept"));
    let paths = client.call("GET", "/", &[("accept", "*/*")], "").await.expect(200);
    assert!(paths["paths"].as_array().unwrap().len() > 5);

    let page = client.call("GET", "/ui", &[html], "").await;
    assert_eq!((page.code, page.header("content-type")), (200, "text/html; charset=utf-8"));
    assert!(page.header("content-security-policy").starts_with("default-src 'none'; "));
    assert!(page.text.starts_with("<!doctype html>"));
    client.call("POST", "/ui", &[html], "{}").await.refused(405, "MethodNotAllowed");
    assert_eq!(client.get("/ui/other").await.code, 404);
}

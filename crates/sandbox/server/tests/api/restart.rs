//! Data directory with custom resources.

use kcm_apiserver::{ApiServerConfig, Resource, WriteOptions};
use kcm_sandbox_server::open;
use serde_json::json;

use crate::website::{definition, website};

#[test]
fn custom_resources_survive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    {
        let server = open(ApiServerConfig::default(), directory.path()).unwrap();
        let options = WriteOptions::default();
        server.create(Resource::CUSTOM_RESOURCE_DEFINITIONS, "", definition(), &options).unwrap();
        let websites = server.resource("example.com", "websites").unwrap();
        assert!(server.resources().contains(&websites));
        server.create(websites, "default", website("a", json!({"host": "abc"})), &options).unwrap();
    }
    let server = open(ApiServerConfig::default(), directory.path()).unwrap();
    let websites = server.resource("example.com", "websites").unwrap();
    let found = server.get(websites, "default", "a").unwrap();
    assert_eq!((found.api_version(), &found.value()["spec"]["replicas"]), ("example.com/v1", &json!(1)));
}

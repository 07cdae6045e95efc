//! Object type of this crate's tests.

use std::sync::Arc;

use kcm_clock::Timestamp;
use kcm_meta::{ControllerRef, Object, ObjectKey, SetResourceVersion};

use crate::index::{IndexName, Indexers};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestObject {
    pub(crate) key: ObjectKey,
    pub(crate) uid: Arc<str>,
    pub(crate) version: String,
    pub(crate) owner: Option<Arc<str>>,
    pub(crate) tags: Vec<Arc<str>>,
}

pub(crate) const OWNER: IndexName = IndexName("owner");
pub(crate) const TAGS: IndexName = IndexName("tags");

pub(crate) fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

pub(crate) fn object(name: &str) -> TestObject {
    TestObject { key: key(name), uid: name.into(), version: String::new(), owner: None, tags: Vec::new() }
}

pub(crate) fn indexers() -> Indexers<TestObject> {
    Indexers::new()
        .with(OWNER, |object: &TestObject| object.owner.clone())
        .with_many(TAGS, |object, tags| tags.extend(object.tags.iter().cloned()))
}

impl TestObject {
    pub(crate) fn at(mut self, version: &str) -> Self {
        self.set_resource_version(version);
        self
    }

    pub(crate) fn uid(mut self, uid: &str) -> Self {
        self.uid = uid.into();
        self
    }

    pub(crate) fn owned_by(mut self, owner: &str) -> Self {
        self.owner = Some(owner.into());
        self
    }

    pub(crate) fn tagged(mut self, tags: &[&str]) -> Self {
        self.tags = tags.iter().map(|&tag| tag.into()).collect();
        self
    }
}

impl Object for TestObject {
    fn key(&self) -> ObjectKey {
        self.key.clone()
    }

    fn uid_str(&self) -> &str {
        &self.uid
    }

    fn resource_version_str(&self) -> &str {
        &self.version
    }

    fn label(&self, _: &str) -> Option<&str> {
        None
    }

    fn creation_time(&self) -> Option<Timestamp> {
        None
    }

    fn deletion_timestamp(&self) -> Option<Timestamp> {
        None
    }

    fn controller(&self) -> Option<ControllerRef<'_>> {
        None
    }
}

impl SetResourceVersion for TestObject {
    fn set_resource_version(&mut self, version: &str) {
        version.clone_into(&mut self.version);
    }
}

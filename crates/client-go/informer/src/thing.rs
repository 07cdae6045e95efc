//! What the tests of this crate cache: the least that an object can be.

use std::sync::Arc;

use kcm_api::ObjectKey;

use crate::{IndexName, Indexers, Object, testing::FakeObject};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Thing {
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

pub(crate) fn thing(name: &str) -> Thing {
    Thing { key: key(name), uid: name.into(), version: String::new(), owner: None, tags: Vec::new() }
}

pub(crate) fn indexers() -> Indexers<Thing> {
    Indexers::new()
        .with(OWNER, |thing: &Thing| thing.owner.clone())
        .with_many(TAGS, |thing, tags| tags.extend(thing.tags.iter().cloned()))
}

impl Thing {
    pub(crate) fn at(mut self, version: &str) -> Self {
        self.version = version.to_owned();
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

impl Object for Thing {
    fn key(&self) -> ObjectKey {
        self.key.clone()
    }

    fn uid(&self) -> &Arc<str> {
        &self.uid
    }

    fn resource_version(&self) -> &str {
        &self.version
    }
}

impl FakeObject for Thing {
    fn set_resource_version(&mut self, version: &str) {
        self.version = version.to_owned();
    }
}

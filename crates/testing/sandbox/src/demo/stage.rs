//! Does what the story says, and looks on.

use std::{collections::HashSet, sync::Arc, time::Duration};

use kcm_api::{Deployment, ReplicaSet};
use kcm_apiserver::{
    ApiServer, ApiStatus, DeleteOptions, Object, PatchType, Propagation, Resource, WriteOptions,
};
use kcm_clock::Clock;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Bounds, DemoError, Frame, NAME, NAMESPACE, PATIENCE, Show, Summary};
use crate::api::{Api, Change, Changes};

/// What is counted while the story goes on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tally {
    /// ReplicaSets that came to be.
    pub replica_sets: usize,
    /// Pods that came to be.
    pub pods_created: usize,
    /// Pods that went.
    pub pods_deleted: usize,
    /// Writes that the server took.
    pub revisions: u64,
    /// Looks at which there were more pods than allowed.
    pub over: usize,
    /// Looks at which fewer pods were available than promised.
    pub under: usize,
}

pub(super) struct Stage<'a> {
    server: Arc<ApiServer>,
    api: Api,
    clock: Arc<dyn Clock>,
    show: &'a mut dyn Show,
    changes: Changes,
    /// UIDs of all that came to be.
    seen: HashSet<String>,
    tally: Tally,
    first_revision: u64,
    chapter: String,
    began: Duration,
    chapters: Vec<(String, Duration)>,
}

impl<'a> Stage<'a> {
    pub(super) fn new(server: Arc<ApiServer>, clock: Arc<dyn Clock>, show: &'a mut dyn Show) -> Self {
        let api = Api::new(Arc::clone(&server), Arc::clone(&clock));
        let (changes, first_revision, began) = (api.watch(None), server.revision(), clock.monotonic());
        Self {
            server,
            api,
            clock,
            show,
            changes,
            seen: HashSet::new(),
            tally: Tally::default(),
            first_revision,
            chapter: String::new(),
            began,
            chapters: Vec::new(),
        }
    }

    pub(super) fn begin(&mut self, title: &str) {
        self.close_chapter();
        self.chapter = title.to_owned();
        self.show.chapter(title);
    }

    fn close_chapter(&mut self) {
        let now = self.clock.monotonic();
        if !self.chapter.is_empty() {
            self.chapters.push((std::mem::take(&mut self.chapter), now.saturating_sub(self.began)));
        }
        self.began = now;
    }

    pub(super) fn end(mut self) -> Summary {
        self.close_chapter();
        self.tally.revisions = self.server.revision() - self.first_revision;
        Summary { chapters: self.chapters, tally: self.tally }
    }

    pub(super) fn create(&self, deployment: &Value) -> Result<(), ApiStatus> {
        let options = WriteOptions::default();
        self.server.create(Resource::DEPLOYMENTS, NAMESPACE, deployment.clone(), &options).map(drop)
    }

    pub(super) fn patch(&self, patch: &Value) -> Result<(), ApiStatus> {
        let (options, type_) = (WriteOptions::default(), PatchType::Strategic);
        self.server
            .patch(Resource::DEPLOYMENTS, NAMESPACE, NAME, None, type_, patch.clone(), &options)
            .map(drop)
    }

    pub(super) fn delete(&self) -> Result<(), ApiStatus> {
        let options =
            DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        self.server.delete(Resource::DEPLOYMENTS, NAMESPACE, NAME, &options).map(drop)
    }

    /// Looks on until `done`.
    pub(super) async fn until(&mut self, done: impl Fn(&Frame) -> bool + Send) -> Result<(), DemoError> {
        self.look_on(done, false).await
    }

    /// The same, and counts each look at which the bounds of the rolling update do not hold.
    pub(super) async fn until_within_bounds(
        &mut self,
        done: impl Fn(&Frame) -> bool + Send,
    ) -> Result<(), DemoError> {
        self.look_on(done, true).await
    }

    async fn look_on(
        &mut self,
        done: impl Fn(&Frame) -> bool + Send,
        bounded: bool,
    ) -> Result<(), DemoError> {
        let deadline = self.began + PATIENCE;
        let mut shown: Option<Frame> = None;
        loop {
            let frame = self.look()?;
            if bounded {
                self.check(&frame);
            }
            if shown.as_ref() != Some(&frame) {
                self.show.frame(&frame);
                if done(&frame) {
                    return Ok(());
                }
                // What happens meanwhile is on the next frame.
                self.clock.sleep(self.show.frame_interval()).await;
                shown = Some(frame);
            }
            let left = deadline.saturating_sub(self.clock.monotonic());
            let change = tokio::select! {
                change = self.changes.next() => change,
                () = self.clock.sleep(left) => None,
            };
            let Some(change) = change else {
                let last = shown.map(|frame| frame.line()).unwrap_or_default();
                return Err(DemoError::Stuck { chapter: self.chapter.clone(), last });
            };
            self.count(&change);
            let mut rest = Vec::new();
            self.changes.rest(|change| rest.push(change.clone())).await;
            for change in &rest {
                self.count(change);
            }
        }
    }

    fn count(&mut self, change: &Change) {
        let object = &change.object;
        let created = !change.gone && self.seen.insert(object.uid().to_owned());
        match object.resource() {
            Resource::PODS if created => self.tally.pods_created += 1,
            Resource::PODS if change.gone => self.tally.pods_deleted += 1,
            Resource::REPLICA_SETS if created => self.tally.replica_sets += 1,
            _ => {}
        }
    }

    fn check(&mut self, frame: &Frame) {
        let Some(deployment) = &frame.deployment else { return };
        let bounds = Bounds::of(deployment);
        let wanted: i32 = frame.replica_sets.iter().map(ReplicaSet::replicas).sum();
        self.tally.over += usize::from(wanted > bounds.at_most);
        self.tally.under += usize::from(deployment.status.available_replicas < bounds.at_least);
    }

    fn look(&self) -> Result<Frame, DemoError> {
        let deployment = match self.server.get(Resource::DEPLOYMENTS, NAMESPACE, NAME) {
            Ok(object) => Some(decode::<Deployment>(&object)?),
            Err(error) if error.is_not_found() => None,
            Err(error) => return Err(error.into()),
        };
        let sets = self.api.list(Resource::REPLICA_SETS, NAMESPACE);
        let mut replica_sets = sets.iter().map(|set| decode(set)).collect::<Result<Vec<ReplicaSet>, _>>()?;
        replica_sets.sort_by(|a, b| {
            let of = |set: &ReplicaSet| (set.metadata.creation_timestamp, Arc::clone(&set.metadata.name));
            of(a).cmp(&of(b))
        });
        let pods = self.api.list(Resource::PODS, NAMESPACE);
        let terminating = pods.iter().filter(|pod| pod.is_deleting()).count();
        Ok(Frame { deployment, replica_sets, pods: pods.len(), terminating })
    }
}

fn decode<T: DeserializeOwned>(object: &Object) -> Result<T, DemoError> {
    serde_json::from_value(object.value().clone())
        .map_err(|source| DemoError::Decode { what: format!("{object:?}"), source })
}

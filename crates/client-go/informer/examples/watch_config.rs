//! Informer of a custom type: settings, with an index by team.
//!
//! The type implements [`Object`], the transport [`ListWatch`]. This example uses the fake API server of the tests:
//!
//! `cargo run -p kcm-informer --example watch_config`
//!
//! [`ListWatch`]: kcm_informer::ListWatch

use std::sync::Arc;

use kcm_clock::{RealClock, SeededRandom, Timestamp};
use kcm_informer::{
    ControllerRef, Deleted, EventHandler, IndexName, Indexers, InformerConfig, Object, ObjectKey,
    SharedInformer,
    testing::{FakeSource, SetResourceVersion},
};
use tokio_util::sync::CancellationToken;

#[derive(Clone)]
struct Setting {
    key: ObjectKey,
    uid: Arc<str>,
    version: String,
    team: Arc<str>,
    value: i32,
}

impl Object for Setting {
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

/// Required by the fake API server only.
impl SetResourceVersion for Setting {
    fn set_resource_version(&mut self, version: &str) {
        version.clone_into(&mut self.version);
    }
}

/// Index by team.
const TEAM: IndexName = IndexName("team");

/// Prints changes, and cancels `stop` after a deletion. A controller would enqueue the key in a work queue.
struct Printer {
    stop: CancellationToken,
}

impl EventHandler<Setting> for Printer {
    fn on_add(&self, setting: &Arc<Setting>, initial: bool) {
        println!("{} = {}{}", setting.key, setting.value, if initial { " (initial)" } else { "" });
    }

    fn on_update(&self, old: &Arc<Setting>, new: &Arc<Setting>) {
        println!("{}: {} -> {}", new.key, old.value, new.value);
    }

    fn on_delete(&self, deleted: &Deleted<Setting>) {
        println!("{} deleted", deleted.object().key);
        self.stop.cancel();
    }
}

fn setting(name: &str, team: &str, value: i32) -> Setting {
    let key = ObjectKey::new("default", name);
    Setting { key, uid: name.into(), version: String::new(), team: team.into(), value }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let clock = Arc::new(RealClock::new());
    let source = FakeSource::new(clock.clone());
    source.apply(setting("color", "web", 3));
    source.apply(setting("speed", "engine", 200));

    let settings = SharedInformer::new(InformerConfig {
        indexers: Indexers::new().with(TEAM, |setting: &Setting| Some(Arc::clone(&setting.team))),
        ..InformerConfig::new(
            "settings",
            Arc::new(source.clone()),
            clock,
            Arc::new(SeededRandom::from_entropy()),
        )
    });
    let stop = CancellationToken::new();
    settings.add_handler(Arc::new(Printer { stop: stop.clone() }));

    let scenario = async {
        settings.wait_for_sync(&stop).await;
        source.apply(setting("color", "web", 4));
        source.apply(setting("size", "web", 12));
        source.delete(&ObjectKey::new("default", "speed"));
    };
    tokio::join!(settings.run(stop.clone()), scenario);

    let store = settings.store();
    println!("the team web has {} settings", store.by_index(TEAM, "web").len());
}

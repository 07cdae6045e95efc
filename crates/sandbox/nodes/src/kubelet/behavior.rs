//! Behavior of a simulated pod: the annotations `kube-sandbox/...` of the pod.

use std::{collections::BTreeMap, str::FromStr, time::Duration};

use kcm_api::GoDuration;
use kcm_apiserver::Object;
use serde::{Deserialize, Deserializer, de::Error as _};
use tracing::warn;

/// Prefix of the annotations.
const PREFIX: &str = "kube-sandbox/";
/// Pull error of images that do not exist.
const NO_SUCH_IMAGE: &str = "there is no such image";

/// Value of the annotation `kube-sandbox/behavior`, parsed from JSON. All members are optional.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PodBehavior {
    /// Behavior of each container and init container, by name.
    #[serde(default)]
    pub(super) containers: BTreeMap<String, ContainerBehavior>,
    /// Node to which the behavior is limited.
    pub(super) node: Option<String>,
    /// Message with which a volume cannot be mounted.
    pub(super) mount: Option<String>,
    /// Message with which a volume cannot be attached.
    pub(super) attach: Option<String>,
    /// Message with which the pod sandbox cannot be created.
    pub(super) sandbox: Option<String>,
    /// Message of a network plugin that is not ready.
    pub(super) network: Option<String>,
    /// Time after which `mount`, `attach`, `sandbox` or `network` end.
    #[serde(default, deserialize_with = "duration")]
    pub(super) recovers: Option<Duration>,
    /// Rejection by the kubelet's admission.
    pub(super) reject: Option<Rejection>,
    /// Eviction by the kubelet.
    pub(super) evict: Option<Eviction>,
    /// Time from deletion to removal.
    #[serde(default)]
    pub(super) stop: Option<When>,
}

/// Behavior of one container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct ContainerBehavior {
    #[serde(default)]
    pub(super) pull: Pull,
    /// Message of a `CreateContainerConfigError`.
    pub(super) config: Option<String>,
    /// Message of a `CreateContainerError`.
    pub(super) create: Option<String>,
    /// Time from each start to the end of the container.
    #[serde(default, deserialize_with = "duration")]
    pub(super) runs: Option<Duration>,
    /// Number of runs that end. The run after them does not end.
    pub(super) crashes: Option<u32>,
    pub(super) exit_code: Option<i32>,
    /// Reason of the termination, such as `OOMKilled`.
    pub(super) reason: Option<String>,
    /// Message of the termination.
    pub(super) message: Option<String>,
    /// Time from each start until the readiness probe succeeds.
    pub(super) ready: Option<When>,
    /// Time from each start until the readiness probe fails again.
    #[serde(default, deserialize_with = "duration")]
    pub(super) unready_after: Option<Duration>,
    /// Time from each start until the startup probe succeeds.
    pub(super) startup: Option<When>,
    #[serde(default)]
    pub(super) liveness: Liveness,
}

/// Pull of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pull {
    #[serde(default, deserialize_with = "duration")]
    pub(super) takes: Option<Duration>,
    pub(super) error: Option<String>,
    /// Number of attempts that fail with `error`. Unlimited if absent.
    pub(super) failures: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Liveness {
    /// Time from each start until the liveness probe fails.
    #[serde(default, deserialize_with = "duration")]
    pub(super) fails_after: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rejection {
    pub(super) reason: String,
    pub(super) message: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Eviction {
    /// Time from the binding of the pod.
    #[serde(default, deserialize_with = "duration")]
    pub(super) after: Option<Duration>,
    pub(super) message: String,
}

/// `never`, or a duration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    Never,
    After(Duration),
}

impl<'de> Deserialize<'de> for When {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        if text == "never" {
            return Ok(Self::Never);
        }
        parse_duration(&text).map(Self::After).ok_or_else(|| D::Error::custom(invalid_duration(&text)))
    }
}

fn duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse_duration(&text).map(Some).ok_or_else(|| D::Error::custom(invalid_duration(&text)))
}

fn invalid_duration(text: &str) -> String {
    format!("invalid duration {text:?}: must be a positive duration such as \"5s\"")
}

/// Parses a duration such as `5s`, `1.5s`, `4m` or `200ms`. `None` if it is invalid or negative.
fn parse_duration(text: &str) -> Option<Duration> {
    GoDuration::parse(text).ok()?.to_std()
}

impl FromStr for PodBehavior {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

/// All annotations of a pod.
#[derive(Debug, Default)]
pub(super) struct Annotations {
    /// Value of `behavior`. Such a pod has each state that a kubelet reports. Other pods have a short course without
    /// intermediate states and without normal events.
    pub(super) behavior: Option<PodBehavior>,
    pub(super) ready_delay: Option<Duration>,
    pub(super) stop_delay: Option<Duration>,
    pub(super) unready_after: Option<Duration>,
    pub(super) crash_after: Option<Duration>,
    pub(super) never_ready: bool,
    pub(super) pull_fails: bool,
}

impl Annotations {
    /// Reads the annotations of a pod on `node`. Invalid values are ignored.
    pub(super) fn of(pod: &Object, node: &str) -> Self {
        let text = |name: &str| pod.annotation(&format!("{PREFIX}{name}"));
        let duration = |name: &str| parse_duration(text(name)?);
        let behavior = text("behavior").and_then(|text| match text.parse::<PodBehavior>() {
            Ok(behavior) => Some(behavior),
            Err(error) => {
                warn!(?pod, %error, "Ignoring invalid annotation kube-sandbox/behavior");
                None
            }
        });
        let elsewhere = |behavior: &PodBehavior| behavior.node.as_ref().is_some_and(|only| only != node);
        Self {
            behavior: behavior.map(|one| if elsewhere(&one) { PodBehavior::default() } else { one }),
            ready_delay: duration("ready-delay"),
            stop_delay: duration("stop-delay"),
            unready_after: duration("unready-after"),
            crash_after: duration("crash-after"),
            never_ready: text("ready") == Some("never"),
            pull_fails: text("image-pull") == Some("fail"),
        }
    }

    /// Behavior of a container of the pod.
    pub(super) fn container(&self, name: &str, image: &str, missing_tags: &[String]) -> ContainerBehavior {
        let given = self.behavior.as_ref().and_then(|behavior| behavior.containers.get(name));
        let mut behavior = given.cloned().unwrap_or_default();
        if self.pull_fails || is_missing(image, missing_tags) {
            behavior.pull.error.get_or_insert_with(|| NO_SUCH_IMAGE.to_owned());
        }
        behavior
    }
}

impl PodBehavior {
    /// `true` if the time until the containers start is part of the behavior.
    pub(super) fn delays_start(&self) -> bool {
        let stopped =
            [&self.mount, &self.attach, &self.sandbox, &self.network].iter().any(|one| one.is_some());
        stopped || self.reject.is_some()
    }
}

/// `true` if the image has one of `missing_tags`.
fn is_missing(image: &str, missing_tags: &[String]) -> bool {
    let tag = image.rsplit_once(':').map(|(_, tag)| tag);
    tag.is_some_and(|tag| missing_tags.iter().any(|missing| missing == tag))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MISSING_IMAGE_TAGS;

    #[test]
    fn missing_image_tags_fail_to_pull() {
        let tags = MISSING_IMAGE_TAGS.map(str::to_owned);
        for image in ["nginx:broken", "webserver:404", "localhost:5000/a/b:does-not-exist"] {
            assert!(is_missing(image, &tags), "{image}");
        }
        for image in ["broken", "broken:1", "nginx:1.404", "localhost:404/nginx"] {
            assert!(!is_missing(image, &tags), "{image}");
        }
    }

    #[test]
    fn behavior_is_parsed_strictly() {
        let text = r#"{"containers": {"app": {"pull": {"takes": "4m"}, "ready": "never", "runs": "3s"}},
            "evict": {"after": "10s", "message": "m"}, "stop": "2s"}"#;
        let behavior: PodBehavior = text.parse().unwrap();
        let app = &behavior.containers["app"];
        assert_eq!(app.pull.takes, Some(Duration::from_secs(240)));
        assert_eq!((app.ready, app.runs), (Some(When::Never), Some(Duration::from_secs(3))));
        assert_eq!(behavior.stop, Some(When::After(Duration::from_secs(2))));
        for invalid in [r#"{"contaners": {}}"#, r#"{"recovers": "-1s"}"#, r#"{"stop": "soon"}"#, "[]x"] {
            assert!(invalid.parse::<PodBehavior>().is_err(), "{invalid}");
        }
    }
}

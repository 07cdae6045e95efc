//! State of an object in a controller manager, from its debug endpoint.

use jiff::SignedDuration;
use kcm_clock::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::{
    duration::short,
    json::{list, number, text},
};

/// State of an object in its controller, from `/debug/controllers/KIND/NAMESPACE/NAME` of the manager.
///
/// Upstream's manager has no such endpoint.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ControllerState {
    /// `deployment` or `replicaset`.
    pub kind: &'static str,
    /// Name of the object.
    pub name: String,
    /// Phase of the object in the queue: `absent`, `queued`, `processing` or `processingDirty`.
    pub phase: String,
    /// Number of retries after failed syncs.
    pub retries: i64,
    /// Time until the next sync in seconds, if it is delayed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_seconds: Option<f64>,
    /// End of the last sync.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_sync: Option<Timestamp>,
    /// Error of the last sync.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Reasons for which the controller does nothing.
    pub blocked_on: Vec<String>,
    /// `true` if the first of them is the rate limit of the manager.
    #[serde(skip)]
    is_rate_limited: bool,
}

impl ControllerState {
    /// Reads the response of the debug endpoint. Members that it does not have are empty.
    pub fn parse(kind: &'static str, response: &Value) -> Self {
        let last_sync = text(response, "/lastSync/ended").parse::<Timestamp>().ok();
        let error = text(response, "/lastSync/error");
        let blocked = list(response, "/blockedOn").iter().map(|one| text(one, "/message").to_owned());
        Self {
            kind,
            name: text(response, "/name").to_owned(),
            phase: text(response, "/queue/phase").to_owned(),
            retries: number(response, "/queue/retries").unwrap_or(0),
            delay_seconds: response.pointer("/queue/delaySeconds").and_then(Value::as_f64),
            last_sync,
            last_error: (!error.is_empty()).then(|| error.to_owned()),
            blocked_on: blocked.collect(),
            is_rate_limited: text(response, "/blockedOn/0/reason") == "rateLimit",
        }
    }

    /// `true` if the object is not queued, and nothing blocks or delays it.
    pub fn is_settled(&self) -> bool {
        let is_absent = !matches!(self.phase.as_str(), "queued" | "processing" | "processingDirty");
        is_absent && self.delay_seconds.is_none() && self.last_error.is_none() && self.blocked_on.is_empty()
    }

    /// The state in one sentence.
    pub fn describe(&self, now: Timestamp) -> String {
        let phase = match self.phase.as_str() {
            "queued" => "is queued",
            "processing" => "is being processed",
            "processingDirty" => "is being processed and queued again",
            _ => "is not queued",
        };
        let mut text = format!("the controller's queue: {} {} {phase}", self.kind, self.name);
        if let Some(delay) = self.delay_seconds {
            let retry =
                if self.retries > 0 { format!("retry {}", self.retries) } else { "next sync".to_owned() };
            text.push_str(&format!(
                ", {retry} in {}",
                short(SignedDuration::try_from_secs_f64(delay).unwrap_or(SignedDuration::MAX))
            ));
        }
        if let Some(at) = self.last_sync {
            text.push_str(&format!(", last sync {} ago", short(now.duration_since(at))));
        }
        match (&self.last_error, self.blocked_on.first()) {
            (Some(error), _) => text.push_str(&format!(", failed: {error}")),
            // The plan of the Deployment controller ends with the same text.
            (None, Some(_)) if self.kind == "deployment" && !self.is_rate_limited => {}
            (None, Some(blocked)) => text.push_str(&format!(", waits for {blocked}")),
            (None, None) => {}
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn retries_and_errors_are_described() {
        let now: Timestamp = "2026-01-15T00:01:00Z".parse().unwrap();
        let state = ControllerState::parse(
            "replicaset",
            &json!({
                "name": "web-1",
                "queue": { "phase": "absent", "delaySeconds": 12.4, "retries": 7 },
                "lastSync": { "ended": "2026-01-15T00:00:55Z", "result": "error", "error": "exceeded quota: pods" },
                "blockedOn": [{ "reason": "backOff", "message": "retry 7 in 12.4s: exceeded quota: pods" }],
            }),
        );
        assert_eq!(
            state.describe(now),
            "the controller's queue: replicaset web-1 is not queued, retry 7 in 12s, last sync 5s ago, failed: exceeded \
             quota: pods"
        );
    }

    #[test]
    fn rate_limit_is_described() {
        let message =
            "the manager's rate limit, with 7 waiting requests (raise --kube-api-qps and --kube-api-burst)";
        let response = json!({
            "name": "web",
            "queue": { "phase": "processing", "delaySeconds": null, "retries": 0 },
            "lastSync": null,
            "blockedOn": [{ "reason": "rateLimit", "message": message }],
        });
        assert_eq!(
            ControllerState::parse("deployment", &response).describe(Timestamp::UNIX_EPOCH),
            format!("the controller's queue: deployment web is being processed, waits for {message}")
        );
    }

    #[test]
    fn an_idle_controller_waits() {
        let response = json!({
            "name": "web",
            "queue": { "phase": "absent", "delaySeconds": 60.0, "retries": 0 },
            "lastSync": null,
            "blockedOn": [{ "reason": "ownWrites", "message": "watch event of its own write" }],
        });
        let describe = |kind| ControllerState::parse(kind, &response).describe(Timestamp::UNIX_EPOCH);
        assert_eq!(
            describe("replicaset"),
            "the controller's queue: replicaset web is not queued, next sync in 1m, waits for watch event of its own write"
        );
        assert_eq!(
            describe("deployment"),
            "the controller's queue: deployment web is not queued, next sync in 1m"
        );
    }
}

//! Observes an operator, and applies the rules for each write.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use http::{Method, request::Parts};
use jiff::Timestamp;
use kcm_apiserver::{ApiServer, AuditEvent, Object, ObjectReference, Resource, WatchEvent, Watcher};
use kcm_clock::Clock;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{
    engine::{
        choices::Choices,
        host::Process,
        observer::{Finding, Observer, RequestOrigin, START_MILLISECOND, log_line, watch},
        step::verb_and_resource,
    },
    rules::{check_status, is_of_others, make_stable, stable_key, violation},
    world::Write,
};

/// Requests in one run after which it ends.
const MAX_REQUESTS: u64 = 20_000;

/// Bytes of a request's body in the list of requests.
const MAX_BODY: usize = 300;

/// A rule for each write.
pub(crate) type WriteRule = (String, Box<dyn Fn(&Write<'_>) -> Option<String> + Send + Sync>);

/// Observes an operator.
pub(crate) struct Recorder {
    clock: Arc<dyn Clock>,
    choices: Arc<Choices>,
    rules: Vec<WriteRule>,
    /// Names of the rules that are not applied.
    disabled: BTreeSet<String>,
    /// `true` if requests are recorded.
    records: bool,
    /// `true` if the scenario has no faults.
    is_calm: bool,
    state: Mutex<State>,
    request_limit_reached: Notify,
}

#[derive(Default)]
struct State {
    watcher: Option<Watcher>,
    objects: HashMap<(Resource, String, String), Arc<Object>>,
    /// Sender of the request that is being executed.
    sender: Option<RequestOrigin>,
    /// Leases that processes have acquired.
    leases: BTreeMap<String, Lease>,
    is_restored: bool,
    findings: Vec<Finding>,
    log: Vec<String>,
    requests: Vec<String>,
    sent: u64,
    /// Positions of writes in the log, without those of Leases and Events.
    writes: Vec<usize>,
    counts: BTreeMap<String, u64>,
}

/// State of a Lease.
#[derive(Debug, Default)]
struct Lease {
    holder: String,
    renewed: Timestamp,
    duration: Duration,
}

impl Recorder {
    pub(crate) fn new(
        clock: &Arc<dyn Clock>,
        choices: &Arc<Choices>,
        rules: Vec<WriteRule>,
        disabled: &BTreeSet<String>,
        records: bool,
        is_calm: bool,
    ) -> Arc<Self> {
        let (clock, choices) = (Arc::clone(clock), Arc::clone(choices));
        Arc::new(Self {
            clock,
            choices,
            rules,
            disabled: disabled.clone(),
            records,
            is_calm,
            state: Mutex::default(),
            request_limit_reached: Notify::new(),
        })
    }

    /// Observes `server` from now on.
    pub(crate) fn watch(self: &Arc<Self>, server: &ApiServer) {
        self.state.lock().watcher = Some(watch(Arc::clone(self), server));
    }

    /// Notes that the store was restored from a backup. From then on, only the end is checked.
    pub(crate) fn restored(self: &Arc<Self>, server: &ApiServer) {
        self.state.lock().is_restored = true;
        self.choices.trace_restore(server);
        self.watch(server);
    }

    /// Records a request that was executed.
    pub(crate) fn audit(&self, event: &AuditEvent) {
        let Some(object) = &event.object else { return };
        if !matches!(event.verb, "create" | "update" | "patch" | "delete" | "deletecollection") {
            return;
        }
        let now = self.clock.now();
        let mut state = self.state.lock();
        let Some(sender) = state.sender.clone() else { return };
        let caused = state.caused(event.revision_before..event.revision_after, &self.choices);
        let process = format!("{:?}", sender.process);
        let ObjectReference { resource, subresource, namespace, name, .. } = object;
        let part = if subresource.is_empty() { "" } else { "/" };
        let late = if sender.is_abandoned { " (late)" } else { "" };
        let (verb, code) = (event.verb, event.code);
        let line = format!("{process} {verb} {resource}{part}{subresource} {namespace}/{name} {code}{late}");
        // After the faults, a leader renews its Lease until the end.
        if resource != "leases" || !self.choices.is_over() {
            state.line(now, &line);
        }
        if resource == "leases" {
            state.note_lease(&sender.process, &caused, now);
        } else if resource != "events" && !sender.is_abandoned && !caused.is_empty() {
            // A repeated apply that changes nothing is no write: kube-rs reconciles all objects after each list.
            let line = state.log.len() - 1;
            state.writes.push(line);
        }
        let is_checked = !(sender.is_abandoned || sender.process.is_dead() || state.is_restored);
        for event in &caused {
            let Some(after) = event.object().filter(|object| !is_of_others(object.resource().plural()))
            else {
                continue;
            };
            let before = state.apply(event);
            let is_gone = matches!(event, WatchEvent::Deleted(_));
            let was_going = before.as_ref().is_some_and(|before| before.is_deleting());
            if before.is_none() && !is_gone {
                *state.counts.entry(format!("create {}", stable_key(after))).or_default() += 1;
            } else if verb.starts_with("delete") && !was_going && (is_gone || after.is_deleting()) {
                *state.counts.entry(format!("delete {}", stable_key(after))).or_default() += 1;
            }
            let write = Write {
                process: &process,
                verb,
                resource,
                subresource,
                before: before.as_deref(),
                after: (!is_gone).then_some(&**after),
            };
            if !is_checked {
                continue;
            }
            if let Some((rule, what)) = check_status(&write) {
                self.add_finding(&mut state, rule, &what);
            }
            for (name, rule) in &self.rules {
                if let Some(what) = violation(|| rule(&write)) {
                    self.add_finding(&mut state, name, &what);
                }
            }
        }
    }

    /// Waits until the operator has sent more requests than any scenario requires. It may do so without an end, at one
    /// instant.
    pub(crate) async fn request_limit_reached(&self) {
        self.request_limit_reached.notified().await;
    }

    pub(crate) fn find(&self, rule: &str, what: &str) {
        self.add_finding(&mut self.state.lock(), rule, what);
    }

    fn add_finding(&self, state: &mut State, rule: &str, what: &str) {
        if self.disabled.contains(rule) {
            return;
        }
        state.line(self.clock.now(), &format!("FINDING {rule}: {what}"));
        // The first one of each rule matters; others follow from it.
        if !state.findings.iter().any(|finding| finding.rule == rule) {
            state.findings.push(Finding { rule: rule.to_owned(), what: what.to_owned() });
        }
    }

    /// Number of writes so far, without those of Leases and Events.
    pub(crate) fn writes(&self) -> usize {
        self.state.lock().writes.len()
    }

    /// Line of the log of the write of this number, from 0.
    pub(crate) fn write(&self, number: usize) -> Option<String> {
        let state = self.state.lock();
        Some(state.log.get(*state.writes.get(number)?)?.trim_start().to_owned())
    }

    pub(crate) fn has_findings(&self) -> bool {
        !self.state.lock().findings.is_empty()
    }

    /// Moves what was observed to an outcome.
    pub(crate) fn take(&self) -> crate::Outcome {
        let mut state = self.state.lock();
        let State { findings, log, requests, counts, writes, .. } = &mut *state;
        crate::Outcome {
            findings: std::mem::take(findings),
            log: std::mem::take(log),
            requests: std::mem::take(requests),
            counts: std::mem::take(counts),
            writes: writes.len() as u64,
            ..crate::Outcome::default()
        }
    }
}

/// `true` for a request for one of these resources.
fn is_request_for(method: &Method, path: &str, resources: &[&str]) -> bool {
    verb_and_resource(method, path).is_some_and(|(_, resource)| resources.contains(&&*resource))
}

impl Observer for Recorder {
    fn requested(&self, process: &Process, request: &Parts, body: &Bytes) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.sent += 1;
        if state.sent == MAX_REQUESTS && !self.disabled.contains("effort") {
            self.add_finding(&mut state, "effort", &format!("{MAX_REQUESTS} requests"));
            self.request_limit_reached.notify_one();
        }
        // Events contain times of the wall clock in kube-rs.
        if self.records && !is_request_for(&request.method, request.uri.path(), &["events"]) {
            let stable = serde_json::from_slice(body).map(|mut value| {
                make_stable(&mut value);
                value.to_string()
            });
            let body = stable.as_ref().map_or(&**body, |text| text.as_bytes());
            let text = String::from_utf8_lossy(body.get(..MAX_BODY).unwrap_or(body));
            let time = now.as_millisecond() - START_MILLISECOND;
            state.requests.push(format!("{time} {process:?} {} {} {text}", request.method, request.uri));
        }
    }

    fn sent(&self, process: &Process, method: &Method, path: &str) {
        if is_request_for(method, path, &["leases", "events"]) {
            return;
        }
        let now = self.clock.now();
        let mut state = self.state.lock();
        if state.is_restored {
            return;
        }
        let identity = process.identity();
        let violation = state.leases.iter().find_map(|(name, lease)| {
            let age = now.duration_since(lease.renewed).unsigned_abs();
            if identity.as_ref() != Some(&lease.holder) {
                Some(format!("the Lease {name} is held by {:?}", lease.holder))
            } else if age > lease.duration {
                Some(format!("the Lease {name} was renewed {} ms ago", age.as_millis()))
            } else {
                None
            }
        });
        if let Some(what) = violation {
            self.add_finding(&mut state, "lease", &format!("{process:?} sends {method} {path}, and {what}"));
        }
    }

    fn process_starts(&self) {}

    fn exited(&self, what: &str) {
        self.note(what);
        if self.is_calm {
            self.find("exit", what);
        }
    }

    fn panicked(&self, what: &str) {
        self.find("panic", what);
    }

    fn begin_write(&self, sender: RequestOrigin) {
        self.catch_up();
        self.state.lock().sender = Some(sender);
    }

    fn finish_write(&self) {
        self.state.lock().sender = None;
    }

    fn catch_up(&self) {
        self.state.lock().caused(0..0, &self.choices);
    }

    fn note(&self, what: &str) {
        let now = self.clock.now();
        self.state.lock().line(now, what);
    }
}

impl State {
    /// Applies all changes of the store, except those of `revisions`, which it returns.
    fn caused(&mut self, revisions: std::ops::Range<u64>, choices: &Choices) -> Vec<WatchEvent> {
        let mut caused = Vec::new();
        while let Some(Ok(Some(event))) = self.watcher.as_mut().map(Watcher::try_next) {
            choices.trace_change(&event);
            if event.revision() > revisions.start && event.revision() <= revisions.end {
                caused.push(event);
            } else {
                self.apply(&event);
            }
        }
        caused
    }

    /// Applies a change. Returns the object before it.
    fn apply(&mut self, event: &WatchEvent) -> Option<Arc<Object>> {
        let object = event.object()?;
        let (namespace, name) = (object.namespace().to_owned(), object.name().to_owned());
        let key = (object.resource(), namespace, name);
        match event {
            WatchEvent::Deleted(_) => self.objects.remove(&key),
            WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                self.objects.insert(key, Arc::clone(object))
            }
            WatchEvent::InitialEventsEnd(_) => None,
        }
    }

    fn note_lease(&mut self, process: &Process, caused: &[WatchEvent], now: Timestamp) {
        for object in caused.iter().filter_map(WatchEvent::object) {
            let spec = &object.value()["spec"];
            let name = format!("{}/{}", object.namespace(), object.name());
            match spec["holderIdentity"].as_str() {
                Some(holder) if !holder.is_empty() => {
                    process.set_identity(holder);
                    let duration = Duration::from_secs(spec["leaseDurationSeconds"].as_u64().unwrap_or(15));
                    self.leases.insert(name, Lease { holder: holder.to_owned(), renewed: now, duration });
                }
                _ => self.leases.entry(name).or_default().holder.clear(),
            }
        }
    }

    fn line(&mut self, now: Timestamp, what: &str) {
        self.log.push(log_line(now, what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_distinguished_by_resource() {
        for (path, expected) in [
            ("/apis/coordination.k8s.io/v1/namespaces/n/leases/l", true),
            ("/apis/events.k8s.io/v1/namespaces/n/events", true),
            ("/api/v1/namespaces/leases/pods", false),
            ("/apis/sources.example.org/v1/namespaces/n/eventsources/e", false),
        ] {
            assert_eq!(is_request_for(&Method::GET, path, &["leases", "events"]), expected, "{path}");
        }
    }
}

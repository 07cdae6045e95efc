//! Causes in the containers of a pod.

use jiff::SignedDuration;
use kcm_api::Waiting;
use kcm_clock::Timestamp;
use serde_json::Value;

use super::PodContext;
use crate::{
    cause::Cause,
    duration::short,
    events::Event,
    finding::{Effect, Finding},
    json::{condition, list, number, text, time},
};

/// Time for which containers run without being ready before their probes are reported, if the probes allow less and the
/// pods of the workload are usually ready sooner.
const READY_PATIENCE: SignedDuration = SignedDuration::from_secs(60);
/// Maximum of the time that follows from the usual one, which is wrong if pods were unready and became ready again: the
/// default of `progressDeadlineSeconds`.
const MAX_READY_PATIENCE: SignedDuration = SignedDuration::from_mins(10);
/// Time for which a failure can be transient. The kubelet makes at least three attempts in it: it retries a mount after
/// 0.5 s, an image after 10 s, both doubled, and a sandbox with each sync of the pod.
const TRANSIENT: SignedDuration = SignedDuration::from_secs(30);
/// Run of a container from which on it counts as available before it crashed.
const SHORT_RUN: SignedDuration = SignedDuration::from_secs(10);
/// Restarts after which a container crashes for good, if no further pod is created or deleted. The back-off of the kubelet
/// is then 160 s.
const FINAL_RESTARTS: i64 = 5;
/// Time between two crashes up to which a container that runs crashes again and again: the longest back-off of the kubelet,
/// and a run of the same length.
const CRASH_PERIOD: SignedDuration = SignedDuration::from_mins(10);
/// Restarts after which a container that runs again is still taken for one that crashes.
const MANY_RESTARTS: i64 = 2;

/// Events of a pod that does not get as far as its containers, with their cause.
const SETUP: [(&str, Cause); 5] = [
    ("FailedMount", Cause::VolumeMount),
    ("FailedAttachVolume", Cause::VolumeMount),
    ("FailedMapVolume", Cause::VolumeMount),
    ("FailedCreatePodSandBox", Cause::PodSandbox),
    ("NetworkNotReady", Cause::PodSandbox),
];
/// Events after which the failures of [`SETUP`] are over.
const SET_UP: [&str; 7] =
    ["Pulling", "Pulled", "Failed", "BackOff", "Created", "Started", "SuccessfulAttachVolume"];

/// Container of a pod with its status.
#[derive(Clone, Copy)]
struct Container<'a> {
    pod: &'a Value,
    spec: &'a Value,
    status: &'a Value,
    name: &'a str,
}

impl<'a> Container<'a> {
    /// Containers of the list `spec`, with the statuses that the kubelet has reported.
    fn all(pod: &'a Value, spec: &str, statuses: &str) -> impl Iterator<Item = Self> {
        let statuses = list(pod, statuses);
        list(pod, spec).iter().filter_map(move |spec| {
            let name = text(spec, "/name");
            let status = statuses.iter().find(|status| text(status, "/name") == name)?;
            Some(Self { pod, spec, status, name })
        })
    }

    fn is(&self, field: &str) -> bool {
        self.status[field] == true
    }

    fn restarts(&self) -> i64 {
        number(self.status, "/restartCount").unwrap_or(0)
    }

    fn running_since(&self) -> Option<Timestamp> {
        time(self.status, "/state/running/startedAt")
    }

    /// The last run that has ended.
    fn last_run(&self) -> Option<&'a Value> {
        ["/state/terminated", "/lastState/terminated"].iter().find_map(|end| self.status.pointer(end))
    }

    fn has_started(&self) -> bool {
        self.running_since().is_some() || self.last_run().is_some()
    }

    fn event(&self, context: PodContext<'a>, reasons: &[&str]) -> Option<Event<'a>> {
        let events = context.index.events.of(self.pod).iter();
        let mine = events.filter(|event| reasons.contains(&event.reason) && event.is_about(self.name));
        mine.max_by_key(|event| event.at).copied()
    }
}

/// Explains why the containers of a pod do not run or are not ready.
pub(super) fn explain(pod: &Value, context: PodContext<'_>) -> Vec<Finding> {
    let mut found = Vec::new();
    let init = || Container::all(pod, "/spec/initContainers", "/status/initContainerStatuses");
    let app = || Container::all(pod, "/spec/containers", "/status/containerStatuses");
    if !init().chain(app()).any(|container| container.has_started())
        && let Some(held) = setup(pod, context)
    {
        return vec![held];
    }
    for container in init() {
        let is_sidecar = container.spec["restartPolicy"] == "Always";
        let is_done = if is_sidecar { container.is("started") } else { container.is("ready") };
        if is_done {
            if is_sidecar && !container.is("ready") {
                found.extend(one(container, context));
            }
            continue;
        }
        let problem = if is_sidecar {
            one(container, context)
        } else {
            problem(container, context).or_else(|| crashes_again(container, context))
        };
        if let Some(problem) = problem {
            let role = if is_sidecar { "Sidecar" } else { "Init container" };
            let cause = match problem.cause {
                Cause::CrashLoop if !is_sidecar => Cause::InitContainer,
                Cause::PodStarting => Cause::InitContainer,
                cause => cause,
            };
            found.push(Finding {
                message: format!("{role} {}: {}", container.name, problem.message),
                cause,
                ..problem
            });
            break;
        }
        if let Some(since) = container.running_since() {
            let text = format!("Init container {} has not completed.", container.name);
            let finding = Finding::delays(Cause::InitContainer, text, None).container(container.name);
            found.push(finding.age(context.now.duration_since(since)));
            break;
        }
    }
    found.extend(app().filter(|container| !container.is("ready")).filter_map(|one_of| one(one_of, context)));
    found
}

/// Explains a container of an available pod that crashes again and again.
pub(super) fn crashing(pod: &Value, context: PodContext<'_>) -> Vec<Finding> {
    let crashes = |container: &Container<'_>| {
        let end = container.status.pointer("/lastState/terminated")?;
        let (started, finished) = (time(end, "/startedAt")?, time(end, "/finishedAt")?);
        let is_recent = context.now.duration_since(finished) < CRASH_PERIOD;
        Some(
            container.restarts() >= FINAL_RESTARTS
                && is_recent
                && finished.duration_since(started) < CRASH_PERIOD,
        )
    };
    let app = Container::all(pod, "/spec/containers", "/status/containerStatuses");
    let crashing = app.filter(|container| crashes(container) == Some(true));
    crashing.filter_map(|container| crash(container, context)).collect()
}

/// Explains a container that does not run or is not ready. `None` if its start is not explained by events.
fn one(container: Container<'_>, context: PodContext<'_>) -> Option<Finding> {
    problem(container, context).or_else(|| not_ready(container, context))
}

/// Reports the newest failure before the first container is started.
fn setup(pod: &Value, context: PodContext<'_>) -> Option<Finding> {
    let reasons = SETUP.map(|(reason, _)| reason);
    let failed = context.index.events.newest(pod, &reasons)?;
    if context.index.events.newest(pod, &SET_UP).is_some_and(|later| later.at > failed.at) {
        return None;
    }
    let (_, cause) = SETUP.iter().find(|(reason, _)| *reason == failed.reason)?;
    let events = context.index.events.of(pod).iter();
    let first = events.filter(|event| reasons.contains(&event.reason)).filter_map(|event| event.first).min();
    Some(unless_transient(Finding::blocks(*cause, failed.message), first, context))
}

/// Makes a failure a delay if its first occurrence is less than [`TRANSIENT`] ago.
fn unless_transient(failure: Finding, first: Option<Timestamp>, context: PodContext<'_>) -> Finding {
    let is_transient = first.is_some_and(|first| context.now.duration_since(first) < TRANSIENT);
    if is_transient { Finding { effect: Effect::Delays, ..failure } } else { failure }
}

/// Explains a container that cannot run.
fn problem(container: Container<'_>, context: PodContext<'_>) -> Option<Finding> {
    let Container { status, name, .. } = container;
    let waiting = text(status, "/state/waiting/reason");
    let message = text(status, "/state/waiting/message");
    let finding = match Waiting::from_reason(waiting) {
        Waiting::ImagePull => {
            let image = text(container.spec, "/image");
            // The message of ImagePullBackOff does not contain the error in each version of the kubelet.
            let events = context.index.events.of(container.pod).iter();
            let failures = || {
                let events = events.clone().filter(|event| event.is_about(name));
                events.filter(|event| event.message.starts_with("Failed to pull"))
            };
            let reason = failures().max_by_key(|event| event.at).map_or(message, |event| event.message);
            let reason = if reason.is_empty() { waiting } else { reason };
            let finding =
                Finding::blocks(Cause::ImagePull, format!("Image {image} cannot be pulled: {reason}"));
            let created = time(container.pod, "/metadata/creationTimestamp");
            let first = failures().filter_map(|event| event.first).min().or(created);
            if is_permanent(waiting, reason) { finding } else { unless_transient(finding, first, context) }
        }
        Waiting::ContainerConfig => {
            let text = format!("Container {name} cannot start ({waiting}): {message}");
            Finding::blocks(Cause::ContainerConfig, text)
        }
        Waiting::CrashLoop => crash(container, context)?,
        _ if container.last_run().is_some()
            && container.running_since().is_none()
            && !container.is("ready") =>
        {
            crash(container, context)?
        }
        _ if !waiting.is_empty() => pulling(container, context)?,
        _ => return None,
    };
    Some(finding.container(name))
}

/// `true` if an image does not exist, has an invalid name, or must not be pulled.
fn is_permanent(waiting: &str, message: &str) -> bool {
    matches!(waiting, "InvalidImageName" | "ErrImageNeverPull")
        || message.ends_with("not found")
        || ["manifest unknown", "no such image"].iter().any(|text| message.contains(text))
}

/// Reports an image whose pull has begun and not ended.
fn pulling(container: Container<'_>, context: PodContext<'_>) -> Option<Finding> {
    let last = container.event(context, &["Pulling", "Pulled", "Failed", "BackOff"])?;
    if last.reason != "Pulling" {
        return None;
    }
    let text = format!("Image {} is being pulled.", text(container.spec, "/image"));
    let finding = Finding::delays(Cause::ImagePulling, text, None);
    Some(match last.at {
        Some(at) => finding.age(context.now.duration_since(at)),
        None => finding,
    })
}

/// Explains a container that crashes, or that its probes kill. `None` if no run has ended.
///
/// A container that was available before it crashed is again after its next start, which moves a rollout.
fn crash(container: Container<'_>, context: PodContext<'_>) -> Option<Finding> {
    let (name, end) = (container.name, container.last_run()?);
    let restarts = container.restarts();
    if let Some(killed) = killed_by_probe(container, context) {
        return Some(killed);
    }
    let code = end["exitCode"].as_i64();
    let unseen = unseen_probe(container, context);
    if let (Some(probe), Some(code @ (137 | 143))) = (unseen, code)
        && text(end, "/reason") != "OOMKilled"
        && restarts > 0
    {
        let text = format!(
            "Container {name} is stopped by a signal (exit code {code}), probably because of its {probe} probe: its events \
             could not be read."
        );
        return Some(Finding::blocks(Cause::ProbeKill, text).container(name).restarts(restarts));
    }
    let reason = match text(end, "/reason") {
        "" | "Error" => String::new(),
        reason => format!(" ({reason})"),
    };
    let last = match text(end, "/message").trim() {
        "" => ".".to_owned(),
        last => format!("; last message: {}.", last.trim_end_matches('.')),
    };
    let message = match code {
        Some(0) => format!(
            "Container {name} ends: exit code 0{reason}; the containers of a Deployment keep running{last}"
        ),
        Some(code) => format!("Container {name} crashes: exit code {code}{reason}{last}"),
        None => format!("Container {name} crashes: exit code unknown{reason}{last}"),
    };
    let message = match unseen.filter(|_| text(end, "/reason") != "OOMKilled") {
        Some(probe) => format!(
            "{message} It is unknown if its {probe} probe killed it, because its events could not be read."
        ),
        None => message,
    };
    // The first restart has no back-off.
    if restarts == 0 && text(container.status, "/state/waiting/reason").is_empty() {
        return Some(Finding::delays(Cause::PodStarting, format!("{message} It is restarted."), None));
    }
    let moves = !context.is_rolled_out || restarts < FINAL_RESTARTS;
    let was_available = moves && was_available(container, end, context);
    let finding = if was_available {
        Finding::delays(Cause::CrashLoop, format!("{message} It was available before the crash."), None)
    } else {
        Finding::blocks(Cause::CrashLoop, message)
    };
    Some(finding.container(name).restarts(restarts))
}

/// Probe that can have killed the container, if its events could not be read.
fn unseen_probe(container: Container<'_>, context: PodContext<'_>) -> Option<&'static str> {
    let probes = [("livenessProbe", "liveness"), ("startupProbe", "startup")];
    let probe = probes.into_iter().find(|(field, _)| container.spec.get(*field).is_some());
    probe.filter(|_| !context.index.snapshot.events.is_known()).map(|(_, name)| name)
}

/// `true` if the pod was available during the run that ended with `end`, and for more than a moment.
fn was_available(container: Container<'_>, end: &Value, context: PodContext<'_>) -> bool {
    // The Ready condition changed during the run: the pod was ready in it.
    let unready = condition(container.pod, "Ready").and_then(|ready| time(ready, "/lastTransitionTime"));
    match (time(end, "/startedAt"), time(end, "/finishedAt"), unready) {
        (Some(started), Some(finished), Some(unready)) => {
            let run = finished.duration_since(started);
            unready > started && run > context.min_ready && run >= SHORT_RUN
        }
        _ => false,
    }
}

/// Reports a liveness or startup probe that has killed the container.
fn killed_by_probe(container: Container<'_>, context: PodContext<'_>) -> Option<Finding> {
    let name = container.name;
    let killing = container.event(context, &["Killing"])?;
    let probe = ["liveness", "startup"]
        .into_iter()
        .find(|probe| killing.message.contains(&format!("Container {name} failed {probe} probe")))?;
    // A later run can have ended for another reason. The kubelet drops events of a pod that has many: if the start of the
    // last run is missing as well, its end is taken to be that of the runs before.
    let started = container.last_run().and_then(|end| time(end, "/startedAt"));
    let is_before = |event: &Event<'_>| started.zip(event.at).is_some_and(|(run, at)| at < run);
    let start = container.event(context, &["Started"]);
    if is_before(&killing) && !start.is_some_and(|start| is_before(&start)) {
        return None;
    }
    let title = if probe == "liveness" { "Liveness" } else { "Startup" };
    let events = context.index.events.of(container.pod).iter();
    let failures = events.filter(|event| {
        event.reason == "Unhealthy" && event.is_about(name) && event.message.starts_with(title)
    });
    let reason = failures.max_by_key(|event| event.at).map_or("", |event| event.message);
    let text = format!("Container {name} is killed by its {probe} probe. {reason}");
    let finding = Finding::blocks(Cause::ProbeKill, text.trim_end());
    Some(finding.container(name).restarts(container.restarts()))
}

/// Explains a container that has crashed many times and runs again for a short time.
fn crashes_again(container: Container<'_>, context: PodContext<'_>) -> Option<Finding> {
    let running_for = context.now.duration_since(container.running_since()?);
    let is_crashing = container.restarts() >= MANY_RESTARTS && running_for < READY_PATIENCE;
    if is_crashing { crash(container, context) } else { None }
}

/// Explains a container that runs and is not ready.
fn not_ready(container: Container<'_>, context: PodContext<'_>) -> Option<Finding> {
    let Container { status, name, .. } = container;
    let started = container.running_since()?;
    let running_for = context.now.duration_since(started);
    let restarts = container.restarts();
    if restarts > 0
        && let Some(killed) = killed_by_probe(container, context)
    {
        return Some(killed);
    }
    if let Some(crash) = crashes_again(container, context) {
        return Some(crash);
    }
    let is_startup = status["started"] == false && container.spec.get("startupProbe").is_some();
    let unhealthy = container.event(context, &["Unhealthy"]).map(|event| event.message);
    let usual = context.ready_after.unwrap_or(SignedDuration::ZERO);
    let usual = usual.saturating_add(usual).min(MAX_READY_PATIENCE);
    let patience = probe_budget(container.spec).max(usual).max(READY_PATIENCE);
    let what = if is_startup { "has not started (startup probe)" } else { "is not ready" };
    if running_for <= patience {
        let reason = unhealthy.map(|message| format!(" {message}")).unwrap_or_default();
        let text = if is_startup { "Running, not started yet" } else { "Running, not ready yet" };
        let until = started.saturating_add(patience).ok();
        return Some(Finding::delays(Cause::PodStarting, format!("{text}.{reason}"), until).container(name));
    }
    let reason = match unhealthy {
        Some(message) => message,
        None if context.index.snapshot.events.is_known() => "no probe event found",
        None => "its events could not be read",
    };
    let text = format!("Container {name} runs and {what} for more than {}: {reason}", short(patience));
    Some(Finding::blocks(Cause::ProbeFailing, text).container(name))
}

/// Longest time that the probes of a container allow for the start.
fn probe_budget(container: &Value) -> SignedDuration {
    let budget = |probe: &Value| {
        let field = |name: &str, default: i64| number(probe, name).unwrap_or(default).max(0);
        let retries = field("/periodSeconds", 10).saturating_mul(field("/failureThreshold", 3));
        field("/initialDelaySeconds", 0).saturating_add(retries)
    };
    let probes = ["startupProbe", "readinessProbe"].iter().filter_map(|probe| container.get(*probe));
    SignedDuration::from_secs(probes.map(budget).fold(0, i64::saturating_add))
}

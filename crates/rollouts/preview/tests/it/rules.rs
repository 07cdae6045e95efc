//! Rules of previews of real clusters.
#![expect(clippy::unwrap_used, reason = "a test may fail in its helpers, too")]

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use kcm_preview::{
    Change, Condition, DurationReason, Effect, End, Preview, PreviewError, Snapshot, TimingOptions,
    WarningCode, preview, preview_with_progress, render,
};
use serde_json::{Value, json};

use crate::world::{Timing, World, deployment, simulate};

const TIMING: Timing = Timing { ready: Duration::from_secs(5), stop: Duration::from_secs(2) };
const OPTIONS: TimingOptions =
    TimingOptions { ready_after: Some(TIMING.ready), stop_after: Some(TIMING.stop), unready: 0 };

fn image(image: &str) -> Change {
    Change::Image { container: None, image: image.to_owned() }
}

/// Settled Deployment with three replicas and these fields of the spec.
fn settled(spec: &Value) -> Snapshot {
    simulate(async {
        let world = World::new(TIMING);
        let mut manifest = deployment(3, "web:1");
        for (name, value) in spec.as_object().unwrap() {
            manifest["spec"][name] = value.clone();
        }
        world.create(manifest).await;
        world.snapshot()
    })
}

fn of(snapshot: &Snapshot, change: &Change) -> Preview {
    preview(snapshot, change, &OPTIONS).unwrap()
}

fn rolling(surge: u8, unavailable: u8) -> Value {
    json!({ "strategy": { "type": "RollingUpdate", "rollingUpdate": {
        "maxSurge": surge, "maxUnavailable": unavailable,
    } } })
}

/// Condition of the ReplicaSet since one hour before the snapshot.
fn refuse(snapshot: &mut Snapshot, message: &str) {
    let since = snapshot.taken.saturating_sub(Duration::from_secs(3600)).unwrap();
    let set = &mut snapshot.replica_sets[0];
    set["spec"]["replicas"] = json!(3);
    set["status"] = json!({ "observedGeneration": 1, "replicas": 0, "conditions": [{
        "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": message,
        "lastTransitionTime": kcm_api::Time::new(since),
    }] });
    snapshot.pods.clear();
}

mod sandbox {
    use super::*;

    #[test]
    fn image_tags_mean_nothing() {
        let snapshot = settled(&json!({}));
        for tag in ["broken", "404", "does-not-exist"] {
            let preview = of(&snapshot, &image(&format!("web:{tag}")));
            assert_eq!(preview.outcome.end, End::Complete, "{tag}");
        }
        let sandbox = Snapshot { is_sandbox: true, ..snapshot };
        assert_eq!(of(&sandbox, &image("web:broken")).outcome.end, End::Stuck);
    }

    #[test]
    fn annotations_mean_nothing() {
        let annotations = [
            ("ready", "never"),
            ("ready-delay", "1h"),
            ("stop-delay", "0s"),
            ("crash-after", "1s"),
            ("unready-after", "1s"),
            ("image-pull", "fail"),
        ];
        let expected = of(&settled(&json!({})), &image("web:2")).outcome;
        let mut manifest = deployment(3, "web:2");
        let all: serde_json::Map<String, Value> =
            annotations.iter().map(|(name, value)| (format!("kube-sandbox/{name}"), json!(value))).collect();
        manifest["spec"]["template"]["metadata"]["annotations"] = all.clone().into();
        let mut snapshot = settled(&json!({}));
        let preview = of(&snapshot, &Change::Apply(manifest));
        assert_eq!(preview.outcome, expected, "annotations of the new template");
        for pod in &mut snapshot.pods {
            pod["metadata"]["annotations"] = all.clone().into();
        }
        assert_eq!(of(&snapshot, &image("web:2")).outcome, expected, "annotations of existing pods");
    }
}

mod size {
    use super::*;

    #[test]
    fn too_many_pods_are_refused_at_once() {
        let snapshot = settled(&rolling(1, 0));
        let error = preview(&snapshot, &Change::Replicas(i32::MAX), &OPTIONS).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the change concerns 2147483647 pods, old and new together; the preview simulates at most 20000 (bounds of the \
             rollout: at most 2147483648 pods, at least 2147483647 available)"
        );
        // The existing pods count, unless they are kept.
        let several = Change::Several(vec![Change::Replicas(19_998), image("web:2")]);
        let error = preview(&snapshot, &several, &OPTIONS).unwrap_err();
        assert!(matches!(error, PreviewError::TooLarge { pods: 20_001, .. }), "{error}");
        let create = Change::Apply(deployment(20_001, "web:1"));
        let empty = Snapshot { deployment: None, ..Snapshot::default() };
        let empty = Snapshot { name: "web".to_owned(), namespace: "shop".to_owned(), ..empty };
        let error = preview(&empty, &create, &OPTIONS).unwrap_err();
        assert!(matches!(error, PreviewError::TooLarge { pods: 20_001, .. }), "{error}");
    }

    #[test]
    fn progress_is_reported() {
        let shares = Mutex::new(Vec::new());
        let add = |share: f64| shares.lock().unwrap_or_else(PoisonError::into_inner).push(share);
        preview_with_progress(&settled(&rolling(1, 0)), &image("web:2"), &OPTIONS, &add).unwrap();
        let shares = shares.into_inner().unwrap();
        assert!(shares.is_sorted() && shares.contains(&(1.0 / 3.0)), "{shares:?}");
        assert_eq!(shares.last(), Some(&1.0));
    }
}

mod long_times {
    use super::*;

    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);

    fn stuck(spec: &Value, ready_after: Duration, unready: usize) -> Preview {
        let options = TimingOptions { ready_after: Some(ready_after), unready, ..OPTIONS };
        preview(&settled(spec), &image("web:2"), &options).unwrap()
    }

    /// The run does not wait for a deadline of 68 years.
    #[test]
    fn progress_deadline_is_computed() {
        let preview = stuck(&json!({ "progressDeadlineSeconds": i32::MAX - 1 }), TIMING.ready, 3);
        assert_eq!((preview.outcome.end, &preview.outcome.message), (End::Stuck, &None));
        let at = preview.deadline.exceeded_at_seconds.unwrap();
        assert!((f64::from(i32::MAX)..f64::from(i32::MAX) + 10.0).contains(&at), "{at}");
        assert_eq!(preview.conditions[0], Condition::Deadline);
        let preview = stuck(&json!({ "progressDeadlineSeconds": i32::MAX }), TIMING.ready, 3);
        assert_eq!((preview.outcome.end, preview.deadline.exceeded_at_seconds), (End::Stuck, None));
    }

    /// Deadlines around the longest simulated time.
    #[test]
    fn progress_deadline_near_the_limit() {
        let deadlines = [86_350, 86_395, 86_500];
        for seconds in deadlines {
            let preview = stuck(&json!({ "progressDeadlineSeconds": seconds }), TIMING.ready, 3);
            let at = preview.deadline.exceeded_at_seconds;
            assert!(
                at.is_some_and(|at| (0.0..10.0).contains(&(at - f64::from(seconds)))),
                "{seconds} {at:?} {:?}",
                preview.outcome
            );
        }
    }

    #[test]
    fn readiness_after_a_year() {
        let preview = stuck(&json!({}), YEAR, 0);
        assert_eq!(preview.outcome.end, End::Unfinished);
        assert_eq!(preview.deadline.exceeded_at_seconds.map(f64::floor), Some(601.0));
        assert!(render::text(&preview).contains("\ndoes not complete in a day: "), "{:?}", preview.outcome);
    }

    /// The rollout is complete before the old pods are removed.
    #[test]
    fn removal_after_a_year() {
        let mut manifest = json!({ "template": deployment(3, "web:1")["spec"]["template"] });
        manifest["template"]["spec"]["terminationGracePeriodSeconds"] = json!(YEAR.as_secs());
        let options = TimingOptions { stop_after: None, ..OPTIONS };
        let outcome = preview(&settled(&manifest), &image("web:2"), &options).unwrap().outcome;
        assert_eq!(outcome.end, End::Complete, "{outcome:?}");
        assert!(outcome.duration_seconds.unwrap() < 60.0, "{outcome:?}");
    }
}

mod refused_by_kubectl {
    use super::*;

    fn error(change: &Change, paused: bool) -> String {
        let mut snapshot = settled(&json!({}));
        snapshot.deployment.as_mut().unwrap()["spec"]["paused"] = json!(paused);
        // A second revision.
        let mut old = snapshot.replica_sets[0].clone();
        old["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = json!("0");
        old["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:0");
        snapshot.replica_sets.push(old);
        preview(&snapshot, change, &OPTIONS).unwrap_err().to_string()
    }

    #[test]
    fn changes_of_a_paused_deployment() {
        assert_eq!(
            error(&Change::Restart, true),
            "deployments.apps \"web\" can't restart paused deployment (run rollout resume first)"
        );
        assert_eq!(
            error(&Change::Undo { revision: None }, true),
            "you cannot rollback a paused deployment; resume it first with 'kubectl rollout resume deployment/web' and try \
             again"
        );
        assert_eq!(error(&Change::Pause, true), "deployments.apps \"web\" is already paused");
        assert_eq!(error(&Change::Resume, false), "deployments.apps \"web\" is not paused");
    }

    #[test]
    fn unknown_fields_and_versions() {
        let mut manifest = deployment(3, "web:2");
        manifest["spec"]["replica"] = json!(4);
        assert_eq!(
            error(&Change::Apply(manifest), false),
            "Deployment in version \"v1\" cannot be handled as a Deployment: strict decoding error: unknown field \
             \"spec.replica\""
        );
        let mut manifest = deployment(3, "web:2");
        manifest["apiVersion"] = json!("extensions/v1beta1");
        assert_eq!(
            error(&Change::Apply(manifest), false),
            "no matches for kind \"Deployment\" in version \"extensions/v1beta1\""
        );
    }
}

mod standing_refusal {
    use super::*;

    const POLICY: &str = "pods \"web-1-\" is forbidden: ValidatingAdmissionPolicy 'signed' denied request: image is not signed";

    #[test]
    fn remains_one() {
        let mut snapshot = settled(&json!({}));
        refuse(&mut snapshot, POLICY);
        for change in [Change::Restart, Change::Replicas(5)] {
            let preview = of(&snapshot, &change);
            let outcome = &preview.outcome;
            assert_eq!((outcome.end, outcome.pods_created), (End::Stuck, 0), "{change:?}: {outcome:?}");
            assert_eq!(outcome.message.as_deref(), Some(POLICY), "{change:?}");
        }
    }

    #[test]
    fn may_end_with_another_spec() {
        let mut snapshot = settled(&json!({}));
        refuse(&mut snapshot, POLICY);
        let preview = of(&snapshot, &image("signed:1"));
        assert_eq!(preview.outcome.end, End::Complete);
        let warning = &preview.warnings.iter().find(|warning| warning.code == WarningCode::StandingRefusal);
        let message = &warning.unwrap().message;
        assert!(
            message.starts_with("the API server has refused the creation of pods for 1h: pods"),
            "{message}"
        );
        assert!(message.ends_with("; the preview assumes that the new pods are accepted"), "{message}");
    }

    #[test]
    fn of_a_terminating_namespace() {
        let snapshot = Snapshot { is_terminating: true, ..settled(&json!({})) };
        let outcome = of(&snapshot, &image("web:2")).outcome;
        assert_eq!((outcome.end, outcome.pods_created), (End::Stuck, 0));
        assert!(outcome.message.unwrap().ends_with("namespace shop because it is being terminated"));
    }

    #[test]
    fn of_deletions() {
        let mut snapshot = settled(&json!({}));
        let webhook = "admission webhook \"keep.example.com\" denied the request: no";
        let set = &mut snapshot.replica_sets[0];
        set["spec"]["replicas"] = json!(2);
        set["status"]["conditions"] = json!([{
            "type": "ReplicaFailure", "status": "True", "reason": "FailedDelete", "message": webhook,
        }]);
        let preview = of(&snapshot, &image("web:2"));
        assert_eq!(preview.outcome.message.as_deref(), Some(webhook), "{:?}", preview.outcome);
        assert_eq!((preview.outcome.end, preview.outcome.pods_deleted), (End::Stuck, 0));
    }
}

mod quota {
    use super::*;

    /// Room for one pod more than the Deployment has.
    fn limited(snapshot: &mut Snapshot, pods: u8) {
        snapshot.quotas = vec![json!({
            "metadata": { "name": "small", "namespace": snapshot.namespace, "uid": "quota" },
            "spec": { "hard": { "pods": pods.to_string() } },
        })];
    }

    #[test]
    fn duration_is_a_range() {
        let mut snapshot = settled(&rolling(3, 1));
        limited(&mut snapshot, 4);
        let options = TimingOptions { stop_after: Some(Duration::from_secs(30)), ..OPTIONS };
        let preview = preview(&snapshot, &image("web:2"), &options).unwrap();
        let outcome = &preview.outcome;
        assert_eq!(outcome.end, End::Complete, "{outcome:?}");
        let range = outcome.duration_range.as_ref().unwrap();
        assert_eq!(range.reasons, [DurationReason::Quota]);
        let duration = outcome.duration_seconds.unwrap();
        // Retries are at 5 ms, 15 ms, … 20 s, 41 s: a pod that is removed after 30 s is replaced late.
        assert!(duration > 41.0, "{outcome:?}");
        assert!(range.min_seconds <= duration && duration < range.max_seconds, "{range:?}");
        assert!(
            render::text(&preview).contains("\ncomplete after 1m12s to 1m"),
            "{}",
            render::text(&preview)
        );
        let refused =
            preview.write_totals.iter().find(|total| total.resource == "pods" && total.verb == "create");
        assert!(refused.unwrap().refused > 10, "{:?}", preview.write_totals);
        assert_eq!(preview.conditions, [Condition::Quota, Condition::Unavailable]);
    }

    /// The undo removes the pod that the quota refuses.
    #[test]
    fn undo_of_a_refused_rollout_fits() {
        let snapshot = simulate(async {
            let world = World::new(TIMING);
            world.create(deployment(3, "web:1")).await;
            world.quota(3);
            world.begin(&image("web:2"), Duration::from_secs(2)).await;
            world.snapshot()
        });
        let missing = |set: &Value| set["spec"]["replicas"] != set["status"]["replicas"];
        assert!(snapshot.replica_sets.iter().any(missing), "{:#?}", snapshot.replica_sets);
        let preview = of(&snapshot, &Change::Undo { revision: None });
        assert_eq!((preview.outcome.end, preview.outcome.pods_created), (End::Complete, 0));
        assert_eq!(preview.conditions, [], "{:?}", preview.quotas);
    }

    /// The pods are created when the old ones are removed, and upstream's quota controller has not released them yet.
    #[test]
    fn late_release_makes_a_range() {
        let mut snapshot = settled(&json!({ "strategy": { "type": "Recreate" } }));
        limited(&mut snapshot, 4);
        let outcome = of(&snapshot, &image("web:2")).outcome;
        let duration = outcome.duration_seconds.unwrap();
        let range = outcome.duration_range.unwrap();
        assert_eq!(range.reasons, [DurationReason::Quota]);
        assert!(range.min_seconds <= duration && range.max_seconds > duration + 3.0, "{range:?}");
        limited(&mut snapshot, 6);
        assert_eq!(of(&snapshot, &image("web:2")).outcome.duration_range, None, "room for all");
    }

    /// The quota has room again, but the controller may wait for up to 1000 s.
    #[test]
    fn back_off_of_the_controller_is_added() {
        let mut snapshot = settled(&json!({}));
        refuse(&mut snapshot, "pods \"web-1-\" is forbidden: exceeded quota: small, requested: pods=1");
        limited(&mut snapshot, 9);
        let preview = of(&snapshot, &Change::Replicas(3));
        let outcome = &preview.outcome;
        assert_eq!(outcome.end, End::Complete, "{outcome:?}");
        let range = outcome.duration_range.as_ref().unwrap();
        assert_eq!(range.reasons, [DurationReason::BackOff]);
        assert!((range.max_seconds - range.min_seconds - 1000.0).abs() < 1e-6, "{range:?}");
        // The controller retries at once if the ReplicaSet is scaled.
        let scaled = of(&snapshot, &Change::Replicas(4)).outcome;
        assert_eq!((scaled.end, scaled.duration_range), (End::Complete, None));
    }
}

mod bounds {
    use super::*;

    #[test]
    fn peaks_beyond_the_bounds_have_a_reason() {
        let snapshot = settled(&rolling(1, 0));
        let text = |change: &Change| render::text(&of(&snapshot, change));
        let down = text(&Change::Replicas(1));
        assert!(
            down.contains("  most pods             3 at 0s, at most 2 (as many before the change)\n"),
            "{down}"
        );
        let up = text(&Change::Replicas(9));
        assert!(
            up.contains("  fewest available      3 at 0s, at least 9 (no more before the change)\n"),
            "{up}"
        );
        let image = text(&image("web:2"));
        assert!(
            image.contains("  with terminating      5 at 5s (the bound does not count terminating pods)\n"),
            "{image}"
        );
    }
}

mod changes {
    use super::*;

    #[test]
    fn image_with_replicas() {
        let preview = of(&settled(&json!({})), &Change::Several(vec![image("web:2"), Change::Replicas(5)]));
        // The controller first scales the old ReplicaSet by two.
        assert_eq!((preview.effect, preview.outcome.pods_created), (Effect::NewReplicaSet, 7));
        let text = render::text(&preview);
        assert!(text.contains("\n  spec.replicas: 3 -> 5\n"), "{text}");
    }

    #[test]
    fn pause_in_the_middle_of_a_rollout_and_resume() {
        let (paused, resumed) = simulate(async {
            let world = World::new(TIMING);
            world.create(deployment(3, "web:1")).await;
            world.begin(&image("web:2"), Duration::from_millis(2_500)).await;
            let paused = of(&world.snapshot(), &Change::Pause);
            world.change(&Change::Pause).await;
            (paused, of(&world.snapshot(), &Change::Resume))
        });
        assert_eq!((paused.effect, paused.outcome.end), (Effect::Pause, End::Paused));
        assert!(render::text(&paused).starts_with("Deployment shop/web is paused\n"));
        assert_eq!((resumed.effect, resumed.outcome.end), (Effect::Resume, End::Complete));
        assert!(resumed.outcome.pods_deleted > 0, "{:?}", resumed.outcome);
    }

    /// A template that has changed during the pause is rolled out.
    #[test]
    fn resume_with_a_changed_template() {
        let mut snapshot = settled(&json!({}));
        let deployment = snapshot.deployment.as_mut().unwrap();
        deployment["spec"]["paused"] = json!(true);
        deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!("web:2");
        let preview = of(&snapshot, &Change::Resume);
        assert_eq!((preview.effect, preview.outcome.end), (Effect::NewReplicaSet, End::Complete));
    }
}

/// All writes are counted, and the groups are those of Deployments, ReplicaSets and pods.
#[test]
fn writes() {
    let preview = of(&settled(&rolling(1, 0)), &image("web:2"));
    let total = |resource: &str, verb: &str| {
        let totals = preview.write_totals.iter();
        totals
            .filter(|total| total.resource == resource && total.verb == verb)
            .map(|total| total.count)
            .sum::<usize>()
    };
    let grouped = |resource: &str| {
        preview
            .writes
            .iter()
            .filter(|group| group.resource == resource)
            .map(|group| group.count)
            .sum::<usize>()
    };
    assert_eq!((total("pods", "create"), total("pods", "delete"), grouped("pods")), (3, 3, 6));
    assert_eq!(total("replicasets", "create") + total("replicasets", "update"), grouped("replicasets"));
    assert!(total("deployments/status", "update") > 0 && total("events", "create") > 0);
    assert_eq!(grouped("events"), 0);
}

#[test]
fn warnings_of_the_api_server_are_shown() {
    let mut preview = of(&settled(&json!({})), &image("web:2"));
    preview.dry_run.warnings = vec!["spec.template is deprecated".to_owned()];
    let text = render::text(&preview);
    assert!(text.contains("\nWarning of the API server: spec.template is deprecated\n"), "{text}");
}

/// Messages of the cluster do not control the terminal.
#[test]
fn control_characters_are_replaced() {
    let mut snapshot = settled(&json!({}));
    refuse(&mut snapshot, "denied\u{1b}[2J\nby\u{202e} policy");
    let text = render::text(&of(&snapshot, &Change::Restart));
    assert!(text.contains("denied\u{fffd}[2J by\u{fffd} policy"), "{text}");
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{text}");
}

/// A ReplicaSet without a controller is adopted if the selector matches its labels.
#[test]
fn orphans_of_others_are_not_counted() {
    let mut snapshot = settled(&rolling(1, 0));
    let mut orphan = snapshot.replica_sets[0].clone();
    orphan["metadata"]["ownerReferences"] = json!([]);
    orphan["metadata"]["name"] = json!("other");
    orphan["metadata"]["uid"] = json!("other");
    orphan["metadata"]["labels"]["app"] = json!("other");
    for mut pod in snapshot.pods.clone() {
        pod["metadata"]["name"] = json!(format!("other-{}", snapshot.pods.len()));
        pod["metadata"]["uid"] = json!(format!("other-{}", snapshot.pods.len()));
        pod["metadata"]["ownerReferences"][0]["uid"] = json!("other");
        snapshot.pods.push(pod);
    }
    snapshot.replica_sets.push(orphan);
    let outcome = of(&snapshot, &image("web:2")).outcome;
    assert_eq!((outcome.available_before, outcome.most_pods.pods), (3, 4), "{outcome:?}");
}

mod in_progress {
    use super::*;

    /// The clock of the API server has a resolution of a second, so a pod may seem to be overdue.
    #[test]
    fn terminating_pod_is_removed_after_the_change() {
        let mut snapshot = settled(&json!({ "strategy": { "type": "Recreate" } }));
        let later = Duration::from_millis(1500);
        for pod in &mut snapshot.pods {
            let deleted = snapshot.taken.saturating_sub(TIMING.stop + later).unwrap();
            let end = deleted.saturating_add(Duration::from_secs(30)).unwrap();
            pod["metadata"]["deletionTimestamp"] = json!(kcm_api::Time::new(end));
            pod["metadata"]["deletionGracePeriodSeconds"] = json!(30);
        }
        // The rollout of another image waits for the removal of the pods.
        let template = snapshot.deployment.as_mut().unwrap().pointer_mut("/spec/template/spec").unwrap();
        template["containers"][0]["image"] = json!("web:2");
        snapshot.replica_sets[0]["spec"]["replicas"] = json!(0);
        snapshot.replica_sets[0]["status"]["replicas"] = json!(0);
        let outcome = of(&snapshot, &image("web:3")).outcome;
        assert_eq!((outcome.pods_created, outcome.pods_deleted), (3, 0), "{outcome:#?}");
    }
}

use kcm_apiserver::{ApiServerConfig, Resource, WriteOptions};
use kcm_clock::SimulatedClock;
use serde_json::json;

use super::*;
use crate::engine::surprises::LONG;

const END: Duration = Duration::from_secs(60);

/// Choices of a run that is recorded.
fn recorded(clock: &Arc<dyn Clock>, surprises: &[Surprise]) -> Arc<Choices> {
    Choices::new(clock, surprises, END, Vec::new(), Some(Guide::default()), Some(END))
}

/// States of steps, each at its time in milliseconds. Some of them become something else. Requests are sent at once, or at the
/// step `sent`.
async fn states(steps: &[(u64, &str, Option<Alternative>)]) -> Vec<u64> {
    let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
    let surprise = |(_, step, becomes): &(u64, &str, Option<Alternative>)| {
        Some(Surprise { step: (*step).to_owned(), nth: 1, becomes: (*becomes)? })
    };
    let surprises: Vec<_> = steps.iter().filter_map(surprise).collect();
    let choices = recorded(&clock, &surprises);
    let is_sent_later = steps.iter().any(|(_, step, _)| *step == "sent");
    for (at, step, becomes) in steps {
        clock.sleep(Duration::from_millis(*at).saturating_sub(clock.monotonic())).await;
        assert_eq!(choices.choose(step, StepKind::Write), *becomes);
        if *step == "sent" || !is_sent_later {
            choices.begin_effect(choices.last_surprise(), None);
        }
    }
    choices.take_points().into_iter().map(|point| point.state.fingerprint).collect()
}

#[tokio::test(start_paused = true)]
async fn effect_begins_when_its_request_is_sent() {
    for (becomes, end) in
        [(Alternative::Refuse, 4_001), (Alternative::KillAfter, 4_001), (Alternative::DelayRequest, 8_000)]
    {
        let after = |becomes| async move {
            let (hidden, over) = ((end + 1, "b", None), (end + 2, "c", None));
            states(&[(1_000, "a", becomes), (3_000, "d", None), (4_000, "sent", None), hidden, over]).await
        };
        let (calm, states) = (after(None).await, after(Some(becomes)).await);
        let equal = [1, 3, 4].map(|at| calm[at] == states[at]);
        assert_eq!(equal, [false, false, true], "{becomes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn late_update_is_hidden_until_it_must_fail() {
    let server = ApiServer::new(ApiServerConfig::default());
    let (config_maps, options) = (Resource::CONFIG_MAPS, WriteOptions::default());
    let object = server.create(config_maps, "default", json!({"metadata": {"name": "a"}}), &options).unwrap();
    let update = |version: &str| {
        let request = http::Request::put("/api/v1/namespaces/default/configmaps/a").body(()).unwrap();
        let metadata = json!({"name": "a", "namespace": "default", "resourceVersion": version});
        let body = json!({"metadata": metadata}).to_string();
        ObjectVersion::of_update(&request.into_parts().0, body.as_bytes())
    };
    let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
    let late = Surprise { step: "a".to_owned(), nth: 1, becomes: Alternative::Late };
    let version = object.revision().to_string();
    let cases = [None, Some(update(&version)), Some(update("")), Some(update("9999"))];
    let choices = cases.map(|precondition| {
        let surprises = precondition.as_ref().map(|_| late.clone());
        let choices = recorded(&clock, surprises.as_slice());
        choices.trace_restore(&server);
        choices.choose("a", StepKind::Write);
        choices.begin_effect(0, precondition.flatten());
        choices
    });
    let step = async |step: &str| {
        clock.sleep(Duration::from_secs(1)).await;
        let equal = choices.each_ref().map(|choices| {
            choices.trace_restore(&server);
            choices.choose(step, StepKind::Write);
            choices.state.lock().points.last().unwrap().state.fingerprint
        });
        equal.map(|state| state == equal[0])
    };
    assert_eq!(step("b").await, [true, false, false, false]);
    let body = json!({"metadata": {"name": "a"}, "data": {"a": "b"}});
    server.update(config_maps, "default", body, &options).unwrap();
    // One request must fail. Another one applies to any version, and the third one to a version that is not known.
    step("c").await;
    assert_eq!(step("d").await, [true, true, false, false]);
}

#[tokio::test(start_paused = true)]
async fn end_with_a_request_under_way_differs() {
    let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
    let surprises = [Surprise { step: "a".to_owned(), nth: 1, becomes: Alternative::Late }];
    let choices = [&surprises[..], &surprises[..], &[]].map(|surprises| {
        let choices = recorded(&clock, surprises);
        choices.choose("a", StepKind::Write);
        choices
    });
    clock.sleep(END + Duration::from_secs(1)).await;
    choices[0].begin_effect(0, None);
    let [late, over, calm] = choices.map(|choices| {
        choices.end();
        choices.record_end();
        choices.take_points()[1].state.fingerprint
    });
    assert_ne!(late, calm);
    assert_eq!(over, calm);
}

#[tokio::test(start_paused = true)]
async fn user_who_acts_soon_after_a_kill_excuses() {
    let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
    let has_only_kills = |becomes, acts: u64| {
        let surprises = [Surprise { step: "a".to_owned(), nth: 1, becomes }];
        let acts = vec![Duration::from_millis(acts)];
        let choices = Choices::new(&clock, &surprises, END, acts, None, None);
        choices.choose("a", StepKind::Write);
        choices.has_only_kills()
    };
    assert!(has_only_kills(Alternative::KillAfter, LONG));
    assert!(!has_only_kills(Alternative::KillAfter, LONG - 1));
    assert!(!has_only_kills(Alternative::Stop, LONG));
}

#[tokio::test(start_paused = true)]
async fn no_reason_excuses_what_another_one_does() {
    let clock: Arc<dyn Clock> = Arc::new(SimulatedClock::new(Timestamp::UNIX_EPOCH));
    let excuses = |reasons: &[&str]| {
        let choices = recorded(&clock, &[]);
        reasons.iter().for_each(|reason| choices.excuse(reason));
        choices.choose("a", StepKind::Write);
        choices.take_points()[0].state.excuses
    };
    let (pods, late, both) = (excuses(&["pods"]), excuses(&["late"]), excuses(&["pods", "late"]));
    assert!(pods & !late != 0 && late & !pods != 0);
    assert_eq!(both, pods | late);
    assert_eq!((excuses(&[]), excuses(&["pods", "pods"])), (0, pods));
}

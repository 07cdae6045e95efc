use kcm_api::{Status, StatusCause, StatusDetails};

use super::*;

fn status(code: u16, reason: &str) -> ApiError {
    ApiError::status(code, reason, "no")
}

fn too_large() -> ApiError {
    let cause = StatusCause { reason: "ResourceVersionTooLarge".to_owned(), ..StatusCause::default() };
    let details =
        StatusDetails { causes: vec![cause], retry_after_seconds: Some(1), ..StatusDetails::default() };
    ApiError::Status(Box::new(Status {
        code: 504,
        reason: "Timeout".to_owned(),
        details: Some(details),
        ..Status::default()
    }))
}

fn lost() -> ApiError {
    ApiError::Transport("connection refused".to_owned())
}

const BACK_OFF: Pause = Pause::BackOff { at_least: Duration::ZERO };

fn back_off_a_second() -> Pause {
    Pause::BackOff { at_least: Duration::from_secs(1) }
}

fn failed(course: &mut Course, error: &ApiError) -> Pause {
    course.step(Outcome::Closed { error: Some(error), brief: true })
}

fn ended(course: &mut Course, brief: bool) -> Pause {
    course.step(Outcome::Closed { error: None, brief })
}

fn streaming_list(from: Option<&str>) -> Request {
    Request::StreamingList { from: from.map(str::to_owned) }
}

fn list(from: Option<&str>) -> Request {
    Request::List { from: from.map(str::to_owned) }
}

fn watch(from: &str) -> Request {
    Request::Watch { from: Some(from.to_owned()) }
}

/// What is asked when version 7 is known.
fn at_7(course: &Course) -> Request {
    course.request(Some("7".to_owned()))
}

fn watching() -> Course {
    let mut course = Course::new();
    assert_eq!(course.step(Outcome::Complete), Pause::No);
    assert_eq!(at_7(&course), watch("7"));
    course
}

#[test]
fn course_at_the_start_streams_the_newest() {
    assert_eq!(Course::new().request(None), streaming_list(None));
}

#[test]
fn streaming_list_refused_as_unknown_is_never_asked_again() {
    let refusals = [
        status(422, "Invalid"),
        status(422, ""),
        status(400, "BadRequest"),
        status(405, "MethodNotAllowed"),
        status(406, "NotAcceptable"),
        status(415, "UnsupportedMediaType"),
        status(501, "NotImplemented"),
    ];
    for refusal in refusals {
        let mut course = Course::new();
        assert_eq!(failed(&mut course, &refusal), Pause::No, "{refusal:?}");
        assert_eq!(course.request(None), list(Some("0")), "{refusal:?}");
        course.step(Outcome::Complete);
        failed(&mut course, &status(500, "InternalError"));
        assert_eq!(at_7(&course), list(Some("7")), "{refusal:?}");
    }
}

#[test]
fn streaming_list_failed_otherwise_is_a_plain_list_this_once() {
    for error in
        [status(500, "InternalError"), status(403, "Forbidden"), ApiError::Decode("what?".to_owned())]
    {
        let mut course = Course::new();
        assert_eq!(failed(&mut course, &error), Pause::No, "{error:?}");
        assert_eq!(course.request(None), list(Some("0")), "{error:?}");
        course.step(Outcome::Complete);
        failed(&mut course, &status(500, "InternalError"));
        assert_eq!(at_7(&course), streaming_list(Some("7")), "{error:?}");
    }
}

#[test]
fn streaming_list_ended_before_all_was_told_is_a_plain_list_this_once() {
    let mut course = Course::new();
    assert_eq!(ended(&mut course, false), Pause::No);
    assert_eq!(course.request(None), list(Some("0")));
    assert_eq!(failed(&mut course, &lost()), BACK_OFF);
    assert_eq!(course.request(None), streaming_list(None));
}

#[test]
fn streaming_list_without_connection_is_asked_again() {
    for error in [lost(), ApiError::Timeout("watch".to_owned()), status(429, "TooManyRequests")] {
        let mut course = Course::new();
        assert_eq!(failed(&mut course, &error), BACK_OFF, "{error:?}");
        assert_eq!(course.request(None), streaming_list(None), "{error:?}");
    }
}

#[test]
fn list_from_an_unusable_version_asks_for_the_newest_at_once_but_only_once() {
    for (error, pause) in [(status(410, "Expired"), BACK_OFF), (too_large(), back_off_a_second())] {
        for supported in [true, false] {
            let newest = if supported { streaming_list(None) } else { list(None) };
            let mut course = Course::new();
            if !supported {
                failed(&mut course, &status(422, "Invalid"));
            }
            assert_eq!(failed(&mut course, &error), Pause::No);
            assert_eq!(at_7(&course), newest);
            assert_eq!(failed(&mut course, &error), pause);
            // A server whose watch cache is behind answers a plain list from its storage.
            let newest = if error.is_expired() { newest } else { list(None) };
            assert_eq!(at_7(&course), newest);
            // Nor is it "0" when nothing is known: that could be the very state that is too old.
            assert_eq!(course.request(None), newest);
            // Once all is known, versions are good again.
            course.step(Outcome::Complete);
            failed(&mut course, &status(500, ""));
            assert_ne!(at_7(&course), newest);
        }
    }
}

#[test]
fn plain_list_failed_backs_off_and_starts_over() {
    let mut course = Course::new();
    failed(&mut course, &status(422, "Invalid"));
    assert_eq!(failed(&mut course, &status(500, "InternalError")), BACK_OFF);
    assert_eq!(course.request(None), list(Some("0")));
    assert_eq!(at_7(&course), list(Some("7")));
}

#[test]
fn watch_from_an_unusable_version_relists_from_the_newest_after_back_off() {
    for (error, pause) in [
        (status(410, "Expired"), BACK_OFF),
        (status(410, "Gone"), BACK_OFF),
        (status(410, ""), BACK_OFF),
        (too_large(), back_off_a_second()),
    ] {
        let mut course = watching();
        assert_eq!(failed(&mut course, &error), pause, "{error:?}");
        assert_eq!(at_7(&course), streaming_list(None), "{error:?}");
    }
}

#[test]
fn watch_without_connection_is_resumed_after_back_off() {
    for error in [lost(), ApiError::Timeout("watch".to_owned()), status(429, "TooManyRequests")] {
        let mut course = watching();
        for _ in 0..5 {
            assert_eq!(failed(&mut course, &error), BACK_OFF, "{error:?}");
            assert_eq!(at_7(&course), watch("7"), "{error:?}");
        }
    }
}

#[test]
fn watch_lost_on_the_way_is_resumed_at_once() {
    let mut course = watching();
    assert_eq!(course.step(Outcome::Closed { error: Some(&lost()), brief: false }), Pause::No);
    assert_eq!(at_7(&course), watch("7"));
}

#[test]
fn watch_refused_on_the_way_as_too_much_waits_all_the_same() {
    let mut course = watching();
    let error = status(429, "TooManyRequests");
    assert_eq!(course.step(Outcome::Closed { error: Some(&error), brief: false }), BACK_OFF);
    assert_eq!(at_7(&course), watch("7"));
}

#[test]
fn watch_ended_is_resumed_at_once() {
    let mut course = watching();
    assert_eq!(ended(&mut course, false), Pause::No);
    assert_eq!(at_7(&course), watch("7"));
}

#[test]
fn watch_ended_briefly_relists_after_back_off_from_what_is_known() {
    let mut course = watching();
    assert_eq!(ended(&mut course, true), BACK_OFF);
    assert_eq!(at_7(&course), streaming_list(Some("7")));
}

#[test]
fn watch_failed_otherwise_relists_after_back_off_from_what_is_known() {
    for error in
        [status(500, "InternalError"), status(403, "Forbidden"), ApiError::Decode("what?".to_owned())]
    {
        for brief in [true, false] {
            let mut course = watching();
            assert_eq!(course.step(Outcome::Closed { error: Some(&error), brief }), BACK_OFF, "{error:?}");
            assert_eq!(at_7(&course), streaming_list(Some("7")), "{error:?}");
        }
    }
}

#[test]
fn relist_is_from_the_newest_until_one_is_complete() {
    for supported in [true, false] {
        let newest = if supported { streaming_list(None) } else { list(None) };
        let errors =
            [lost(), status(429, "TooManyRequests"), status(410, "Expired"), status(500, "InternalError")];
        for error in errors {
            let mut course = watching();
            if !supported {
                course.relist();
                failed(&mut course, &status(422, "Invalid"));
                course.step(Outcome::Complete);
            }
            course.relist();
            assert_eq!(at_7(&course), newest);
            for _ in 0..3 {
                let pause = failed(&mut course, &error);
                // A streaming list that failed is a plain one once, and that fails, too.
                let fell_back = pause == Pause::No;
                assert_eq!(at_7(&course), if fell_back { list(None) } else { newest.clone() }, "{error:?}");
                if fell_back {
                    assert_eq!(failed(&mut course, &error), BACK_OFF, "{error:?}");
                    assert_eq!(at_7(&course), newest, "{error:?}");
                }
            }
            course.step(Outcome::Complete);
            assert_eq!(at_7(&course), watch("7"));
            failed(&mut course, &status(500, "InternalError"));
            assert_ne!(at_7(&course), newest, "an ordinary relist is from what is known");
        }
    }
}

#[test]
fn relist_replaces_what_is_under_way() {
    let mut course = Course::new();
    failed(&mut course, &status(500, "InternalError"));
    assert_eq!(course.request(None), list(Some("0")));
    course.relist();
    assert_eq!(course.request(None), streaming_list(None));
}

#[test]
fn relist_without_an_answer_is_a_plain_list_this_once() {
    let mut course = watching();
    course.relist();
    assert_eq!(failed(&mut course, &ApiError::Timeout("watch".to_owned())), Pause::No);
    assert_eq!(at_7(&course), list(None));
    assert_eq!(failed(&mut course, &lost()), BACK_OFF);
    assert_eq!(at_7(&course), streaming_list(None));
}

#[test]
fn retry_after_is_the_least_to_wait() {
    let mut error = Status { code: 429, reason: "TooManyRequests".to_owned(), ..Status::default() };
    error.details = Some(StatusDetails { retry_after_seconds: Some(20), ..StatusDetails::default() });
    let mut course = watching();
    let pause = failed(&mut course, &ApiError::Status(Box::new(error)));
    assert_eq!(pause, Pause::BackOff { at_least: Duration::from_secs(20) });
}

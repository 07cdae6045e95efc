use super::*;

const FAILURES: [Kind; 7] = [
    Kind::Expired,
    Kind::ResourceVersionTooLarge,
    Kind::TooManyRequests,
    Kind::Unsupported,
    Kind::Timeout,
    Kind::Connection,
    Kind::Other,
];

const AFTER_BACKOFF: Retry = Retry::AfterBackoff { at_least: Duration::ZERO };

/// End of a request.
#[derive(Debug, Clone, Copy)]
struct End {
    error: Option<Kind>,
    very_short: bool,
}

fn failure(kind: Kind) -> End {
    End { error: Some(kind), very_short: true }
}

fn end(state: &mut ReflectorState, End { error, very_short }: End) -> Retry {
    let error = error.map(|kind| ListWatchError::new(kind, "failed"));
    state.request_ended(error.as_ref(), very_short)
}

fn fail(state: &mut ReflectorState, kind: Kind) -> Retry {
    end(state, failure(kind))
}

fn streaming_list(from: Option<&str>) -> Request {
    Request::StreamingList { from: from.map(str::to_owned) }
}

fn list(from: Option<&str>) -> Request {
    Request::List { from: from.map(str::to_owned) }
}

fn watch() -> Request {
    Request::Watch { from: Some("7".to_owned()) }
}

/// Returns the next request when the store is at version 7.
fn request_at_7(state: &ReflectorState) -> Request {
    state.request(Some("7".to_owned()))
}

fn watching() -> ReflectorState {
    let mut state = ReflectorState::new();
    state.list_completed();
    assert_eq!(request_at_7(&state), watch());
    state
}

fn without_streaming_lists() -> ReflectorState {
    let mut state = ReflectorState::new();
    assert_eq!(fail(&mut state, Kind::Unsupported), Retry::Immediately);
    state
}

#[test]
fn first_request_is_a_streaming_list() {
    assert_eq!(ReflectorState::new().request(None), streaming_list(None));
}

#[test]
fn retry_after_of_the_server_is_the_minimum_delay() {
    let delay = Duration::from_secs(20);
    let error = ListWatchError::new(Kind::TooManyRequests, "too many requests").with_retry_after(delay);
    assert_eq!(
        watching().request_ended(Some(&error), true),
        Retry::AfterBackoff { at_least: Duration::from_secs(20) }
    );
}

mod streaming_lists {
    use super::*;

    #[test]
    fn is_repeated_if_there_is_no_connection_or_429() {
        for kind in [Kind::Connection, Kind::Timeout, Kind::TooManyRequests] {
            let mut state = ReflectorState::new();
            assert_eq!(fail(&mut state, kind), AFTER_BACKOFF, "{kind:?}");
            assert_eq!(state.request(None), streaming_list(None), "{kind:?}");
        }
    }

    #[test]
    fn is_replaced_by_a_plain_list_for_good_if_unsupported() {
        let mut state = without_streaming_lists();
        assert_eq!(state.request(None), list(Some("0")));
        state.list_completed();
        fail(&mut state, Kind::Other);
        assert_eq!(request_at_7(&state), list(Some("7")));
    }

    #[test]
    fn is_replaced_by_a_plain_list_once_after_other_failures() {
        let incomplete = End { error: None, very_short: false };
        for result in [failure(Kind::Other), incomplete] {
            let mut state = ReflectorState::new();
            assert_eq!(end(&mut state, result), Retry::Immediately, "{result:?}");
            assert_eq!(state.request(None), list(Some("0")), "{result:?}");
            let mut completed = ReflectorState { ..state };
            completed.list_completed();
            fail(&mut completed, Kind::Other);
            assert_eq!(request_at_7(&completed), streaming_list(Some("7")), "{result:?}");
            assert_eq!(fail(&mut state, Kind::Connection), AFTER_BACKOFF, "{result:?}");
            assert_eq!(state.request(None), streaming_list(None), "{result:?}");
        }
    }

    #[test]
    fn consistent_read_that_the_watch_cache_cannot_answer_is_replaced_by_a_plain_list() {
        for (kind, retry) in
            [(Kind::ResourceVersionTooLarge, AFTER_BACKOFF), (Kind::Timeout, Retry::Immediately)]
        {
            let mut state = watching();
            state.relist();
            assert_eq!(fail(&mut state, kind), retry, "{kind:?}");
            assert_eq!(request_at_7(&state), list(None), "{kind:?}");
            assert_eq!(fail(&mut state, Kind::Connection), AFTER_BACKOFF, "{kind:?}");
            assert_eq!(request_at_7(&state), streaming_list(None), "{kind:?}");
        }
    }
}

mod lists {
    use super::*;

    #[test]
    fn is_repeated_after_a_failure() {
        let mut state = without_streaming_lists();
        assert_eq!(fail(&mut state, Kind::Other), AFTER_BACKOFF);
        assert_eq!(state.request(None), list(Some("0")));
        assert_eq!(request_at_7(&state), list(Some("7")));
    }

    #[test]
    fn is_repeated_as_a_consistent_read_if_the_version_is_unusable() {
        for kind in [Kind::Expired, Kind::ResourceVersionTooLarge] {
            for mut state in [ReflectorState::new(), without_streaming_lists()] {
                let is_streaming = state.streaming_lists == StreamingLists::Enabled;
                let consistent = if is_streaming { streaming_list(None) } else { list(None) };
                assert_eq!(fail(&mut state, kind), Retry::Immediately);
                assert_eq!(request_at_7(&state), consistent);
                // Without a last version the list must not be one of version "0": that may be the unusable state.
                assert_eq!(state.request(None), consistent);
                assert_eq!(fail(&mut state, kind), AFTER_BACKOFF);
                let repeated = if kind == Kind::Expired { consistent.clone() } else { list(None) };
                assert_eq!(request_at_7(&state), repeated);
                state.list_completed();
                fail(&mut state, Kind::Other);
                assert_ne!(request_at_7(&state), repeated);
            }
        }
    }
}

mod watches {
    use super::*;

    #[test]
    fn watch_is_followed_by() {
        struct Case {
            ends: &'static [End],
            retry: Retry,
            next: Request,
        }
        let cases = [
            Case {
                ends: &[
                    End { error: None, very_short: false },
                    End { error: Some(Kind::Connection), very_short: false },
                    End { error: Some(Kind::Timeout), very_short: false },
                ],
                retry: Retry::Immediately,
                next: watch(),
            },
            Case {
                ends: &[
                    End { error: Some(Kind::Connection), very_short: true },
                    End { error: Some(Kind::Timeout), very_short: true },
                    End { error: Some(Kind::TooManyRequests), very_short: true },
                    End { error: Some(Kind::TooManyRequests), very_short: false },
                ],
                retry: AFTER_BACKOFF,
                next: watch(),
            },
            Case {
                ends: &[
                    End { error: None, very_short: true },
                    End { error: Some(Kind::Other), very_short: true },
                    End { error: Some(Kind::Other), very_short: false },
                    End { error: Some(Kind::Unsupported), very_short: true },
                ],
                retry: AFTER_BACKOFF,
                next: streaming_list(Some("7")),
            },
            Case {
                ends: &[
                    End { error: Some(Kind::Expired), very_short: true },
                    End { error: Some(Kind::Expired), very_short: false },
                    End { error: Some(Kind::ResourceVersionTooLarge), very_short: true },
                ],
                retry: AFTER_BACKOFF,
                next: streaming_list(None),
            },
        ];
        for Case { ends, retry, next } in cases {
            for &result in ends {
                let mut state = watching();
                assert_eq!(end(&mut state, result), retry, "{result:?}");
                assert_eq!(request_at_7(&state), next, "{result:?}");
            }
        }
    }

    #[test]
    fn watch_is_resumed_until_there_is_a_connection() {
        let mut state = watching();
        for _ in 0..5 {
            assert_eq!(fail(&mut state, Kind::Connection), AFTER_BACKOFF);
            assert_eq!(request_at_7(&state), watch());
        }
    }
}

mod relist {
    use super::*;

    #[test]
    fn is_repeated_as_a_consistent_read_until_it_is_complete() {
        for kind in FAILURES.into_iter().filter(|kind| *kind != Kind::Unsupported) {
            for mut state in [ReflectorState::new(), without_streaming_lists()] {
                let is_streaming = state.streaming_lists == StreamingLists::Enabled;
                let consistent = if is_streaming { streaming_list(None) } else { list(None) };
                state.list_completed();
                state.relist();
                assert_eq!(request_at_7(&state), consistent);
                for _ in 0..3 {
                    let retry = fail(&mut state, kind);
                    let request = request_at_7(&state);
                    assert!([consistent.clone(), list(None)].contains(&request), "{kind:?}: {request:?}");
                    // Only the change to a plain list is immediate.
                    if retry == Retry::Immediately {
                        assert_eq!(request, list(None), "{kind:?}");
                        assert_eq!(fail(&mut state, kind), AFTER_BACKOFF, "{kind:?}");
                    }
                }
                state.list_completed();
                assert_eq!(request_at_7(&state), watch());
                fail(&mut state, Kind::Other);
                assert_ne!(request_at_7(&state), consistent, "{kind:?}");
            }
        }
    }

    #[test]
    fn replaces_the_request_in_progress() {
        let mut state = ReflectorState::new();
        fail(&mut state, Kind::Other);
        assert_eq!(state.request(None), list(Some("0")));
        state.relist();
        assert_eq!(state.request(None), streaming_list(None));
    }
}

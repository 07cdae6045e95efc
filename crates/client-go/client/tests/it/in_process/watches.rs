use super::*;

async fn all(server: &FakeApiServer) -> Vec<Result<WatchEvent<Pod>, ListWatchError>> {
    let options = WatchOptions { timeout: Duration::from_secs(300), ..WatchOptions::default() };
    server.client().pods().watch(&options).await.unwrap().collect().await
}

#[tokio::test(start_paused = true)]
async fn query() {
    let server = scripted([FakeResponse::stream([]), FakeResponse::stream([])]);
    let pods = server.client().pods();
    let streaming =
        WatchOptions { resource_version: None, send_initial_events: true, timeout: Duration::from_secs(301) };
    drop(pods.watch(&streaming).await.unwrap());
    let plain = WatchOptions {
        resource_version: Some("7".to_owned()),
        send_initial_events: false,
        timeout: Duration::from_secs(302),
    };
    drop(pods.watch(&plain).await.unwrap());
    let paths: Vec<_> = server.requests().into_iter().map(|seen| seen.uri).collect();
    assert_eq!(
        paths,
        [
            "/api/v1/pods?watch=true&allowWatchBookmarks=true&sendInitialEvents=true\
         &resourceVersionMatch=NotOlderThan&timeoutSeconds=301",
            "/api/v1/pods?watch=true&allowWatchBookmarks=true&resourceVersion=7&timeoutSeconds=302",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn pieces_of_any_size() {
    let end = json!({
        "kind": "Pod", "metadata": {"resourceVersion": "5", "annotations": {"k8s.io/initial-events-end": "true"}},
    });
    let text = [
        event("ADDED", &pod("a", "1")),
        event("BOOKMARK", &end),
        event("MODIFIED", &pod("a", "6")),
        // Not to the letter what servers send, and yet the same.
        format!("{{ \"object\": {}, \"type\": \"DELETED\" }}\n", pod("a", "7")),
        event("BOOKMARK", &json!({"metadata": {"resourceVersion": "8"}})),
    ]
    .concat();
    for size in [1, 7, 64, text.len()] {
        let pieces = text.as_bytes().chunks(size).map(|piece| String::from_utf8(piece.to_vec()).unwrap());
        let pieces: Vec<_> = pieces.collect();
        let events = all(&scripted([FakeResponse::stream(pieces)])).await;
        let recorded: Vec<_> = events
            .into_iter()
            .map(|event| match event.unwrap() {
                WatchEvent::Added(pod) => format!("added {}", pod.resource_version),
                WatchEvent::Modified(pod) => format!("modified {}", pod.resource_version),
                WatchEvent::Deleted(pod) => format!("deleted {}", pod.resource_version),
                WatchEvent::Bookmark { resource_version, initial_events_end } => {
                    format!("bookmark {resource_version} {initial_events_end}")
                }
                WatchEvent::Undecodable(what) | WatchEvent::UndecodableDeleted(what) => {
                    panic!("{what:?}")
                }
            })
            .collect();
        assert_eq!(
            recorded,
            ["added 1", "bookmark 5 true", "modified 6", "deleted 7", "bookmark 8 false"],
            "{size}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn undecodable_object() {
    let bad =
        json!({"metadata": {"namespace": "default", "name": "bad", "resourceVersion": "2", "labels": 5}});
    let pieces = vec![event("ADDED", &bad), event("ADDED", &pod("b", "3")), event("DELETED", &bad)];
    let events = all(&scripted([FakeResponse::stream(pieces)])).await;
    let Ok(WatchEvent::Undecodable(what)) = &events[0] else { panic!("{:?}", events[0]) };
    assert_eq!((&*what.name, what.resource_version.as_deref()), ("default/bad", Some("2")));
    assert!(matches!(&events[1], Ok(WatchEvent::Added(pod)) if &*pod.key.name == "b"));
    assert!(matches!(&events[2], Ok(WatchEvent::UndecodableDeleted(what)) if what.name == "default/bad"));
}

#[tokio::test(start_paused = true)]
async fn error_event_410() {
    let gone =
        json!({"kind": "Status", "reason": "Expired", "code": 410, "message": "too old resource version"});
    let events = all(&scripted([FakeResponse::endless([event("ERROR", &gone)])])).await;
    assert_eq!(events.len(), 1);
    assert_eq!(events[0].as_ref().unwrap_err().kind(), ListWatchErrorKind::Expired);
}

#[tokio::test(start_paused = true)]
async fn response_410() {
    for response in [FakeResponse::failure(410, "Expired", "too old"), FakeResponse::new(410, "gone")] {
        let server = scripted([response]);
        let outcome = server.client().pods().watch(&WatchOptions::default()).await;
        assert_eq!(outcome.err().unwrap().kind(), ListWatchErrorKind::Expired);
    }
}

#[tokio::test(start_paused = true)]
async fn end_of_stream() {
    let whole = event("ADDED", &pod("a", "1"));
    let events = all(&scripted([FakeResponse::stream([whole.clone(), whole[..20].to_owned()])])).await;
    let [Ok(WatchEvent::Added(_)), Err(error)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(error.kind(), ListWatchErrorKind::Connection);
    let events = all(&scripted([FakeResponse::stream([whole])])).await;
    assert!(matches!(&events[..], [Ok(WatchEvent::Added(_))]), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn ends_after_its_timeout() {
    let server = scripted([FakeResponse::endless([event("ADDED", &pod("a", "1"))])]);
    let clock = SimulatedClock::new(Timestamp::UNIX_EPOCH);
    let events = all(&server).await;
    let [Ok(_), Err(error)] = &events[..] else { panic!("{events:?}") };
    assert_eq!(error.kind(), ListWatchErrorKind::Timeout);
    assert_eq!(clock.monotonic(), Duration::from_secs(330));
}

#[tokio::test(start_paused = true)]
async fn no_response_times_out() {
    let server = scripted([FakeResponse::pending()]);
    let error = server.client().pods().watch(&WatchOptions::default()).await.err().unwrap();
    assert_eq!(error.kind(), ListWatchErrorKind::Timeout);
}

#[tokio::test(start_paused = true)]
async fn not_an_event() {
    for line in
        ["nonsense\n", "{\"type\":\"ODD\",\"object\":{}}\n", "{\"type\":\"BOOKMARK\",\"object\":{}}\n"]
    {
        let events = all(&scripted([FakeResponse::endless([line.to_owned()])])).await;
        let [Err(error)] = &events[..] else { panic!("{line}: {events:?}") };
        assert!(matches!(error.downcast_ref(), Some(ApiError::Decode(_))), "{line}: {error:?}");
    }
}

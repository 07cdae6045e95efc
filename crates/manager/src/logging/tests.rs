use std::sync::Mutex;

use kcm_client::{ClientFactory, ClientOptions, RateLimit, Request, UserAgent};
use kcm_clock::FakeClock;
use kcm_testkit::{CapturedLog, FakeApiServer, FakeResponse};
use tracing::{debug, error, info, trace, warn};

use super::*;

fn logged_with(options: &LoggingOptions, what: impl FnOnce(Handle)) -> String {
    let log = CapturedLog::default();
    let clock = Arc::new(FakeClock::new("2026-11-21T04:05:06.123456789Z".parse().unwrap()));
    let (writer, verbosity) = (log.clone(), Verbosity::new(options));
    let layer = layer(options.format, clock, verbosity.clone(), move || writer.clone());
    let subscriber = tracing_subscriber::registry().with(layer).with(verbosity.clone());
    tracing::subscriber::with_default(subscriber, || what(Handle(verbosity)));
    log.text()
}

fn at(verbosity: u8) -> LoggingOptions {
    LoggingOptions { verbosity, ..LoggingOptions::default() }
}

fn logged(verbosity: u8, what: impl FnOnce()) -> String {
    logged_with(&at(verbosity), |_| what())
}

fn json(what: impl FnOnce()) -> Vec<serde_json::Value> {
    let options = LoggingOptions { format: LogFormat::Json, verbosity: 10, ..LoggingOptions::default() };
    let text = logged_with(&options, |_| what());
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn text_has_klogs_format() {
    let text = logged(0, || {
        let key = kcm_api::ObjectKey::new("shop", "web");
        warn!(target: "kcm_test", %key, error = "two\nlines", count = 3, names = ?["a"], "Did \"it\"");
    });
    let (head, tail) = text.split_once("] ").unwrap();
    assert!(head.starts_with("W1121 04:05:06.123456 ") && head.contains(" tests.rs:"), "{head}");
    let expected = r#""Did \"it\"" key="shop/web" err="two\nlines" count=3 names="[\"a\"]""#;
    assert_eq!(tail, format!("{expected}\n"));
}

#[test]
fn json_has_zaps_format() {
    let lines = json(|| {
        let key = kcm_api::ObjectKey::new("shop", "web");
        let _in = tracing::info_span!(target: "kcm_test", "sync", controller = "deployment").entered();
        trace!(target: "kcm_test::sync", %key, took = ?std::time::Duration::from_millis(1500), n = -3, ok = true,
            text = ?"a \"b\"", rate = f64::NAN, "Did \"it\"");
        error!(target: "kcm_test", err = "two\nlines", "Failed");
    });
    let [mut first, mut second] = <[_; 2]>::try_from(lines).unwrap();
    for line in [&mut first, &mut second] {
        let caller = line.as_object_mut().unwrap().remove("caller").unwrap();
        assert!(caller.as_str().unwrap().starts_with("kcm_test/tests.rs:"), "{caller}");
    }
    let ts = 1_795_233_906_123.456;
    assert_eq!(
        first,
        serde_json::json!({"ts": ts, "msg": "Did \"it\"", "v": 4, "controller": "deployment", "key": "shop/web",
            "took": "1.5s", "n": -3, "ok": true, "text": "a \"b\"", "rate": "NaN"})
    );
    let expected =
        serde_json::json!({"ts": ts, "msg": "Failed", "controller": "deployment", "err": "two\nlines"});
    assert_eq!(second, expected, "an error has no verbosity");
}

#[test]
fn line_contains_fields_of_spans() {
    let text = logged(0, || {
        let span = tracing::info_span!(target: "kcm_test", "sync", controller = "deployment", uid = tracing::field::Empty);
        let _in = span.entered();
        tracing::Span::current().record("uid", "u1");
        error!(target: "kcm_test", "Failed");
    });
    let end = "] \"Failed\" controller=\"deployment\" uid=\"u1\"\n";
    assert!(text.starts_with('E') && text.ends_with(end), "{text}");
}

#[test]
fn verbosity_follows_upstream() {
    let lines = |verbosity| {
        let text = logged(verbosity, || {
            info!(target: "kcm_test", "0");
            info!(target: FLAG_TARGET, "FLAG: --v=\"1\"");
            debug!(target: "kcm_test", "2");
            debug!(target: "kcm_informer::reflector", "3");
            debug!(target: "kcm_events::broadcaster", "3");
            trace!(target: "kcm_test", "4");
            trace!(target: "kcm_client::throttle", "3");
            trace!(target: "kcm_client::api", "6");
            info!(target: "hyper", "foreign");
            warn!(target: "kube_client::client", "response");
            warn!(target: "h2::proto::ping_pong", "unlimited");
        });
        text.lines().count()
    };
    assert_eq!([0, 1, 2, 3, 4, 5, 6, 10].map(lines), [1, 2, 3, 6, 7, 7, 8, 8]);
    let flag = logged(1, || info!(target: FLAG_TARGET, "FLAG: --v=\"1\""));
    assert!(flag.ends_with("] FLAG: --v=\"1\"\n"), "{flag}");
}

/// Sends 1,000 requests at once through a client with upstream's default rate limit, and returns the lines.
fn throttled(verbosity: u8) -> Vec<String> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    let text = logged(verbosity, || {
        runtime.block_on(async {
            let server = FakeApiServer::new(|_| FakeResponse::ok("{}"));
            let options = ClientOptions::new(UserAgent::new("test", "v1", ""), server.clock());
            let client = ClientFactory::in_process(server.service(), options)
                .client("replicaset-controller", RateLimit::DEFAULT);
            let request = Request::post("/api/v1/namespaces/shop/pods?dryRun=All", "{}");
            let sent = futures_util::future::join_all((0..1000).map(|_| client.send(&request))).await;
            assert!(sent.iter().all(Result::is_ok));
        });
    });
    text.lines().filter(|line| line.contains("Waited before")).map(str::to_owned).collect()
}

#[test]
fn throttling_is_rate_limited_as_upstream() {
    // The last of 1,000 requests waits 48.5 s: 970 wait, 969 of them for more than 50 ms.
    let [quiet, verbose, very_verbose] = [0, 2, 3].map(throttled);
    assert_eq!([quiet.len(), verbose.len(), very_verbose.len()], [5, 48, 969 + 48]);
    let (head, tail) = quiet[0].split_once("] ").unwrap();
    assert!(head.starts_with('I') && head.contains(" throttle.rs:"), "{head}");
    assert_eq!(
        tail,
        "\"Waited before sending request\" delay=\"1.05s\" reason=\"client-side throttling, not priority and fairness\" \
         verb=\"POST\" URL=\"/api/v1/namespaces/shop/pods\""
    );
}

#[test]
fn line_is_logged_after_a_check_of_a_disabled_level() {
    // With a second subscriber of a higher verbosity, the result depends on the subscriber.
    let text = logged(2, || {
        let inner = logged(0, || {
            assert!(!tracing::enabled!(target: "kcm_test", tracing::Level::DEBUG));
            info!(target: "kcm_test", "line");
        });
        assert_eq!(inner.lines().count(), 1, "{inner}");
    });
    assert_eq!(text, "");
}

#[test]
fn verbosity_changes_at_run_time() {
    let text = logged_with(&at(0), |handle| {
        for verbosity in [0, 4, 2] {
            handle.set_verbosity(verbosity);
            assert_eq!(handle.verbosity(), verbosity);
            debug!(target: "kcm_test", verbosity, "debug");
            trace!(target: "kcm_test", verbosity, "trace");
        }
    });
    let ends: Vec<_> = text.lines().map(|line| line.split_once("] ").unwrap().1).collect();
    assert_eq!(ends, ["\"debug\" verbosity=4", "\"trace\" verbosity=4", "\"debug\" verbosity=2"]);
}

#[test]
fn vmodule_sets_the_verbosity_of_files() {
    let of = |pattern: &str| {
        let vmodule = vec![ModuleVerbosity { pattern: pattern.to_owned(), verbosity: 2 }];
        logged_with(&LoggingOptions { vmodule, ..at(0) }, |_| {
            debug!(target: "kcm_test", "debug");
            trace!(target: "kcm_test", "trace");
        })
        .lines()
        .count()
    };
    assert_eq!(["tests", "t*s", "te?ts", "test", "logging", "*"].map(of), [1, 1, 1, 0, 0, 1]);
}

#[test]
fn filtered_line_is_not_formatted() {
    struct Costly;
    impl fmt::Display for Costly {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("formatted")
        }
    }
    let text = logged(3, || trace!(target: "kcm_test", costly = %Costly, "{}", Costly));
    assert_eq!(text, "");
}

#[test]
fn streams_are_split_by_severity() {
    let is_stdout = |is_split, format, level| {
        let streams = Streams { is_split, format };
        let meta = match level {
            tracing::Level::ERROR => metadata(|| error!("")),
            tracing::Level::WARN => metadata(|| warn!("")),
            _ => metadata(|| info!("")),
        };
        matches!(streams.make_writer_for(meta), EitherWriter::A(_))
    };
    let of = |is_split, format| {
        [tracing::Level::ERROR, tracing::Level::WARN, tracing::Level::INFO]
            .map(|level| is_stdout(is_split, format, level))
    };
    assert_eq!(of(false, LogFormat::Text), [false, false, false]);
    assert_eq!(of(true, LogFormat::Text), [false, false, true]);
    assert_eq!(of(true, LogFormat::Json), [false, true, true]);
}

/// Metadata of the line that `log` logs.
fn metadata(log: impl FnOnce()) -> &'static tracing::Metadata<'static> {
    struct Catch(Arc<Mutex<Option<&'static tracing::Metadata<'static>>>>);
    impl<S: Subscriber> Layer<S> for Catch {
        fn on_event(&self, event: &tracing::Event<'_>, _: tracing_subscriber::layer::Context<'_, S>) {
            *self.0.lock().unwrap() = Some(event.metadata());
        }
    }
    let caught = Arc::default();
    let subscriber = tracing_subscriber::registry().with(Catch(Arc::clone(&caught)));
    tracing::subscriber::with_default(subscriber, log);
    let caught = caught.lock().unwrap().take();
    caught.unwrap()
}

#[test]
fn equal_fields_of_spans_are_not_repeated() {
    let what = || {
        let _in = tracing::info_span!(target: "kcm_test", "sync", key = "shop/web", n = 1).entered();
        info!(target: "kcm_test", key = "shop/web", n = 12, "Same");
        info!(target: "kcm_test", key = "shop/we", "Other");
    };
    let text = logged(0, what);
    let ends: Vec<_> = text.lines().map(|line| line.split_once("] ").unwrap().1).collect();
    let same = r#""Same" key="shop/web" n=1 n=12"#;
    assert_eq!(ends, [same, r#""Other" key="shop/web" n=1 key="shop/we""#]);
    let options = LoggingOptions { format: LogFormat::Json, ..LoggingOptions::default() };
    let line = logged_with(&options, |_| what());
    assert!(line.lines().next().unwrap().ends_with(r#""key":"shop/web","n":1,"n":12}"#), "{line}");
}

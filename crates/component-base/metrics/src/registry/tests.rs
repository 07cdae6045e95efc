use super::*;

const DONE: Spec<2> = Spec::own("done_total", ["how", "who"], "What was done.");

fn options(disabled: &[&str]) -> MetricsOptions {
    MetricsOptions { disabled: disabled.iter().copied().map(str::to_owned).collect(), ..Default::default() }
}

#[test]
fn registry_writes_metrics_by_name_and_series_by_values() {
    let registry = Registry::new(&MetricsOptions::default());
    let done = registry.metric::<Counter, 2>(DONE);
    let ready = registry.metric::<Gauge, 0>(Spec::upstream("ready", Stability::Beta, [], "Whether it is."));
    let took = Spec::own("a_seconds", ["who"], "How long it took.").buckets(&[0.5, 1.0]);
    let took = registry.metric::<Histogram, 1>(took);
    done.with(["well", "b"]).inc();
    done.with(["badly", "c"]).inc_by(2);
    done.with(["well", "a"]).inc();
    done.with(["well", "b"]).inc();
    ready.only().set(1.0);
    took.with(["x"]).observe(0.75);
    took.with(["x"]).observe(2.0);
    assert_eq!(
        registry.text(),
        "# HELP a_seconds [ALPHA] How long it took.\n\
         # TYPE a_seconds histogram\n\
         a_seconds_bucket{who=\"x\",le=\"0.5\"} 0\n\
         a_seconds_bucket{who=\"x\",le=\"1\"} 1\n\
         a_seconds_bucket{who=\"x\",le=\"+Inf\"} 2\n\
         a_seconds_sum{who=\"x\"} 2.75\n\
         a_seconds_count{who=\"x\"} 2\n\
         # HELP done_total [ALPHA] What was done.\n\
         # TYPE done_total counter\n\
         done_total{how=\"badly\",who=\"c\"} 2\n\
         done_total{how=\"well\",who=\"a\"} 1\n\
         done_total{how=\"well\",who=\"b\"} 2\n\
         # HELP ready [BETA] Whether it is.\n\
         # TYPE ready gauge\n\
         ready 1\n"
    );
}

#[test]
fn metric_without_series_is_defined_but_not_shown() {
    let registry = Registry::new(&MetricsOptions::default());
    let _done = registry.metric::<Counter, 2>(DONE);
    assert_eq!(registry.text(), "");
    let definitions = registry.definitions();
    assert_eq!(definitions.len(), 1);
    assert_eq!((definitions[0].name, definitions[0].kind), ("done_total", MetricType::Counter));
}

#[test]
fn metric_that_is_disabled_counts_and_is_not_shown() {
    let registry = Registry::new(&options(&["done_total"]));
    let done = registry.metric::<Counter, 2>(DONE).with(["a", "b"]);
    done.inc();
    assert_eq!((registry.text().as_str(), done.get()), ("", 1.0));
    assert_eq!(registry.definitions(), []);
}

#[test]
fn metric_of_a_name_that_is_taken_changes_nothing() {
    let registry = Registry::new(&MetricsOptions::default());
    registry.metric::<Gauge, 0>(Spec::own("size", [], "First.")).only().set(1.0);
    registry.metric::<Gauge, 0>(Spec::own("size", [], "Second.")).only().set(2.0);
    assert_eq!(registry.text(), "# HELP size [ALPHA] First.\n# TYPE size gauge\nsize 1\n");
}

#[test]
fn label_value_that_is_not_allowed_becomes_unexpected_and_is_counted() {
    let allowed = ("done_total".to_owned(), "who".to_owned(), vec!["a".to_owned()]);
    let registry = Registry::new(&MetricsOptions { allowed_labels: vec![allowed], ..Default::default() });
    let done = registry.metric::<Counter, 2>(DONE);
    for who in ["a", "b", "c"] {
        done.with(["well", who]).inc();
    }
    assert!(
        registry.text().ends_with(
            "done_total{how=\"well\",who=\"a\"} 1\ndone_total{how=\"well\",who=\"unexpected\"} 2\n"
        )
    );
    assert_eq!(registry.unexpected(), 2.0);
}

#[test]
fn series_whose_values_run_together_stay_two() {
    let registry = Registry::new(&MetricsOptions::default());
    let done = registry.metric::<Counter, 2>(DONE);
    done.with(["ab", "c"]).inc();
    done.with(["a", "bc"]).inc_by(2);
    assert_eq!((done.with(["ab", "c"]).get(), done.with(["a", "bc"]).get()), (1.0, 2.0));
}

#[test]
fn series_asked_for_by_many_threads_at_once_is_one() {
    let registry = Registry::new(&MetricsOptions::default());
    let done = registry.metric::<Counter, 2>(DONE);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..500).for_each(|i| done.with(["x", ["a", "b", "c"][i % 3]]).inc()));
        }
    });
    let total: f64 = ["a", "b", "c"].iter().map(|who| done.with(["x", who]).get()).sum();
    assert_eq!((total, registry.text().lines().count()), (2000.0, 5));
}

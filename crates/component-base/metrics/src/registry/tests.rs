use super::*;

const DONE: Spec<2> = Spec::own("done_total", ["result", "user"], "Finished runs.");

fn options(disabled: &[&str]) -> MetricsOptions {
    MetricsOptions { disabled: disabled.iter().copied().map(str::to_owned).collect(), ..Default::default() }
}

#[test]
fn text_is_sorted_by_name_and_label_values() {
    let registry = Registry::new(&MetricsOptions::default());
    let done = registry.metric::<Counter, 2>(DONE);
    let ready = registry.metric::<Gauge, 0>(Spec::upstream("ready", Stability::Beta, [], "Ready."));
    let took = Spec::own("a_seconds", ["user"], "Duration of a run.").buckets(&[0.5, 1.0]);
    let took = registry.metric::<Histogram, 1>(took);
    done.with(["success", "b"]).inc();
    done.with(["error", "c"]).inc_by(2);
    done.with(["success", "a"]).inc();
    done.with(["success", "b"]).inc();
    ready.only().set(1.0);
    took.with(["x"]).observe(0.75);
    took.with(["x"]).observe(2.0);
    assert_eq!(
        registry.text(),
        "# HELP a_seconds [ALPHA] Duration of a run.\n\
         # TYPE a_seconds histogram\n\
         a_seconds_bucket{user=\"x\",le=\"0.5\"} 0\n\
         a_seconds_bucket{user=\"x\",le=\"1\"} 1\n\
         a_seconds_bucket{user=\"x\",le=\"+Inf\"} 2\n\
         a_seconds_sum{user=\"x\"} 2.75\n\
         a_seconds_count{user=\"x\"} 2\n\
         # HELP done_total [ALPHA] Finished runs.\n\
         # TYPE done_total counter\n\
         done_total{result=\"error\",user=\"c\"} 2\n\
         done_total{result=\"success\",user=\"a\"} 1\n\
         done_total{result=\"success\",user=\"b\"} 2\n\
         # HELP ready [BETA] Ready.\n\
         # TYPE ready gauge\n\
         ready 1\n"
    );
}

#[test]
fn metric_without_series_is_defined_but_not_exported() {
    let registry = Registry::new(&MetricsOptions::default());
    let _done = registry.metric::<Counter, 2>(DONE);
    assert_eq!(registry.text(), "");
    let definitions = registry.definitions();
    assert_eq!(definitions.len(), 1);
    assert_eq!((definitions[0].name, definitions[0].kind), ("done_total", MetricType::Counter));
}

#[test]
fn disabled_metric_counts_and_is_not_exported() {
    let registry = Registry::new(&options(&["done_total"]));
    let done = registry.metric::<Counter, 2>(DONE).with(["a", "b"]);
    done.inc();
    assert_eq!((registry.text().as_str(), done.get()), ("", 1.0));
    assert_eq!(registry.definitions(), []);
}

#[test]
fn first_metric_of_a_name_is_exported() {
    let registry = Registry::new(&MetricsOptions::default());
    registry.metric::<Gauge, 0>(Spec::own("size", [], "First.")).only().set(1.0);
    registry.metric::<Gauge, 0>(Spec::own("size", [], "Second.")).only().set(2.0);
    assert_eq!(registry.text(), "# HELP size [ALPHA] First.\n# TYPE size gauge\nsize 1\n");
}

#[test]
fn disallowed_label_values_are_replaced_and_counted() {
    let allowed = ("done_total".to_owned(), "user".to_owned(), vec!["a".to_owned()]);
    let registry = Registry::new(&MetricsOptions { allowed_labels: vec![allowed], ..Default::default() });
    let done = registry.metric::<Counter, 2>(DONE);
    for user in ["a", "b", "c"] {
        done.with(["success", user]).inc();
    }
    assert!(registry.text().ends_with(
        "done_total{result=\"success\",user=\"a\"} 1\ndone_total{result=\"success\",user=\"unexpected\"} 2\n"
    ));
    assert_eq!(registry.replaced_label_values().get(), 2.0);
}

#[test]
fn label_values_are_not_concatenated() {
    let registry = Registry::new(&MetricsOptions::default());
    let done = registry.metric::<Counter, 2>(DONE);
    done.with(["ab", "c"]).inc();
    done.with(["a", "bc"]).inc_by(2);
    assert_eq!((done.with(["ab", "c"]).get(), done.with(["a", "bc"]).get()), (1.0, 2.0));
}

#[test]
fn concurrent_lookups_return_one_series() {
    let registry = Registry::new(&MetricsOptions::default());
    let done = registry.metric::<Counter, 2>(DONE);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..500).for_each(|i| done.with(["x", ["a", "b", "c"][i % 3]]).inc()));
        }
    });
    let total: f64 = ["a", "b", "c"].iter().map(|user| done.with(["x", user]).get()).sum();
    assert_eq!((total, registry.text().lines().count()), (2000.0, 5));
}

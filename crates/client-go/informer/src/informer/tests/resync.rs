use super::*;

/// Returns the times of four resyncs in seconds since the start. The minimum period is a minute.
async fn resync_times(seed: u64, delay: Duration) -> Vec<f64> {
    let env = TestEnv::with(|config| {
        config.resync = Some(MINUTE);
        config.random = Arc::new(SeededRandom::new(seed));
    });
    env.source.set_delay(delay);
    env.source.apply(object("a"));
    let start = env.clock.monotonic();
    let running = env.start();
    assert!(env.informer.wait_for_sync(&CancellationToken::new()).await);
    env.handler.take();
    let mut times = Vec::new();
    while times.len() < 4 {
        pass(Duration::from_millis(100)).await;
        let calls = env.handler.take_texts();
        if !calls.is_empty() {
            assert_eq!(calls, ["update ns/a@2->2"]);
            times.push((env.clock.monotonic() - start).as_secs_f64());
        }
    }
    assert_eq!(env.metrics.get("relists"), 0);
    running.stop().await;
    times
}

#[tokio::test(start_paused = true)]
async fn period_is_random_and_constant() {
    let mut periods = Vec::new();
    for seed in 0..20 {
        let times = resync_times(seed, Duration::ZERO).await;
        let period = times[0];
        assert!((60.0..120.2).contains(&period), "{times:?}");
        for pair in times.windows(2) {
            assert!((pair[1] - pair[0] - period).abs() < 0.3, "{times:?}");
        }
        periods.push(period);
    }
    assert!(periods.iter().any(|period| *period < 75.0) && periods.iter().any(|period| *period > 105.0));
}

#[tokio::test(start_paused = true)]
async fn first_period_starts_with_the_sync() {
    for seed in 0..10 {
        let immediate = resync_times(seed, Duration::ZERO).await;
        let delayed = resync_times(seed, 4 * MINUTE).await;
        assert!((delayed[0] - immediate[0] - 240.0).abs() < 0.3, "{delayed:?} {immediate:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn is_disabled_by_default() {
    let env = TestEnv::new();
    env.source.apply(object("a"));
    env.start_synced().await;
    pass(48 * 60 * MINUTE).await;
    assert!(env.handler.take_texts().is_empty());
}

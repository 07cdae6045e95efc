//! Many requests of one kind, carefully.

use futures_util::{StreamExt, stream::FuturesUnordered};

/// Makes `count` requests in batches of `initial_batch_size`, then twice that, and so on; those of a batch run
/// at the same time. After a batch in which any request fails no other is begun.
///
/// Where all requests fail for one reason, such as a quota, this makes one of them instead of `count`.
///
/// Returns how many succeeded, and the error that came first.
///
/// Upstream counterpart: `slowStartBatch`.
///
/// # Cancel safety
///
/// Dropping the future drops the requests that are under way; whether they take effect is then not known.
pub async fn slow_start_batch<F, Fut, E>(
    count: usize,
    initial_batch_size: usize,
    mut request: F,
) -> (usize, Option<E>)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<(), E>>,
{
    let mut remaining = count;
    let mut batch_size = initial_batch_size.max(1);
    let mut successes = 0;
    while remaining > 0 {
        let batch = batch_size.min(remaining);
        let mut requests: FuturesUnordered<_> = (0..batch).map(|_| request()).collect();
        let mut first_error = None;
        while let Some(outcome) = requests.next().await {
            match outcome {
                Ok(()) => successes += 1,
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        if first_error.is_some() {
            return (successes, first_error);
        }
        remaining -= batch;
        batch_size = batch_size.saturating_mul(2);
    }
    (successes, None)
}

#[cfg(test)]
mod tests {
    use std::{cell::RefCell, time::Duration};

    use super::*;

    /// Ten wanted, the first `limit` succeed: how many succeeded, whether there was an error, and the calls.
    async fn run(limit: usize) -> (usize, bool, usize) {
        let calls = RefCell::new(0);
        let (successes, error) = slow_start_batch(10, 1, || {
            *calls.borrow_mut() += 1;
            let call = *calls.borrow();
            async move { if call <= limit { Ok(()) } else { Err("limit reached") } }
        })
        .await;
        (successes, error.is_some(), calls.into_inner())
    }

    /// Upstream: TestSlowStartBatch, its three cases.
    #[tokio::test]
    async fn slow_start_batch_ends_after_the_batch_that_fails() {
        let cases = [
            ("callLimit = 0 (all fail)", 0, (0, true, 1)),
            ("callLimit = count (all succeed)", 10, (10, false, 10)),
            ("callLimit < count (some succeed)", 5, (5, true, 7)),
        ];
        for (name, limit, expected) in cases {
            assert_eq!(run(limit).await, expected, "{name}");
        }
    }

    #[tokio::test]
    async fn batch_of_nothing_makes_no_request() {
        let outcome = slow_start_batch(0, 1, || async { Err::<(), _>("never") }).await;
        assert_eq!(outcome, (0, None));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_one_batch_run_at_the_same_time_and_the_first_error_in_time_counts() {
        let begin = tokio::time::Instant::now();
        let number = RefCell::new(0);
        let (successes, error) = slow_start_batch(7, 1, || {
            *number.borrow_mut() += 1;
            let call = *number.borrow();
            async move {
                // The last batch is calls 4 to 7, and the later of them answer first.
                tokio::time::sleep(Duration::from_secs(10 - call)).await;
                if call < 6 { Ok(()) } else { Err(call) }
            }
        })
        .await;
        assert_eq!((successes, error), (5, Some(7)));
        assert_eq!(begin.elapsed(), Duration::from_secs(9 + 8 + 6));
    }
}

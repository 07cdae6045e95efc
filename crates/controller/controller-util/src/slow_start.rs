//! Requests in growing batches.

use futures_util::{StreamExt, stream::FuturesUnordered};

/// Sends `count` requests in batches: `initial_batch_size`, then twice as many, and so on. Requests of a batch are
/// concurrent. If a request fails, no further batch is started.
///
/// If all requests fail for the same reason, such as a quota, one request is sent instead of `count`.
///
/// Example: 10 requests with an initial batch size of 1 are sent in batches of 1, 2, 4 and 3.
///
/// Returns the values of the successful requests, such as the created objects, in the order of the responses, and the first
/// error.
///
/// Upstream counterpart: `slowStartBatch`.
///
/// # Cancel safety
///
/// Dropping the future drops the requests of the current batch. They may still take effect.
pub async fn slow_start_batch<F, Fut, T, E>(
    count: usize,
    initial_batch_size: usize,
    mut request: F,
) -> (Vec<T>, Option<E>)
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<T, E>>,
{
    let mut remaining = count;
    let mut batch_size = initial_batch_size.max(1);
    let mut successes = Vec::new();
    while remaining > 0 {
        let batch = batch_size.min(remaining);
        let mut requests: FuturesUnordered<_> = (0..batch).map(|_| request()).collect();
        let mut first_error = None;
        while let Some(outcome) = requests.next().await {
            match outcome {
                Ok(value) => successes.push(value),
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

    /// Outcome of ten requests.
    #[derive(Debug, PartialEq, Eq)]
    struct Batches {
        successes: usize,
        failed: bool,
        requests: usize,
    }

    /// Sends ten requests, of which the first `limit` succeed.
    async fn run(limit: usize) -> Batches {
        let calls = RefCell::new(0);
        let (successes, error) = slow_start_batch(10, 1, || {
            *calls.borrow_mut() += 1;
            let call = *calls.borrow();
            async move { if call <= limit { Ok(()) } else { Err("limit reached") } }
        })
        .await;
        Batches { successes: successes.len(), failed: error.is_some(), requests: calls.into_inner() }
    }

    /// Upstream: TestSlowStartBatch, its three cases.
    #[tokio::test]
    async fn slow_start_batch_ends_after_the_batch_that_fails() {
        let all_fail = Batches { successes: 0, failed: true, requests: 1 };
        assert_eq!(run(0).await, all_fail, "callLimit = 0 (all fail)");
        let all_succeed = Batches { successes: 10, failed: false, requests: 10 };
        assert_eq!(run(10).await, all_succeed, "callLimit = count (all succeed)");
        let some_succeed = Batches { successes: 5, failed: true, requests: 7 };
        assert_eq!(run(5).await, some_succeed, "callLimit < count (some succeed)");
    }

    #[tokio::test]
    async fn sends_nothing_if_count_is_zero() {
        let outcome = slow_start_batch(0, 1, || async { Err::<(), _>("never") }).await;
        assert_eq!(outcome, (vec![], None));
    }

    #[tokio::test(start_paused = true)]
    async fn requests_of_a_batch_are_concurrent_and_the_earliest_error_is_returned() {
        let begin = tokio::time::Instant::now();
        let number = RefCell::new(0);
        let (successes, error) = slow_start_batch(7, 1, || {
            *number.borrow_mut() += 1;
            let call = *number.borrow();
            async move {
                // The last batch is calls 4 to 7, which return in reverse order.
                tokio::time::sleep(Duration::from_secs(10 - call)).await;
                if call < 6 { Ok(call) } else { Err(call) }
            }
        })
        .await;
        assert_eq!((successes, error), (vec![1, 3, 2, 5, 4], Some(7)));
        assert_eq!(begin.elapsed(), Duration::from_secs(9 + 8 + 6));
    }
}

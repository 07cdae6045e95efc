//! Causes of errors.

use std::error::Error;

/// Returns the causes of `error` in one line, outermost first, without repetitions.
pub(crate) fn describe(error: &(dyn Error + 'static)) -> String {
    let mut text = String::new();
    for cause in causes(error) {
        let own = cause.to_string().split_whitespace().collect::<Vec<_>>().join(" ");
        if own.is_empty() || text.contains(&own) {
            continue;
        }
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&own);
    }
    if text.is_empty() { "the connection failed".to_owned() } else { text }
}

/// Returns `error` and its causes, outermost first.
pub(crate) fn causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let error = next?;
        next = error.source();
        Some(error)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_one_line() {
        #[derive(Debug, thiserror::Error)]
        #[error("outer: {0}")]
        struct Outer(#[source] std::io::Error);
        let error = Outer(std::io::Error::other("in\nner"));
        assert_eq!(describe(&error), "outer: in ner");
    }
}

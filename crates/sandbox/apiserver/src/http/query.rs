//! Query strings.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

use crate::ApiStatus;

/// Decoded query parameters in their order.
#[derive(Debug, Clone, Default)]
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            (form_decode(key), form_decode(value))
        });
        Self(pairs.collect())
    }

    /// Adds a parameter.
    pub(super) fn with(mut self, key: &str, value: &str) -> Self {
        self.0.push((key.to_owned(), value.to_owned()));
        self
    }

    /// Returns the first value of a parameter. An empty value counts as absent.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.first(key).filter(|value| !value.is_empty())
    }

    fn first(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Returns all values of a parameter.
    pub(super) fn all(&self, key: &'static str) -> impl Iterator<Item = &str> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Returns a boolean parameter. As upstream, `0` and `false` (in any case) are false and all other values are true.
    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        let value = self.first(key)?;
        Some(value != "0" && !value.eq_ignore_ascii_case("false"))
    }

    /// Returns an integer parameter.
    pub(super) fn number(&self, key: &str) -> Result<Option<i64>, ApiStatus> {
        let Some(value) = self.get(key) else { return Ok(None) };
        let invalid =
            |_| ApiStatus::bad_request(format!("strconv.ParseInt: parsing {value:?}: invalid syntax"));
        value.parse().map(Some).map_err(invalid)
    }
}

fn form_decode(text: &str) -> String {
    percent_decode(&text.replace('+', " ")).into_owned()
}

/// Decodes percent-encoded text. Invalid sequences are kept, invalid UTF-8 is replaced.
pub(super) fn percent_decode(text: &str) -> Cow<'_, str> {
    percent_decode_str(text).decode_utf8_lossy()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse("labelSelector=app%3Dweb%2Ca+in+%28x%29&limit=5&watch&x=%zz%4");
        assert_eq!(query.get("labelSelector"), Some("app=web,a in (x)"));
        assert_eq!(query.number("limit").unwrap(), Some(5));
        assert_eq!(query.flag("watch"), Some(true));
        assert_eq!(query.flag("missing"), None);
        assert_eq!(query.get("x"), Some("%zz%4"));
    }

    #[test]
    fn flags_follow_upstream() {
        assert_eq!(Query::parse("watch=false").flag("watch"), Some(false));
        assert_eq!(Query::parse("watch=0").flag("watch"), Some(false));
        assert_eq!(Query::parse("watch=").flag("watch"), Some(true));
        assert_eq!(Query::parse("watch=true").flag("watch"), Some(true));
    }
}

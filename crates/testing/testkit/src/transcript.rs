//! Requests with the responses of kube-apiserver.

use std::{fmt::Write as _, sync::LazyLock};

use regex::Regex;
use serde_json::Value;

/// Requests and their responses, as text that a test replays on another server.
///
/// | Line | |
/// |---|---|
/// | `METHOD PATH [TYPE] [@USER[,GROUP…]]` | request; the media type of the body is JSON by default; impersonated user |
/// | `> BODY` | its body |
/// | `< CODE BODY` | its response, [normalized](normalized), or only its [managed fields](managed_fields) |
///
/// Other lines are comments.
#[derive(Debug, Clone, Copy)]
pub struct Transcript<'a> {
    text: &'a str,
    normalize: fn(u16, &str) -> String,
}

/// Request of a [`Transcript`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TranscriptRequest<'a> {
    /// HTTP method.
    pub method: &'a str,
    /// Path and query.
    pub path: &'a str,
    /// Media type of the body.
    pub media_type: &'static str,
    /// Impersonated user and its groups, separated by commas. Empty for an administrator.
    pub user: &'a str,
    /// Body, which may be empty.
    pub body: &'a str,
    /// Recorded response: code and body. Empty if there is none.
    pub response: &'a str,
}

impl<'a> Transcript<'a> {
    /// Transcript with this text.
    #[must_use]
    pub fn new(text: &'a str) -> Self {
        Self { text, normalize: normalized }
    }

    /// Transcript with this text, whose responses consist of managed fields.
    #[must_use]
    pub fn of_managed_fields(text: &'a str) -> Self {
        Self { text, normalize: managed_fields }
    }

    /// Returns a response in the form of the transcript.
    #[must_use]
    pub fn normalized(self, code: u16, body: &str) -> String {
        (self.normalize)(code, body)
    }

    /// Sends the requests, and returns the text with the responses of `send`: code and body.
    pub async fn replay(self, mut send: impl AsyncFnMut(TranscriptRequest<'a>) -> (u16, String)) -> String {
        let mut text = String::new();
        let mut lines = self.text.lines().peekable();
        while let Some(line) = lines.next() {
            text += line;
            text.push('\n');
            let Some(mut request) = parse(line) else { continue };
            if let Some(body) = lines.next_if(|line| line.starts_with("> ")) {
                text += body;
                text.push('\n');
                request.body = &body[2..];
            }
            if let Some(response) = lines.next_if(|line| line.starts_with("< ")) {
                request.response = &response[2..];
            }
            let (code, body) = send(request).await;
            writeln!(text, "< {}", self.normalized(code, &body)).unwrap();
        }
        text
    }

    /// Asserts that a [replayed](Self::replay) text is this one. Prints all requests with other responses.
    ///
    /// # Panics
    ///
    /// If it is another one.
    pub fn assert_equal(self, replayed: &str) {
        let mut differences = String::new();
        let mut request = [""; 2];
        for (expected, found) in self.text.lines().zip(replayed.lines()) {
            if parse(found).is_some() {
                request = [found, ""];
            } else if found.starts_with("> ") {
                request[1] = found;
            }
            if expected != found {
                let [head, body] = request;
                write!(differences, "{head}\n{body}\nexpected {expected}\nfound    {found}\n\n").unwrap();
            }
        }
        assert!(differences.is_empty(), "{differences}");
        assert_eq!(self.text, replayed);
    }
}

fn parse(line: &str) -> Option<TranscriptRequest<'_>> {
    let mut words = line.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    if !["GET", "POST", "PUT", "PATCH", "DELETE"].contains(&method) || !path.starts_with('/') {
        return None;
    }
    let rest: Vec<&str> = words.collect();
    let user = rest.iter().find_map(|word| word.strip_prefix('@')).unwrap_or_default();
    let media_type = match rest.first().copied() {
        Some("json-patch") => "application/json-patch+json",
        Some("merge-patch") => "application/merge-patch+json",
        Some("strategic-merge-patch") => "application/strategic-merge-patch+json",
        Some("apply-patch") => "application/apply-patch+yaml",
        _ => "application/json",
    };
    Some(TranscriptRequest { method, path, media_type, user, ..TranscriptRequest::default() })
}

impl TranscriptRequest<'_> {
    /// Headers that impersonate the user.
    #[must_use]
    pub fn impersonation(&self) -> Vec<(&'static str, &str)> {
        let names = std::iter::once("impersonate-user").chain(std::iter::repeat("impersonate-group"));
        names.zip(self.user.split(',').filter(|name| !name.is_empty())).collect()
    }
}

/// Returns a response in one line, without managed fields. Values that differ in each run are replaced by `RV`, `UID`,
/// `TIME` and `TOKEN`.
#[must_use]
pub fn normalized(code: u16, body: &str) -> String {
    static VALUES: LazyLock<[(Regex, &str); 5]> = LazyLock::new(|| {
        [
            (r#"("resourceVersion":)"[0-9]+""#, r#"$1"RV""#),
            ("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID"),
            (r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z", "TIME"),
            (r#""eyJ[0-9A-Za-z_.-]+""#, "\"TOKEN\""),
            ("\n", "␤"),
        ]
        .map(|(pattern, value)| (Regex::new(pattern).unwrap(), value))
    });
    let text = format!("{code} {}", without_managed_fields(body.trim_end()));
    VALUES.iter().fold(text, |text, (pattern, value)| pattern.replace_all(&text, *value).into_owned())
}

/// Returns the managed fields of a response in one line, without their times, or the [normalized] response if it is no
/// object. The entries are sorted, because their order depends on times.
#[must_use]
pub fn managed_fields(code: u16, body: &str) -> String {
    let object: Value = serde_json::from_str(body).unwrap_or_default();
    let Some(metadata) =
        object.get("metadata").filter(|_| object["kind"] != "Status" && object["kind"] != "Scale")
    else {
        return normalized(code, body);
    };
    let entries = metadata["managedFields"].as_array().into_iter().flatten().map(|entry| {
        let words = ["manager", "operation", "apiVersion", "subresource", "time"].map(|name| match name {
            "time" => entry.get(name).map(|_| "TIME"),
            _ => entry.get(name).and_then(Value::as_str),
        });
        let words: Vec<&str> = words.into_iter().flatten().collect();
        format!(" | {} {}", words.join(" "), entry["fieldsV1"])
    });
    let mut entries: Vec<String> = entries.collect();
    entries.sort();
    format!("{code}{}", entries.concat())
}

/// Returns JSON without the members `managedFields`.
#[must_use]
pub fn without_managed_fields(body: &str) -> String {
    const MEMBER: &str = "\"managedFields\":[";
    let Some((before, rest)) = body.split_once(MEMBER) else { return body.to_owned() };
    let mut depth = 1;
    // Keys of list items contain brackets in pairs.
    let end = rest.find(|c| {
        depth += i32::from(c == '[') - i32::from(c == ']');
        depth == 0
    });
    let rest = &rest[end.unwrap() + 1..];
    let (before, rest) = match rest.strip_prefix(',') {
        Some(rest) => (before, rest),
        None => (before.trim_end_matches(','), rest),
    };
    format!("{before}{}", without_managed_fields(rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_differ_are_replaced() {
        let body = r#"{"metadata":{"uid":"0f3c5a1e-9d2b-4c11-8a77-3b2f6d1e9a10","resourceVersion":"7","creationTimestamp":"2026-01-01T00:00:00Z","managedFields":[{"f:x":{"k:[\"a\"]":{}}}]},"a":1}
"#;
        assert_eq!(
            normalized(200, body),
            r#"200 {"metadata":{"uid":"UID","resourceVersion":"RV","creationTimestamp":"TIME"},"a":1}"#
        );
        let middle = r#"{"managedFields":[[]],"name":"a"}"#;
        assert_eq!(normalized(201, middle), r#"201 {"name":"a"}"#);
    }

    #[test]
    fn managed_fields_are_sorted() {
        let body = r#"{"kind":"Pod","metadata":{"managedFields":[
            {"manager":"b","operation":"Update","apiVersion":"v1","time":"x","fieldsV1":{"f:a":{}},"subresource":"status"},
            {"manager":"a","operation":"Apply","apiVersion":"v1","fieldsV1":{}}]}}"#;
        assert_eq!(managed_fields(200, body), r#"200 | a Apply v1 {} | b Update v1 status TIME {"f:a":{}}"#);
        assert_eq!(
            managed_fields(404, r#"{"kind":"Status","metadata":{}}"#),
            r#"404 {"kind":"Status","metadata":{}}"#
        );
    }

    #[tokio::test]
    async fn responses_replace_the_recorded_ones() {
        let text = "# comment\nPOST /a json-patch\n> {}\n< 200 old\nGET /b\n";
        let mut sent = Vec::new();
        let replayed = Transcript::new(text)
            .replay(async |request| {
                sent.push(request);
                (201, "new\nline".to_owned())
            })
            .await;
        assert_eq!(replayed, "# comment\nPOST /a json-patch\n> {}\n< 201 new␤line\nGET /b\n< 201 new␤line\n");
        let [post, get] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!(
            (post.media_type, post.body, post.response),
            ("application/json-patch+json", "{}", "200 old")
        );
        assert_eq!((get.path, get.body, get.response), ("/b", "", ""));
    }
}

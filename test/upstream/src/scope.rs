//! Tests that are not run, with reasons: `test/upstream/out-of-scope.txt`.

/// Entry of the file.
#[derive(Debug)]
struct Entry {
    /// Name of a test, or its first words.
    name: String,
    reason: String,
}

/// Content of the file.
#[derive(Debug)]
pub(super) struct OutOfScope(Vec<Entry>);

impl OutOfScope {
    /// Parses the file: reasons, and below each the names, indented with a tab.
    pub(super) fn parse(text: &str) -> Self {
        let mut reason = "";
        let mut entries = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
            match line.strip_prefix('\t') {
                Some(name) => entries.push(Entry { name: name.to_owned(), reason: reason.to_owned() }),
                None => reason = line,
            }
        }
        Self(entries)
    }

    /// Returns the reason why a test is not run.
    pub(super) fn reason(&self, test: &str) -> Option<&str> {
        self.0.iter().find(|entry| entry.matches(test)).map(|entry| entry.reason.as_str())
    }

    /// Returns the entries that match none of the tests.
    pub(super) fn unused<'a>(&'a self, tests: &[&str]) -> Vec<&'a str> {
        let used = |entry: &Entry| tests.iter().any(|test| entry.matches(test));
        self.0.iter().filter(|entry| !used(entry)).map(|entry| entry.name.as_str()).collect()
    }
}

impl Entry {
    fn matches(&self, test: &str) -> bool {
        test.strip_prefix(&self.name).is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_match_whole_words() {
        let scope = OutOfScope::parse(
            "# comment\n\nother kind: Job\n\t[sig-apps] Job\n\nnetworking\n\t[sig-network] DNS\n",
        );
        assert_eq!(scope.reason("[sig-apps] Job should run"), Some("other kind: Job"));
        assert_eq!(scope.reason("[sig-apps] Job"), Some("other kind: Job"));
        assert_eq!(scope.reason("[sig-apps] Jobs should run"), None);
        assert_eq!(scope.unused(&["[sig-apps] Job should run"]), ["[sig-network] DNS"]);
    }
}

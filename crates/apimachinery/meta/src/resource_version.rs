use std::cmp::Ordering;

/// Returns `true` if resource version `a` is newer than `b`. Returns `false` if they cannot be compared.
///
/// Versions of objects of one type can be compared, also if the objects are in different namespaces.
pub fn is_newer(a: &str, b: &str) -> bool {
    compare_versions(a, b) == Some(Ordering::Greater)
}

/// Compares two resource versions. Returns `None` unless both are decimal numbers without leading zeros.
///
/// Upstream counterpart: `resourceversion.CompareResourceVersion`.
pub fn compare_versions(a: &str, b: &str) -> Option<Ordering> {
    (is_comparable(a) && is_comparable(b)).then(|| a.len().cmp(&b.len()).then_with(|| a.cmp(b)))
}

/// Returns `true` if resource version `version` can be compared with others: a decimal number without leading zeros.
pub fn is_comparable(version: &str) -> bool {
    !version.starts_with('0') && !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compares_versions_as_numbers_of_any_length() {
        assert_eq!(compare_versions("9", "10"), Some(Ordering::Less));
        assert_eq!(compare_versions("123456789012345678901234567890", "5"), Some(Ordering::Greater));
        assert_eq!(compare_versions("5", "5"), Some(Ordering::Equal));
        assert_eq!(compare_versions("", "5"), None);
        assert_eq!(compare_versions("5", "05"), None);
    }
}

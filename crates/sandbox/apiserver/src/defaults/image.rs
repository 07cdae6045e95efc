//! Image pull policies.

/// Sets `imagePullPolicy`: `Always` for the tag `latest`, otherwise `IfNotPresent`.
pub(super) fn pull_policy(image: &str) -> &'static str {
    if tag(image) == Some("latest") { "Always" } else { "IfNotPresent" }
}

/// Returns the tag of an image. The default is `latest`. `None` for a digest without tag or an invalid name.
///
/// Upstream counterpart: `pkg/util/parsers.ParseImageName`.
fn tag(image: &str) -> Option<&str> {
    let (name, digest) = match image.split_once('@') {
        Some((name, digest)) => (name, Some(digest)),
        None => (image, None),
    };
    let path = name.rfind('/').map_or(0, |slash| slash + 1);
    let (repository, tag) = match name[path..].split_once(':') {
        Some((_, tag)) => (&name[..name.len() - tag.len() - 1], Some(tag)),
        None => (name, None),
    };
    // Registry names may contain upper-case letters, repository names may not.
    let repository = match repository.split_once('/') {
        Some((registry, rest)) if registry.contains(['.', ':']) || registry == "localhost" => rest,
        Some((registry, rest)) if registry.bytes().any(|byte| byte.is_ascii_uppercase()) => rest,
        _ => repository,
    };
    let is_name = !repository.is_empty()
        && repository.split('/').all(|part| {
            let edge = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            part.bytes().all(|byte| edge(byte) || matches!(byte, b'.' | b'_' | b'-'))
                && part.bytes().next().is_some_and(edge)
                && part.bytes().next_back().is_some_and(edge)
        });
    match (tag, digest) {
        _ if !is_name => None,
        (None, None) => Some("latest"),
        (tag, _) => tag,
    }
}

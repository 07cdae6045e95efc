//! Name of a new ReplicaSet.

/// Maximum length of an object's name.
const MAX_NAME_LENGTH: usize = 253;

/// Returns the name of the ReplicaSet of `deployment` whose template has this `hash`.
///
/// The name is `<deployment>-<hash>`. If it would exceed 253 bytes, the Deployment's part is truncated. It is kept if
/// the hash alone is too long.
///
/// Example: a Deployment name of 250 bytes and a hash of 10 bytes give 242 + 1 + 10 = 253 bytes.
///
/// Upstream counterpart: `generateReplicaSetName`.
///
/// ```
/// assert_eq!(kcm_deployment_util::names::replica_set_name("web", "889dd49f5"), "web-889dd49f5");
/// ```
pub fn replica_set_name(deployment: &str, hash: &str) -> String {
    let max_length = MAX_NAME_LENGTH.saturating_sub(1 + hash.len());
    let prefix = if deployment.len() > max_length && max_length > 0 {
        // Names are ASCII. A name that is not is truncated at a character boundary.
        &deployment[..deployment.floor_char_boundary(max_length)]
    } else {
        deployment
    };
    format!("{prefix}-{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `TestGenerateReplicaSetName`. Also covers the lengths of `TestDeploymentController_generateReplicaSetName`.
    #[test]
    fn replica_set_name_upstream_cases() {
        let (fits, long) = ("a".repeat(242), "a".repeat(252));
        let cases = [
            ("a short name", "my-deployment".to_owned(), "abcde12345".to_owned(), "my-deployment"),
            ("242 characters", fits.clone(), "abcde12345".to_owned(), &fits),
            ("250 characters are truncated to 242", "a".repeat(250), "abcde12345".to_owned(), &fits),
            ("252 characters and a hash of 252 are not truncated", long.clone(), "b".repeat(252), &long),
        ];
        for (name, deployment, hash, prefix) in cases {
            assert_eq!(replica_set_name(&deployment, &hash), format!("{prefix}-{hash}"), "{name}");
        }
    }

    #[test]
    fn name_that_is_not_ascii_is_truncated_at_a_character() {
        let name = replica_set_name(&"ü".repeat(200), "abcde12345");
        assert_eq!(name, format!("{}-abcde12345", "ü".repeat(121)));
    }
}

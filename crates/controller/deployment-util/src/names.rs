//! The name of a new ReplicaSet.

/// The longest name that an object may have.
const MAX_NAME_LENGTH: usize = 253;

/// The name of the ReplicaSet of `deployment` whose template hashes to `hash`.
///
/// Upstream counterpart: `generateReplicaSetName`. Where both do not fit, the Deployment's part is cut, to the
/// byte and whatever then stands at its end; where the hash alone is too long, nothing is.
pub fn replica_set_name(deployment: &str, hash: &str) -> String {
    let room = MAX_NAME_LENGTH.saturating_sub(1 + hash.len());
    let stem = if deployment.len() > room && room > 0 {
        // Names are ASCII; should one not be, half a character would be no text at all.
        &deployment[..deployment.floor_char_boundary(room)]
    } else {
        deployment
    };
    format!("{stem}-{hash}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `TestGenerateReplicaSetName`, all four; the fit and the cut are also what
    /// `TestDeploymentController_generateReplicaSetName` asks for.
    #[test]
    fn generate_replica_set_name_all_cases_as_upstream() {
        let (fits, long) = ("a".repeat(242), "a".repeat(252));
        let cases = [
            ("a short name", "my-deployment".to_owned(), "abcde12345".to_owned(), "my-deployment"),
            ("242 characters just fit", fits.clone(), "abcde12345".to_owned(), &fits),
            ("250 characters are cut to 242", "a".repeat(250), "abcde12345".to_owned(), &fits),
            ("252 characters and a hash of 252 are not cut", long.clone(), "b".repeat(252), &long),
        ];
        for (name, deployment, hash, kept) in cases {
            assert_eq!(replica_set_name(&deployment, &hash), format!("{kept}-{hash}"), "{name}");
        }
    }

    #[test]
    fn replica_set_name_of_a_name_that_is_no_ascii_is_cut_between_characters() {
        let name = replica_set_name(&"ü".repeat(200), "abcde12345");
        assert_eq!(name, format!("{}-abcde12345", "ü".repeat(121)));
    }
}

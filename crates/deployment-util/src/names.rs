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

    /// `TestGenerateReplicaSetName`, all four; the second is `TestDeploymentController_generateReplicaSetName`
    /// with a name that just fits.
    #[test]
    fn generate_replica_set_name_all_cases_as_upstream() {
        assert_eq!(replica_set_name("my-deployment", "abcde12345"), "my-deployment-abcde12345");
        let just_fits = "a".repeat(242);
        assert_eq!(replica_set_name(&just_fits, "abcde12345"), format!("{just_fits}-abcde12345"));
        assert_eq!(replica_set_name(&"a".repeat(250), "abcde12345"), format!("{just_fits}-abcde12345"));
        let (long, hash) = ("a".repeat(252), "b".repeat(252));
        assert_eq!(replica_set_name(&long, &hash), format!("{long}-{hash}"), "not cut");
    }

    #[test]
    fn replica_set_name_of_a_name_that_is_no_ascii_is_cut_between_characters() {
        let name = replica_set_name(&"ü".repeat(200), "abcde12345");
        assert_eq!(name, format!("{}-abcde12345", "ü".repeat(121)));
    }
}

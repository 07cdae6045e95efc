//! Several errors in one message.

/// Joins messages as upstream: without duplicates, and in brackets if there is more than one.
///
/// Upstream counterpart: `errors.NewAggregate` of `k8s.io/apimachinery/pkg/util/errors`.
pub(crate) fn aggregate(messages: &[String]) -> String {
    let mut unique: Vec<&str> = Vec::new();
    for message in messages {
        if !unique.contains(&message.as_str()) {
            unique.push(message);
        }
    }
    if let [message] = unique[..] { message.to_owned() } else { format!("[{}]", unique.join(", ")) }
}

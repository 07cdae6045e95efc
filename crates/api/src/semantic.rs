//! placeholder
use serde_json::Value;
/// digest
pub type Digest = [u8; 32];
/// digest
pub fn digest_ignoring_label(_template: &Value, _label: &str) -> Digest {
    [0; 32]
}

//! Security contexts.

use serde_json::Value;

use super::{
    names,
    path::{Errors, Path},
    read::{flag, get, integer, list, text},
};

/// Validates the user and group IDs of a pod or container.
pub(super) fn security_context(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    for field in ["runAsUser", "runAsGroup", "fsGroup"] {
        errors.in_range(&path.child(field), integer(context, field), 0, i64::from(i32::MAX));
    }
    for (index, group) in list(context, "supplementalGroups").iter().enumerate() {
        let path = path.child("supplementalGroups");
        errors.in_range(&path.index(index), group.as_i64(), 0, i64::from(i32::MAX));
    }
    if flag(context, "privileged") && get(context, "allowPrivilegeEscalation") == &Value::Bool(false) {
        let detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.invalid(path, context.clone(), detail);
    }
}

/// Validates the names of a pod's kernel parameters.
pub(super) fn sysctls(context: &Value, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child("sysctls");
    let sysctls = list(context, "sysctls");
    for (index, sysctl) in sysctls.iter().enumerate() {
        let (path, name) = (path.index(index), text(sysctl, "name"));
        let path = path.child("name");
        if name.is_empty() {
            errors.required(&path, "");
        } else if sysctls.iter().take(index).any(|earlier| text(earlier, "name") == name) {
            errors.duplicate(&path, name);
        } else {
            errors.rule(&path, name, names::sysctl);
        }
    }
}

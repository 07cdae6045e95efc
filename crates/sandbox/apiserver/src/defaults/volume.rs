//! Volumes.

use super::{Fields, each, image::pull_policy, make, quantity::round_up, set, set_pointer, with};

/// Default mode of projected files: 0644.
const FILE_MODE: i32 = 0o644;

/// Sets the defaults of a volume of a pod.
pub(super) fn volume(volume: &mut Fields) {
    if volume.keys().all(|key| key == "name") {
        make(volume, "emptyDir", |_| ());
    }
    with(volume, "hostPath", |source| set_pointer(source, "type", ""));
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        with(volume, source, |source| set(source, "defaultMode", FILE_MODE));
    }
    with(volume, "downwardAPI", downward);
    with(volume, "projected", |source| {
        each(source, "sources", |source| {
            with(source, "downwardAPI", downward);
            with(source, "serviceAccountToken", |token| set(token, "expirationSeconds", 3600));
        });
    });
    with(volume, "image", |source| {
        let reference = source.get("reference").and_then(|text| text.as_str()).unwrap_or_default();
        let policy = pull_policy(reference);
        set(source, "pullPolicy", policy);
    });
    with(volume, "ephemeral", |source| {
        with(source, "volumeClaimTemplate", |template| with(template, "spec", claim));
    });
    with(volume, "iscsi", |source| set(source, "iscsiInterface", "default"));
    with(volume, "rbd", |source| {
        set(source, "pool", "rbd");
        set(source, "user", "admin");
        set(source, "keyring", "/etc/ceph/keyring");
    });
    with(volume, "azureDisk", |source| {
        set_pointer(source, "cachingMode", "ReadWrite");
        set_pointer(source, "kind", "Shared");
        set_pointer(source, "fsType", "ext4");
        set_pointer(source, "readOnly", false);
    });
    with(volume, "scaleIO", |source| {
        set(source, "storageMode", "ThinProvisioned");
        set(source, "fsType", "xfs");
    });
}

fn downward(source: &mut Fields) {
    each(source, "items", |item| with(item, "fieldRef", field_ref));
}

/// Sets the default of a reference to a field of the pod.
pub(super) fn field_ref(reference: &mut Fields) {
    set(reference, "apiVersion", "v1");
}

/// Sets the defaults of the spec of a PersistentVolumeClaim.
fn claim(spec: &mut Fields) {
    set_pointer(spec, "volumeMode", "Filesystem");
    with(spec, "resources", |resources| {
        with(resources, "limits", round_up);
        with(resources, "requests", round_up);
    });
}

//! `--emulated-version` and `--min-compatibility-version`.
//!
//! Upstream counterpart: `k8s.io/component-base/compatibility`.

use std::fmt;

use super::Diagnostics;
use crate::flags::Flags;

/// Component whose version can be set.
const COMPONENT: &str = "kube";

/// Emulated version of Kubernetes.
const EMULATED: Version = Version { major: 1, minor: 36, patch: None };

/// Oldest version that upstream can emulate or is compatible with.
const OLDEST: Version = Version { major: 1, minor: 33, patch: None };

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    major: u32,
    minor: u32,
    patch: Option<u32>,
}

impl Version {
    fn parse(text: &str) -> Result<Self, String> {
        let invalid = || format!("could not parse {text:?} as version");
        let numbers: Result<Vec<u32>, _> =
            text.strip_prefix('v').unwrap_or(text).split('.').map(str::parse).collect();
        match numbers.map_err(|_| invalid())?[..] {
            [major, minor] => Ok(Self { major, minor, patch: None }),
            [major, minor, patch] => Ok(Self { major, minor, patch: Some(patch) }),
            [_] => Err(format!("illegal version string {text:?}")),
            _ => Err(invalid()),
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)?;
        self.patch.map_or(Ok(()), |patch| write!(f, ".{patch}"))
    }
}

/// Reports an error unless the emulated version is [`EMULATED`].
pub(crate) fn check(flags: &Flags, diagnostics: &mut Diagnostics) {
    match component_version(flags.list("emulated-version")) {
        Err(error) => diagnostics.error(error),
        Ok(Some(version)) if version > EMULATED || version < OLDEST => {
            diagnostics.error(format!("emulation version {version} is not between [{OLDEST}, {EMULATED}.0]"));
        }
        // DEVIATION: upstream can emulate the three previous minor versions.
        Ok(Some(version)) if version != EMULATED => {
            diagnostics.error(format!("emulation version {version} is not supported: must be {EMULATED}"));
        }
        Ok(_) => {}
    }
    match component_version(flags.list("min-compatibility-version")) {
        Err(error) => diagnostics.error(error),
        Ok(Some(version)) if version > EMULATED || version < OLDEST => {
            diagnostics.error(format!(
                "minCompatibilityVersion version {version} is not between [{OLDEST}, {EMULATED}]"
            ));
        }
        Ok(_) => {}
    }
}

/// Version of [`COMPONENT`] in `[component=]version` elements.
fn component_version(elements: &[String]) -> Result<Option<Version>, String> {
    let mut found: Option<Version> = None;
    for element in elements {
        let (component, version) = element.split_once('=').unwrap_or((COMPONENT, element));
        let (component, version) = (component.trim(), Version::parse(version.trim())?);
        if version.patch.is_some_and(|patch| patch != 0) {
            return Err(format!("patch version not allowed, got: {component}={version}"));
        }
        if component != COMPONENT {
            return Err(format!("component not registered: {component}"));
        }
        let version = Version { patch: None, ..version };
        if let Some(other) = found {
            return Err(format!("duplicate version flag, {component}={other} and {component}={version}"));
        }
        found = Some(version);
    }
    Ok(found)
}

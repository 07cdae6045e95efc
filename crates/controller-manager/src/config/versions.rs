//! `--emulated-version` and `--min-compatibility-version`.
//!
//! Upstream counterpart: `k8s.io/component-base/compatibility`.

use std::fmt;

use super::Diagnostics;
use crate::flags::Flags;

/// The only component that there is.
const COMPONENT: &str = "kube";

/// What this program behaves as.
const BUILT: Version = Version { major: 1, minor: 36, patch: None };

/// The oldest that upstream can emulate or live beside.
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

/// Refuses to behave as anything but what is built.
pub(crate) fn check(flags: &Flags, diagnostics: &mut Diagnostics) {
    match of_component(flags.list("emulated-version")) {
        Err(problem) => diagnostics.problem(problem),
        Ok(Some(version)) if version > BUILT || version < OLDEST => {
            diagnostics.problem(format!("emulation version {version} is not between [{OLDEST}, {BUILT}.0]"));
        }
        // DEVIATION: upstream can behave as its three predecessors.
        Ok(Some(version)) if version != BUILT => {
            diagnostics.problem(format!("emulation version {version} is not built in: only {BUILT} is"));
        }
        Ok(_) => {}
    }
    match of_component(flags.list("min-compatibility-version")) {
        Err(problem) => diagnostics.problem(problem),
        Ok(Some(version)) if version > BUILT || version < OLDEST => {
            diagnostics.problem(format!(
                "minCompatibilityVersion version {version} is not between [{OLDEST}, {BUILT}]"
            ));
        }
        Ok(_) => {}
    }
}

/// What `[component=]version` elements say of ours.
fn of_component(elements: &[String]) -> Result<Option<Version>, String> {
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

//! Authentication.

use std::{collections::HashMap, fmt};

use http::{HeaderMap, header};
use thiserror::Error;

use super::route::Route;
use crate::{ApiStatus, StatusReason};

/// User of a request.
///
/// Upstream counterpart: `user.Info`. There is no authorization: every authenticated user may do everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// User name.
    pub name: String,
    /// UID, which distinguishes users of the same name, or empty.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
}

const AUTHENTICATED: &str = "system:authenticated";

impl User {
    /// User of all requests if no tokens are configured.
    pub fn admin() -> Self {
        Self::of_groups("system:admin", &["system:masters", AUTHENTICATED])
    }

    fn anonymous() -> Self {
        Self::of_groups("system:anonymous", &["system:unauthenticated"])
    }

    fn of_groups(name: &str, groups: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            uid: String::new(),
            groups: groups.iter().map(|&group| group.to_owned()).collect(),
        }
    }
}

/// Bearer tokens and their users.
///
/// Upstream counterpart: `--token-auth-file`, `authenticator/token/tokenfile`.
#[derive(Clone, Default)]
pub struct Tokens {
    users: HashMap<String, User>,
    first: Option<String>,
}

/// Invalid line of a token file.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {reason}")]
pub struct TokenFileError {
    /// Line number, starting at 1.
    pub line: usize,
    /// Cause.
    pub reason: &'static str,
}

impl Tokens {
    /// Parses upstream's CSV format with a line `token,user,uid,"group1,group2"` per token. The groups are optional. Empty
    /// lines and lines that begin with `#` are ignored.
    ///
    /// # Errors
    ///
    /// A line has fewer than three columns, an empty token or user name, an unterminated quote or a duplicate token.
    pub fn parse(text: &str) -> Result<Self, TokenFileError> {
        let mut tokens = Self::default();
        for (index, line) in text.lines().enumerate() {
            let error = |reason| TokenFileError { line: index + 1, reason };
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let columns = columns(line).ok_or_else(|| error("invalid quoted column"))?;
            let [token, name, uid, groups @ ..] = columns.as_slice() else {
                return Err(error("expected at least three columns: token, user name, user UID"));
            };
            if token.is_empty() {
                return Err(error("empty token"));
            }
            if name.is_empty() {
                return Err(error("empty user name"));
            }
            let groups = groups.first().map_or("", String::as_str).split(',').map(str::trim);
            let groups = groups.chain([AUTHENTICATED]).filter(|group| !group.is_empty());
            let user =
                User { name: name.clone(), uid: uid.clone(), groups: groups.map(str::to_owned).collect() };
            tokens.first.get_or_insert_with(|| token.clone());
            if tokens.users.insert(token.clone(), user).is_some() {
                return Err(error("duplicate token"));
            }
        }
        Ok(tokens)
    }

    /// Returns the user of a token.
    pub fn user(&self, token: &str) -> Option<&User> {
        self.users.get(token)
    }

    /// The first token of the file.
    pub fn first(&self) -> Option<&str> {
        self.first.as_deref()
    }

    /// Authenticates a request. Without a token, health, version and the web UI are accessible, the first two as with
    /// upstream's default roles.
    ///
    /// # Errors
    ///
    /// 401 if the token is missing or unknown.
    pub(super) fn authenticate(
        &self,
        headers: &HeaderMap,
        route: Result<&Route, &ApiStatus>,
    ) -> Result<User, ApiStatus> {
        let unauthorized = || ApiStatus::new(StatusReason::Unauthorized, "Unauthorized");
        let Some(given) = headers.get(header::AUTHORIZATION) else {
            // The page contains no data and prompts for the token.
            let public = matches!(route, Ok(Route::Health | Route::Version | Route::Ui));
            return public.then(User::anonymous).ok_or_else(unauthorized);
        };
        let (scheme, token) = given.to_str().ok().and_then(|given| given.split_once(' ')).unwrap_or_default();
        let user = scheme.eq_ignore_ascii_case("bearer").then(|| self.user(token.trim())).flatten();
        user.cloned().ok_or_else(unauthorized)
    }
}

/// Omits the tokens.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.users.values().map(|user| &user.name)).finish()
    }
}

/// Splits a line of CSV into columns.
fn columns(line: &str) -> Option<Vec<String>> {
    let mut columns = Vec::new();
    let mut rest = line.trim();
    loop {
        rest = rest.trim_start();
        let (column, after) = match rest.strip_prefix('"') {
            None => {
                let end = rest.find(',').unwrap_or(rest.len());
                let (column, after) = rest.split_at(end);
                (column.trim().to_owned(), after)
            }
            Some(quoted) => {
                let mut column = String::new();
                let mut quoted = quoted;
                loop {
                    let (part, after) = quoted.split_once('"')?;
                    column.push_str(part);
                    // A doubled quote is an escaped quote.
                    match after.strip_prefix('"') {
                        Some(more) => {
                            column.push('"');
                            quoted = more;
                        }
                        None => break (column, after.trim_start()),
                    }
                }
            }
        };
        columns.push(column);
        if after.is_empty() {
            return Some(columns);
        }
        rest = after.strip_prefix(',')?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_file_defines_users_and_groups() {
        let text = "# comment\na,alice,u1,\"dev,ops\"\n\nb,bob,u2\nc,\"c \"\"d\"\"\",u3,one\n";
        let tokens = Tokens::parse(text).unwrap();
        let groups = |token| tokens.user(token).unwrap().groups.join(" ");
        assert_eq!(groups("a"), "dev ops system:authenticated");
        assert_eq!(groups("b"), "system:authenticated");
        assert_eq!(tokens.user("a").unwrap().uid, "u1");
        assert_eq!(tokens.user("c").unwrap().name, "c \"d\"");
        assert_eq!(tokens.user("d"), None);
    }

    #[test]
    fn invalid_lines_are_rejected() {
        for bad in ["a,b", ",b,c", "a,,c", "a,b,c,\"open", "a,b,\"c\"d"] {
            assert_eq!(Tokens::parse(&format!("ok,ok,ok\n{bad}\n")).unwrap_err().line, 2, "{bad}");
        }
        assert_eq!(Tokens::parse("a,b,c\na,d,e").unwrap_err().reason, "duplicate token");
    }

    #[test]
    fn requests_without_valid_token_are_unauthorized() {
        let tokens = Tokens::parse("secret,alice,u1").unwrap();
        let ask = |path: &str, given: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(given) = given {
                headers.insert(header::AUTHORIZATION, given.parse().unwrap());
            }
            let route = Route::parse(path, std::sync::Arc::default);
            tokens.authenticate(&headers, route.as_ref()).map(|user| user.name).map_err(|no| no.code())
        };
        assert_eq!(ask("/api/v1/pods", Some("Bearer secret")), Ok("alice".to_owned()));
        assert_eq!(ask("/api/v1/pods", Some("bearer secret")), Ok("alice".to_owned()));
        for wrong in [None, Some("Bearer other"), Some("Basic secret"), Some("secret"), Some("")] {
            assert_eq!(ask("/api/v1/pods", wrong), Err(401), "{wrong:?}");
        }
        assert_eq!(ask("/readyz", None), Ok("system:anonymous".to_owned()));
        assert_eq!(ask("/ui", None), Ok("system:anonymous".to_owned()));
        assert_eq!(ask("/readyz", Some("Bearer other")), Err(401));
        assert_eq!(ask("/nowhere", None), Err(401));
    }
}

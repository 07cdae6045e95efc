//! Who sends a request.

use std::{collections::HashMap, fmt};

use http::{HeaderMap, header};
use thiserror::Error;

use super::route::Route;
use crate::{ApiStatus, Reason};

/// Who a request comes from.
///
/// Upstream counterpart: `user.Info`. There are no rights: whoever is let in may do everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// What it is called.
    pub name: String,
    /// What tells it from others of the name, or empty.
    pub uid: String,
    /// The groups it is in.
    pub groups: Vec<String>,
}

const AUTHENTICATED: &str = "system:authenticated";

impl User {
    /// Who requests come from as long as there are no tokens.
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

/// Bearer tokens and whose they are.
///
/// Upstream counterpart: `--token-auth-file`, `authenticator/token/tokenfile`.
#[derive(Clone, Default)]
pub struct Tokens {
    users: HashMap<String, User>,
    first: Option<String>,
}

/// A line of a token file that cannot be understood.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("line {line}: {what}")]
pub struct TokenFileError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: &'static str,
}

impl Tokens {
    /// Reads upstream's CSV form: `token,user,uid` and, if there are any, `"group1,group2"`, a line each.
    /// Empty lines and those that begin with `#` say nothing.
    ///
    /// # Errors
    ///
    /// When a line has too few columns, no token, no user name or a quote without end, or a token comes twice.
    pub fn parse(text: &str) -> Result<Self, TokenFileError> {
        let mut tokens = Self::default();
        for (index, line) in text.lines().enumerate() {
            let error = |what| TokenFileError { line: index + 1, what };
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let columns = columns(line).ok_or_else(|| error("a quoted column does not end well"))?;
            let [token, name, uid, groups @ ..] = columns.as_slice() else {
                return Err(error("at least three columns are needed: token, user name, user uid"));
            };
            if token.is_empty() {
                return Err(error("the token is empty"));
            }
            if name.is_empty() {
                return Err(error("the user name is empty"));
            }
            let groups = groups.first().map_or("", String::as_str).split(',').map(str::trim);
            let groups = groups.chain([AUTHENTICATED]).filter(|group| !group.is_empty());
            let user =
                User { name: name.clone(), uid: uid.clone(), groups: groups.map(str::to_owned).collect() };
            tokens.first.get_or_insert_with(|| token.clone());
            if tokens.users.insert(token.clone(), user).is_some() {
                return Err(error("the token was given before"));
            }
        }
        Ok(tokens)
    }

    /// Whose a token is.
    pub fn user(&self, token: &str) -> Option<&User> {
        self.users.get(token)
    }

    /// The first token of the file.
    pub fn first(&self) -> Option<&str> {
        self.first.as_deref()
    }

    /// Who a request with these headers comes from. Who shows no token may ask for nothing but health,
    /// version and the page; the first two as upstream's default roles have it.
    ///
    /// # Errors
    ///
    /// 401.
    pub(super) fn authenticate(
        &self,
        headers: &HeaderMap,
        route: Result<&Route, &ApiStatus>,
    ) -> Result<User, ApiStatus> {
        let unauthorized = || ApiStatus::new(Reason::Unauthorized, "Unauthorized");
        let Some(given) = headers.get(header::AUTHORIZATION) else {
            // The page knows nothing, and has to be there to ask for the token.
            let public = matches!(route, Ok(Route::Health | Route::Version | Route::Ui));
            return public.then(User::anonymous).ok_or_else(unauthorized);
        };
        let (scheme, token) = given.to_str().ok().and_then(|given| given.split_once(' ')).unwrap_or_default();
        let user = scheme.eq_ignore_ascii_case("bearer").then(|| self.user(token.trim())).flatten();
        user.cloned().ok_or_else(unauthorized)
    }
}

/// Does not tell the tokens.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.users.values().map(|user| &user.name)).finish()
    }
}

/// The columns of a line of CSV.
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
                    // Two quotes stand for one.
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
    fn token_file_tells_users_and_groups() {
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
    fn token_file_with_a_bad_line_is_refused() {
        for bad in ["a,b", ",b,c", "a,,c", "a,b,c,\"open", "a,b,\"c\"d"] {
            assert_eq!(Tokens::parse(&format!("ok,ok,ok\n{bad}\n")).unwrap_err().line, 2, "{bad}");
        }
        assert_eq!(Tokens::parse("a,b,c\na,d,e").unwrap_err().what, "the token was given before");
    }

    #[test]
    fn request_without_a_valid_token_is_unauthorized() {
        let tokens = Tokens::parse("secret,alice,u1").unwrap();
        let ask = |path: &str, given: Option<&str>| {
            let mut headers = HeaderMap::new();
            if let Some(given) = given {
                headers.insert(header::AUTHORIZATION, given.parse().unwrap());
            }
            let route = Route::parse(path);
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

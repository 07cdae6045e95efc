//! Bearer tokens.

use std::{collections::HashMap, fmt, sync::Arc};

use kcm_apiserver::{User, Users};
use thiserror::Error;

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
            let groups = groups.filter(|group| !group.is_empty()).map(str::to_owned).collect();
            let user = User::authenticated(name.clone(), uid.clone(), groups);
            tokens.first.get_or_insert_with(|| token.clone());
            if tokens.users.insert(token.clone(), user).is_some() {
                return Err(error("duplicate token"));
            }
        }
        Ok(tokens)
    }

    pub(crate) fn into_users(self) -> Users {
        Arc::new(move |token| self.users.get(token).cloned())
    }

    /// The first token of the file.
    pub fn first(&self) -> Option<&str> {
        self.first.as_deref()
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
        let groups = |token| tokens.users.get(token).unwrap().groups.join(" ");
        assert_eq!(groups("a"), "dev ops system:authenticated");
        assert_eq!(groups("b"), "system:authenticated");
        assert_eq!(tokens.users.get("a").unwrap().uid, "u1");
        assert_eq!(tokens.users.get("c").unwrap().name, "c \"d\"");
        assert_eq!(tokens.users.get("d"), None);
    }

    #[test]
    fn invalid_lines_are_rejected() {
        for bad in ["a,b", ",b,c", "a,,c", "a,b,c,\"open", "a,b,\"c\"d"] {
            assert_eq!(Tokens::parse(&format!("ok,ok,ok\n{bad}\n")).unwrap_err().line, 2, "{bad}");
        }
        assert_eq!(Tokens::parse("a,b,c\na,d,e").unwrap_err().reason, "duplicate token");
    }
}

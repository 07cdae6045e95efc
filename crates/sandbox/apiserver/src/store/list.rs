use std::{
    collections::{BTreeMap, btree_map},
    iter::Peekable,
    ops::Bound,
    sync::Arc,
};

use base64::{DecodeError, Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use super::{Key, State, Store, WatchCache, as_str, key, keys_in};
use crate::{ApiStatus, ListOptions, Object, Resource, ResourceVersionMatch, StatusReason, object::Version};

/// A list of objects, or a page of one.
#[derive(Debug, Clone, Default)]
pub struct ObjectList {
    /// Revision of the list. A watch from this revision misses no change.
    pub revision: u64,
    /// Objects in key order (`namespace/name`).
    pub items: Vec<Arc<Object>>,
    /// Token of the next page, if any.
    pub continue_token: Option<String>,
    /// Number of objects on later pages. `None` if the list has selectors.
    pub remaining: Option<usize>,
}

/// Continue token, in upstream's format.
#[derive(Serialize, Deserialize)]
struct Token {
    #[serde(rename = "v")]
    version: String,
    /// Revision of all pages. -1 for the latest.
    rv: i64,
    start: String,
}

impl Token {
    const VERSION: &str = "meta.k8s.io/v1";

    fn encode(revision: i64, start: &str) -> String {
        let token = Self { version: Self::VERSION.to_owned(), rv: revision, start: start.to_owned() };
        BASE64_URL_SAFE_NO_PAD.encode(serde_json::to_vec(&token).unwrap_or_default())
    }

    fn decode(text: &str) -> Result<Self, ApiStatus> {
        let invalid = |why: String| {
            ApiStatus::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let json = BASE64_URL_SAFE_NO_PAD.decode(text).map_err(|error| {
            let position = match error {
                DecodeError::InvalidByte(position, _) | DecodeError::InvalidLastSymbol(position, _) => {
                    position
                }
                DecodeError::InvalidLength(_) | DecodeError::InvalidPadding => text.len() / 4 * 4,
            };
            invalid(format!("illegal base64 data at input byte {position}"))
        })?;
        let token: Self = serde_json::from_slice(&json).map_err(|error| invalid(error.to_string()))?;
        if token.version != Self::VERSION || token.start.is_empty() || token.rv == 0 || token.rv < -1 {
            return Err(invalid(format!("{text:?} was not made by this server")));
        }
        Ok(token)
    }
}

/// Checks a continue token.
pub(crate) fn check_continue(token: &str) -> Result<(), ApiStatus> {
    Token::decode(token).map(drop)
}

impl Store {
    /// Lists `resource` in `namespace`. `""` lists all namespaces.
    ///
    /// # Errors
    ///
    /// 410 if the requested state is no longer in the history, 504 if it does not exist yet, 400 if the continue token
    /// is invalid.
    pub(crate) fn list(
        &self,
        resource: Resource,
        namespace: &str,
        options: &ListOptions,
    ) -> Result<ObjectList, ApiStatus> {
        self.list_from(None, resource, namespace, options)
    }

    /// As [`list`](Self::list). If there is a `cache`, its state is the latest.
    pub(crate) fn list_from(
        &self,
        cache: Option<&WatchCache>,
        resource: Resource,
        namespace: &str,
        options: &ListOptions,
    ) -> Result<ObjectList, ApiStatus> {
        let token = options.continue_token.as_deref().map(Token::decode).transpose()?;
        let state = self.0.state.read();
        let newest = cache.map_or(state.revision, |cache| cache.revision_in(&state));
        let wanted = match (&token, options.version_match) {
            (Some(token), _) => u64::try_from(token.rv).ok(),
            (None, Some(ResourceVersionMatch::Exact)) => options.resource_version,
            _ => None,
        };
        let minimum = wanted.or(options.resource_version).unwrap_or_default();
        if minimum > state.revision {
            return Err(ApiStatus::too_large_resource_version(minimum, state.revision));
        }
        let revision = wanted.unwrap_or(newest);
        if revision < state.history.oldest(Some(resource)) {
            return Err(expired(token.as_ref(), revision, state.history.oldest(Some(resource))));
        }

        let selection = &options.selection;
        if let (Some(name), true, None) = (selection.fields.exact_name(), revision == state.revision, &token)
            && namespace.is_empty() != resource.is_namespaced()
        {
            let found = state.get(resource, &key(namespace, name)).filter(|object| selection.matches(object));
            let items = found.into_iter().collect();
            return Ok(ObjectList { revision, items, ..ObjectList::default() });
        }

        let (mut from, to) = keys_in(namespace);
        if let Some(token) = token {
            from = match from {
                Bound::Included(first) if first > token.start => Bound::Included(first),
                _ => Bound::Included(token.start),
            };
        }
        if matches!((&from, &to), (Bound::Included(from), Bound::Excluded(to)) if from >= to) {
            return Ok(ObjectList { revision, ..ObjectList::default() });
        }
        let mut versions = objects_at(&state, resource, revision, (as_str(&from), as_str(&to)));
        if selection.is_everything() && options.limit > 0 {
            let page: Vec<_> = versions.by_ref().take(options.limit).cloned().collect();
            let remaining = versions.count();
            drop(state);
            let items = page.iter().map(|version| self.0.recent.peek(version)).collect();
            return Ok(page_of(items, remaining > 0, Some(remaining), revision));
        }
        // Objects are selected after the lock is released, because field selectors decode them.
        let versions: Vec<_> = versions.cloned().collect();
        drop(state);
        let mut selected = versions
            .iter()
            .map(|version| self.0.recent.peek(version))
            .filter(|object| selection.matches(object));
        if options.limit == 0 {
            return Ok(ObjectList { revision, items: selected.collect(), ..ObjectList::default() });
        }
        let items = selected.by_ref().take(options.limit).collect();
        Ok(page_of(items, selected.next().is_some(), None, revision))
    }
}

/// Returns a page. If `more`, it has a token of the next page.
fn page_of(items: Vec<Arc<Object>>, more: bool, remaining: Option<usize>, revision: u64) -> ObjectList {
    let token = || {
        // In bytewise order, the successor of a key is the key with a zero byte appended.
        let start = items.last().map(|last| format!("{}\0", last.version().key())).unwrap_or_default();
        Token::encode(i64::try_from(revision).unwrap_or(i64::MAX), &start)
    };
    let continue_token = more.then(token);
    ObjectList { revision, items, continue_token, remaining: remaining.filter(|_| more) }
}

fn expired(token: Option<&Token>, revision: u64, oldest: u64) -> ApiStatus {
    let Some(token) = token else { return ApiStatus::expired(revision, oldest) };
    let message = "The provided continue parameter is too old to display a consistent list result. You can start a \
                   new list without the continue parameter, or use the continue token in this response to retrieve \
                   the remainder of the results. Continuing with the provided token results in an inconsistent list \
                   - objects that were created, modified, or deleted between the time the first chunk was returned \
                   and now may show up in the list.";
    ApiStatus {
        continue_token: Some(Token::encode(-1, &token.start)),
        ..ApiStatus::new(StatusReason::Expired, message)
    }
}

/// Iterates over the objects within `bounds` as of `revision`: the current objects with later changes undone.
pub(super) fn objects_at<'a>(
    state: &'a State,
    resource: Resource,
    revision: u64,
    bounds: (Bound<&str>, Bound<&str>),
) -> impl Iterator<Item = &'a Arc<Version>> {
    let mut undone = BTreeMap::new();
    for change in state.history.after(revision).rev().filter(|change| change.resource() == resource) {
        // In reverse order, the oldest change of a key is inserted last.
        undone.insert(change.object.key(), change.old.as_ref());
    }
    let outside = |key: &str| {
        let before = matches!(bounds.0, Bound::Included(from) if key < from);
        before || matches!(bounds.1, Bound::Excluded(to) if key >= to)
    };
    undone.retain(|key, _| !outside(key));
    let now = state.versions(resource).map(|objects| objects.range::<str, _>(bounds));
    Merged { now: now.unwrap_or_default().peekable(), undone: undone.into_iter().peekable() }
}

struct Merged<'a> {
    now: Peekable<btree_map::Range<'a, Key, Arc<Version>>>,
    undone: Peekable<btree_map::IntoIter<&'a Key, Option<&'a Arc<Version>>>>,
}

impl<'a> Iterator for Merged<'a> {
    type Item = &'a Arc<Version>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((key, before)) =
                self.undone.next_if(|(undone, _)| self.now.peek().is_none_or(|(now, _)| undone <= now))
            else {
                return self.now.next().map(|(_, version)| version);
            };
            // The earlier version replaces the current one.
            self.now.next_if(|(now, _)| *now == key);
            if let Some(before) = before {
                return Some(before);
            }
        }
    }
}

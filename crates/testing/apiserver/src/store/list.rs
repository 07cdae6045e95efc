use std::{
    collections::{BTreeMap, btree_map},
    iter::Peekable,
    ops::Bound,
    sync::Arc,
};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};

use super::{Key, State, Store, WatchCache, as_str, key, keys_in};
use crate::{ApiStatus, ListOptions, Object, Reason, Resource, ResourceVersionMatch};

/// The objects of a list, or one page of them.
#[derive(Debug, Clone, Default)]
pub struct ObjectList {
    /// The state that the list shows. A watch that starts after it misses nothing.
    pub revision: u64,
    /// The objects, in the order of `namespace/name`.
    pub items: Vec<Arc<Object>>,
    /// Where the next page begins, if there is one.
    pub continue_token: Option<String>,
    /// How many objects follow on later pages, if that is known without looking at each.
    pub remaining: Option<usize>,
}

/// Where a page begins. The form is upstream's, and opaque to clients.
#[derive(Serialize, Deserialize)]
struct Token {
    #[serde(rename = "v")]
    version: String,
    /// The state that all pages show; -1 for the newest, whichever that is.
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
        let invalid = |why: String| ApiStatus::bad_request(format!("continue key is not valid: {why}"));
        let json = BASE64_URL_SAFE_NO_PAD
            .decode(text.trim_end_matches('='))
            .map_err(|error| invalid(error.to_string()))?;
        let token: Self = serde_json::from_slice(&json).map_err(|error| invalid(error.to_string()))?;
        if token.version != Self::VERSION || token.start.is_empty() || token.rv == 0 || token.rv < -1 {
            return Err(invalid(format!("{text:?} was not made by this server")));
        }
        Ok(token)
    }
}

impl Store {
    /// Lists `resource` in `namespace`, empty for all of them.
    ///
    /// # Errors
    ///
    /// When a state is asked for that is forgotten (410) or not there yet (504), or the token makes no sense.
    pub(crate) fn list(
        &self,
        resource: Resource,
        namespace: &str,
        options: &ListOptions,
    ) -> Result<ObjectList, ApiStatus> {
        self.list_from(None, resource, namespace, options)
    }

    /// Lists from `cache` where the newest state is wanted, or from the store if there is none.
    ///
    /// # Errors
    ///
    /// As [`list`](Self::list).
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
        let least = wanted.or(options.resource_version).unwrap_or_default();
        if least > state.revision {
            return Err(ApiStatus::too_large_resource_version(least, state.revision));
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
            let items = found.cloned().into_iter().collect();
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
        let then = then(&state, resource, revision, (as_str(&from), as_str(&to)));
        Ok(page(then, revision, options))
    }
}

/// Takes the first page off `objects`.
fn page<'a>(
    mut objects: impl Iterator<Item = (&'a Key, &'a Arc<Object>)>,
    revision: u64,
    options: &ListOptions,
) -> ObjectList {
    let mut list = ObjectList { revision, ..ObjectList::default() };
    let mut last = None;
    for (key, object) in objects.by_ref() {
        if !options.selection.matches(object) {
            continue;
        }
        if options.limit > 0 && list.items.len() == options.limit {
            // What comes right after the last key in bytewise order is that key with a zero byte.
            let start = last.map(|last: &Key| format!("{last}\0")).unwrap_or_default();
            list.continue_token = Some(Token::encode(i64::try_from(revision).unwrap_or(i64::MAX), &start));
            list.remaining = options.selection.is_everything().then(|| objects.count() + 1);
            break;
        }
        list.items.push(Arc::clone(object));
        last = Some(key);
    }
    list
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
        ..ApiStatus::new(Reason::Expired, message)
    }
}

/// The objects within `bounds` as they were at `revision`: those of now, with what happened since undone.
pub(super) fn then<'a>(
    state: &'a State,
    resource: Resource,
    revision: u64,
    bounds: (Bound<&str>, Bound<&str>),
) -> impl Iterator<Item = (&'a Key, &'a Arc<Object>)> {
    let mut undone = BTreeMap::new();
    for change in state.history.after(revision).rev().filter(|change| change.resource() == resource) {
        // Going back in time, the last word on a key is the state before its first change.
        undone.insert(&change.key, change.old.as_ref());
    }
    let outside = |key: &str| {
        let before = matches!(bounds.0, Bound::Included(from) if key < from);
        before || matches!(bounds.1, Bound::Excluded(to) if key >= to)
    };
    undone.retain(|key, _| !outside(key));
    let now = state.objects(resource).map(|objects| objects.range::<str, _>(bounds));
    Merged { now: now.unwrap_or_default().peekable(), undone: undone.into_iter().peekable() }
}

struct Merged<'a> {
    now: Peekable<btree_map::Range<'a, Key, Arc<Object>>>,
    undone: Peekable<btree_map::IntoIter<&'a Key, Option<&'a Arc<Object>>>>,
}

impl<'a> Iterator for Merged<'a> {
    type Item = (&'a Key, &'a Arc<Object>);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Some((key, before)) =
                self.undone.next_if(|(undone, _)| self.now.peek().is_none_or(|(now, _)| undone <= now))
            else {
                return self.now.next();
            };
            // The state before replaces the state of now.
            self.now.next_if(|(now, _)| *now == key);
            if let Some(before) = before {
                return Some((key, before));
            }
        }
    }
}

//! Sharing of equal values between objects.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt,
    hash::{BuildHasher, Hash},
    sync::{Arc, Weak},
};

use foldhash::fast::FixedState;
use parking_lot::Mutex;

/// Table of shared values. It does not keep them alive.
///
/// Values whose 64-bit hashes collide are not shared, which costs memory only. Therefore the table stores no keys, and the hash
/// function does not have to resist chosen keys.
pub(crate) struct Interner<T: ?Sized>(Mutex<Table<T>>);

struct Table<T: ?Sized> {
    by_hash: HashMap<u64, Weak<T>, FixedState>,
    /// Size at which dropped values are removed next. It is twice the size after the last removal, so the cost per
    /// insertion is constant, and at most half of the entries are dead.
    sweep_at: usize,
}

/// Minimum size at which dropped values are removed.
const SMALLEST_SWEEP: usize = 64;

impl<T: ?Sized> Interner<T> {
    /// Returns the shared value for `key`: an existing one that is `same`, or the result of `make`.
    pub(crate) fn intern<K: Hash + ?Sized>(
        &self,
        key: &K,
        same: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Arc<T>,
    ) -> Arc<T> {
        match self.try_intern(key, same, || Ok::<_, Infallible>(make())) {
            Ok(value) => value,
            Err(never) => match never {},
        }
    }

    /// Same as [`intern`](Self::intern), with a `make` that can fail.
    pub(crate) fn try_intern<K: Hash + ?Sized, E>(
        &self,
        key: &K,
        same: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Result<Arc<T>, E>,
    ) -> Result<Arc<T>, E> {
        let hash = FixedState::default().hash_one(key);
        let mut table = self.0.lock();
        match table.by_hash.get(&hash).and_then(Weak::upgrade) {
            Some(found) if same(&found) => Ok(found),
            Some(_) => {
                drop(table);
                make()
            }
            // `make` runs under the lock, so that concurrent callers get the same value.
            None => {
                let made = make()?;
                table.insert(hash, &made);
                Ok(made)
            }
        }
    }

    /// Number of entries, including dropped values.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().by_hash.len()
    }
}

impl Interner<str> {
    /// Returns the shared copy of `text`.
    pub(crate) fn text(&self, text: &str) -> Arc<str> {
        self.intern(text, |found| found == text, || Arc::from(text))
    }
}

impl<T: ?Sized> Table<T> {
    fn insert(&mut self, hash: u64, value: &Arc<T>) {
        if self.by_hash.len() >= self.sweep_at {
            self.by_hash.retain(|_, value| value.strong_count() > 0);
            self.by_hash.shrink_to(2 * self.by_hash.len());
            self.sweep_at = SMALLEST_SWEEP.max(2 * self.by_hash.len());
        }
        self.by_hash.insert(hash, Arc::downgrade(value));
    }
}

impl<T: ?Sized> Default for Interner<T> {
    fn default() -> Self {
        Self(Mutex::new(Table { by_hash: HashMap::default(), sweep_at: SMALLEST_SWEEP }))
    }
}

impl<T: ?Sized> fmt::Debug for Interner<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interner").field("values", &self.0.lock().by_hash.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_are_shared() {
        let texts = Interner::default();
        let first = texts.text("default");
        assert!(Arc::ptr_eq(&first, &texts.text("default")));
        assert!(!Arc::ptr_eq(&first, &texts.text("other")));
    }

    #[test]
    fn colliding_values_are_not_shared() {
        let texts: Interner<str> = Interner::default();
        let intern = |text: &'static str| texts.intern("same", |found| found == text, || Arc::from(text));
        let first = intern("a");
        assert_eq!((&*first, &*intern("b")), ("a", "b"));
        assert!(Arc::ptr_eq(&first, &intern("a")));
    }

    #[test]
    fn dropped_values_are_removed() {
        let texts = Interner::default();
        let held: Vec<_> = (0..10).map(|n| texts.text(&format!("held-{n}"))).collect();
        for n in 0..10_000 {
            texts.text(&format!("gone-{n}"));
        }
        assert!(texts.len() <= SMALLEST_SWEEP, "{}", texts.len());
        assert!(held.iter().all(|text| Arc::ptr_eq(text, &texts.text(text))));
    }

    #[test]
    fn concurrent_callers_share() {
        let texts = Interner::default();
        let copies: Vec<Arc<str>> = std::thread::scope(|scope| {
            let ask = || scope.spawn(|| texts.text("default"));
            let threads = [ask(), ask(), ask(), ask()];
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(copies.iter().all(|copy| Arc::ptr_eq(copy, &copies[0])));
    }
}

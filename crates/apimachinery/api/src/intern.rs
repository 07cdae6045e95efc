//! One copy of each value that many objects have in common.

use std::{
    collections::HashMap,
    fmt,
    hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash},
    sync::{Arc, Weak},
};

use parking_lot::Mutex;

/// Hands out one shared copy per distinct value, and keeps none alive itself.
///
/// Two values whose 64-bit hashes collide are not shared: that costs memory and is otherwise unnoticeable, and
/// it spares the table every key but the hash.
pub(crate) struct Interner<T: ?Sized>(Mutex<Table<T>>);

struct Table<T: ?Sized> {
    by_hash: HashMap<u64, Weak<T>, BuildHasherDefault<DefaultHasher>>,
    /// The size at which entries of dropped values are looked for next. Twice what the last look left, so that
    /// a look costs nothing per entry added, and at most half of the table is dead.
    sweep_at: usize,
}

/// Below this size a table is not worth a look.
const SMALLEST_SWEEP: usize = 64;

impl<T: ?Sized> Interner<T> {
    /// The shared copy of the value that `key` stands for: one that is `same`, or else what `make` returns.
    pub(crate) fn intern<K: Hash + ?Sized>(
        &self,
        key: &K,
        same: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Arc<T>,
    ) -> Arc<T> {
        let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one(key);
        let mut table = self.0.lock();
        match table.by_hash.get(&hash).and_then(Weak::upgrade) {
            Some(found) if same(&found) => found,
            Some(_) => {
                drop(table);
                make()
            }
            // Made under the lock: of two threads with the same new value, one makes it and both get it.
            None => {
                let made = make();
                table.insert(hash, &made);
                made
            }
        }
    }

    /// How many values are held on to, dead ones that have not been swept out included.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.0.lock().by_hash.len()
    }
}

impl Interner<str> {
    /// The shared copy of `text`.
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
    fn text_asked_for_twice_is_one_copy() {
        let texts = Interner::default();
        let first = texts.text("default");
        assert!(Arc::ptr_eq(&first, &texts.text("default")));
        assert!(!Arc::ptr_eq(&first, &texts.text("other")));
    }

    #[test]
    fn values_whose_hashes_collide_are_kept_apart() {
        let texts: Interner<str> = Interner::default();
        let intern = |text: &'static str| texts.intern("same", |found| found == text, || Arc::from(text));
        let first = intern("a");
        assert_eq!((&*first, &*intern("b")), ("a", "b"));
        assert!(Arc::ptr_eq(&first, &intern("a")));
    }

    #[test]
    fn values_nobody_holds_are_swept_out() {
        let texts = Interner::default();
        let held: Vec<_> = (0..10).map(|n| texts.text(&format!("held-{n}"))).collect();
        for n in 0..10_000 {
            texts.text(&format!("gone-{n}"));
        }
        assert!(texts.len() <= SMALLEST_SWEEP, "{}", texts.len());
        assert!(held.iter().all(|text| Arc::ptr_eq(text, &texts.text(text))));
    }

    #[test]
    fn value_asked_for_by_many_threads_at_once_is_one_copy() {
        let texts = Interner::default();
        let copies: Vec<Arc<str>> = std::thread::scope(|scope| {
            let ask = || scope.spawn(|| texts.text("default"));
            let threads = [ask(), ask(), ask(), ask()];
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(copies.iter().all(|copy| Arc::ptr_eq(copy, &copies[0])));
    }
}

use std::{fmt::Debug, hash::Hash};

/// Item of a queue: a key that is cheap to clone. Equal items denote the same work.
///
/// Implemented for every type with these bounds.
pub trait Item: Clone + Eq + Hash + Debug + Send + Sync + 'static {}

impl<T: Clone + Eq + Hash + Debug + Send + Sync + 'static> Item for T {}

//! placeholder
mod handler;
mod object;
mod source;
pub use handler::{Deleted, EventHandler};
pub use object::Object;
pub use source::{List, ListOptions, ListWatch, Undecodable, WatchEvent, WatchOptions, WatchStream};

//! Measurements of the manager and the sandbox, beside upstream's programs if given. `README.md` lists them.

pub mod apiserver_load;
pub mod budget;
pub mod build_times;
mod error;
pub mod manager_load;
pub mod manager_soak;
pub mod measure;

pub use error::TaskError;

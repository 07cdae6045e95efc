//! placeholder

pub mod defaults;
pub mod patch;
pub mod protobuf;
pub mod strict;
pub mod table;
pub mod validate;

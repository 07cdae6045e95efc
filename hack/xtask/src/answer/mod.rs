//! What our controllers answer to recorded cases of upstream's, in the recordings' own form.

pub mod hash;

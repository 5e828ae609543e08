//! What a person reads. Everything here is a pure function from values to
//! lines; text that a model, an agent or a repository wrote passes
//! `domain::text` on the way, here and nowhere else.

pub(crate) mod attestation;
pub(crate) mod block;
pub(crate) mod card;
pub(crate) mod finding;
pub(crate) mod json;
pub(crate) mod style;
pub(crate) mod table;
pub(crate) mod time;
pub(crate) mod transcript;

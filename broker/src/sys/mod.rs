//! The places where the launcher talks to the kernel without the type system's help: fork and exec,
//! descriptors inherited by number, and killing every process of a uid.
#![expect(unsafe_code, reason = "fork, exec, raw descriptors and kill(-1) have no safe form")]

pub(crate) mod inherited;
pub(crate) mod purge;
pub(crate) mod spawn;

//! The operating system: every `unsafe` of this crate, behind functions that keep their callers' promises themselves.
//!
//! Nothing here decides anything. What a process may do is data in `sandbox`; what the tool host does with its children is in
//! `host`.
#![expect(unsafe_code, reason = "the one folder of this crate where the kernel is called directly")]

pub(crate) mod confine;
pub(crate) mod process;
pub(crate) mod spawn;

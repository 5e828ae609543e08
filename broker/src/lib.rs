//! The root process of Sentinel: it starts the other processes under the accounts they belong to,
//! alone waits for and signals them, and carries out a closed list of checked requests for the
//! control plane.
//!
//! What is absent is the point: no async runtime, no HTTP, no pattern matching, no configuration
//! files, no caller-chosen command, path or uid.

pub mod acl;
pub mod channel;
pub mod client;
mod framing;
pub mod protocol;

//! What clients and the control plane say to each other. Today that is the
//! control socket: frames, messages, views and a blocking client. Nothing here
//! decides or stores.

pub mod client;
pub mod control;
pub mod frame;
pub mod limits;

pub use client::{Client, ClientError};

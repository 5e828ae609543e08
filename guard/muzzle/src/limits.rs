//! Every numeric ceiling of Muzzle, in one place.
//!
//! The constants are the documented values; [`Ceilings`] carries them so that a test can ask for smaller ones. Nothing
//! here reads configuration: a ceiling that a person may change becomes a field of the configuration first.

use std::time::Duration;

/// Largest request body accepted from a client, in bytes.
pub const REQUEST_BODY_BYTES: u64 = 16 * 1024 * 1024;
/// Largest body accepted on the admin interface, in bytes.
pub const ADMIN_BODY_BYTES: usize = 1024 * 1024;
/// Requests in flight on one listener.
pub const LISTENER_REQUESTS: usize = 1024;
/// Requests in flight with one bearer, so that one run cannot starve the others of a listener.
pub const RUN_REQUESTS: usize = 64;
/// Open client connections of one listener, idle ones included. Further ones wait in the kernel's backlog.
pub const LISTENER_CONNECTIONS: usize = 2048;
/// Open connections on the admin interface.
pub const ADMIN_CONNECTIONS: usize = 32;
/// Bearers admitted at one time.
pub const TOKENS: usize = 4096;
/// Listeners in one configuration.
pub const LISTENERS: usize = 64;
/// Upstreams in one configuration.
pub const UPSTREAMS: usize = 64;
/// Headers in one request or answer.
pub const HEADERS: usize = 128;
/// Bytes of one connection's read buffer, which is also the ceiling of a request head.
pub const CONNECTION_BUFFER_BYTES: usize = 64 * 1024;
/// Idle connections kept towards one upstream.
pub const UPSTREAM_IDLE_CONNECTIONS: usize = 64;
/// Bytes read and thrown away after a refusal, so that a client which is still sending gets to read the refusal.
pub const DISCARD_BYTES: u64 = 2 * REQUEST_BODY_BYTES;

/// Wait for a TCP connection to an upstream, name resolution included.
pub const CONNECT: Duration = Duration::from_secs(10);
/// Wait for the head of an upstream's answer. Long, because a local model may be loaded from disk first.
pub const ANSWER_HEAD: Duration = Duration::from_mins(10);
/// Silence inside an upstream's answer.
pub const ANSWER_SILENCE: Duration = Duration::from_mins(5);
/// Silence inside a client's request body.
pub const REQUEST_SILENCE: Duration = Duration::from_mins(1);
/// Wait for a client's next request head; also how long an idle client connection is kept.
pub const REQUEST_HEAD: Duration = Duration::from_secs(75);
/// Age at which an idle upstream connection is not used again. Below the five seconds after which common model
/// servers close theirs, because a request written into a connection that is being closed cannot be repeated.
pub const UPSTREAM_IDLE: Duration = Duration::from_secs(2);
/// Time the open exchanges of a removed listener have to finish.
pub const REMOVED_LISTENER_DRAIN: Duration = Duration::from_mins(10);
/// Time open exchanges have to finish when Muzzle is told to stop.
pub const SHUTDOWN_DRAIN: Duration = Duration::from_secs(3);
/// Time spent on reading and throwing away the rest of a refused request.
pub const DISCARD: Duration = Duration::from_secs(5);
/// Wait for an answer of the admin interface, seen from its client.
pub const ADMIN_ANSWER: Duration = Duration::from_secs(10);

/// The ceilings that one instance of Muzzle keeps. `Default` gives the documented values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ceilings {
    /// See [`REQUEST_BODY_BYTES`].
    pub request_body_bytes: u64,
    /// See [`LISTENER_REQUESTS`].
    pub listener_requests: usize,
    /// See [`RUN_REQUESTS`].
    pub run_requests: usize,
    /// See [`CONNECT`].
    pub connect: Duration,
    /// See [`ANSWER_HEAD`].
    pub answer_head: Duration,
    /// See [`ANSWER_SILENCE`].
    pub answer_silence: Duration,
    /// See [`REQUEST_SILENCE`].
    pub request_silence: Duration,
    /// See [`REMOVED_LISTENER_DRAIN`].
    pub removed_listener_drain: Duration,
    /// See [`SHUTDOWN_DRAIN`].
    pub shutdown_drain: Duration,
}

impl Default for Ceilings {
    fn default() -> Self {
        Self {
            request_body_bytes: REQUEST_BODY_BYTES,
            listener_requests: LISTENER_REQUESTS,
            run_requests: RUN_REQUESTS,
            connect: CONNECT,
            answer_head: ANSWER_HEAD,
            answer_silence: ANSWER_SILENCE,
            request_silence: REQUEST_SILENCE,
            removed_listener_drain: REMOVED_LISTENER_DRAIN,
            shutdown_drain: SHUTDOWN_DRAIN,
        }
    }
}

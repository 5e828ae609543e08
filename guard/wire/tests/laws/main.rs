//! Laws over generated documents, streams and plain garbage.

#![cfg(test)]

mod bodies;
mod framing;
mod streams;

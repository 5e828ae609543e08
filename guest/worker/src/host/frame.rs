//! Messages between worker and tool host: two lengths (32 bits each, little-endian), a JSON header, raw bytes.

use std::borrow::Cow;
use std::io::{ErrorKind, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::spec::{ChildOutcome, ChildSpec, HostError};
use crate::limits;
use crate::sandbox::{Applied, ChildGrants};

/// From the worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Request<'a> {
    /// Run a child; the body is its input.
    Run(Cow<'a, ChildSpec>),
    /// Build the sandbox for these grants and say what it is.
    Prepare(Cow<'a, ChildGrants>),
    /// End the running call; nothing when none is running.
    Cancel,
}

/// From the tool host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    /// First message: the tool host is confined and waits for calls, or why it is not.
    Ready(Result<(), HostError>),
    /// The body is standard output, then standard error.
    Ran { outcome: Result<ChildOutcome, HostError>, stdout: usize },
    /// Answer to [`Request::Prepare`].
    Prepared(Result<Applied, HostError>),
}

/// Sends one message.
pub(crate) fn send(
    stream: &mut impl Write,
    header: &impl Serialize,
    body: &[&[u8]],
) -> Result<(), HostError> {
    let json = serde_json::to_vec(header)
        .map_err(|error| HostError::Protocol { problem: error.to_string() })?;
    let bytes: usize = body.iter().map(|part| part.len()).sum();
    let (header_length, body_length) =
        (length(json.len(), limits::HOST_HEADER_BYTES)?, length(bytes, limits::HOST_BODY_BYTES)?);
    let mut head = Vec::with_capacity(8 + json.len());
    head.extend_from_slice(&header_length.to_le_bytes());
    head.extend_from_slice(&body_length.to_le_bytes());
    head.extend_from_slice(&json);
    for part in std::iter::once(head.as_slice()).chain(body.iter().copied()) {
        stream.write_all(part).map_err(|error| ended(&error))?;
    }
    Ok(())
}

/// Receives one message; [`HostError::Gone`] when the other end is closed.
pub(crate) fn receive<T: DeserializeOwned>(
    stream: &mut impl Read,
) -> Result<(T, Vec<u8>), HostError> {
    let mut lengths = [[0u8; 4]; 2];
    for length in &mut lengths {
        stream.read_exact(length).map_err(|error| ended(&error))?;
    }
    let [header, body] = lengths.map(u32::from_le_bytes);
    let header = read(stream, header, limits::HOST_HEADER_BYTES)?;
    let body = read(stream, body, limits::HOST_BODY_BYTES)?;
    let header = serde_json::from_slice(&header)
        .map_err(|error| HostError::Protocol { problem: error.to_string() })?;
    Ok((header, body))
}

fn read(stream: &mut impl Read, length: u32, ceiling: usize) -> Result<Vec<u8>, HostError> {
    let bytes = usize::try_from(length).unwrap_or(usize::MAX);
    if bytes > ceiling {
        return Err(HostError::TooLarge { bytes, ceiling });
    }
    let mut buffer = vec![0; bytes];
    stream.read_exact(&mut buffer).map_err(|error| ended(&error))?;
    Ok(buffer)
}

fn length(bytes: usize, ceiling: usize) -> Result<u32, HostError> {
    match u32::try_from(bytes) {
        Ok(length) if bytes <= ceiling => Ok(length),
        _ => Err(HostError::TooLarge { bytes, ceiling }),
    }
}

fn ended(error: &std::io::Error) -> HostError {
    let gone = [ErrorKind::UnexpectedEof, ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
    if gone.contains(&error.kind()) {
        HostError::Gone
    } else if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) {
        HostError::Unresponsive
    } else {
        HostError::system("talk to the other end", error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_survives_the_way() {
        let mut wire = Vec::new();
        send(&mut wire, &Request::Cancel, &[b"one", b"two"]).unwrap();
        let (request, body): (Request, Vec<u8>) = receive(&mut wire.as_slice()).unwrap();
        assert!(matches!(request, Request::Cancel));
        assert_eq!(body, b"onetwo");
    }

    #[test]
    fn a_length_beyond_the_ceiling_is_refused_before_anything_is_allocated() {
        let mut wire = u32::MAX.to_le_bytes().to_vec();
        wire.extend(0u32.to_le_bytes());
        let answer = receive::<Request>(&mut wire.as_slice());
        assert_eq!(
            answer.err(),
            Some(HostError::TooLarge { bytes: 0xffff_ffff, ceiling: limits::HOST_HEADER_BYTES })
        );
    }

    #[test]
    fn a_torn_message_means_the_other_end_is_gone() {
        let mut wire = Vec::new();
        send(&mut wire, &Request::Cancel, &[b"body"]).unwrap();
        wire.pop();
        assert_eq!(receive::<Request>(&mut wire.as_slice()).err(), Some(HostError::Gone));
    }
}

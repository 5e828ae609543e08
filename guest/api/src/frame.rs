//! Frames of the control socket: a big-endian `u32` length, then that many
//! bytes of JSON, at most [`MAX_FRAME`].

use std::io::{self, Read, Write};

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use crate::limits::MAX_FRAME;

/// Why a frame could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    #[error("the other end closed the connection")]
    Closed,
    #[error("a frame of {length} bytes is larger than the ceiling of {MAX_FRAME}")]
    TooLarge { length: usize },
    #[error("a frame is not the message that belongs here")]
    Format { source: serde_json::Error },
    #[error("the connection failed")]
    Io { source: io::Error },
}

/// One message as a frame, header included.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let mut bytes = vec![0u8; 4];
    serde_json::to_writer(&mut bytes, message).map_err(|source| FrameError::Format { source })?;
    let length = bytes.len() - 4;
    let header = u32::try_from(length).ok().filter(|_| length <= MAX_FRAME);
    let header = header.ok_or(FrameError::TooLarge { length })?;
    if let Some(place) = bytes.first_chunk_mut::<4>() {
        *place = header.to_be_bytes();
    }
    Ok(bytes)
}

/// The length a header announces.
pub fn decode_length(header: [u8; 4]) -> Result<usize, FrameError> {
    let length = u32::from_be_bytes(header) as usize;
    if length > MAX_FRAME { Err(FrameError::TooLarge { length }) } else { Ok(length) }
}

/// The message in a frame's body.
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    serde_json::from_slice(body).map_err(|source| FrameError::Format { source })
}

/// Writes one message.
pub fn write<T: Serialize>(to: &mut impl Write, message: &T) -> Result<(), FrameError> {
    let bytes = encode(message)?;
    to.write_all(&bytes).map_err(closed)
}

/// Reads one message.
pub fn read<T: DeserializeOwned>(from: &mut impl Read) -> Result<T, FrameError> {
    let mut header = [0u8; 4];
    from.read_exact(&mut header).map_err(closed)?;
    let mut body = vec![0u8; decode_length(header)?];
    from.read_exact(&mut body).map_err(closed)?;
    decode(&body)
}

fn closed(source: io::Error) -> FrameError {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    if [UnexpectedEof, BrokenPipe, ConnectionReset].contains(&source.kind()) {
        FrameError::Closed
    } else {
        FrameError::Io { source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_comes_back_and_a_cut_frame_is_closed() {
        let bytes = encode(&vec!["a", "b"]).unwrap();
        assert_eq!(read::<Vec<String>>(&mut bytes.as_slice()).unwrap(), ["a", "b"]);
        for cut in 0..bytes.len() {
            assert!(matches!(read::<Vec<String>>(&mut &bytes[..cut]), Err(FrameError::Closed)));
        }
    }

    #[test]
    fn an_oversized_header_is_refused_before_anything_is_allocated() {
        let mut bytes: &[u8] = &[0xff, 0xff, 0xff, 0xff, 0];
        assert!(matches!(read::<Vec<String>>(&mut bytes), Err(FrameError::TooLarge { .. })));
        let long = "x".repeat(MAX_FRAME + 1);
        assert!(matches!(encode(&long), Err(FrameError::TooLarge { .. })));
    }
}

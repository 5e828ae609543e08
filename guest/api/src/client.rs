//! A blocking client of the control socket.

use std::io::BufReader;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use crate::control::{Greeting, Hello, Refusal, Request, Response, VERSION};
use crate::frame::{self, FrameError};

/// Why a client got no answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("nothing answers at {path}", path = .path.display())]
    Connect { path: PathBuf, source: std::io::Error },
    #[error("{}; {}", .0.why, .0.remedy)]
    Refused(Refusal),
    #[error(transparent)]
    Frame(#[from] FrameError),
    #[error("the control plane answered with something else than was asked for")]
    Unexpected,
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
    who: String,
}

impl Client {
    /// Connects and says hello; `token` is needed with a single uid.
    pub fn connect(socket: &Path, token: Option<String>) -> Result<Self, ClientError> {
        let stream = UnixStream::connect(socket)
            .map_err(|source| ClientError::Connect { path: socket.to_owned(), source })?;
        let mut stream = BufReader::new(stream);
        // A caller that may not speak is refused before it is read: its hello
        // cannot be sent any more, and the reason is there to be read.
        let sent = frame::write(stream.get_mut(), &Hello { version: VERSION, token });
        let greeting = frame::read(&mut stream);
        if greeting.is_err() {
            sent?;
        }
        match greeting? {
            Greeting::Welcome { who, .. } => Ok(Self { stream, who }),
            Greeting::Refused(refusal) => Err(ClientError::Refused(refusal)),
        }
    }

    /// The account the control plane takes this caller for.
    pub fn who(&self) -> &str {
        &self.who
    }

    /// Asks and waits for the one answer.
    pub fn ask(&mut self, request: &Request) -> Result<Response, ClientError> {
        frame::write(self.stream.get_mut(), request)?;
        self.next_frame()
    }

    /// The next frame of a stream begun by [`Request::Follow`].
    pub fn next_frame(&mut self) -> Result<Response, ClientError> {
        let response: Response = frame::read(&mut self.stream)?;
        if let Response::Refused(refusal) = response {
            return Err(ClientError::Refused(refusal));
        }
        Ok(response)
    }
}

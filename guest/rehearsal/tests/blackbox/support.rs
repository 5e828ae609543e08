//! A raw client, and a provider in a thread of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use rehearsal::{Scenario, Server};

/// No wait in a test is longer: what takes this long has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);

pub(crate) fn start(scenario: Scenario) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    Server::in_thread(listener, scenario, Some("/ws".to_owned())).unwrap()
}

/// A provider with one model `m` and these turns, written as YAML flow entries.
pub(crate) fn playing(turns: &str) -> Server {
    let text =
        format!("version: 1\nname: test\nconversations:\n  - model: m\n    turns: [{turns}]\n");
    start(Scenario::parse(&text).unwrap())
}

/// How a connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Open,
    Closed,
    Reset,
}

/// What came of one request.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) head: String,
    /// Chunks of the body; one when it has no chunks.
    pub(crate) chunks: Vec<Vec<u8>>,
    /// Whether the body's framing says that it is whole.
    pub(crate) whole: bool,
    pub(crate) end: End,
}

impl Heard {
    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    pub(crate) fn body(&self) -> Vec<u8> {
        self.chunks.concat()
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body()).unwrap()
    }
}

pub(crate) struct Client {
    stream: TcpStream,
    buffer: Vec<u8>,
    end: End,
}

impl Client {
    pub(crate) fn dial(server: &Server) -> Self {
        Self::connect(server.address())
    }

    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Self { stream, buffer: Vec::new(), end: End::Open }
    }

    pub(crate) fn send(&mut self, method: &str, path: &str, body: &str) {
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.stream.write_all(request.as_bytes()).unwrap();
    }

    fn fill(&mut self) -> bool {
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece) {
            Ok(0) => self.end = End::Closed,
            Ok(count) => self.buffer.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => {
                self.end = End::Reset;
            }
            Err(error) => panic!("nothing came within the deadline: {error}"),
        }
        self.end == End::Open
    }

    pub(crate) fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        while self.buffer.len() < count {
            if !self.fill() {
                return None;
            }
        }
        Some(self.buffer.drain(..count).collect())
    }

    fn take_line(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
                return Some(String::from_utf8(line[..end].to_vec()).unwrap());
            }
            if !self.fill() {
                return None;
            }
        }
    }

    /// The head of the answer, or how the connection ended without one.
    pub(crate) fn head(&mut self) -> Result<String, End> {
        let mut head = String::new();
        loop {
            match self.take_line() {
                Some(line) if line.is_empty() => return Ok(head),
                Some(line) => head.extend([line.to_ascii_lowercase().as_str(), "\n"]),
                None => return Err(self.end),
            }
        }
    }

    /// The next chunk: empty at the end of the body, nothing when it is cut.
    pub(crate) fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = usize::from_str_radix(&self.take_line()?, 16).unwrap();
        let chunk = self.take(size)?;
        self.take(2)?;
        Some(chunk)
    }

    /// Whether nothing has come and the connection is open.
    pub(crate) fn is_silent(&mut self) -> bool {
        self.stream.set_nonblocking(true).unwrap();
        let waiting = self
            .stream
            .peek(&mut [0])
            .is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
        self.stream.set_nonblocking(false).unwrap();
        waiting && self.buffer.is_empty()
    }

    pub(crate) fn read(&mut self) -> Heard {
        let head = self.head().unwrap();
        let mut heard = Heard { head, chunks: Vec::new(), whole: false, end: End::Open };
        if let Some(length) = heard.header("content-length") {
            let length = length.parse().unwrap();
            match self.take(length) {
                Some(body) => {
                    heard.whole = true;
                    heard.chunks.push(body);
                }
                None => heard.chunks.push(std::mem::take(&mut self.buffer)),
            }
        } else {
            while let Some(chunk) = self.chunk() {
                if chunk.is_empty() {
                    heard.whole = true;
                    break;
                }
                heard.chunks.push(chunk);
            }
        }
        heard.end = self.end;
        heard
    }
}

/// Sends one request on a connection of its own.
pub(crate) fn send(server: &Server, method: &str, path: &str, body: &str) -> Heard {
    let mut client = Client::dial(server);
    client.send(method, path, body);
    client.read()
}

/// A first request for model `m` in the OpenAI dialect.
pub(crate) fn hello(stream: bool) -> String {
    format!(r#"{{"model":"m","stream":{stream},"messages":[{{"role":"user","content":"hi"}}]}}"#)
}

/// Asks for a streamed answer to [`hello`].
pub(crate) fn ask(server: &Server) -> Heard {
    send(server, "POST", "/v1/chat/completions", &hello(true))
}

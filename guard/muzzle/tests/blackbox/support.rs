//! What the black-box tests share: Muzzle in a thread of its own, and both of its neighbours as plain sockets, so that
//! every byte on either side is the test's.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use muzzle::admin::{AdminError, Client};
use muzzle::limits::Ceilings;
use muzzle::{Auth, Config, Listener, Status, TokenDigest, Upstream};
use tempfile::TempDir;

/// No wait in a test is longer: what takes this long has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(20);
/// The bearer that [`Muzzle::start`] admits for run `run-1`.
pub(crate) const TOKEN: &str = "token-of-run-1";

/// A running Muzzle. Stopped and joined when dropped.
pub(crate) struct Muzzle {
    pub(crate) admin: Client,
    pub(crate) socket: std::path::PathBuf,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    _home: TempDir,
}

impl Muzzle {
    /// Starts without a configuration and admits nobody.
    pub(crate) fn bare(ceilings: Ceilings) -> Self {
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("admin.sock");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            let shutdown = async { drop(stopped.await) };
            block_on(muzzle::serve_within(ceilings, Some(listener), None, shutdown)).unwrap();
        });
        Self {
            admin: Client::new(&socket),
            socket,
            stop: Some(stop),
            thread: Some(thread),
            _home: home,
        }
    }

    /// Starts with one listener in front of `upstream` and [`TOKEN`] admitted; returns the listener's address too.
    pub(crate) fn start(ceilings: Ceilings, upstream: SocketAddr) -> (Self, SocketAddr) {
        let muzzle = Self::bare(ceilings);
        let status =
            muzzle.put(&config(&[listener("main", 0, "up")], &[("up", upstream)])).unwrap();
        muzzle.admit(TOKEN, "run-1");
        (muzzle, status.listeners[0].address)
    }

    pub(crate) fn put(&self, config: &Config) -> Result<Status, AdminError> {
        block_on(self.admin.put_config(config))
    }

    pub(crate) fn status(&self) -> Status {
        block_on(self.admin.status()).unwrap()
    }

    pub(crate) fn admit(&self, token: &str, run: &str) {
        block_on(self.admin.admit(TokenDigest::of(token.as_bytes()), run)).unwrap();
    }

    pub(crate) fn revoke(&self, token: &str) -> bool {
        block_on(self.admin.revoke(TokenDigest::of(token.as_bytes()))).unwrap()
    }

    /// Tells it to stop without waiting.
    pub(crate) fn tell_to_stop(&mut self) {
        drop(self.stop.take());
    }

    pub(crate) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

impl Drop for Muzzle {
    fn drop(&mut self) {
        self.tell_to_stop();
        if std::thread::panicking() {
            return;
        }
        self.join();
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

pub(crate) fn listener(name: &str, port: u16, upstream: &str) -> Listener {
    Listener {
        name: name.to_owned(),
        bind: format!("127.0.0.1:{port}"),
        upstream: upstream.to_owned(),
        auth: Auth::Bearer,
        passthrough: false,
    }
}

pub(crate) fn config(listeners: &[Listener], upstreams: &[(&str, SocketAddr)]) -> Config {
    let upstreams = upstreams
        .iter()
        .map(|(name, address)| Upstream::keyless(*name, "test", format!("http://{address}")));
    Config { version: 1, upstreams: upstreams.collect(), listeners: listeners.to_vec() }
}

/// A message as it is on the wire, split into head and body.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    /// First line and headers, lower-cased.
    pub(crate) head: String,
    /// Body without its transfer coding.
    pub(crate) body: Vec<u8>,
    /// Whether the body ended as its framing says it must.
    pub(crate) whole: bool,
}

impl Message {
    pub(crate) fn status(&self) -> u16 {
        self.head.split(' ').nth(1).unwrap().parse().unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    }

    /// `error.type` of a refusal, after checking its shape.
    pub(crate) fn refusal(&self) -> String {
        assert!(self.whole, "a refusal arrives whole: {self:?}");
        let body: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        let error = &body["error"];
        assert!(error["message"].as_str().unwrap().len() > 20, "{body}");
        error["type"].as_str().unwrap().to_owned()
    }

    pub(crate) fn message(&self) -> String {
        let body: serde_json::Value = serde_json::from_slice(&self.body).unwrap();
        body["error"]["message"].as_str().unwrap().to_owned()
    }
}

/// One end of a connection, read through a buffer.
pub(crate) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, buffer: Vec::new() }
    }

    pub(crate) fn dial(address: SocketAddr) -> Self {
        Self::new(TcpStream::connect(address).unwrap())
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    /// Sends what the other side may no longer want.
    pub(crate) fn try_send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a chunk of a chunked body.
    pub(crate) fn send_chunk(&mut self, data: &[u8]) {
        self.send(&chunk(data));
    }

    /// Makes the close that follows a reset.
    pub(crate) fn reset(&mut self) {
        rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
    }

    /// Sends the end of what this side has to say.
    pub(crate) fn shut_down(&mut self) {
        self.stream.shutdown(std::net::Shutdown::Write).unwrap();
    }

    /// Reads more; false at the end or at a reset.
    fn fill(&mut self) -> bool {
        let mut piece = [0; 16 * 1024];
        match self.stream.read(&mut piece) {
            Ok(0) => false,
            Ok(count) => {
                self.buffer.extend_from_slice(&piece[..count]);
                true
            }
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => false,
            Err(error) => panic!("nothing came within the deadline: {error}"),
        }
    }

    /// Whether the other side has closed, after reading away what it sent before.
    pub(crate) fn is_closed(&mut self) -> bool {
        while self.fill() {}
        true
    }

    fn wait_for(&mut self, count: usize) -> bool {
        while self.buffer.len() < count {
            if !self.fill() {
                return false;
            }
        }
        true
    }

    fn take(&mut self, count: usize) -> Option<Vec<u8>> {
        self.wait_for(count).then(|| self.buffer.drain(..count).collect())
    }

    fn take_line(&mut self) -> Option<String> {
        let end = loop {
            if let Some(end) = self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                break end;
            }
            if !self.fill() {
                return None;
            }
        };
        let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
        Some(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    /// Reads a head; nothing when the connection ends before one.
    pub(crate) fn read_head(&mut self) -> Option<String> {
        let mut head = String::new();
        loop {
            let line = self.take_line()?;
            if line.is_empty() {
                return Some(head);
            }
            head.push_str(&line.to_ascii_lowercase());
            head.push('\n');
        }
    }

    /// Reads the next piece of a chunked body: `Some(data)`, empty at its end, or nothing when it is cut.
    pub(crate) fn read_chunk(&mut self) -> Option<Vec<u8>> {
        let size = usize::from_str_radix(&self.take_line()?, 16).unwrap();
        let data = self.take(size)?;
        self.take(2)?;
        Some(data)
    }

    /// Reads a whole message.
    pub(crate) fn read(&mut self) -> Option<Message> {
        let mut message = Message { head: self.read_head()?, body: Vec::new(), whole: true };
        if message.header("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
            loop {
                match self.read_chunk() {
                    Some(data) if data.is_empty() => break,
                    Some(data) => message.body.extend(data),
                    None => {
                        message.whole = false;
                        break;
                    }
                }
            }
        } else if let Some(length) = message.header("content-length") {
            let length = length.parse().unwrap();
            message.whole = self.wait_for(length);
            let length = length.min(self.buffer.len());
            message.body = self.buffer.drain(..length).collect();
        }
        Some(message)
    }
}

pub(crate) fn chunk(data: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{:x}\r\n", data.len()).into_bytes();
    bytes.extend_from_slice(data);
    bytes.extend_from_slice(b"\r\n");
    bytes
}

/// A model server whose every byte the test writes: `serve` gets each accepted connection in turn.
pub(crate) struct FakeUpstream {
    pub(crate) address: SocketAddr,
    heads: mpsc::Receiver<Message>,
}

impl FakeUpstream {
    /// Serves each connection in a thread of its own. `serve` gets the number of the connection, the wire, and a place
    /// to put the requests it read.
    pub(crate) fn new(
        serve: impl Fn(usize, &mut Wire, &mpsc::Sender<Message>) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (seen, heads) = mpsc::channel();
        let serve = std::sync::Arc::new(serve);
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (serve, seen) = (std::sync::Arc::clone(&serve), seen.clone());
                std::thread::spawn(move || serve(number, &mut Wire::new(stream.unwrap()), &seen));
            }
        });
        Self { address, heads }
    }

    /// Answers every whole request of every connection with the same bytes. Half of one counts for nothing.
    pub(crate) fn answering(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::new(move |_, wire, seen| {
            while let Some(request) = wire.read().filter(|request| request.whole) {
                seen.send(request).ok();
                wire.send(&answer);
            }
        })
    }

    /// The next request that arrived.
    pub(crate) fn request(&self) -> Message {
        self.heads.recv_timeout(DEADLINE).unwrap()
    }

    /// Whether no whole request has arrived. Ask only after the client has its answer.
    pub(crate) fn is_untouched(&self) -> bool {
        self.heads.try_recv().is_err()
    }
}

/// A port at which nothing listens.
pub(crate) fn dead_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// The head of a good POST without the two line ends that finish it.
pub(crate) fn post(address: SocketAddr, path: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {TOKEN}\r\nContent-Type: application/json"
    )
}

/// Sends a small good request and reads the answer.
pub(crate) fn ask(address: SocketAddr) -> Message {
    let mut wire = Wire::dial(address);
    wire.send(
        format!("{}\r\nContent-Length: 2\r\n\r\n{{}}", post(address, "/v1/chat/completions"))
            .as_bytes(),
    );
    wire.read().unwrap()
}

/// Waits until a condition holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "{what} did not happen");
        std::thread::yield_now();
    }
}

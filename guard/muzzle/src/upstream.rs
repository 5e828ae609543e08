//! Connections to one upstream.
//!
//! HTTP/1.1 over TCP, straight to the configured address: no proxy from the environment, no redirect followed, nothing
//! repeated once a byte of it was written. Idle connections are kept for a moment, because a run asks often.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use hyper::client::conn::http1::{self, SendRequest};
use hyper::{Request, Response, StatusCode, body::Incoming};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::body::RequestBody;
use crate::config::UpstreamPlan;
use crate::limits::{self, Ceilings};
use crate::refusal::{Refusal, address};
use crate::task::{TaskGuard, spawn_guarded};

/// A connection and the task that drives it. Dropping it closes the connection, whatever is in flight.
pub(crate) struct Connection {
    sender: SendRequest<RequestBody>,
    _driver: TaskGuard,
}

struct Idle {
    connection: Connection,
    since: Instant,
}

/// One upstream with its idle connections.
pub(crate) struct Upstream {
    pub(crate) plan: UpstreamPlan,
    idle: Mutex<Vec<Idle>>,
}

impl Upstream {
    pub(crate) fn new(plan: UpstreamPlan) -> Self {
        Self { plan, idle: Mutex::default() }
    }

    /// Sends a request and waits for the head of the answer, without a time limit on the latter.
    pub(crate) async fn send(
        &self,
        request: Request<RequestBody>,
        ceilings: &Ceilings,
    ) -> Result<(Response<Incoming>, Connection), Refusal> {
        let mut request = request;
        if let Some(mut connection) = self.take_idle().await {
            match connection.sender.try_send_request(request).await {
                Ok(response) => return self.checked(response, connection),
                Err(mut failed) => match failed.take_message() {
                    // Not a byte of it was written: the upstream had closed the idle connection.
                    Some(unsent) => request = unsent,
                    None => return Err(self.broken(failed.error())),
                },
            }
        }
        let mut connection = self.connect(ceilings).await?;
        match connection.sender.send_request(request).await {
            Ok(response) => self.checked(response, connection),
            Err(error) => Err(self.broken(&error)),
        }
    }

    /// Takes back a connection whose answer was read to the end.
    pub(crate) fn give_back(&self, connection: Connection) {
        if connection.sender.is_closed() {
            return;
        }
        let mut idle = self.idle();
        if idle.len() < limits::UPSTREAM_IDLE_CONNECTIONS {
            idle.push(Idle { connection, since: Instant::now() });
        }
    }

    async fn take_idle(&self) -> Option<Connection> {
        while let Some(Idle { connection, since }) = self.pop_idle() {
            if since.elapsed() > limits::UPSTREAM_IDLE {
                // The youngest came first: when it is too old, all are.
                self.idle().clear();
                return None;
            }
            // One turn for the driver, which notices here when the upstream has closed meanwhile.
            tokio::task::yield_now().await;
            if connection.sender.is_ready() {
                return Some(connection);
            }
        }
        None
    }

    fn pop_idle(&self) -> Option<Idle> {
        self.idle().pop()
    }

    async fn connect(&self, ceilings: &Ceilings) -> Result<Connection, Refusal> {
        let unreachable = |why: String| Refusal::UpstreamUnreachable {
            upstream: self.plan.name.clone(),
            address: self.address(),
            why,
        };
        let dial = TcpStream::connect((self.plan.host.as_str(), self.plan.port));
        let stream = tokio::time::timeout(ceilings.connect, dial)
            .await
            .map_err(|_elapsed| self.timeout("accept a connection", ceilings.connect))?
            .map_err(|error| unreachable(error.to_string()))?;
        stream.set_nodelay(true).map_err(|error| unreachable(error.to_string()))?;
        let (sender, connection) = http1::Builder::new()
            .max_headers(limits::HEADERS)
            .max_buf_size(limits::CONNECTION_BUFFER_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| self.broken(&error))?;
        let driver = spawn_guarded(async move {
            // How the connection ended reaches whoever waits for the answer on it.
            connection.await.ok();
        });
        Ok(Connection { sender, _driver: driver })
    }

    fn checked(
        &self,
        response: Response<Incoming>,
        connection: Connection,
    ) -> Result<(Response<Incoming>, Connection), Refusal> {
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err(self.broken_because("it switched protocols without being asked".to_owned()));
        }
        Ok((response, connection))
    }

    pub(crate) fn timeout(&self, what: &'static str, waited: std::time::Duration) -> Refusal {
        Refusal::UpstreamTimeout {
            upstream: self.plan.name.clone(),
            address: self.address(),
            what,
            waited,
        }
    }

    fn broken(&self, error: &hyper::Error) -> Refusal {
        let why = if error.is_incomplete_message() {
            "it closed the connection".to_owned()
        } else if error.is_parse() {
            format!("its answer is not HTTP: {error}")
        } else {
            std::error::Error::source(error)
                .map_or_else(|| error.to_string(), |source| format!("{error}: {source}"))
        };
        self.broken_because(why)
    }

    fn broken_because(&self, why: String) -> Refusal {
        Refusal::UpstreamBroken { upstream: self.plan.name.clone(), address: self.address(), why }
    }

    fn address(&self) -> String {
        address(&self.plan.host, self.plan.port)
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Idle>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

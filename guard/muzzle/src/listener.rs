//! One bound port: accepts connections, serves them, and drains when it is removed.
//!
//! ```text
//! accepting --stop--> draining --last connection closed, or time up--> gone
//! ```
//!
//! Where a listener leads is read for each request, so a changed configuration takes effect on the next request of an
//! open connection and leaves the exchanges in flight alone.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::forward::{Route, Shared, forward};
use crate::limits;

/// What a listener's owner may tell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Accepting,
    /// Accept nothing more, and give what is open this long.
    Draining(Duration),
}

/// A running listener, seen from its owner.
pub(crate) struct Running {
    /// The address that was asked for; its port may be 0.
    pub(crate) asked: SocketAddr,
    /// The address that was bound.
    pub(crate) bound: SocketAddr,
    pub(crate) route: watch::Sender<Arc<Route>>,
    pub(crate) phase: watch::Sender<Phase>,
    /// Closes when the port has been given back.
    pub(crate) port_free: watch::Receiver<()>,
}

impl Running {
    /// Starts to serve a bound port in `tasks`.
    pub(crate) fn start(
        asked: SocketAddr,
        bound: SocketAddr,
        listener: TcpListener,
        route: Route,
        shared: Shared,
        tasks: &mut JoinSet<()>,
    ) -> Self {
        let (route, routes) = watch::channel(Arc::new(route));
        let (phase, phases) = watch::channel(Phase::Accepting);
        let (port_held, port_free) = watch::channel(());
        tasks.spawn(run(listener, routes, phases, Arc::new(shared), port_held));
        Self { asked, bound, route, phase, port_free }
    }

    /// Stops accepting and returns when the port is free. What is open goes on for `time`.
    pub(crate) async fn stop(mut self, time: Duration) {
        self.phase.send_replace(Phase::Draining(time));
        while self.port_free.changed().await.is_ok() {}
    }
}

async fn run(
    listener: TcpListener,
    routes: watch::Receiver<Arc<Route>>,
    mut phases: watch::Receiver<Phase>,
    shared: Arc<Shared>,
    port_held: watch::Sender<()>,
) {
    let mut connections = JoinSet::new();
    let room = Arc::new(Semaphore::new(limits::LISTENER_CONNECTIONS));
    let time = loop {
        tokio::select! {
            time = stopped(&mut phases) => break time,
            accepted = accept(&listener, &room) => {
                let (stream, place) = accepted;
                let connection = serve_connection(stream, routes.clone(), phases.clone(), Arc::clone(&shared));
                connections.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Some(_finished) = connections.join_next() => {}
        }
    };
    drop(listener);
    drop(port_held);
    let drained = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(time, drained).await.is_err() {
        tracing::warn!(
            seconds = time.as_secs(),
            "exchanges of a removed listener did not finish in time and are cut"
        );
    }
}

/// Returns when the listener is to stop, with the time that open exchanges have.
async fn stopped(phases: &mut watch::Receiver<Phase>) -> Duration {
    match phases.wait_for(|phase| *phase != Phase::Accepting).await.as_deref() {
        Ok(Phase::Draining(time)) => *time,
        // The owner is gone: so are its listeners.
        Ok(Phase::Accepting) | Err(_) => Duration::ZERO,
    }
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> (TcpStream, Option<tokio::sync::OwnedSemaphorePermit>) {
    let place = Arc::clone(room).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _peer)) => return (stream, place),
            Err(error) => {
                // Usually out of descriptors, which passes when connections close: do not spin until then.
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve_connection(
    stream: TcpStream,
    routes: watch::Receiver<Arc<Route>>,
    mut phases: watch::Receiver<Phase>,
    shared: Arc<Shared>,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "failed to set TCP_NODELAY");
    }
    let service = service_fn(move |request| {
        let route = Arc::clone(&routes.borrow());
        let shared = Arc::clone(&shared);
        async move { Ok::<_, std::convert::Infallible>(forward(request, route, shared).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::REQUEST_HEAD)
        .max_headers(limits::HEADERS)
        .max_buf_size(limits::CONNECTION_BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let served = tokio::select! {
        served = connection.as_mut() => served,
        _time = stopped(&mut phases) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a client connection ended early");
    }
}

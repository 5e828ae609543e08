//! The provider itself: HTTP on one side, a scenario on the other.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};
use wire::Dialect;

use crate::choose::{Chosen, NoAnswer, choose, values};
use crate::compose::{Answer, plan_answer, plan_error, plan_json};
use crate::connection::Connection;
use crate::limits;
use crate::memory::{Memory, Recorded};
use crate::reply::{BreakNow, Reply, ResetFlag, play_before};
use crate::scenario::{Fault, Scenario};

/// Header in every answer, so that a rehearsal can be told from a model: the scenario's name.
pub const LABEL: &str = "x-sentinel-rehearsal";

/// A running provider. Dropping it stops it.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    memory: Arc<Memory>,
    running: Running,
}

#[derive(Debug)]
enum Running {
    Task(AbortHandle),
    Thread { stop: Option<oneshot::Sender<()>>, thread: Option<std::thread::JoinHandle<()>> },
}

/// Where a fault stands in the scenario: conversation, turn and place among the turn's faults.
type FaultPlace = (usize, Option<usize>, usize);

struct Shared {
    scenario: Scenario,
    workspace: Option<String>,
    memory: Arc<Memory>,
    /// How often each limited fault was used.
    used: Mutex<HashMap<FaultPlace, usize>>,
}

/// Serves a scenario on a bound listener, in a task of the caller's runtime.
///
/// `workspace` is what `{{workspace}}` stands for; without it, it is read from the line `Workspace: …` of a request's
/// system prompt.
pub async fn serve(
    listener: std::net::TcpListener,
    scenario: Scenario,
    workspace: Option<String>,
) -> io::Result<Server> {
    let (listener, address) = listen(listener)?;
    let memory = Arc::new(Memory::default());
    let task = accept(listener, shared(scenario, workspace, &memory));
    #[expect(
        clippy::disallowed_methods,
        reason = "the crate's one task outside a JoinSet; aborted when the server is dropped"
    )]
    let task = tokio::spawn(task).abort_handle();
    Ok(Server { address, memory, running: Running::Task(task) })
}

impl Server {
    /// [`serve`] in a thread and runtime of its own, for callers that have none.
    pub fn in_thread(
        listener: std::net::TcpListener,
        scenario: Scenario,
        workspace: Option<String>,
    ) -> io::Result<Self> {
        let address = listener.local_addr()?;
        let memory = Arc::new(Memory::default());
        let shared = shared(scenario, workspace, &memory);
        let (stop, stopped) = oneshot::channel::<()>();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let thread = std::thread::Builder::new().name("rehearsal".to_owned()).spawn(move || {
            runtime.block_on(async {
                match listen(listener) {
                    Ok((listener, _)) => {
                        tokio::select! {
                            () = accept(listener, shared) => {}
                            _dropped = stopped => {}
                        }
                    }
                    Err(error) => tracing::error!(%error, "failed to listen"),
                }
            });
        })?;
        Ok(Self {
            address,
            memory,
            running: Running::Thread { stop: Some(stop), thread: Some(thread) },
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL to give to a client: `http://127.0.0.1:PORT`.
    pub fn base_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests that came, oldest first. A request is here before its answer begins.
    pub fn requests(&self) -> Vec<Recorded> {
        self.memory.all()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        match &mut self.running {
            Running::Task(task) => task.abort(),
            Running::Thread { stop, thread } => {
                drop(stop.take());
                if let Some(thread) = thread.take() {
                    // A panic of that thread was reported when it happened.
                    thread.join().ok();
                }
            }
        }
    }
}

fn listen(listener: std::net::TcpListener) -> io::Result<(TcpListener, SocketAddr)> {
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((TcpListener::from_std(listener)?, address))
}

fn shared(scenario: Scenario, workspace: Option<String>, memory: &Arc<Memory>) -> Arc<Shared> {
    Arc::new(Shared { scenario, workspace, memory: Arc::clone(memory), used: Mutex::default() })
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _peer)) => {
                    connections.spawn(serve_connection(stream, Arc::clone(&shared)));
                }
                Err(error) => {
                    // Usually out of descriptors, which passes when connections close: do not spin until then.
                    tracing::warn!(%error, "failed to accept a connection");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_finished) = connections.join_next() => {}
        }
    }
}

async fn serve_connection(stream: TcpStream, shared: Arc<Shared>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "failed to set TCP_NODELAY");
    }
    let reset = ResetFlag::default();
    let io = TokioIo::new(Connection::new(stream, Arc::clone(&reset)));
    let service = service_fn(move |request| {
        let (shared, reset) = (Arc::clone(&shared), Arc::clone(&reset));
        async move { answer(request, &shared, &reset).await }
    });
    if let Err(error) = http1::Builder::new().serve_connection(io, service).await {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn answer(
    request: Request<Incoming>,
    shared: &Shared,
    reset: &ResetFlag,
) -> Result<Response<Reply>, BreakNow> {
    let (head, body) = request.into_parts();
    let Ok(body) = Limited::new(body, limits::REQUEST_BYTES).collect().await else {
        return respond(
            plan_error(
                Dialect::OpenAiChat,
                413,
                "request_too_large",
                "the request is too large or was cut".to_owned(),
            ),
            shared,
            reset,
        )
        .await;
    };
    let body = body.to_bytes();
    let (answer, step) = plan(&head, &body, shared);
    shared.memory.add(record(&head, body, step));
    respond(answer, shared, reset).await
}

fn plan(head: &Parts, body: &Bytes, shared: &Shared) -> (Answer, Option<usize>) {
    let Some(dialect) = Dialect::of_path(head.uri.path()) else {
        return (plan_other(head, shared), None);
    };
    if head.method != Method::POST {
        return (plan_error(dialect, 405, "method_not_allowed", "use POST".to_owned()), None);
    }
    let request = match wire::parse_request(dialect, body) {
        Ok(request) => request,
        Err(error) => {
            return (plan_error(dialect, 400, "invalid_request_error", error.to_string()), None);
        }
    };
    match choose(&shared.scenario, &request) {
        Ok(chosen) => {
            let values = values(&request, shared.workspace.as_deref());
            let fault = next_fault(&chosen, shared);
            (plan_answer(dialect, &request, &chosen, &values, fault), Some(chosen.step))
        }
        Err(none @ NoAnswer::Model { .. }) => {
            (plan_error(dialect, 404, "model_not_found", none.to_string()), None)
        }
        Err(none @ (NoAnswer::Task { .. } | NoAnswer::Turn { .. })) => {
            (plan_error(dialect, 400, "not_rehearsed", none.to_string()), None)
        }
    }
}

/// The paths by which clients find out which models there are.
fn plan_other(head: &Parts, shared: &Shared) -> Answer {
    let models = shared.scenario.models();
    let body = match (&head.method, head.uri.path()) {
        (&Method::GET, "/v1/models") => {
            let models = models.map(|model| json!({"id": model, "object": "model", "created": 0, "owned_by": "rehearsal"}));
            json!({"object": "list", "data": models.collect::<Vec<_>>()})
        }
        (&Method::GET, "/api/tags") => {
            let models = models.map(|model| json!({"name": model, "model": model, "modified_at": "1970-01-01T00:00:00Z", "size": 0, "digest": "", "details": {}}));
            json!({"models": models.collect::<Vec<_>>()})
        }
        (&Method::GET, "/api/version") => json!({"version": env!("CARGO_PKG_VERSION")}),
        _ => {
            return plan_error(
                Dialect::OpenAiChat,
                404,
                "not_found",
                format!("a rehearsal has no {} {}", head.method, head.uri.path()),
            );
        }
    };
    plan_json(200, body.to_string().into_bytes())
}

/// The fault that happens to this request, counted as used.
fn next_fault<'a>(chosen: &Chosen<'a>, shared: &Shared) -> Option<&'a Fault> {
    let mut used = shared.used.lock().unwrap_or_else(PoisonError::into_inner);
    for (place, limited) in chosen.turn.faults.iter().enumerate() {
        let Some(times) = limited.times else { return Some(&limited.fault) };
        let count = used.entry((chosen.conversation, chosen.index, place)).or_default();
        if *count < times {
            *count += 1;
            return Some(&limited.fault);
        }
    }
    None
}

fn record(head: &Parts, body: Bytes, step: Option<usize>) -> Recorded {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    Recorded {
        method: head.method.to_string(),
        target: head.uri.to_string(),
        headers: head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        body,
        step,
    }
}

async fn respond(
    answer: Answer,
    shared: &Shared,
    reset: &ResetFlag,
) -> Result<Response<Reply>, BreakNow> {
    play_before(answer.before, reset).await?;
    let mut response = Response::new(Reply::new(answer.body, Arc::clone(reset)));
    *response.status_mut() = StatusCode::from_u16(answer.status).unwrap_or(StatusCode::OK);
    let label = (LABEL.to_owned(), shared.scenario.name().to_owned());
    for (name, value) in answer.headers.into_iter().chain([label]) {
        // Both were checked when the scenario was read.
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    Ok(response)
}

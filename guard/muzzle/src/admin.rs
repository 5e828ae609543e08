//! The admin interface: HTTP over a unix socket, for the control plane and for `muzzle` itself.
//!
//! ```text
//! PUT    /v1/config                 a whole configuration -> 200 and the status, or an error and nothing changed
//! GET    /v1/status                 what runs
//! PUT    /v1/tokens/{sha256 hex}    {"run": "…"}  admits a bearer -> 204
//! DELETE /v1/tokens/{sha256 hex}    revokes it and ends what is open with it -> 204, 404 when it was not admitted
//! ```
//!
//! Who may connect is the socket file's owner and mode; on top of that, only root, Muzzle's own account, the owner of the
//! socket file and the control plane's account, where the launcher named it, are answered. Nothing here ever says a bearer, and no answer repeats a request.

mod client;

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::event::{PollFd, PollFlags, Timespec};
use serde::{Deserialize, Serialize};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

pub use client::{AdminError, Client};

use crate::config::{Config, ConfigError};
use crate::limits;
use crate::refusal::{error_response, json_response};
use crate::serve::{ApplyError, Command};
use crate::tokens::{AdmitError, TokenDigest, TokenTable};

/// Body of `PUT /v1/tokens/…`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AdmitBody {
    pub(crate) run: String,
}

/// Accepts admin connections until the listener is closed.
pub(crate) async fn run(
    listener: UnixListener,
    commands: mpsc::Sender<Command>,
    tokens: Arc<TokenTable>,
) {
    let peers = allowed_peers(&listener);
    let room = Arc::new(Semaphore::new(limits::ADMIN_CONNECTIONS));
    let mut connections = JoinSet::new();
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        while connections.try_join_next().is_some() {}
        match accept(&listener).await {
            Ok(Some(stream)) => {
                if let Some(stream) = checked_peer(stream, &peers) {
                    let (commands, tokens) = (commands.clone(), Arc::clone(&tokens));
                    connections.spawn(async move {
                        serve_connection(stream, commands, tokens).await;
                        drop(place);
                    });
                }
            }
            Ok(None) => return,
            Err(error) => {
                tracing::warn!(%error, "failed to accept an admin connection");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// The next connection, or nothing when the socket was shut down by whoever made it.
async fn accept(listener: &UnixListener) -> std::io::Result<Option<UnixStream>> {
    std::future::poll_fn(|cx| match listener.poll_accept(cx) {
        Poll::Ready(accepted) => Poll::Ready(accepted.map(|(stream, _unnamed)| Some(stream))),
        // A socket that was shut down stays readable while every accept says that there is nothing: without this
        // question the task would be woken for ever.
        Poll::Pending if is_shut_down(listener) => Poll::Ready(Ok(None)),
        Poll::Pending => Poll::Pending,
    })
    .await
}

fn is_shut_down(listener: &UnixListener) -> bool {
    let mut asked = [PollFd::new(listener, PollFlags::RDHUP)];
    let answered = rustix::event::poll(&mut asked, Some(&Timespec::default()));
    let [answer] = asked;
    answered.is_ok() && answer.revents().intersects(PollFlags::RDHUP | PollFlags::HUP)
}

/// Names the control plane's account to a Muzzle that the launcher started: the listener it passes has no path of its own.
pub const CONTROL_UID: &str = "SENTINEL_CONTROL_UID";

/// Root, this process's account, the control plane's, and the owner of the socket file where it has one.
fn allowed_peers(listener: &UnixListener) -> Vec<u32> {
    let mut allowed = vec![0, rustix::process::geteuid().as_raw()];
    let control = std::env::var(CONTROL_UID).ok().and_then(|uid| uid.parse::<u32>().ok());
    allowed.extend(control);
    let owner = listener
        .local_addr()
        .ok()
        .and_then(|address| address.as_pathname().map(std::fs::symlink_metadata));
    if let Some(Ok(socket)) = owner {
        allowed.push(socket.uid());
    }
    allowed
}

fn checked_peer(stream: UnixStream, allowed: &[u32]) -> Option<UnixStream> {
    match stream.peer_cred() {
        Ok(peer) if allowed.contains(&peer.uid()) => Some(stream),
        Ok(peer) => {
            tracing::warn!(
                uid = peer.uid(),
                "an admin connection was refused: its account is neither root, Muzzle's nor the socket's owner"
            );
            None
        }
        Err(error) => {
            tracing::warn!(%error, "an admin connection was refused: its account cannot be read");
            None
        }
    }
}

async fn serve_connection(
    stream: UnixStream,
    commands: mpsc::Sender<Command>,
    tokens: Arc<TokenTable>,
) {
    let service = service_fn(move |request| {
        let (commands, tokens) = (commands.clone(), Arc::clone(&tokens));
        async move {
            Ok::<_, std::convert::Infallible>(
                answer(request, &commands, &tokens).await.unwrap_or_else(Refused::response),
            )
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits::REQUEST_HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "an admin connection ended early");
    }
}

/// Why an admin request was not obeyed.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error(
        "there is no {path}: the admin interface has /v1/config, /v1/status and /v1/tokens/<sha256>"
    )]
    NotFound { path: String },
    #[error("{path} takes {allowed} only")]
    Method { path: String, allowed: &'static str },
    #[error("the request body is larger than {most} bytes")]
    TooLarge { most: usize },
    #[error("the request body did not arrive whole")]
    Cut,
    #[error("the request body is wrong: {why}")]
    Body { why: String },
    #[error(transparent)]
    Apply(#[from] ApplyError),
    #[error(transparent)]
    Admit(#[from] AdmitError),
    #[error("{why}")]
    Digest { why: String },
    #[error("this bearer is not admitted")]
    NotAdmitted,
    #[error("Muzzle is stopping")]
    Stopping,
}

impl Refused {
    fn response(self) -> Response<Full<Bytes>> {
        let (status, kind) = match &self {
            Self::NotFound { .. } => (StatusCode::NOT_FOUND, "not_found"),
            Self::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            Self::Cut | Self::Body { .. } => (StatusCode::BAD_REQUEST, "body"),
            Self::Apply(ApplyError::Config(ConfigError::Shape { .. })) => {
                (StatusCode::BAD_REQUEST, "config_shape")
            }
            Self::Apply(ApplyError::Config(ConfigError::Refused { .. })) => {
                (StatusCode::UNPROCESSABLE_ENTITY, "config_refused")
            }
            Self::Apply(ApplyError::Bind { .. }) => (StatusCode::CONFLICT, "cannot_bind"),
            Self::Admit(AdmitError::OtherRun { .. }) => (StatusCode::CONFLICT, "other_run"),
            Self::Admit(AdmitError::Full { .. }) => {
                (StatusCode::SERVICE_UNAVAILABLE, "too_many_tokens")
            }
            Self::Digest { .. } => (StatusCode::BAD_REQUEST, "digest"),
            Self::NotAdmitted => (StatusCode::NOT_FOUND, "not_admitted"),
            Self::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        };
        error_response(status, kind, &self.to_string())
    }
}

async fn answer(
    request: Request<Incoming>,
    commands: &mpsc::Sender<Command>,
    tokens: &TokenTable,
) -> Result<Response<Full<Bytes>>, Refused> {
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let only = |method: &Method, allowed: &'static str| {
        if head.method == method {
            Ok(())
        } else {
            Err(Refused::Method { path: path.clone(), allowed })
        }
    };
    if let Some(digest) = path.strip_prefix("/v1/tokens/") {
        let digest: TokenDigest = digest.parse().map_err(|error: crate::tokens::NotADigest| {
            Refused::Digest { why: error.to_string() }
        })?;
        return answer_token(&head.method, &path, digest, body, tokens).await;
    }
    match path.as_str() {
        "/v1/config" => {
            only(&Method::PUT, "PUT")?;
            let config = Config::parse_json(&read(body).await?).map_err(ApplyError::from)?;
            let status = ask(commands, |reply| Command::Apply { config, reply }).await??;
            Ok(json_response(StatusCode::OK, &status))
        }
        "/v1/status" => {
            only(&Method::GET, "GET")?;
            let status = ask(commands, |reply| Command::Status { reply }).await?;
            Ok(json_response(StatusCode::OK, &status))
        }
        _ => Err(Refused::NotFound { path }),
    }
}

async fn answer_token(
    method: &Method,
    path: &str,
    digest: TokenDigest,
    body: Incoming,
    tokens: &TokenTable,
) -> Result<Response<Full<Bytes>>, Refused> {
    match *method {
        Method::PUT => {
            let body: AdmitBody = serde_json::from_slice(&read(body).await?)
                .map_err(|error| Refused::Body { why: error.to_string() })?;
            if !(1..=128).contains(&body.run.len()) {
                return Err(Refused::Body { why: "`run` is 1 to 128 bytes long".to_owned() });
            }
            tokens.admit(digest, &body.run)?;
        }
        Method::DELETE => {
            if !tokens.revoke(digest) {
                return Err(Refused::NotAdmitted);
            }
        }
        _ => return Err(Refused::Method { path: path.to_owned(), allowed: "PUT and DELETE" }),
    }
    let mut done = Response::new(Full::default());
    *done.status_mut() = StatusCode::NO_CONTENT;
    Ok(done)
}

async fn read(body: Incoming) -> Result<Bytes, Refused> {
    let most = limits::ADMIN_BODY_BYTES;
    match Limited::new(body, most).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(Refused::TooLarge { most }),
        Err(_cut) => Err(Refused::Cut),
    }
}

async fn ask<T>(
    commands: &mpsc::Sender<Command>,
    command: impl FnOnce(oneshot::Sender<T>) -> Command,
) -> Result<T, Refused> {
    let (reply, answer) = oneshot::channel();
    commands.send(command(reply)).await.map_err(|_closed| Refused::Stopping)?;
    answer.await.map_err(|_closed| Refused::Stopping)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_only_the_accounts_that_are_allowed() {
        let own = rustix::process::geteuid().as_raw();
        let (here, _there) = UnixStream::pair().unwrap();
        assert!(checked_peer(here, &[own + 1, own]).is_some());
        let (here, _there) = UnixStream::pair().unwrap();
        assert!(checked_peer(here, &[own + 1]).is_none());
    }

    #[tokio::test]
    async fn allows_root_its_own_account_and_the_owner_of_the_socket() {
        let home = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(home.path().join("admin.sock")).unwrap();
        let own = rustix::process::geteuid().as_raw();
        assert_eq!(allowed_peers(&listener), [0, own, own]);
    }
}

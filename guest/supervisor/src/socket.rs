//! The control socket. Who may speak is decided from the peer's uid before a
//! byte is read; with a single uid the first frame must also carry the control
//! token, which no tool child can read.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;

use api::control::{Greeting, Hello, Refusal, RefusalCode, Request, Response, VERSION};
use api::frame::{self, FrameError};
use domain::record::Boundary;
use store::State;
use subtle::ConstantTimeEq as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};

use crate::accounts::Accounts;
use crate::core::Message;
use crate::launch::refuse;
use crate::model_test::ModelTest;
use crate::{follow, limits};

/// What every connection shares.
pub(crate) struct Shared {
    pub(crate) state: Arc<State>,
    pub(crate) accounts: Accounts,
    pub(crate) core: SyncSender<Message>,
    /// The control token; asked for with a single uid.
    pub(crate) token: Option<String>,
    pub(crate) tester: ModelTest,
    /// True once the core knows every account.
    pub(crate) ready: watch::Receiver<bool>,
}

/// Accepts until the listener fails.
pub(crate) async fn serve(listener: UnixListener, shared: Arc<Shared>) -> std::io::Result<()> {
    let places = Arc::new(Semaphore::new(limits::CONNECTIONS));
    loop {
        let (stream, _) = listener.accept().await?;
        // Beyond the ceiling a connection is closed at once: the client is told
        // "closed" and tries again.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let shared = Arc::clone(&shared);
        spawn("control connection", async move {
            if let Err(error) = converse(stream, &shared).await {
                tracing::debug!(%error, "a control connection ended");
            }
            drop(place);
        });
    }
}

/// Spawns a task under a name for the log.
pub(crate) fn spawn(name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
    use tracing::Instrument as _;
    #[expect(clippy::disallowed_methods, reason = "this is the crate's one named spawn")]
    let _detached = tokio::spawn(task.instrument(tracing::info_span!("task", name)));
}

async fn converse(mut stream: UnixStream, shared: &Arc<Shared>) -> Result<(), FrameError> {
    let uid = stream.peer_cred().map_err(|source| FrameError::Io { source })?.uid();
    if let Err(refusal) =
        admit_peer(shared.state.boundary(), uid, rustix::process::geteuid().as_raw())
    {
        return send(&mut stream, &Greeting::Refused(refusal)).await;
    }
    let Ok(hello) = tokio::time::timeout(limits::HELLO, receive::<Hello>(&mut stream)).await else {
        return Err(FrameError::Closed);
    };
    if let Err(refusal) = admit_hello(&hello?, shared.token.as_deref()) {
        return send(&mut stream, &Greeting::Refused(refusal)).await;
    }
    let who = login_of(uid);
    // A control plane that has just started answers once it knows its accounts.
    let mut ready = shared.ready.clone();
    let known = async { ready.wait_for(|ready| *ready).await.is_ok() };
    if !matches!(tokio::time::timeout(limits::READY, known).await, Ok(true)) {
        let refusal = refuse(
            RefusalCode::Unavailable,
            "the launcher does not answer",
            "see what `sentinel up` printed",
        );
        return send(&mut stream, &Greeting::Refused(refusal)).await;
    }
    send(&mut stream, &Greeting::Welcome { version: VERSION, who: who.clone() }).await?;
    loop {
        let request: Request = match receive(&mut stream).await {
            Ok(request) => request,
            Err(FrameError::Closed) => return Ok(()),
            Err(FrameError::Format { source }) => {
                let why = format!("the request is not understood: {source}");
                let refusal =
                    refuse(RefusalCode::Invalid, why, "use the same version on both ends");
                send(&mut stream, &Response::Refused(refusal)).await?;
                continue;
            }
            Err(error) => return Err(error),
        };
        if let Request::Follow { run } = request {
            stream_run(&mut stream, shared, run).await?;
        } else if let Request::ModelTest { name } = request {
            let response = shared.tester.run(&shared.state, &name).await;
            send(&mut stream, &response).await?;
        } else {
            let response = ask(shared, request, who.clone()).await;
            send(&mut stream, &response).await?;
        }
    }
}

/// Refuses before a byte is read: agents, Muzzle and strangers have no
/// business here.
fn admit_peer(boundary: Boundary, peer: u32, own: u32) -> Result<(), Refusal> {
    let allowed = match boundary {
        Boundary::Separate => peer == 0,
        Boundary::SingleUid => peer == own,
    };
    if allowed {
        return Ok(());
    }
    Err(refuse(
        RefusalCode::Forbidden,
        format!("uid {peer} may not use the control socket"),
        match boundary {
            Boundary::Separate => "run the command as root",
            Boundary::SingleUid => "run it as the account that started `sentinel up`",
        },
    ))
}

fn admit_hello(hello: &Hello, token: Option<&str>) -> Result<(), Refusal> {
    if hello.version != VERSION {
        return Err(refuse(
            RefusalCode::Invalid,
            format!("the client speaks version {}, the control plane {VERSION}", hello.version),
            "use the same version on both ends",
        ));
    }
    let Some(token) = token else { return Ok(()) };
    let given = hello.token.as_deref().unwrap_or_default();
    if bool::from(given.as_bytes().ct_eq(token.as_bytes())) {
        return Ok(());
    }
    Err(refuse(
        RefusalCode::Forbidden,
        "the control token is missing or wrong",
        "run `sentinel` as the person who started it; a tool of an agent may not",
    ))
}

/// `os:<login>`, or `os:uid-<n>` for a uid without a passwd entry.
fn login_of(uid: u32) -> String {
    match nix::unistd::User::from_uid(nix::unistd::Uid::from_raw(uid)) {
        Ok(Some(user)) => format!("os:{}", user.name),
        Ok(None) | Err(_) => format!("os:uid-{uid}"),
    }
}

async fn ask(shared: &Arc<Shared>, request: Request, who: String) -> Response {
    let (answer, answered) = oneshot::channel();
    let message = Message::Ask { request, who, answer };
    let busy = || {
        Response::Refused(refuse(
            RefusalCode::Unavailable,
            "the control plane is busy or stopping",
            "try again",
        ))
    };
    if shared.core.try_send(message).is_err() {
        return busy();
    }
    answered.await.unwrap_or_else(|_dropped| busy())
}

async fn stream_run(
    stream: &mut UnixStream,
    shared: &Arc<Shared>,
    run: domain::id::RunId,
) -> Result<(), FrameError> {
    let (to, mut from) = mpsc::channel(64);
    let (state, accounts) = (Arc::clone(&shared.state), shared.accounts.clone());
    let follower = tokio::task::spawn_blocking(move || {
        follow::follow(&state, &run, |subject| accounts.get(subject), &to);
    });
    while let Some(response) = from.recv().await {
        send(stream, &response).await?;
    }
    follower.await.map_err(|_panicked| FrameError::Closed)
}

async fn receive<T: serde::de::DeserializeOwned>(stream: &mut UnixStream) -> Result<T, FrameError> {
    let mut header = [0u8; 4];
    stream.read_exact(&mut header).await.map_err(|_closed| FrameError::Closed)?;
    let mut body = vec![0u8; frame::decode_length(header)?];
    stream.read_exact(&mut body).await.map_err(|_closed| FrameError::Closed)?;
    frame::decode(&body)
}

async fn send<T: serde::Serialize>(stream: &mut UnixStream, message: &T) -> Result<(), FrameError> {
    let bytes = frame::encode(message)?;
    stream.write_all(&bytes).await.map_err(|_closed| FrameError::Closed)
}

/// `<state>/control.token`, made once.
pub(crate) fn token_path(state: &State) -> PathBuf {
    state.path().join("control.token")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_speaks_with_separate_uids_and_only_oneself_with_one() {
        assert!(admit_peer(Boundary::Separate, 0, 58_000).is_ok());
        for peer in [57_999, 58_000, 58_001, 1000] {
            let refusal = admit_peer(Boundary::Separate, peer, 58_000).unwrap_err();
            assert_eq!(refusal.code, RefusalCode::Forbidden);
        }
        assert!(admit_peer(Boundary::SingleUid, 1000, 1000).is_ok());
        assert!(admit_peer(Boundary::SingleUid, 0, 1000).is_err());
    }

    #[test]
    fn a_wrong_or_missing_token_is_refused_and_the_right_one_is_not() {
        let hello =
            |token: Option<&str>| Hello { version: VERSION, token: token.map(str::to_owned) };
        assert!(admit_hello(&hello(Some("t0")), Some("t0")).is_ok());
        assert!(admit_hello(&hello(Some("t1")), Some("t0")).is_err());
        assert!(admit_hello(&hello(None), Some("t0")).is_err());
        assert!(admit_hello(&hello(None), None).is_ok());
        assert!(admit_hello(&Hello { version: 9, token: None }, None).is_err());
    }
}

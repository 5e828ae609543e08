//! The control plane's process: `sentinel serve`, started by the launcher with
//! the channel on descriptor 3 and the control listener on descriptor 4.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{SyncSender, sync_channel};

use broker::client::{Broker, ClientError};
use domain::record::Boundary;
use store::{State, StateLayout, StoreError, durable};

use crate::accounts::Accounts;
use crate::core::{Core, Message};
use crate::limits;
use crate::model_test::ModelTest;
use crate::muzzle_link::{MuzzleLink, mint_token};
use crate::socket::{self, Shared};

/// Why the control plane could not start or had to end.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    #[error("{0} is not set; the control plane is started by `sentinel up`")]
    NoEnvironment(&'static str),
    #[error("failed to use the launcher's channel")]
    Channel(#[from] ClientError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("failed to {act}")]
    System { act: &'static str, source: std::io::Error },
    #[error("the system gives no random bytes")]
    Random(#[from] getrandom::Error),
}

/// Serves until the launcher is gone. `channel` and `listener` are the two
/// descriptors the launcher passes.
pub fn run_role(channel: OwnedFd, listener: OwnedFd) -> Result<(), RoleError> {
    let environment = |name: &'static str| {
        std::env::var_os(name).map(PathBuf::from).ok_or(RoleError::NoEnvironment(name))
    };
    let root = environment("SENTINEL_STATE")?;
    let sockets = environment("SENTINEL_SOCKETS")?;
    let boundary = match environment("SENTINEL_BOUNDARY")?.to_str() {
        Some("separate") => Boundary::Separate,
        _ => Boundary::SingleUid,
    };
    let any_port = std::env::var_os("SENTINEL_MUZZLE_PORTS").is_some_and(|value| value == "any");
    let broker = Arc::new(Broker::from_fd(channel)?);
    let control_uid = rustix::process::geteuid().as_raw();
    let state = Arc::new(State::open(StateLayout { root, boundary, control_uid })?);
    let token = match boundary {
        Boundary::SingleUid => Some(control_token(&state)?),
        Boundary::Separate => None,
    };
    let system = |act| move |source| RoleError::System { act, source };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(system("start the runtime"))?;
    let admin = sockets.join("muzzle.sock");
    let link = MuzzleLink::new(&admin, runtime.handle().clone(), any_port);
    let (to_core, messages) = sync_channel(limits::QUEUE);
    let accounts = Accounts::default();
    let (tell_ready, ready) = tokio::sync::watch::channel(false);
    let core =
        Core::new(Arc::clone(&state), Arc::clone(&broker), link, accounts.clone(), tell_ready)?;
    start_listening(&broker, &to_core)?;
    let shared = Arc::new(Shared {
        state,
        accounts,
        core: to_core,
        token,
        tester: ModelTest { socket: admin },
        ready,
    });
    let listener = std::os::unix::net::UnixListener::from(listener);
    listener.set_nonblocking(true).map_err(system("use the control listener"))?;
    let listener = {
        let _inside = runtime.enter();
        tokio::net::UnixListener::from_std(listener).map_err(system("use the control listener"))?
    };
    runtime.handle().block_on(async {
        socket::spawn("control socket", async move {
            if let Err(error) = socket::serve(listener, shared).await {
                tracing::error!(%error, "the control socket failed");
            }
        });
    });
    // The core owns this thread until the launcher is gone.
    core.run(&messages);
    runtime.shutdown_background();
    Ok(())
}

/// Hands the launcher's notices to the core until the channel ends.
fn start_listening(broker: &Arc<Broker>, core: &SyncSender<Message>) -> Result<(), RoleError> {
    let (broker, core) = (Arc::clone(broker), core.clone());
    let listen = move || loop {
        match broker.recv() {
            Ok((notice, _pidfd)) => {
                if core.send(Message::Notice(notice)).is_err() {
                    return;
                }
            }
            Err(ClientError::Protocol(error)) => {
                tracing::error!(%error, "a notice was not understood");
            }
            Err(ClientError::Closed | ClientError::NotAChannel | ClientError::Socket { .. }) => {
                let _stopping = core.send(Message::LauncherClosed);
                return;
            }
        }
    };
    std::thread::Builder::new()
        .name("launcher".to_owned())
        .spawn(listen)
        .map(drop)
        .map_err(|source| RoleError::System { act: "start a thread", source })
}

/// The token of the control socket, made on first start.
fn control_token(state: &State) -> Result<String, RoleError> {
    let path = socket::token_path(state);
    let io = |act| {
        let path = path.clone();
        move |source| StoreError::Io { act, path, source }
    };
    match std::fs::read_to_string(&path) {
        Ok(token) if token.len() == 64 => Ok(token),
        Ok(_) | Err(_) => {
            let token = mint_token()?;
            let dir = store::beneath::open_dir(Path::new(state.path()))
                .map_err(io("open the directory of"))?;
            durable::replace(durable::dir_of(&dir), "control.token", token.as_bytes(), 0o600)
                .map_err(io("write"))?;
            Ok(token)
        }
    }
}

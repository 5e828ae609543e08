//! The one owner of all listeners: applies configurations and answers the admin interface.
//!
//! Admin connections send [`Command`]s over a bounded channel; only the loop here touches the listeners. A
//! configuration is applied as a whole: first every new port is bound, and only when all of them are does anything
//! change.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::admin;
use crate::config::{Auth, Config, ConfigError, ListenerPlan, Plan, UpstreamPlan};
use crate::forward::{Route, Shared};
use crate::limits::{self, Ceilings};
use crate::listener::Running;
use crate::tokens::TokenTable;
use crate::upstream::Upstream;

/// Why Muzzle does not run.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The admin listener cannot be used.
    #[error("failed to use the admin listener")]
    Admin {
        /// What the system said.
        source: std::io::Error,
    },
    /// The first configuration was not accepted.
    #[error("failed to apply the first configuration")]
    Config {
        /// Why.
        source: ApplyError,
    },
    /// A listener asks for a bearer and nothing could ever admit one.
    #[error(
        "listener `{listener}` asks for a bearer, and without an admin socket no bearer can be admitted: give an admin socket, or say `auth: none` on the listener"
    )]
    NobodyAdmits {
        /// Name of the listener.
        listener: String,
    },
}

/// Why a configuration was not applied. What ran before runs on.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The configuration itself is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A port cannot be had.
    #[error(
        "{place}: cannot bind {address} ({source}): choose another port or stop what listens there; nothing was changed"
    )]
    Bind {
        /// For example `listeners[1].bind`.
        place: String,
        /// The address that was asked for.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

/// What runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Version of this build.
    pub version: String,
    /// The listeners, in the order of the configuration.
    pub listeners: Vec<ListenerStatus>,
    /// Number of admitted bearers.
    pub admitted: usize,
}

/// One running listener.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListenerStatus {
    /// Its name.
    pub name: String,
    /// The address it is bound to, with the real port.
    pub address: SocketAddr,
    /// The real port.
    pub port: u16,
    /// Name of the upstream it leads to.
    pub upstream: String,
    /// What a client must show.
    pub auth: Auth,
    /// Whether paths outside the inspected surface pass.
    pub passthrough: bool,
}

/// A request to the owner of the listeners.
pub(crate) enum Command {
    Apply { config: Config, reply: oneshot::Sender<Result<Status, ApplyError>> },
    Status { reply: oneshot::Sender<Status> },
}

/// Runs Muzzle until `shutdown` completes or the admin listener is closed by its owner.
///
/// `admin` is a bound and listening socket; `initial` is applied before the first admin request is read. Open exchanges
/// get [`limits::SHUTDOWN_DRAIN`] to finish.
pub async fn serve(
    admin: std::os::unix::net::UnixListener,
    initial: Option<Config>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    serve_within(Ceilings::default(), Some(admin), initial, shutdown).await
}

/// [`serve`] with ceilings other than the documented ones, and possibly without an admin interface.
pub async fn serve_within(
    ceilings: Ceilings,
    admin: Option<std::os::unix::net::UnixListener>,
    initial: Option<Config>,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let tokens = Arc::new(TokenTable::new(ceilings.run_requests));
    let mut listeners = Listeners {
        ceilings,
        tokens: Arc::clone(&tokens),
        running: Vec::new(),
        tasks: JoinSet::new(),
    };
    if let Some(config) = initial {
        if admin.is_none()
            && let Some(asking) =
                config.listeners.iter().find(|listener| listener.auth == Auth::Bearer)
        {
            return Err(ServeError::NobodyAdmits { listener: asking.name.clone() });
        }
        listeners.apply(&config).await.map_err(|source| ServeError::Config { source })?;
    }
    let (commands, mut inbox) = mpsc::channel(limits::ADMIN_CONNECTIONS);
    let admin = admin.map(listen).transpose().map_err(|source| ServeError::Admin { source })?;
    let admin = async {
        if let Some(admin) = admin {
            admin::run(admin, commands, tokens).await;
        } else {
            // Keeps the channel open: there is just nobody who writes into it.
            let _commands = commands;
            std::future::pending::<()>().await;
        }
    };
    let (mut admin, mut shutdown) = (std::pin::pin!(admin), std::pin::pin!(shutdown));
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            () = &mut admin => break,
            Some(command) = inbox.recv() => listeners.obey(command).await,
            Some(_drained) = listeners.tasks.join_next() => {}
        }
    }
    listeners.stop_all(ceilings.shutdown_drain).await;
    Ok(())
}

fn listen(admin: std::os::unix::net::UnixListener) -> std::io::Result<UnixListener> {
    admin.set_nonblocking(true)?;
    UnixListener::from_std(admin)
}

struct Listeners {
    ceilings: Ceilings,
    tokens: Arc<TokenTable>,
    running: Vec<Running>,
    /// Every listener that accepts or still drains.
    tasks: JoinSet<()>,
}

/// What to do for one planned listener.
enum Step {
    /// Use the running listener at this place in the old list.
    Keep(usize),
    Start(TcpListener, SocketAddr),
}

impl Listeners {
    async fn obey(&mut self, command: Command) {
        // A caller that went away has nobody to tell; what it asked for was done.
        match command {
            Command::Apply { config, reply } => drop(reply.send(self.apply(&config).await)),
            Command::Status { reply } => drop(reply.send(self.status())),
        }
    }

    async fn apply(&mut self, config: &Config) -> Result<Status, ApplyError> {
        let plan = config.plan()?;
        let steps = self.bind(&plan).await?;
        let mut before: Vec<Option<Running>> = self.running.drain(..).map(Some).collect();
        let known: Vec<Arc<Upstream>> = before
            .iter()
            .flatten()
            .map(|running| Arc::clone(&running.route.borrow().upstream))
            .collect();
        let mut after = Vec::new();
        let mut upstreams: Vec<Arc<Upstream>> = Vec::new();
        for (listener, step) in plan.listeners.into_iter().zip(steps) {
            let upstream = upstream_for(&listener.upstream, &mut upstreams, &known);
            let asked = listener.bind;
            let route = Route { plan: listener, upstream };
            match step {
                Step::Keep(index) => {
                    if let Some(running) = before.get_mut(index).and_then(Option::take) {
                        running.route.send_replace(Arc::new(route));
                        after.push(Running { asked, ..running });
                    }
                }
                Step::Start(listener, bound) => after.push(Running::start(
                    asked,
                    bound,
                    listener,
                    route,
                    self.shared(bound),
                    &mut self.tasks,
                )),
            }
        }
        self.running = after;
        for removed in before.into_iter().flatten() {
            tracing::info!(address = %removed.bound, "listener removed");
            removed.stop(self.ceilings.removed_listener_drain).await;
        }
        let status = self.status();
        for listener in &status.listeners {
            tracing::info!(listener = %listener.name, address = %listener.address, upstream = %listener.upstream, auth = %listener.auth, "listening");
        }
        Ok(status)
    }

    /// Finds or binds a socket for each planned listener, and changes nothing that runs.
    async fn bind(&self, plan: &Plan) -> Result<Vec<Step>, ApplyError> {
        let mut steps = Vec::new();
        let mut kept = Vec::new();
        for (index, listener) in plan.listeners.iter().enumerate() {
            if let Some(found) = self.position(listener).filter(|found| !kept.contains(found)) {
                kept.push(found);
                steps.push(Step::Keep(found));
                continue;
            }
            let address = listener.bind;
            let refused = |source| ApplyError::Bind {
                place: format!("listeners[{index}].bind"),
                address,
                source,
            };
            let socket = TcpListener::bind(address).await.map_err(refused)?;
            let bound = socket.local_addr().map_err(refused)?;
            steps.push(Step::Start(socket, bound));
        }
        Ok(steps)
    }

    /// The running listener that has the port a planned one asks for.
    fn position(&self, planned: &ListenerPlan) -> Option<usize> {
        self.running.iter().position(|running| {
            if planned.bind.port() == 0 {
                running.asked == planned.bind && running.route.borrow().plan.name == planned.name
            } else {
                running.bound == planned.bind
            }
        })
    }

    fn shared(&self, bound: SocketAddr) -> Shared {
        Shared {
            port: bound.port(),
            slots: Arc::new(Semaphore::new(self.ceilings.listener_requests)),
            tokens: Arc::clone(&self.tokens),
            ceilings: self.ceilings,
        }
    }

    fn status(&self) -> Status {
        let listeners = self.running.iter().map(|running| {
            let route = running.route.borrow();
            ListenerStatus {
                name: route.plan.name.clone(),
                address: running.bound,
                port: running.bound.port(),
                upstream: route.plan.upstream.name.clone(),
                auth: route.plan.auth,
                passthrough: route.plan.passthrough,
            }
        });
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            listeners: listeners.collect(),
            admitted: self.tokens.count(),
        }
    }

    async fn stop_all(mut self, time: Duration) {
        for running in self.running.drain(..) {
            running.stop(time).await;
        }
        let drained = async { while self.tasks.join_next().await.is_some() {} };
        // Those that were removed earlier have longer time of their own, which ends now.
        tokio::time::timeout(time, drained).await.ok();
    }
}

/// The upstream of a plan: one for each plan, and the one that runs already where nothing changed.
fn upstream_for(
    plan: &UpstreamPlan,
    new: &mut Vec<Arc<Upstream>>,
    known: &[Arc<Upstream>],
) -> Arc<Upstream> {
    if let Some(same) = new.iter().chain(known).find(|upstream| upstream.plan == *plan) {
        return Arc::clone(same);
    }
    let upstream = Arc::new(Upstream::new(plan.clone()));
    new.push(Arc::clone(&upstream));
    upstream
}

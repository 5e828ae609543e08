//! The control plane's hold on Muzzle: which upstreams exist, on which ports,
//! and whose bearers are admitted. Muzzle keeps bearers in memory only, so
//! everything is sent again after it restarted.

use std::collections::BTreeMap;
use std::path::Path;

use domain::id::RunId;
use domain::profile::ModelRecord;
use domain::record::Provider;
use muzzle::admin::{AdminError, Client};
use muzzle::{Auth, Config, Listener, TokenDigest, Upstream};
use tokio::runtime::Handle;

/// First port of listeners beyond the three of the well-known providers.
const FURTHER_PORTS: u16 = 8793;

/// The link, used from the core's thread.
pub(crate) struct MuzzleLink {
    client: Client,
    runtime: Handle,
    /// Let the system choose ports: for throw-away instances side by side.
    any_port: bool,
    /// `(family, base URL)` to the port of its listener; filled from Muzzle's answer.
    ports: BTreeMap<(String, String), u16>,
    pub(crate) running: bool,
    pub(crate) listeners: Vec<String>,
}

/// Models that share a listener: one upstream per family and base URL.
fn key_of(model: &ModelRecord) -> (String, String) {
    let family = match model.provider {
        Provider::Openai | Provider::OpenaiResponses => "openai",
        Provider::Anthropic => "anthropic",
        Provider::Ollama | Provider::OllamaGenerate => "ollama",
    };
    (family.to_owned(), model.base_url.clone())
}

fn name_of(key: &(String, String)) -> String {
    let digest = domain::approval::sha256_hex(key.1.as_bytes());
    format!("{}-{}", key.0, digest.get(..8).unwrap_or_default())
}

/// The name of the listener a model is reached through.
pub(crate) fn listener_name(model: &ModelRecord) -> String {
    name_of(&key_of(model))
}

impl MuzzleLink {
    pub(crate) fn new(socket: &Path, runtime: Handle, any_port: bool) -> Self {
        Self {
            client: Client::new(socket),
            runtime,
            any_port,
            ports: BTreeMap::new(),
            running: false,
            listeners: Vec::new(),
        }
    }

    /// Puts the listeners for `models` into effect.
    pub(crate) fn configure(&mut self, models: &[ModelRecord]) -> Result<(), AdminError> {
        let keys: std::collections::BTreeSet<_> = models.iter().map(key_of).collect();
        let config = self.plan(&keys);
        match self.runtime.block_on(self.client.put_config(&config)) {
            Ok(status) => {
                self.running = true;
                self.listeners = status
                    .listeners
                    .iter()
                    .map(|l| format!("{} -> {} on port {}", l.name, l.upstream, l.port))
                    .collect();
                let found = keys.iter().zip(&config.listeners).filter_map(|(key, listener)| {
                    let port = status.listeners.iter().find(|l| l.name == listener.name)?.port;
                    Some((key.clone(), port))
                });
                self.ports = found.collect();
                Ok(())
            }
            Err(error) => {
                self.running =
                    !matches!(error, AdminError::Connect { .. } | AdminError::Timeout { .. });
                Err(error)
            }
        }
    }

    /// Ports once given stay: a live worker may dial only the one it knows.
    fn plan(&self, keys: &std::collections::BTreeSet<(String, String)>) -> Config {
        let mut config = Config {
            version: muzzle::config::VERSION,
            upstreams: Vec::new(),
            listeners: Vec::new(),
        };
        let mut taken: Vec<u16> =
            keys.iter().filter_map(|key| self.ports.get(key).copied()).collect();
        for key in keys {
            let port = match self.ports.get(key) {
                // Said the same way again, or Muzzle would take it for a new listener.
                _ if self.any_port => 0,
                Some(port) => *port,
                None => {
                    let known = match key.0.as_str() {
                        "ollama" => 8790,
                        "openai" => 8791,
                        _ => 8792,
                    };
                    let free = std::iter::once(known)
                        .chain(FURTHER_PORTS..=u16::MAX)
                        .find(|p| !taken.contains(p));
                    let port = free.unwrap_or(0);
                    taken.push(port);
                    port
                }
            };
            let name = name_of(key);
            config.upstreams.push(Upstream::keyless(&name, &key.0, &key.1));
            config.listeners.push(Listener {
                name: name.clone(),
                bind: format!("127.0.0.1:{port}"),
                upstream: name,
                auth: Auth::Bearer,
                passthrough: false,
            });
        }
        config
    }

    /// The listener a model is reached through.
    pub(crate) fn port(&self, model: &ModelRecord) -> Option<u16> {
        self.ports.get(&key_of(model)).copied()
    }

    pub(crate) fn admit(&self, token: &str, run: &RunId) -> Result<(), AdminError> {
        self.runtime.block_on(self.client.admit(TokenDigest::of(token.as_bytes()), run.as_str()))
    }

    /// A bearer that is not known any more is as good as revoked.
    pub(crate) fn revoke(&self, token: &str) {
        if let Err(error) =
            self.runtime.block_on(self.client.revoke(TokenDigest::of(token.as_bytes())))
        {
            tracing::warn!(%error, "a run's bearer could not be revoked; it ends with Muzzle's process");
        }
    }
}

/// A fresh bearer: 256 bits as hexadecimal.
pub(crate) fn mint_token() -> Result<String, getrandom::Error> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes)?;
    Ok(domain::approval::hex(&bytes))
}

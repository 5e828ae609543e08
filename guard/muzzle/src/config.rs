//! The configuration: which port leads to which upstream, and what a client must show.
//!
//! A person writes it as YAML, the control plane sends it as JSON; both are read into [`Config`], where an unknown
//! field is an error that names it. [`Config::check`] then finds what a type cannot say; the plan that comes of it
//! leaves nothing undecided. This module opens nothing and resolves no name.
//!
//! ```yaml
//! version: 1
//! upstreams:
//!   - { name: local, provider: ollama, base_url: "http://127.0.0.1:11434" }
//! listeners:
//!   - { name: ollama, bind: "127.0.0.1:8790", upstream: local, auth: bearer }
//! ```

use std::collections::HashSet;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use hyper::Uri;
use serde::{Deserialize, Deserializer, Serialize};

use crate::limits;

/// The one version of the configuration's shape that this build reads.
pub const VERSION: u32 = 1;

/// A whole configuration, as it is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Shape of the file; must be [`VERSION`].
    pub version: u32,
    /// Model servers that listeners may lead to.
    #[serde(default)]
    pub upstreams: Vec<Upstream>,
    /// Ports that clients dial.
    #[serde(default)]
    pub listeners: Vec<Listener>,
}

/// A model server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstream {
    /// Name that listeners refer to.
    pub name: String,
    /// Who serves it, for the log: `ollama`, `openai`, `anthropic`, ….
    pub provider: String,
    /// `http://host[:port][/prefix]`. A prefix that ends in `/v1` is not doubled when the request's path starts so.
    pub base_url: String,
    /// Present when a key was written. The key itself is not kept, and [`Config::check`] refuses it.
    #[serde(default, skip_serializing)]
    pub key: Option<GivenKey>,
}

impl Upstream {
    /// An upstream that needs no key.
    pub fn keyless(
        name: impl Into<String>,
        provider: impl Into<String>,
        base_url: impl Into<String>,
    ) -> Self {
        Self { name: name.into(), provider: provider.into(), base_url: base_url.into(), key: None }
    }
}

/// The mark that a key was given. Reading it throws the value away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GivenKey;

impl<'de> Deserialize<'de> for GivenKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_ignored| Self)
    }
}

/// A port that leads to an upstream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Listener {
    /// Name for log and status.
    pub name: String,
    /// `127.0.0.1:PORT` or `[::1]:PORT`; port 0 lets the system choose, and the status says what it chose.
    pub bind: String,
    /// Name of the upstream.
    pub upstream: String,
    /// What a client must show; a bearer unless said otherwise.
    #[serde(default)]
    pub auth: Auth,
    /// Whether paths outside the inspected surface pass.
    #[serde(default)]
    pub passthrough: bool,
}

/// What a client of a listener must show.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    /// A bearer whose digest was admitted.
    #[default]
    Bearer,
    /// Nothing.
    None,
}

impl fmt::Display for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bearer => "bearer",
            Self::None => "none",
        })
    }
}

/// Why a configuration was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read into its shape. The message names the field and the line.
    #[error("the configuration cannot be read: {message}")]
    Shape {
        /// What the reader said.
        message: String,
    },
    /// It has the right shape and says something that cannot be.
    #[error("the configuration is refused: {}", .problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Refused {
        /// All that is wrong with it, in the order of the file.
        problems: Vec<Problem>,
    },
}

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// For example `listeners[1].bind`.
    pub place: String,
    /// What is wrong and what to write instead.
    pub why: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.why)
    }
}

/// A checked configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan {
    pub(crate) listeners: Vec<ListenerPlan>,
}

/// A checked listener with the upstream it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListenerPlan {
    pub(crate) name: String,
    pub(crate) bind: SocketAddr,
    pub(crate) auth: Auth,
    pub(crate) passthrough: bool,
    pub(crate) upstream: Arc<UpstreamPlan>,
}

/// A checked upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct UpstreamPlan {
    pub(crate) name: String,
    pub(crate) provider: String,
    /// Name or address to dial, without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// `Host` header of forwarded requests.
    pub(crate) authority: String,
    /// Prefix of every forwarded path: empty, or starting with a slash and not ending with one.
    pub(crate) prefix: String,
}

impl Config {
    /// Reads YAML as a person writes it.
    pub fn parse_yaml(text: &str) -> Result<Self, ConfigError> {
        serde_yaml::from_str(text)
            .map_err(|error| ConfigError::Shape { message: error.to_string() })
    }

    /// Reads JSON as the admin interface receives it.
    pub fn parse_json(bytes: &[u8]) -> Result<Self, ConfigError> {
        serde_json::from_slice(bytes)
            .map_err(|error| ConfigError::Shape { message: error.to_string() })
    }

    /// Checks everything that can be checked without touching the system, and reports all problems at once.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.plan().map(drop)
    }

    pub(crate) fn plan(&self) -> Result<Plan, ConfigError> {
        let mut problems = Problems::default();
        if self.version != VERSION {
            problems.add(
                "version",
                format!("is {}, and this build reads version {VERSION}", self.version),
            );
        }
        let ceiling = |count: usize, most: usize| count > most;
        if ceiling(self.upstreams.len(), limits::UPSTREAMS) {
            problems.add("upstreams", format!("has more than {} entries", limits::UPSTREAMS));
        }
        if ceiling(self.listeners.len(), limits::LISTENERS) {
            problems.add("listeners", format!("has more than {} entries", limits::LISTENERS));
        }
        let upstreams: Vec<Arc<UpstreamPlan>> = plan_upstreams(&self.upstreams, &mut problems);
        let listeners = plan_listeners(&self.listeners, &self.upstreams, &upstreams, &mut problems);
        if problems.found.is_empty() {
            Ok(Plan { listeners })
        } else {
            Err(ConfigError::Refused { problems: problems.found })
        }
    }
}

#[derive(Default)]
struct Problems {
    found: Vec<Problem>,
}

impl Problems {
    fn add(&mut self, place: impl Into<String>, why: impl Into<String>) {
        self.found.push(Problem { place: place.into(), why: why.into() });
    }
}

fn plan_upstreams(written: &[Upstream], problems: &mut Problems) -> Vec<Arc<UpstreamPlan>> {
    let mut names = HashSet::new();
    let mut planned = Vec::new();
    for (index, upstream) in written.iter().enumerate() {
        let place = format!("upstreams[{index}]");
        check_name(&format!("{place}.name"), &upstream.name, &mut names, problems);
        check_slug(&format!("{place}.provider"), &upstream.provider, problems);
        if upstream.key.is_some() {
            problems.add(
                format!("{place}.key"),
                format!("{NEEDS_INSPECTION}: remove the key and use an upstream that needs none"),
            );
        }
        match parse_base_url(&upstream.base_url) {
            Ok(address) => planned.push(Arc::new(UpstreamPlan {
                name: upstream.name.clone(),
                provider: upstream.provider.clone(),
                host: address.host,
                port: address.port,
                authority: address.authority,
                prefix: address.prefix,
            })),
            Err(why) => problems.add(format!("{place}.base_url"), why),
        }
    }
    planned
}

fn plan_listeners(
    written: &[Listener],
    written_upstreams: &[Upstream],
    upstreams: &[Arc<UpstreamPlan>],
    problems: &mut Problems,
) -> Vec<ListenerPlan> {
    let mut names = HashSet::new();
    let mut binds = HashSet::new();
    let mut planned = Vec::new();
    for (index, listener) in written.iter().enumerate() {
        let place = format!("listeners[{index}]");
        check_name(&format!("{place}.name"), &listener.name, &mut names, problems);
        let bind = match parse_bind(&listener.bind) {
            Ok(bind) => bind,
            Err(why) => {
                problems.add(format!("{place}.bind"), why);
                continue;
            }
        };
        if bind.port() != 0 && !binds.insert(bind) {
            problems.add(
                format!("{place}.bind"),
                format!("{bind} is taken by an earlier listener: give each its own port"),
            );
        }
        if !written_upstreams.iter().any(|upstream| upstream.name == listener.upstream) {
            problems.add(
                format!("{place}.upstream"),
                format!(
                    "no upstream is called `{}`: add it under `upstreams` or correct the name",
                    listener.upstream
                ),
            );
            continue;
        }
        // Absent only when that upstream has a problem of its own, which is reported already.
        if let Some(upstream) = upstreams.iter().find(|upstream| upstream.name == listener.upstream)
        {
            planned.push(ListenerPlan {
                name: listener.name.clone(),
                bind,
                auth: listener.auth,
                passthrough: listener.passthrough,
                upstream: Arc::clone(upstream),
            });
        }
    }
    for (index, upstream) in written_upstreams.iter().enumerate() {
        let own_port = upstreams
            .iter()
            .find(|planned| planned.name == upstream.name)
            .filter(|planned| is_loopback(&planned.host) && planned.port != 0)
            .filter(|planned| binds.iter().any(|bind| bind.port() == planned.port));
        if let Some(own) = own_port {
            problems.add(
                format!("upstreams[{index}].base_url"),
                format!(
                    "port {} is one of Muzzle's own listeners: name the model server's port",
                    own.port
                ),
            );
        }
    }
    planned
}

/// How a key is refused, wherever it is found.
const NEEDS_INSPECTION: &str =
    "a provider key needs Muzzle's inspection, which this build does not have";

fn check_name(place: &str, name: &str, seen: &mut HashSet<String>, problems: &mut Problems) {
    check_slug(place, name, problems);
    if !seen.insert(name.to_owned()) {
        problems.add(place, format!("`{name}` is used twice: names are unique"));
    }
}

fn check_slug(place: &str, name: &str, problems: &mut Problems) {
    let fits = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if !fits {
        problems.add(place, "must be 1 to 64 letters, digits, dots, underscores or dashes");
    }
}

fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn parse_bind(text: &str) -> Result<SocketAddr, String> {
    let address: SocketAddr = text.parse().map_err(|_unreadable: std::net::AddrParseError| {
        format!("`{text}` is not an address and port: write `127.0.0.1:PORT` or `[::1]:PORT`")
    })?;
    let own = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    if own.contains(&address.ip()) {
        Ok(address)
    } else {
        Err(format!(
            "{} is not 127.0.0.1 or [::1]: Muzzle never listens beyond loopback",
            address.ip()
        ))
    }
}

struct BaseUrl {
    host: String,
    port: u16,
    authority: String,
    prefix: String,
}

fn parse_base_url(text: &str) -> Result<BaseUrl, String> {
    // The text may carry a credential, so no message repeats it.
    let uri: Uri = text.parse().map_err(|_unreadable: hyper::http::uri::InvalidUri| {
        "is not a URL: write `http://host:port`".to_owned()
    })?;
    match uri.scheme_str() {
        Some("http") => {}
        Some("https") => {
            return Err("https upstreams are not supported by this build: name a model server on plain http, such as a local one".to_owned());
        }
        _ => return Err("must start with `http://`".to_owned()),
    }
    let authority =
        uri.authority().ok_or_else(|| "names no host: write `http://host:port`".to_owned())?;
    if authority.as_str().contains('@') || uri.query().is_some() {
        return Err(format!(
            "carries a credential or a query. {NEEDS_INSPECTION}: write only `http://host:port/prefix`"
        ));
    }
    if text.contains('#') {
        return Err("has a fragment (`#…`), which is never sent: remove it".to_owned());
    }
    let prefix = uri.path().trim_end_matches('/');
    if has_dot_segment(prefix) {
        return Err("has a `.` or `..` segment in its path: write the path it leads to".to_owned());
    }
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let port = match authority.as_str().strip_prefix(authority.host()) {
        Some("") => 80,
        _ => authority.port_u16().unwrap_or(0),
    };
    if host.is_empty() || port == 0 {
        return Err("names no host, or a port that is none: write `http://host:port`".to_owned());
    }
    Ok(BaseUrl {
        host: host.to_owned(),
        port,
        authority: authority.as_str().to_owned(),
        prefix: prefix.to_owned(),
    })
}

/// Whether a path has a segment that a server may resolve to somewhere else, plain or percent-encoded.
pub(crate) fn has_dot_segment(path: &str) -> bool {
    path.split('/').any(|segment| {
        matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..")
    })
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;

//! The admin interface, seen from the control plane: one short connection for each call.

use std::path::{Path, PathBuf};

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::UnixStream;

use super::AdmitBody;
use crate::config::Config;
use crate::limits;
use crate::serve::Status;
use crate::task::spawn_guarded;
use crate::tokens::TokenDigest;

/// Why a call to the admin interface failed.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// Nothing answers at the socket.
    #[error("failed to reach Muzzle at {}: is it running?", .path.display())]
    Connect {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// No answer came in time.
    #[error("failed to get an answer from Muzzle at {} within {seconds} s", .path.display())]
    Timeout {
        /// The socket.
        path: PathBuf,
        /// How long was waited.
        seconds: u64,
    },
    /// Muzzle understood and refused.
    #[error("Muzzle refused: {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// Stable word, for example `config_refused`, `cannot_bind`, `not_admitted`.
        kind: String,
        /// What to tell a person.
        message: String,
    },
    /// The exchange broke, or the answer is not one of Muzzle's.
    #[error("failed to understand Muzzle's answer: {why}")]
    Protocol {
        /// What was wrong.
        why: String,
    },
}

/// A client of the admin interface at one socket path. Holds no connection, so it survives a restart of Muzzle.
#[derive(Debug, Clone)]
pub struct Client {
    path: PathBuf,
}

#[derive(Deserialize)]
struct ErrorBody {
    error: ErrorText,
}

#[derive(Deserialize)]
struct ErrorText {
    r#type: String,
    message: String,
}

impl Client {
    /// A client of the Muzzle behind this socket. Connects to nothing yet.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self { path: path.as_ref().to_owned() }
    }

    /// Puts a whole configuration into effect and returns what runs now, real ports included.
    pub async fn put_config(&self, config: &Config) -> Result<Status, AdminError> {
        let body = serde_json::to_vec(config)
            .map_err(|error| AdminError::Protocol { why: error.to_string() })?;
        parse(&self.call(Method::PUT, "/v1/config", body).await?)
    }

    /// What runs.
    pub async fn status(&self) -> Result<Status, AdminError> {
        parse(&self.call(Method::GET, "/v1/status", Vec::new()).await?)
    }

    /// Admits a bearer for a run. Saying it again is fine, and needed after a restart of Muzzle.
    pub async fn admit(&self, digest: TokenDigest, run: &str) -> Result<(), AdminError> {
        let body = serde_json::to_vec(&AdmitBody { run: run.to_owned() })
            .map_err(|error| AdminError::Protocol { why: error.to_string() })?;
        self.call(Method::PUT, &format!("/v1/tokens/{digest}"), body).await.map(drop)
    }

    /// Revokes a bearer. Returns whether it was admitted.
    pub async fn revoke(&self, digest: TokenDigest) -> Result<bool, AdminError> {
        match self.call(Method::DELETE, &format!("/v1/tokens/{digest}"), Vec::new()).await {
            Ok(_empty) => Ok(true),
            Err(AdminError::Refused { kind, .. }) if kind == "not_admitted" => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn call(&self, method: Method, target: &str, body: Vec<u8>) -> Result<Bytes, AdminError> {
        tokio::time::timeout(limits::ADMIN_ANSWER, self.exchange(method, target, body))
            .await
            .map_err(|_elapsed| AdminError::Timeout {
                path: self.path.clone(),
                seconds: limits::ADMIN_ANSWER.as_secs(),
            })?
    }

    async fn exchange(
        &self,
        method: Method,
        target: &str,
        body: Vec<u8>,
    ) -> Result<Bytes, AdminError> {
        let protocol =
            |error: &dyn std::fmt::Display| AdminError::Protocol { why: error.to_string() };
        let stream = UnixStream::connect(&self.path)
            .await
            .map_err(|source| AdminError::Connect { path: self.path.clone(), source })?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| protocol(&error))?;
        let _driver = spawn_guarded(async move {
            // How the connection ended reaches the caller through the answer it waits for.
            connection.await.ok();
        });
        let mut request = Request::new(Full::new(Bytes::from(body)));
        *request.method_mut() = method;
        *request.uri_mut() =
            target.parse().map_err(|error: hyper::http::uri::InvalidUri| protocol(&error))?;
        request.headers_mut().insert(HOST, HeaderValue::from_static("muzzle"));
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let response = sender.send_request(request).await.map_err(|error| protocol(&error))?;
        let status = response.status();
        let body = Limited::new(response.into_body(), limits::ADMIN_BODY_BYTES)
            .collect()
            .await
            .map_err(|error| protocol(&error))?
            .to_bytes();
        if status.is_success() { Ok(body) } else { Err(refused(status, &body)) }
    }
}

fn refused(status: StatusCode, body: &[u8]) -> AdminError {
    match serde_json::from_slice::<ErrorBody>(body) {
        Ok(ErrorBody { error }) => AdminError::Refused {
            status: status.as_u16(),
            kind: error.r#type,
            message: error.message,
        },
        Err(error) => AdminError::Protocol {
            why: format!("status {status} with a body that is no error of ours: {error}"),
        },
    }
}

fn parse(body: &[u8]) -> Result<Status, AdminError> {
    serde_json::from_slice(body).map_err(|error| AdminError::Protocol { why: error.to_string() })
}

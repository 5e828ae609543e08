//! The body of the `fetch` role: one GET, redirects reported and not followed,
//! text only, a ceiling on bytes. Which hosts are reachable is Leash's to say;
//! here the child has only the TCP ports its agent was granted.

use std::time::Duration;

use reqwest::Url;

use crate::limits;

/// `host:port` of an http or https URL without credentials.
pub(super) fn destination(url: &str) -> Result<String, String> {
    let url = parse(url)?;
    let host = url.host_str().ok_or("the URL has no host")?;
    let port = url.port_or_known_default().ok_or("the URL has no port")?;
    Ok(format!("{host}:{port}"))
}

fn parse(url: &str) -> Result<Url, String> {
    let url = Url::parse(url).map_err(|e| format!("{url:?} is no URL: {e}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("only http and https are fetched, not {}", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err("the URL carries credentials; leave them out".to_owned());
    }
    Ok(url)
}

pub(super) fn run_fetch(request: &[u8]) -> Result<String, String> {
    let url = parse(std::str::from_utf8(request).map_err(|e| e.to_string())?.trim())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| e.to_string())?;
    runtime.block_on(get(url))
}

async fn get(url: Url) -> Result<String, String> {
    let client = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(limits::MODEL_CONNECT)
        .timeout(Duration::from_secs(60))
        .user_agent(concat!("sentinel/", env!("CARGO_PKG_VERSION")))
        .build()
        .map_err(|e| e.to_string())?;
    let mut response = client.get(url).send().await.map_err(|e| chain(&e))?;
    let status = response.status();
    if status.is_redirection() {
        let to =
            response.headers().get("location").and_then(|v| v.to_str().ok()).unwrap_or("nowhere");
        return Ok(format!("{status}: redirects to {to}; fetch that URL if you want it"));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|e| chain(&e))? {
        body.extend_from_slice(&chunk);
        if body.len() > limits::TOOL_OUTPUT_BYTES {
            return Err(format!("the body is larger than {} bytes", limits::TOOL_OUTPUT_BYTES));
        }
    }
    let text = String::from_utf8_lossy(&body);
    if status.is_success() { Ok(text.into_owned()) } else { Err(format!("{status}: {text}")) }
}

/// An error with its causes: "connection refused" is two levels down.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(&format!(": {cause}"));
        source = cause.source();
    }
    text
}

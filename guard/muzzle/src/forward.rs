//! One exchange: from a client's request head to the last byte of its answer.
//!
//! decide -> take a slot -> send -> relay. The client's connection owns the whole chain, so a client that goes away drops
//! it, and with it the connection to the upstream.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::header::{AUTHORIZATION, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response, Uri};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::admission::{API_KEY_HEADER, Admitted, bearer, connection_tokens, decide_admission};
use crate::body::{AnswerBody, Held, RequestBody, discard};
use crate::config::{Auth, ListenerPlan, UpstreamPlan};
use crate::limits::Ceilings;
use crate::record::ExchangeRecord;
use crate::refusal::Refusal;
use crate::tokens::{Admission, TokenTable};
use crate::upstream::{Connection, Upstream};

/// What a client reads: a refusal of ours or the upstream's answer.
pub(crate) type Outgoing = Either<Full<Bytes>, AnswerBody>;

/// Where a listener leads at this moment.
pub(crate) struct Route {
    pub(crate) plan: ListenerPlan,
    pub(crate) upstream: Arc<Upstream>,
}

/// What every exchange of one listener shares.
pub(crate) struct Shared {
    pub(crate) port: u16,
    pub(crate) slots: Arc<Semaphore>,
    pub(crate) tokens: Arc<TokenTable>,
    pub(crate) ceilings: Ceilings,
}

/// Answers one request.
pub(crate) async fn forward(
    request: Request<Incoming>,
    route: Arc<Route>,
    shared: Arc<Shared>,
) -> Response<Outgoing> {
    let (head, body) = request.into_parts();
    let plan = &route.plan;
    let mut record = ExchangeRecord::begin(
        head.method.as_str(),
        head.uri.path(),
        &plan.name,
        &plan.upstream.name,
    );
    let decided = decide_admission(
        &head,
        plan,
        shared.port,
        &shared.tokens,
        shared.ceilings.request_body_bytes,
    )
    .and_then(|admitted| Ok((take_slots(&admitted, plan, &shared)?, admitted)));
    let (slots, Admitted { admission }) = match decided {
        Ok(decided) => decided,
        Err(refusal) => {
            discard(body);
            return refuse(&refusal, &mut record);
        }
    };
    if let Some(admission) = &admission {
        record.belongs_to(Arc::clone(&admission.run));
    }
    match exchange(head, body, &route, &shared, admission.clone()).await {
        Ok((answer, connection)) => {
            record.answered(answer.status());
            let held = Held { upstream: Arc::clone(&route.upstream), connection, slots, record };
            relay(answer, admission, held, &shared.ceilings)
        }
        Err(refusal) => refuse(&refusal, &mut record),
    }
}

fn take_slots(
    admitted: &Admitted,
    plan: &ListenerPlan,
    shared: &Shared,
) -> Result<Vec<OwnedSemaphorePermit>, Refusal> {
    let ceilings = &shared.ceilings;
    let busy =
        || Refusal::ListenerBusy { listener: plan.name.clone(), most: ceilings.listener_requests };
    let mut slots =
        vec![Arc::clone(&shared.slots).try_acquire_owned().map_err(|_none_free| busy())?];
    if let Some(admission) = &admitted.admission {
        let own = Arc::clone(&admission.slots).try_acquire_owned();
        slots.push(own.map_err(|_none_free| Refusal::RunBusy { most: ceilings.run_requests })?);
    }
    Ok(slots)
}

async fn exchange(
    head: Parts,
    body: Incoming,
    route: &Route,
    shared: &Shared,
    admission: Option<Admission>,
) -> Result<(Response<Incoming>, Connection), Refusal> {
    let ceilings = &shared.ceilings;
    let (body, fault) =
        RequestBody::new(body, ceilings.request_body_bytes, ceilings.request_silence);
    let request = outgoing_request(head, body, &route.plan, &shared.tokens)?;
    let answered = tokio::select! {
        () = revoked(admission) => Err(Refusal::Revoked),
        answered = tokio::time::timeout(ceilings.answer_head, route.upstream.send(request, ceilings)) => {
            answered.unwrap_or_else(|_elapsed| Err(route.upstream.timeout("answer", ceilings.answer_head)))
        }
    };
    // The client's own fault explains the broken exchange better than what it looked like from the other side.
    answered.map_err(|refusal| fault.get().cloned().unwrap_or(refusal))
}

async fn revoked(admission: Option<Admission>) {
    match admission {
        Some(admission) => admission.revoked().await,
        None => std::future::pending().await,
    }
}

fn outgoing_request(
    head: Parts,
    body: RequestBody,
    plan: &ListenerPlan,
    tokens: &TokenTable,
) -> Result<Request<RequestBody>, Refusal> {
    let mut headers = head.headers;
    strip_hop_by_hop(&mut headers);
    // Answered on this side already, when the body is first read.
    headers.remove(EXPECT);
    strip_credentials(&mut headers, plan.auth, tokens);
    let unusable = || Refusal::DotSegment;
    headers.insert(
        HOST,
        HeaderValue::from_str(&plan.upstream.authority).map_err(|_not_ascii| unusable())?,
    );
    let mut request = Request::new(body);
    *request.method_mut() = head.method;
    *request.uri_mut() = outgoing_target(&head.uri, &plan.upstream).ok_or_else(unusable)?;
    *request.headers_mut() = headers;
    Ok(request)
}

/// Removes what names the run. A listener without a bearer passes other credentials on, but never one that is admitted.
fn strip_credentials(headers: &mut HeaderMap, auth: Auth, tokens: &TokenTable) {
    let shown = headers.get_all(AUTHORIZATION).iter().filter_map(|value| bearer(value.as_bytes()));
    let keys = headers.get_all(API_KEY_HEADER).iter().map(HeaderValue::as_bytes);
    if auth == Auth::Bearer || shown.chain(keys).any(|shown| tokens.look_up(shown).is_some()) {
        headers.remove(AUTHORIZATION);
        headers.remove(API_KEY_HEADER);
    }
}

/// The upstream's prefix in front of the client's path and query. A `/v1` that both have is written once.
fn outgoing_target(uri: &Uri, upstream: &UpstreamPlan) -> Option<Uri> {
    let asked = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let prefix = if asked.starts_with("/v1/") {
        upstream.prefix.strip_suffix("/v1").unwrap_or(&upstream.prefix)
    } else {
        &upstream.prefix
    };
    format!("{prefix}{asked}").parse().ok()
}

/// Removes the headers that belong to one connection (RFC 9110, section 7.6.1).
fn strip_hop_by_hop(headers: &mut HeaderMap) {
    for name in connection_tokens(headers) {
        if let Ok(name) = name.parse::<HeaderName>() {
            headers.remove(name);
        }
    }
    for name in [
        "connection",
        "proxy-connection",
        "keep-alive",
        "te",
        "transfer-encoding",
        "upgrade",
        "proxy-authorization",
        "proxy-authenticate",
    ] {
        headers.remove(name);
    }
}

fn relay(
    answer: Response<Incoming>,
    admission: Option<Admission>,
    held: Held,
    ceilings: &Ceilings,
) -> Response<Outgoing> {
    let (mut head, body) = answer.into_parts();
    strip_hop_by_hop(&mut head.headers);
    let revoked: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(revoked(admission));
    let body = AnswerBody::new(body, ceilings.answer_silence, revoked, held);
    let mut response = Response::new(Either::Right(body));
    *response.status_mut() = head.status;
    *response.headers_mut() = head.headers;
    response
}

fn refuse(refusal: &Refusal, record: &mut ExchangeRecord) -> Response<Outgoing> {
    record.refused(refusal.status(), refusal.kind());
    refusal.response().map(Either::Left)
}

#[cfg(test)]
#[path = "forward_tests.rs"]
mod tests;

//! Serves cards over HTTP: selects the form for a client, and handles conditional requests.

use std::sync::Arc;

use attache_hub::{Error, Result, surface};
use attache_protocol::{
    Code, Timestamp,
    wire::{a2a_options::A2aOptions, account::Account},
};
use axum::{
    Router,
    body::Body,
    extract::{Path, State},
    http::{HeaderMap, HeaderValue, Response, StatusCode, Uri, header, request::Parts},
    routing::get,
};
use jiff::fmt::rfc2822::{DateTimeParser, DateTimePrinter};

use super::{
    AgentCards,
    cache::{CardDocument, CardShape},
    catalog::AgentCatalog,
};

const VERSION: &str = "a2a-version";
/// The request headers the response depends on.
const VARY: HeaderValue = HeaderValue::from_static("A2A-Version, Authorization");

/// Who may cache the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CacheAudience {
    Anybody,
    TheCaller,
}

/// The path of the card. Clients older than 0.3 only know the old one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WellKnownCardPath {
    Current,
    Legacy,
}

/// The well-known documents of every agent and of the hub itself.
pub(crate) fn routes(cards: AgentCards) -> Router {
    Router::new()
        .route("/a2a/{agent}/.well-known/agent-card.json", get(of_agent))
        .route("/a2a/{agent}/.well-known/agent.json", get(of_agent_of_old))
        .route("/a2a/.well-known/agent-card.json", get(of_no_agent))
        .route("/.well-known/agent-card.json", get(of_hub))
        .route("/.well-known/agent.json", get(of_hub_of_old))
        .route("/.well-known/ai-catalog.json", get(catalog))
        .with_state(cards)
}

async fn of_agent(State(cards): State<AgentCards>, Path(agent): Path<String>, parts: Parts) -> Result<Response<Body>> {
    cards.answer(&parts, Some(&agent), WellKnownCardPath::Current).await
}

async fn of_agent_of_old(
    State(cards): State<AgentCards>,
    Path(agent): Path<String>,
    parts: Parts,
) -> Result<Response<Body>> {
    cards.answer(&parts, Some(&agent), WellKnownCardPath::Legacy).await
}

/// Clients that resolve the card's path relative to `/a2a/NAME` end up here. From `/a2a/NAME/` they find the card.
async fn of_no_agent() -> Error {
    Error::new(Code::NoSuchPath, "This path doesn't name an agent.")
        .hint("Use the agent's base URL with a trailing slash, /a2a/NAME/, or its card's URL, /a2a/NAME/.well-known/agent-card.json.")
}

async fn of_hub(State(cards): State<AgentCards>, parts: Parts) -> Result<Response<Body>> {
    cards.answer(&parts, None, WellKnownCardPath::Current).await
}

async fn of_hub_of_old(State(cards): State<AgentCards>, parts: Parts) -> Result<Response<Body>> {
    cards.answer(&parts, None, WellKnownCardPath::Legacy).await
}

async fn catalog(State(cards): State<AgentCards>, parts: Parts) -> Result<Response<Body>> {
    let by = surface::caller(&parts, &cards.hub).await?;
    let accounts = cards.hub.card_accounts(by.as_ref()).await?;
    let catalog =
        serde_json::to_vec(&AgentCatalog::new(&cards.place.origin, &accounts)).map_err(|e| Error::internal(&e))?;
    let keeper = if by.is_some() { CacheAudience::TheCaller } else { CacheAudience::Anybody };
    // The list has no modification time, so only its ETag counts.
    let document = CardDocument::new(catalog.into(), cards.hub.now());
    let mut response = show(&document, &without_date(&parts.headers), keeper);
    response.headers_mut().remove(header::LAST_MODIFIED);
    Ok(response)
}

// === impl AgentCards ===

impl AgentCards {
    async fn answer(&self, parts: &Parts, agent: Option<&str>, spot: WellKnownCardPath) -> Result<Response<Body>> {
        let by = surface::caller(parts, &self.hub).await?;
        let account = match agent {
            Some(agent) => self.hub.card_account(by.as_ref(), agent).await?,
            None => self.hub.default_card_account(by.as_ref()).await?,
        };
        let switches = A2aOptions::of(account.a2a.as_ref());
        let shape = shape(asked_version(parts).as_deref(), &switches, spot);
        let document = self.public(&account, &switches, shape)?;
        let keeper = if switches.hidden { CacheAudience::TheCaller } else { CacheAudience::Anybody };
        Ok(show(&document, &parts.headers, keeper))
    }

    fn public(&self, account: &Account, switches: &A2aOptions, shape: CardShape) -> Result<Arc<CardDocument>> {
        self.document(account, shape, self.build(account, switches))
    }
}

/// The client's version, from the header or the query.
fn asked_version(parts: &Parts) -> Option<String> {
    let said = parts.headers.get(VERSION).map(|value| value.to_str().unwrap_or_default().trim().to_owned());
    said.or_else(|| in_query(&parts.uri)).filter(|version| !version.is_empty())
}

fn in_query(uri: &Uri) -> Option<String> {
    let mut members = uri.query()?.split('&').filter_map(|member| member.split_once('='));
    members.find(|(name, _)| name.eq_ignore_ascii_case(VERSION)).map(|(_, value)| value.to_owned())
}

fn shape(version: Option<&str>, switches: &A2aOptions, spot: WellKnownCardPath) -> CardShape {
    match (version, spot) {
        (Some(version), _) if version.starts_with("0.") => CardShape::Old,
        (Some(_), _) => CardShape::Pure,
        (None, _) if switches.has_union_card() => CardShape::Union,
        (None, WellKnownCardPath::Current) => CardShape::Pure,
        (None, WellKnownCardPath::Legacy) => CardShape::Old,
    }
}

/// The document, or 304 if the client already has it.
fn show(document: &CardDocument, asked: &HeaderMap, keeper: CacheAudience) -> Response<Body> {
    let mut response = match is_known(document, asked) {
        true => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NOT_MODIFIED;
            response
        }
        false => Response::new(Body::from(document.bytes.clone())),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let cache = match keeper {
        CacheAudience::Anybody => "public, max-age=60",
        CacheAudience::TheCaller => "private, max-age=60",
    };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(cache));
    headers.insert(header::ETAG, document.etag.clone());
    headers.insert(header::VARY, VARY);
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if let Some(date) = http_date(document.modified) {
        headers.insert(header::LAST_MODIFIED, date);
    }
    response
}

/// RFC 9110: an ETag takes precedence over a date, and is compared weakly.
fn is_known(document: &CardDocument, asked: &HeaderMap) -> bool {
    let mut tags = asked.get_all(header::IF_NONE_MATCH).iter().peekable();
    if tags.peek().is_some() {
        let own = document.etag.as_bytes();
        return tags.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(',')).any(|tag| {
            let tag = tag.trim();
            tag == "*" || tag.strip_prefix("W/").unwrap_or(tag).as_bytes() == own
        });
    }
    let since = asked.get(header::IF_MODIFIED_SINCE).and_then(|value| value.to_str().ok());
    let since = since.and_then(|text| DateTimeParser::new().parse_timestamp(text).ok());
    since.is_some_and(|since| document.modified.millis() <= since.as_millisecond())
}

fn without_date(asked: &HeaderMap) -> HeaderMap {
    let mut asked = asked.clone();
    asked.remove(header::IF_MODIFIED_SINCE);
    asked
}

fn http_date(at: Timestamp) -> Option<HeaderValue> {
    let at = jiff::Timestamp::from_millisecond(at.millis()).ok()?;
    let text = DateTimePrinter::new().timestamp_to_rfc9110_string(&at).ok()?;
    HeaderValue::try_from(text).ok()
}

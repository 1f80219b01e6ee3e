//! The platform's REST API: one file per resource, one table of routes.
//!
//! To add a route: write the handler with its `#[utoipa::path]`, add a line to the table below, and regenerate the document
//! with `cargo run -p attache-hub --example openapi > openapi/openapi.json`. A test compares table and document.

mod account;
mod artifact;
mod audit;
mod channel;
mod conversation;
mod delegation;
mod deliveries;
mod document;
mod event;
mod input;
mod key;
mod login;
mod message;
mod names;
mod pairing;
mod permission;
mod pull_body;
mod quotas;
mod range;
mod register;
mod rules;
mod run;
mod runtime;
mod session;
mod token;
mod tunnel;
mod usage;
mod user;
mod work;

use attache_protocol::Code;
use axum::{
    Router,
    body::Body,
    http::Response,
    response::IntoResponse as _,
    routing::{any, delete, get, patch, post, put},
};
use serde::Deserialize;
use utoipa::{IntoParams, OpenApi};

use crate::{Error, Handle, Result, control::PageRequest, surface::health};

pub(in crate::surface) use event::last_event_id;

type HandlerResult = Result<Response<Body>>;

macro_rules! routes {
    ($($method:ident $path:literal $module:ident::$handler:ident;)*) => {
        /// All routes: method, path and operation name.
        pub const ROUTES: &[(&str, &str, &str)] =
            &[$((stringify!($method), $path, concat!(stringify!($module), "_", stringify!($handler))),)*];

        #[derive(OpenApi)]
        #[openapi(paths($($module::$handler,)*))]
        struct Document;

        fn table() -> Router<Handle> {
            Router::new()$(.route($path, $method($module::$handler)))*
        }
    };
}

routes! {
    post   "/api/v1/agent-accounts"                                 account::create;
    get    "/api/v1/agent-accounts"                                 account::list;
    get    "/api/v1/agent-accounts/{agent}"                         account::read;
    patch  "/api/v1/agent-accounts/{agent}"                         account::update;
    delete "/api/v1/agent-accounts/{agent}"                         account::archive;
    post   "/api/v1/agent-accounts/{agent}/pairing-codes"           pairing::create_code;
    post   "/api/v1/agent-accounts/{agent}/trust"                   account::trust;
    post   "/api/v1/agent-accounts/{agent}/task-runs/pull"          work::pull;
    get    "/api/v1/agent-runtimes"                                 runtime::list;
    get    "/api/v1/agent-runtimes/{runtime}"                       runtime::read;
    delete "/api/v1/agent-runtimes/{runtime}"                       runtime::revoke;
    post   "/api/v1/agent-runtimes/runtime/attach-via-pairing"      pairing::attach;
    post   "/api/v1/agent-runtimes/runtime/heartbeat"               work::heartbeat;
    post   "/api/v1/agent-runtimes/runtime/pairing-requests"        pairing::request;
    post   "/api/v1/agent-runtimes/runtime/pairing-requests/poll"   pairing::poll;
    get    "/api/v1/pairing-requests/{code}"                        pairing::read;
    post   "/api/v1/pairing-requests/{code}/decision"               pairing::decide;
    post   "/api/v1/task-runs"                                      run::create;
    get    "/api/v1/task-runs"                                      run::list;
    get    "/api/v1/task-runs/{run}"                                run::read;
    delete "/api/v1/task-runs/{run}"                                run::delete;
    post   "/api/v1/task-runs/{run}/cancel"                         run::cancel;
    post   "/api/v1/task-runs/{run}/progress"                       work::progress;
    post   "/api/v1/task-runs/{run}/complete"                       work::complete;
    post   "/api/v1/task-runs/{run}/fail"                           work::fail;
    post   "/api/v1/task-runs/{run}/release"                        work::release;
    post   "/api/v1/task-runs/{run}/permission-requests"            permission::ask;
    get    "/api/v1/task-runs/{run}/permission-requests/{permission}" permission::answer;
    post   "/api/v1/task-runs/{run}/input"                          input::give;
    post   "/api/v1/task-runs/{run}/input-requests"                 input::ask;
    get    "/api/v1/task-runs/{run}/input-requests/{ask}"           input::answer;
    get    "/api/v1/task-runs/{run}/events"                         event::read;
    get    "/api/v1/permission-requests"                            permission::list;
    get    "/api/v1/permission-requests/{permission}"               permission::read;
    post   "/api/v1/permission-requests/{permission}/decision"      permission::decide;
    get    "/api/v1/permission-grants"                              permission::grants;
    delete "/api/v1/permission-grants/{grant}"                      permission::revoke_grant;
    get    "/api/v1/channels"                                       channel::list;
    get    "/api/v1/channels/{channel}"                             channel::read;
    get    "/api/v1/channels/{channel}/events"                      channel::events;
    post   "/api/a2a/register"                                      register::create;
    post   "/api/v1/conversations"                                  conversation::create;
    get    "/api/v1/conversations"                                  conversation::list;
    get    "/api/v1/conversations/{conversation}"                   conversation::read;
    delete "/api/v1/conversations/{conversation}"                   conversation::delete;
    get    "/api/v1/conversations/{conversation}/messages"          message::list;
    post   "/api/v1/conversations/{conversation}/messages"          message::add;
    get    "/api/v1/workspaces/{workspace}/artifacts"               artifact::list;
    put    "/api/v1/workspaces/{workspace}/artifacts/{name}"        artifact::upload;
    get    "/api/v1/artifacts/{artifact}"                           artifact::read;
    get    "/api/v1/delegations"                                    delegation::list;
    put    "/api/v1/delegations/{delegation}"                       delegation::publish;
    get    "/api/v1/delegations/{delegation}"                       delegation::read;
    post   "/api/v1/delegations/{delegation}/cancel"                delegation::cancel;
    get    "/api/v1/delegations/{delegation}/cancellation"          delegation::cancellation;
    put    "/api/v1/tunnels/{tunnel}"                               tunnel::open;
    get    "/api/v1/tunnels/{tunnel}"                               tunnel::join;
    delete "/api/v1/tunnels/{tunnel}"                               tunnel::close;
    get    "/api/v1/deliveries"                                     deliveries::list;
    get    "/api/v1/deliveries/secret"                              deliveries::secret;
    get    "/api/v1/deliveries/{delivery}"                          deliveries::read;
    post   "/api/v1/deliveries/{delivery}/resend"                   deliveries::resend;
    post   "/api/v1/api-keys"                                       key::create;
    get    "/api/v1/api-keys"                                       key::list;
    delete "/api/v1/api-keys/{key}"                                 key::revoke;
    get    "/api/v1/sessions"                                       session::list;
    delete "/api/v1/sessions/{session}"                             session::end;
    post   "/api/v1/tokens"                                         token::create;
    post   "/api/v1/users"                                          user::create;
    get    "/api/v1/names"                                          names::read;
    get    "/api/v1/users"                                          user::list;
    get    "/api/v1/users/{user}"                                   user::read;
    patch  "/api/v1/users/{user}"                                   user::update;
    delete "/api/v1/users/{user}"                                   user::remove;
    get    "/api/v1/permission-rules"                               rules::read;
    put    "/api/v1/permission-rules"                               rules::set;
    post   "/api/v1/permission-rules/check"                         rules::check;
    get    "/api/v1/quotas"                                         quotas::list;
    put    "/api/v1/quotas"                                         quotas::set;
    get    "/api/v1/usage"                                          usage::read;
    get    "/api/v1/usage/records"                                  usage::records;
    get    "/api/v1/audit"                                          audit::read;
    post   "/api/v1/login-links"                                    login::create;
    get    "/api/v1/openapi.json"                                   document::read;
    get    "/.well-known/jwks.json"                                 token::keys;
    get    "/healthz"                                               health::healthz;
    get    "/readyz"                                                health::readyz;
    get    "/metrics"                                               health::metrics;
}

/// The complete REST API. It has no fallback, so that other surfaces can be merged with it. Unknown paths under `/api/`
/// get a 404 with an error body.
pub fn router(hub: Handle) -> Router {
    let table = table().merge(crate::surface::envelope::routes()).merge(crate::surface::call::routes());
    table.method_not_allowed_fallback(wrong_method).route("/api/{*rest}", any(no_such_path)).with_state(hub)
}

/// The OpenAPI document of [`router`], as pretty JSON.
pub fn openapi() -> String {
    let mut document = Document::openapi();
    document::complete(&mut document);
    let mut text = document.to_pretty_json().expect("the document serialises to JSON");
    text.push('\n');
    text
}

/// The response for a path that no surface serves.
pub async fn no_such_path() -> Response<Body> {
    Error::new(Code::NoSuchPath, "This path does not exist.").into_response()
}

async fn wrong_method() -> Response<Body> {
    Error::new(Code::MethodNotAllowed, "This path does not support this method.").into_response()
}

/// `?limit=&cursor=` of every list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct PageParams {
    /// Page size, 1 to 200. Default: 50.
    limit: Option<usize>,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

impl PageParams {
    fn page(self) -> PageRequest {
        PageRequest { limit: self.limit, cursor: self.cursor }
    }
}

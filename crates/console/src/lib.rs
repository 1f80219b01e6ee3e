//! The web console: pages rendered on the server from the hub's handle, with small modules for live updates.
//!
//! The console has no rules of its own: the hub decides what a person may do, and every change goes through it. Pages
//! work without scripts. Scripts add local times, live updates and speed. Every text comes from the catalogue in
//! [`text`].

mod assets;
mod docs;
mod form;
mod headers;
mod layout;
mod live;
mod multipart;
mod options;
mod page;
mod problem;
mod session;
mod text;
mod view;

use attache_hub::Handle;
use axum::{
    Router, middleware,
    routing::{get, post},
};

pub use options::{CookiePolicy, Options};

/// The state of every handler.
#[derive(Debug, Clone)]
pub(crate) struct ConsoleState {
    pub(crate) hub: Handle,
    pub(crate) options: Options,
}

/// The routes of the console. The hub's API has its own routes below `/api`.
pub fn router(hub: Handle, options: Options) -> Router {
    let console = ConsoleState { hub, options };
    Router::new()
        .route("/", get(page::home))
        .route("/nav", get(page::nav))
        .route("/approvals", get(page::approvals::list))
        .route("/approvals/{permission}", get(page::approval::show).post(page::approval::decide))
        .route("/grants/{grant}/revoke", post(page::approvals::revoke_grant))
        .route("/channels", get(page::channels::list))
        .route("/channels/{channel}", get(page::channel::show))
        .route("/delegations", get(page::delegations::list))
        .route("/delegations/{delegation}", get(page::delegations::show))
        .route("/delegations/{delegation}/cancel", post(page::delegations::cancel))
        .route("/login", get(page::login::show).post(page::login::redeem))
        .route("/logout", post(page::login::sign_out))
        .route("/runs", get(page::runs::list).post(page::run_new::create))
        .route("/runs/new", get(page::run_new::show))
        .route("/runs/rows", get(page::runs::rows))
        .route("/runs/{run}", get(page::run::show))
        .route("/runs/{run}/part", get(page::run::part))
        .route("/runs/{run}/live", get(live::run))
        .route("/runs/{run}/log.jsonl", get(page::run_files::raw_log))
        .route("/runs/{run}/cancel", post(page::run::cancel))
        .route("/runs/{run}/input", post(page::run_wait::give_input))
        .route("/runs/{run}/again", post(page::run_new::rerun))
        .route("/artifacts/{artifact}", get(page::run_files::artifact))
        .route("/agents", get(page::agents::list).post(page::agents::create))
        .route("/agents/{agent}", get(page::agent::show).post(page::agent::update))
        .route("/agents/{agent}/archive", post(page::agent::archive))
        .route("/agents/{agent}/pairing-codes", post(page::agent::make_code))
        .route("/agents/{agent}/paired", get(page::agent::paired))
        .route("/runtimes/{runtime}/revoke", post(page::agent::revoke_runtime))
        .route("/pair", get(page::pair::show).post(page::pair::look_up))
        .route("/pair/decision", post(page::pair::decide))
        .route("/audit", get(page::audit::list))
        .route("/settings", get(page::settings::show))
        .route("/settings/keys", post(page::people::create_key))
        .route("/settings/keys/{key}/revoke", post(page::people::revoke_key))
        .route("/settings/theme", post(page::settings::choose_theme))
        .route("/people", get(page::people::list).post(page::people::add))
        .route("/people/password", post(page::people::own_password))
        .route("/people/{user}", get(page::person::show).post(page::person::update))
        .route("/people/{user}/remove", post(page::person::remove))
        .route("/people/{user}/login-link", post(page::person::login_link))
        .route("/sessions", get(page::sessions::list))
        .route("/sessions/{session}/end", post(page::sessions::end))
        .route("/rules", get(page::rules::show).post(page::rules::submit))
        .route("/usage", get(page::usage::show))
        .route("/usage/quotas", post(page::quota::set))
        .route("/usage/quotas/remove", post(page::quota::remove))
        .route("/deliveries", get(page::deliveries::list))
        .route("/deliveries/{delivery}", get(page::deliveries::show))
        .route("/deliveries/{delivery}/resend", post(page::deliveries::resend))
        .route("/live", get(live::feed))
        .route("/docs", get(docs::index))
        .route("/docs/", get(docs::home))
        .route("/docs/{page}", get(docs::show))
        .route("/docs/examples/{folder}/{file}", get(docs::example))
        .route("/llms.txt", get(docs::llms))
        .route("/assets/{version}/{name}", get(assets::serve))
        .method_not_allowed_fallback(problem::wrong_method)
        .layer(middleware::from_fn(problem::render))
        .layer(middleware::from_fn(headers::secure))
        .with_state(console)
}

/// The 404 page, for the fallback of the outermost router.
pub fn not_found() -> Router {
    Router::new()
        .fallback(problem::no_such_path)
        .layer(middleware::from_fn(problem::render))
        .layer(middleware::from_fn(headers::secure))
}

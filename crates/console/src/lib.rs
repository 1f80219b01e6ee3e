//! The web console: pages rendered on the server from the hub's handle, with small modules for live updates.
//!
//! The console has no rules of its own: the hub decides what a person may do, and every change goes through it. Pages
//! work without scripts. Scripts add local times, live updates and speed. Every text comes from the catalogue in
//! [`text`].

mod assets;
mod compression;
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
use axum::{Router, middleware, routing::get};

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
    page::routes()
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
        .layer(middleware::from_fn(compression::compress))
        .with_state(console)
}

/// The 404 page, for the fallback of the outermost router.
pub fn not_found() -> Router {
    Router::new()
        .fallback(problem::no_such_path)
        .layer(middleware::from_fn(problem::render))
        .layer(middleware::from_fn(headers::secure))
}

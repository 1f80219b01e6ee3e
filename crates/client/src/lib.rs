//! A typed client of a hub: one method per endpoint, errors with the next step, and event streams that resume.
//!
//! Most programs only need [`Client`]: it calls agents.
//!
//! ```no_run
//! # async fn example() -> Result<(), attache_client::CallError> {
//! use attache_client::Client;
//!
//! let client = Client::connect("http://127.0.0.1:7800", "ak_…")?;
//! let reply = client.call("analyse the project").agent_type("laptop").wait().await?;
//! println!("{}", reply.summary);
//! # Ok(())
//! # }
//! ```
//!
//! [`HubClient`] has everything else.
//!
//! ```no_run
//! # async fn example() -> Result<(), attache_client::Error> {
//! use attache_client::{HubClient, HubCredential, HubClientOptions};
//! use attache_protocol::{Secret, wire::run::CreateRunRequest};
//!
//! let key = HubCredential::Key(Secret::new("ak_…".to_owned()));
//! let hub = HubClient::new(HubClientOptions::new("http://127.0.0.1:7800", key))?;
//! let run = hub.create_run(&CreateRunRequest { agent_id: "builder".to_owned(), ..Default::default() }).await?;
//! let mut events = hub.follow(run.task_run_id, 0);
//! while let Some(event) = events.next().await {
//!     let event = event?; // every event exactly once and in order, until the run has ended
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Nothing here reads the environment, the home folder or the terminal, and no error contains a secret.

pub mod a2a;
mod address;
mod all_pages;
mod api;
mod backoff;
pub mod bucket;
mod call;
pub mod channel;
pub mod daemon;
pub mod egress;
mod error;
mod hub;
mod options;
pub mod sse;
mod stream;
mod tls;
pub mod tunnel;
pub mod webhook;

pub use address::HubAddress;
pub use all_pages::{AllPages, all_pages};
pub use api::{
    artifact::{ArtifactDownload, ArtifactSource},
    channel::ChannelFilter,
    delivery::DeliveryFilter,
    pairing::{AttachedRuntime, PairingPoll, PairingTicket},
    permission::PermissionFilter,
    register::AgentWithKey,
    user::{NewUser, UserChange},
};
pub use backoff::Backoff;
pub use call::{CallBuilder, CallError, CallFailed, CallReply, CallStream, CallUpdate, CallUsage, Client};
pub use channel::socket::dial;
pub use error::{Error, HubRefusal};
pub use hub::{HubClient, PageQuery};
pub use options::{HubClientOptions, HubCredential, Timeouts};
pub use stream::EventStream;
pub use tls::trusting as trusting_tls;

pub type Result<T, E = Error> = std::result::Result<T, E>;

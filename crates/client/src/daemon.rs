//! A client of the delegation daemon, over its Unix socket.
//!
//! ```no_run
//! # async fn example(delegate: attache_protocol::wire::delegation::DelegateRequest) -> Result<(), attache_client::daemon::Error> {
//! use std::time::Duration;
//! use attache_client::daemon::DaemonClient;
//!
//! let daemon = DaemonClient::at("/home/ann/.AWCP/daemon.sock")?;
//! let mut delegation = daemon.delegate(&delegate).await?;
//! while !delegation.status.has_ended() {
//!     delegation = daemon.wait(delegation.delegation_id, delegation.revision, Duration::from_secs(20)).await?;
//! }
//! # Ok(())
//! # }
//! ```

use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use attache_protocol::{
    Code, DelegationId,
    error::exit,
    wire::delegation::{
        AcceptRequest, AcceptResult, ApplyRequest, ApplyResult, DaemonHealth, DelegateRequest, Delegation,
        DelegationDiff, DelegationList, DelegationSession, DiscardRequest, RevertRequest, RevertResult, ReviewFile,
        ReviewFileList,
    },
};
use reqwest::{Client, Method, Url};
use serde::{Serialize, de::DeserializeOwned};

use crate::HubRefusal;

/// A client of the daemon. Each request uses a new connection: a persistent one would break when the daemon restarts,
/// with no way to know whether a request arrived.
#[derive(Clone)]
pub struct DaemonClient {
    client: Client,
    socket: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The daemon refused the request.
    #[error("{0}")]
    Refused(Box<HubRefusal>),
    #[error("no daemon is running at {}: {reason}. Start it with `attache daemon`.", socket.display())]
    NotRunning { socket: PathBuf, reason: String },
    /// The request may have been received and executed.
    #[error(
        "the daemon at {} didn't answer: {reason}. It may have carried out the request: check \
         `attache delegations` before you retry.",
        socket.display()
    )]
    NoAnswer { socket: PathBuf, reason: String },
    #[error("the daemon's answer doesn't match this version: {reason}. Stop the daemon; it restarts automatically.")]
    BadReply { reason: String },
}

type Result<T, E = Error> = std::result::Result<T, E>;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Reverting or comparing the changes of a lease reads many files.
const LONG_REQUEST_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest a request waits at the daemon.
pub const MAX_WAIT: Duration = Duration::from_secs(60);

// === impl DaemonClient ===

impl DaemonClient {
    /// Sends nothing yet.
    pub fn at(socket: impl AsRef<Path>) -> Result<Self> {
        let socket = socket.as_ref().to_owned();
        let builder = Client::builder().unix_socket(socket.clone()).no_proxy().tls_certs_only([]);
        let builder = builder.redirect(reqwest::redirect::Policy::none()).pool_max_idle_per_host(0);
        let client = builder.build().map_err(|error| Error::BadReply { reason: error.to_string() })?;
        Ok(Self { client, socket })
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub async fn health(&self) -> Result<DaemonHealth> {
        self.read(url(&["health"])).await
    }

    /// Returns at once. The delegation continues in the background.
    pub async fn delegate(&self, request: &DelegateRequest) -> Result<Delegation> {
        self.ask(Method::POST, url(&["delegations"]), Some(request), REQUEST_TIMEOUT).await
    }

    pub async fn get(&self, delegation: DelegationId) -> Result<Delegation> {
        self.read(url(&["delegations", &delegation.to_string()])).await
    }

    /// Returns when the revision is past `after`, or when the time is up, with the state at that moment.
    pub async fn wait(&self, delegation: DelegationId, after: u64, wait: Duration) -> Result<Delegation> {
        let mut url = url(&["delegations", &delegation.to_string()]);
        waiting(&mut url, after, wait);
        self.ask(Method::GET, url, None::<&()>, REQUEST_TIMEOUT + wait).await
    }

    pub async fn list(&self) -> Result<Vec<Delegation>> {
        let list: DelegationList = self.read(url(&["delegations"])).await?;
        Ok(list.delegations)
    }

    /// A delegation that has ended stays as it is.
    pub async fn cancel(&self, delegation: DelegationId) -> Result<Delegation> {
        self.ask(Method::POST, url(&["delegations", &delegation.to_string(), "cancel"]), None::<&()>, REQUEST_TIMEOUT)
            .await
    }

    /// Cancels everything in one session that hasn't ended.
    pub async fn cancel_session(&self, session: &str) -> Result<Vec<Delegation>> {
        let url = url(&["sessions", session, "cancel"]);
        let list: DelegationList = self.ask(Method::POST, url, None::<&()>, REQUEST_TIMEOUT).await?;
        Ok(list.delegations)
    }

    /// The changes in the folder, as a unified diff.
    pub async fn diff(&self, delegation: DelegationId) -> Result<DelegationDiff> {
        let url = url(&["delegations", &delegation.to_string(), "diff"]);
        self.ask(Method::GET, url, None::<&()>, LONG_REQUEST_TIMEOUT).await
    }

    /// The changes file by file, without their patches.
    pub async fn review(&self, delegation: DelegationId) -> Result<ReviewFileList> {
        let url = url(&["delegations", &delegation.to_string(), "review"]);
        self.ask(Method::GET, url, None::<&()>, LONG_REQUEST_TIMEOUT).await
    }

    /// One changed file with its patch.
    pub async fn review_file(&self, delegation: DelegationId, path: &str) -> Result<ReviewFile> {
        let mut url = url(&["delegations", &delegation.to_string(), "review"]);
        url.query_pairs_mut().append_pair("path", path);
        let review: ReviewFileList = self.ask(Method::GET, url, None::<&()>, LONG_REQUEST_TIMEOUT).await?;
        review.files.into_iter().next().ok_or_else(|| Error::BadReply { reason: "it names no file".to_owned() })
    }

    /// Marks changes as accepted. They can still be reverted.
    pub async fn accept(&self, delegation: DelegationId, request: &AcceptRequest) -> Result<AcceptResult> {
        let url = url(&["delegations", &delegation.to_string(), "accept"]);
        self.ask(Method::POST, url, Some(request), LONG_REQUEST_TIMEOUT).await
    }

    pub async fn revert(&self, delegation: DelegationId, request: &RevertRequest) -> Result<RevertResult> {
        let url = url(&["delegations", &delegation.to_string(), "revert"]);
        self.ask(Method::POST, url, Some(request), LONG_REQUEST_TIMEOUT).await
    }

    /// Brings changes of a staged delegation into the folder.
    pub async fn apply(&self, delegation: DelegationId, request: &ApplyRequest) -> Result<ApplyResult> {
        let url = url(&["delegations", &delegation.to_string(), "apply"]);
        self.ask(Method::POST, url, Some(request), LONG_REQUEST_TIMEOUT).await
    }

    /// Drops changes of a staged delegation that aren't applied.
    pub async fn discard(&self, delegation: DelegationId, request: &DiscardRequest) -> Result<RevertResult> {
        let url = url(&["delegations", &delegation.to_string(), "discard"]);
        self.ask(Method::POST, url, Some(request), LONG_REQUEST_TIMEOUT).await
    }

    pub async fn session(&self, session: &str) -> Result<DelegationSession> {
        self.read(url(&["sessions", session])).await
    }

    /// Returns when the session's revision is past `after`, or when the time is up.
    pub async fn wait_for_session(&self, session: &str, after: u64, wait: Duration) -> Result<DelegationSession> {
        let mut url = url(&["sessions", session]);
        waiting(&mut url, after, wait);
        self.ask(Method::GET, url, None::<&()>, REQUEST_TIMEOUT + wait).await
    }

    async fn read<T: DeserializeOwned>(&self, url: Url) -> Result<T> {
        self.ask(Method::GET, url, None::<&()>, REQUEST_TIMEOUT).await
    }

    async fn ask<B, T>(&self, method: Method, url: Url, body: Option<&B>, limit: Duration) -> Result<T>
    where
        B: Serialize + Sync,
        T: DeserializeOwned,
    {
        let mut request = self.client.request(method, url).timeout(limit);
        if let Some(body) = body {
            let body = serde_json::to_vec(body).expect("our own types serialise to JSON");
            request = request.header("content-type", "application/json").body(body);
        }
        let response = request.send().await.map_err(|error| self.unanswered(&error))?;
        let status = response.status().as_u16();
        let body = response.bytes().await.map_err(|error| self.unanswered(&error))?;
        if !(200..300).contains(&status) {
            return Err(refused(status, &body));
        }
        serde_json::from_slice(&body).map_err(|error| Error::BadReply { reason: error.to_string() })
    }

    fn unanswered(&self, error: &reqwest::Error) -> Error {
        let mut cause: &dyn std::error::Error = error;
        while let Some(deeper) = cause.source() {
            cause = deeper;
        }
        let (socket, reason) = (self.socket.clone(), cause.to_string());
        if error.is_connect() { Error::NotRunning { socket, reason } } else { Error::NoAnswer { socket, reason } }
    }
}

impl fmt::Debug for DaemonClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DaemonClient({})", self.socket.display())
    }
}

/// The host name is never resolved.
fn url(segments: &[&str]) -> Url {
    let mut url = Url::parse("http://daemon/v1").expect("a constant URL");
    url.path_segments_mut().expect("an http URL has a path").extend(segments);
    url
}

fn waiting(url: &mut Url, after: u64, wait: Duration) {
    let wait = wait.min(MAX_WAIT).as_millis().to_string();
    url.query_pairs_mut().append_pair("after", &after.to_string()).append_pair("wait_ms", &wait);
}

fn refused(status: u16, body: &[u8]) -> Error {
    match crate::Error::from_reply("the daemon", status, body) {
        crate::Error::Refused(refusal) => Error::Refused(refusal),
        other => Error::BadReply { reason: other.to_string() },
    }
}

// === impl Error ===

impl Error {
    pub const fn code(&self) -> Option<Code> {
        match self {
            Self::Refused(refusal) => Some(refusal.code),
            Self::NotRunning { .. } => Some(Code::Unreachable),
            Self::NoAnswer { .. } => Some(Code::Unknown),
            Self::BadReply { .. } => None,
        }
    }

    /// Exit code of the command line for this error.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(refusal) => refusal.code.exit_code(),
            Self::NotRunning { .. } => exit::UNREACHABLE,
            Self::NoAnswer { .. } | Self::BadReply { .. } => exit::FAILED,
        }
    }
}

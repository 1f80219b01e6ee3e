//! A hub's database on a PostgreSQL server: connects, or waits until the hub that serves it has ended.

use std::{fs, path::PathBuf, time::Duration};

use attache_client::HubAddress;
use attache_hub::{NodeOptions, Options, StartError, identity::key_ring};
use attache_protocol::{Secret, env::Env, error::exit};
use attache_store::{
    Error, StorageFault,
    sql::{DatabaseAddress, DatabaseSharing, SqlStore},
};

use tokio_util::sync::CancellationToken;

use super::process;
use crate::{
    env::context::CommandContext,
    ui::{
        failure::CommandFailure,
        output::{TerminalOutput, TextStyle},
    },
};

/// How often a standby looks whether the other hub has ended.
const STANDBY_INTERVAL: Duration = Duration::from_secs(1);
const UNREACHABLE_HINT: &str = "Check that PostgreSQL is running, and check the host and port in the URL. In a password, write @ as %40 and / as %2F.";

#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Database")]
pub(crate) struct DatabaseArgs {
    /// Use this PostgreSQL database (postgres://USER@HOST/DATABASE) instead of a file; if the URL
    /// contains a password, set ATTACHE_DATABASE_URL
    #[arg(long, value_name = "URL", value_parser = secret_url)]
    database_url: Option<Secret<String>>,
    /// Certificates (PEM) to trust for the database, besides those of this machine
    #[arg(long, value_name = "FILE")]
    database_ca: Option<PathBuf>,
}

/// A database on a server, and how to reach it.
#[derive(Debug)]
pub(crate) struct DatabaseServer {
    pub(crate) url: Secret<String>,
    /// Certificates to trust besides those of this machine.
    pub(crate) ca: Option<PathBuf>,
}

#[derive(Debug)]
pub(crate) struct SharedDatabase {
    pub(crate) server: DatabaseServer,
    pub(crate) when_busy: WhenBusy,
    pub(crate) sharing: DatabaseSharing,
}

/// What to do while another hub serves the database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenBusy {
    Refuse,
    StandBy,
}

// === impl DatabaseArgs ===

impl DatabaseArgs {
    /// `None` if the database is a file.
    pub(crate) fn server(self, context: &CommandContext) -> Result<Option<DatabaseServer>, CommandFailure> {
        match self.database_url.or_else(|| context.config.database_url.clone()) {
            Some(url) => Ok(Some(DatabaseServer { url, ca: self.database_ca })),
            None if self.database_ca.is_some() => Err(needs_server("--database-ca")),
            None => Ok(None),
        }
    }
}

/// For a hub that serves its database together with others.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Several hubs")]
pub(crate) struct ClusterArgs {
    /// Serve the database together with other hubs. The file has the key that encrypts the hub's own keys in the database;
    /// the first hub creates it, the others need a copy
    #[arg(long, value_name = "FILE", conflicts_with = "standby")]
    cluster_key_file: Option<PathBuf>,
    /// Where the other hubs reach this one [default: the listen address]
    #[arg(long, value_name = "URL", requires = "cluster_key_file", value_parser = origin)]
    node_url: Option<String>,
}

// === impl ClusterArgs ===

impl ClusterArgs {
    pub(crate) const fn sharing(&self) -> DatabaseSharing {
        match self.cluster_key_file {
            Some(_) => DatabaseSharing::WithOthers,
            None => DatabaseSharing::Alone,
        }
    }

    /// Hubs send keys to each other, for the tunnels of delegations.
    pub(crate) fn refuse_plain_http(&self) -> Result<(), CommandFailure> {
        let address = self.node_url.as_deref().map(HubAddress::parse).transpose().map_err(CommandFailure::from)?;
        match (address, &self.node_url) {
            (Some(address), Some(url)) if !address.is_encrypted() && !address.is_loopback() => {
                let problem = format!("the other hubs would send keys unencrypted to {url}");
                Err(CommandFailure::usage(problem)
                    .hint("Give an https:// address, or accept the risk on a trusted network with --insecure-lan."))
            }
            _ => Ok(()),
        }
    }

    /// Makes the hub one of several, if it is.
    pub(crate) async fn apply(&self, options: &mut Options, store: &SqlStore, env: &Env) -> Result<(), StartError> {
        let Some(file) = &self.cluster_key_file else { return Ok(()) };
        let cluster_key = Some(key_ring::open_cluster_key(file, store, env).await?);
        let url = self.node_url.clone().or_else(|| options.node_origin());
        options.nodes = Some(NodeOptions { cluster_key, url, ..NodeOptions::default() });
        Ok(())
    }
}

fn origin(url: &str) -> Result<String, attache_client::Error> {
    HubAddress::parse(url).map(|address| address.origin())
}

/// The refusal of an option that is for a database on a server.
pub(crate) fn needs_server(option: &str) -> CommandFailure {
    CommandFailure::usage(format!("{option} requires a hub on PostgreSQL"))
        .hint("Add --database-url, or set ATTACHE_DATABASE_URL.")
}

#[allow(clippy::unnecessary_wraps, reason = "the signature of a value parser")]
fn secret_url(url: &str) -> Result<Secret<String>, std::convert::Infallible> {
    Ok(Secret::new(url.to_owned()))
}

// === impl DatabaseServer ===

impl DatabaseServer {
    pub(crate) fn address(self) -> Result<DatabaseAddress, CommandFailure> {
        let certificates = match &self.ca {
            Some(file) => Some(fs::read(file).map_err(|error| CommandFailure::file("read", file, &error))?),
            None => None,
        };
        let tls = attache_client::trusting_tls(certificates.as_deref())
            .map_err(|error| CommandFailure::failed(error.to_string()).hint("Check --database-ca."))?;
        Ok(DatabaseAddress::Server { url: self.url, tls })
    }
}

// === impl SharedDatabase ===

impl SharedDatabase {
    /// Connects. A standby waits as long as another hub serves the database or its server is unavailable, or until it is
    /// told to end.
    pub(crate) async fn open(
        self,
        output: &TerminalOutput,
        ending: &CancellationToken,
    ) -> Result<SqlStore, CommandFailure> {
        let (address, sharing) = (self.server.address()?, self.sharing);
        let mut is_told = None;
        loop {
            let address = address.clone();
            let connecting = tokio::task::spawn_blocking(move || SqlStore::connect(address, sharing));
            let connected = tokio::select! {
                connected = connecting => connected,
                () = ending.cancelled() => return Err(CommandFailure::quiet(exit::OK)),
            };
            let reason = match connected {
                Ok(Ok(store)) => return Ok(store),
                Ok(Err(error)) => match wait_reason(&error) {
                    Some(reason) if self.when_busy == WhenBusy::StandBy => reason,
                    Some(_) | None => return Err(refusal(&error)),
                },
                Err(error) => return Err(CommandFailure::failed(format!("can't open the database: {error}"))),
            };
            if is_told != Some(reason) {
                output.say_styled(TextStyle::Busy, format_args!("{reason} Standing by to take over."));
                process::notify_ready();
                is_told = Some(reason);
            }
            tokio::select! {
                () = tokio::time::sleep(STANDBY_INTERVAL) => {}
                () = ending.cancelled() => return Err(CommandFailure::quiet(exit::OK)),
            }
        }
    }
}

/// What a standby waits for, if it will pass.
fn wait_reason(error: &Error) -> Option<&'static str> {
    match error {
        Error::Unwritable(StorageFault::ServedElsewhere) => Some("Another hub serves this database."),
        // Before there is a connection, and when it breaks.
        Error::DatabaseUnreachable(_) | Error::Unwritable(StorageFault::Unreachable) => {
            Some("The database server can't be reached.")
        }
        _ => None,
    }
}

/// Why a database can't be used, and what to do.
pub(crate) fn refusal(error: &Error) -> CommandFailure {
    let (what, hint) = match error {
        Error::Unwritable(StorageFault::ServedElsewhere) => (
            "another hub serves this database".to_owned(),
            "Stop that one first, let this one wait for it (--standby), or start all of them with --cluster-key-file.",
        ),
        Error::Unusable { what, hint } => (what.clone(), *hint),
        Error::DatabaseUnreachable(_) | Error::Unwritable(StorageFault::Unreachable) => {
            (error.to_string(), UNREACHABLE_HINT)
        }
        error => (format!("can't use the database: {error}"), "Check the URL, and the server's log."),
    };
    CommandFailure::failed(what).hint(hint)
}

//! Which database a store works on: a file of its own, or a PostgreSQL server that several nodes share.

use std::{fs::File, net::IpAddr, path::PathBuf, sync::Arc, time::Duration};

use attache_protocol::Secret;
use tokio_postgres::config::{Host, SslMode};
use tokio_rustls::rustls::ClientConfig;

use super::{
    connection::{Connection, PostgresServer, TlsConnector},
    disk_health::probe_disk,
    open, open_postgres, owner,
};
use crate::{Durability, Error, Result, StorageFault};

/// How long a server may leave what it was sent without an answer before the connection counts as broken.
const UNANSWERED_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Clone)]
pub(super) enum Database {
    File(PathBuf),
    Postgres(Box<PostgresServer>),
}

/// Where a database is.
#[derive(Debug, Clone)]
pub enum DatabaseAddress {
    File(PathBuf),
    /// `tls` is for servers that want it, as the URL says.
    Server {
        url: Secret<String>,
        tls: Arc<ClientConfig>,
    },
}

/// Whether several stores may write to one PostgreSQL database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseSharing {
    /// Nobody else does while this one is open.
    Alone,
    /// They take turns.
    WithOthers,
}

/// What people are shown about a database.
#[derive(Debug)]
pub(super) struct DatabaseFacts {
    pub(super) engine: String,
    pub(super) durability: Durability,
}

/// Keeps other writers away for as long as it is held. Writers on PostgreSQL take turns instead.
pub(super) enum WriterLock {
    File(File),
    Shared,
}

// === impl DatabaseAddress ===

impl DatabaseAddress {
    pub(super) fn alone(self) -> Result<Database> {
        self.shared(DatabaseSharing::Alone)
    }

    pub(super) fn shared(self, sharing: DatabaseSharing) -> Result<Database> {
        match self {
            Self::File(path) => Ok(Database::File(path)),
            Self::Server { url, tls } => Database::at(url.expose(), tls, sharing),
        }
    }
}

// === impl Database ===

impl Database {
    /// The database behind a URL (`postgres://USER:PASSWORD@HOST/DATABASE`).
    pub(super) fn at(url: &str, tls: Arc<ClientConfig>, sharing: DatabaseSharing) -> Result<Self> {
        let unusable = |why: String| Error::Unusable {
            what: format!("the database URL can't be used: {why}"),
            hint: "It looks like postgres://USER:PASSWORD@HOST:5432/DATABASE?sslmode=require, with sslmode disable, prefer, require or verify-full. In a password, write @ as %40 and / as %2F.",
        };
        if url.split_once("://").is_some_and(|(scheme, _)| !matches!(scheme, "postgres" | "postgresql")) {
            return Err(unusable("it doesn't start with postgres://".to_owned()));
        }
        // A server's certificate is verified as `verify-full` asks for, whenever there is one.
        let url = url.replace("sslmode=verify-full", "sslmode=require").replace("sslmode=verify-ca", "sslmode=require");
        let mut config: tokio_postgres::Config = url.parse().map_err(|error: tokio_postgres::Error| {
            unusable(std::error::Error::source(&error).map_or_else(|| error.to_string(), ToString::to_string))
        })?;
        if config.get_hosts().is_empty() {
            return Err(unusable("it names no host".to_owned()));
        }
        if config.get_application_name().is_none() {
            config.application_name("attache");
        }
        if !names_ssl_mode(&url) && leaves_the_machine(&config) {
            config.ssl_mode(SslMode::Require);
        }
        config.tcp_user_timeout(UNANSWERED_TIMEOUT);
        Ok(Self::Postgres(Box::new(PostgresServer { sharing, config, tls: TlsConnector(tls), writer: Arc::default() })))
    }

    /// The writer's first connection.
    pub(super) fn own(&self) -> Result<(Connection, WriterLock)> {
        match self {
            Self::File(path) => {
                let owner = owner::become_owner(path)?;
                owner::refuse_lost_log(&owner, path)?;
                let connection = self.writer()?;
                owner::mark_open(&owner);
                Ok((connection, WriterLock::File(owner)))
            }
            Self::Postgres(_) => Ok((self.writer()?, WriterLock::Shared)),
        }
    }

    pub(super) fn writer(&self) -> Result<Connection> {
        match self {
            Self::File(path) => open::writer(path).map(Connection::Sqlite),
            Self::Postgres(server) => open_postgres::writer(server).map(Connection::Postgres),
        }
    }

    /// A connection that only reads.
    pub(super) fn reader(&self) -> Result<Connection> {
        match self {
            Self::File(path) => open::reader(path).map(Connection::Sqlite),
            Self::Postgres(server) => open_postgres::connect(server).map(Connection::Postgres),
        }
    }

    /// What lies behind a fault, as far as this machine can tell.
    pub(super) fn probe(&self, fault: StorageFault) -> StorageFault {
        match self {
            Self::File(path) => probe_disk(fault, path),
            Self::Postgres(_) if fault == StorageFault::Io => StorageFault::Unreachable,
            Self::Postgres(_) => fault,
        }
    }

    pub(super) fn facts(&self, connection: &Connection) -> Result<DatabaseFacts> {
        Ok(match connection {
            Connection::Sqlite(_) => {
                DatabaseFacts { engine: format!("SQLite {}", rusqlite::version()), durability: Durability::PowerLoss }
            }
            Connection::Postgres(connection) => DatabaseFacts {
                engine: format!("PostgreSQL {}", connection.text("show server_version")?),
                durability: match connection.text("show synchronous_commit")?.as_str() {
                    "off" => Durability::Nothing,
                    _ => Durability::PowerLoss,
                },
            },
        })
    }
}

// === impl WriterLock ===

impl WriterLock {
    /// Lets go of the database. `is_complete`: everything is in it.
    pub(super) fn end(self, is_complete: bool) {
        match self {
            Self::File(owner) if is_complete => owner::mark_closed(&owner),
            Self::File(_) | Self::Shared => {}
        }
    }
}

/// Without one, `prefer` would hold, and whoever answers in the server's name could ask for the password in the clear.
fn names_ssl_mode(url: &str) -> bool {
    let options = if url.contains("://") { url.rsplit_once('?').map_or("", |(_, options)| options) } else { url };
    options.split(['&', ' ']).any(|option| option.trim_start().starts_with("sslmode"))
}

/// Whether the way to one of the servers leaves this machine.
fn leaves_the_machine(config: &tokio_postgres::Config) -> bool {
    let is_loopback =
        |name: &str| name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    let addresses = config.get_hostaddrs();
    if !addresses.is_empty() {
        return addresses.iter().any(|address| !address.is_loopback());
    }
    config.get_hosts().iter().any(|host| match host {
        Host::Tcp(name) => !is_loopback(name),
        Host::Unix(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use tokio_rustls::rustls::{RootCertStore, crypto::aws_lc_rs};

    use super::*;

    fn ssl_mode(url: &str) -> SslMode {
        let tls = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(RootCertStore::empty())
            .with_no_client_auth();
        match Database::at(url, Arc::new(tls), DatabaseSharing::Alone).map_err(|error| error.to_string()).unwrap() {
            Database::Postgres(server) => server.config.get_ssl_mode(),
            Database::File(_) => panic!("{url} is a server"),
        }
    }

    #[test]
    fn nothing_is_sent_in_the_clear_unless_the_url_says_so() {
        for (url, mode) in [
            ("postgres://a:secret@db.example.org/hub", SslMode::Require),
            ("postgres://a:sslmode=disable@db.example.org/hub", SslMode::Require),
            ("postgres://a@db.example.org/hub?connect_timeout=3", SslMode::Require),
            ("postgres://a@localhost,10.0.0.1/hub", SslMode::Require),
            ("postgres://a@localhost/hub?hostaddr=10.0.0.1", SslMode::Require),
            ("postgres://a@db.example.org/hub?sslmode=verify-full", SslMode::Require),
            ("postgres://a@db.example.org/hub?connect_timeout=3&sslmode=prefer", SslMode::Prefer),
            ("postgres://a@db.example.org/hub?sslmode=disable", SslMode::Disable),
            ("host=db.example.org user=a sslmode=disable", SslMode::Disable),
            ("host=db.example.org user=a", SslMode::Require),
            ("postgres://a@127.0.0.1/hub", SslMode::Prefer),
            ("postgres://a@[::1]/hub", SslMode::Prefer),
            ("postgres://a@localhost/hub", SslMode::Prefer),
            ("postgres://a@%2Frun%2Fpostgresql/hub", SslMode::Prefer),
        ] {
            assert_eq!(ssl_mode(url), mode, "{url}");
        }
    }
}

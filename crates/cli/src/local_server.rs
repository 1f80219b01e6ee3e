//! A hub and its console on one port of this machine: what `attache hub` and `attache up` share.

use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use attache_hub::{Handle, Hub, Options, OwnerKeyState, Principal, Tls};
use attache_protocol::{KeyPin, env::Env, error::exit};
use attache_store::sqlite::SqliteStore;
use tokio::net::TcpListener;

use crate::{
    CommandContext, CommandFailure,
    home::{self, Home, LocalHub},
    hub_agents,
    output::{TerminalOutput, TextStyle},
    port_conflict,
    process::ShutdownSignals,
    tls::TlsArgs,
};

/// A hub that listens; connections are answered once it is served.
#[derive(Debug)]
pub(crate) struct LocalServer {
    pub(crate) hub: Handle,
    /// How this machine reaches it, whatever its public address is.
    pub(crate) local: LocalHub,
    listener: TcpListener,
    home: Home,
    /// Held as long as the hub lives: two hubs on one database would each believe in their own memory.
    lock: fs::File,
}

/// Where the database and keys are, and where to listen.
#[derive(Debug)]
pub(crate) struct LocalServerOptions {
    pub(crate) listen: SocketAddr,
    pub(crate) data: Option<PathBuf>,
    pub(crate) tls: TlsArgs,
}

/// What to do without the owner key.
pub(crate) const LOST_KEY_HINT: &str =
    "Put the key back, or start once with --recover-owner-key: it makes a new one and revokes the lost one.";

const DATABASE: &str = "hub.db";
/// Another command may look at the lock for a moment.
const MAX_LOCK_ATTEMPTS: u32 = 10;
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(20);

// === impl LocalServer ===

impl LocalServer {
    /// Takes the folder and the port, opens the store and starts the hub. `adjust` sets what differs from the defaults.
    pub(crate) async fn open(
        context: &CommandContext,
        place: LocalServerOptions,
        adjust: impl FnOnce(&mut Options),
    ) -> Result<Self, CommandFailure> {
        let home = context.home()?;
        let data = match place.data {
            Some(data) => std::path::absolute(&data).map_err(|error| CommandFailure::file("use", &data, &error))?,
            None => home.hub(),
        };
        home::private_folder(&data).map_err(|error| CommandFailure::file("use the folder", &data, &error))?;
        // The port first: when a hub runs already, its address says more than its lock.
        let listener = match TcpListener::bind(place.listen).await {
            Ok(listener) => listener,
            Err(error) => return Err(port_conflict::explain("--listen", place.listen, &error).await),
        };
        let lock = take(&data).await?;
        let listen = listener.local_addr()?;
        let mut options = Options::new(&data, listen);
        options.tools = Some(attache_mcp::http::PATH.to_owned());
        adjust(&mut options);
        let env = Env::system();
        let clients = place.tls.client_certificates();
        if let Some(certificate) = place.tls.certificate(&options)? {
            let tls = Tls::open_for(&data, certificate, clients, &env).map_err(|error| {
                CommandFailure::failed(error.to_string())
                    .hint("Check --tls-cert and --tls-key, or the folder `tls` in the data folder.")
            })?;
            options.tls = Some(tls);
        }
        let scheme = options.scheme();
        let path = data.join(DATABASE);
        refuse_missing_database(&data, &path)?;
        // SQLite gives its other files the mode of this one.
        open_private(&path).map_err(|error| CommandFailure::file("use", &path, &error))?;
        let opened = tokio::task::spawn_blocking(move || SqliteStore::open(&path)).await;
        let store = opened.map_err(|error| CommandFailure::failed(format!("the store cannot be opened: {error}")))?;
        let store = store.map_err(|error| unusable(&data, &error))?;
        let hub = Hub::start(options, Arc::new(store), env).await.map_err(|error| {
            let exit = if matches!(error, attache_hub::StartError::PublicUrl(_)) { exit::USAGE } else { exit::FAILED };
            CommandFailure::new("failed", exit, error.to_string())
        })?;
        let local = LocalHub { origin: origin(scheme, listen), key_file: data.join("admin.key") };
        if let Some(first) = home.remember_hub(&local)? {
            let (origin, key) = (&local.origin, local.key_file.display());
            context.output.say_styled(
                TextStyle::Busy,
                format_args!("Another hub of this machine runs at {}; commands without --hub go there.", first.origin),
            );
            context.output.say(format_args!("For this one: --hub {origin} --key-file {key}"));
        }
        Ok(Self { hub, local, listener, home, lock })
    }

    /// The pin of the key that the hub has, when it speaks TLS.
    pub(crate) fn pin(&self) -> Option<KeyPin> {
        self.hub.options().tls.as_ref().map(Tls::pin)
    }

    /// The pin, where clients need it: no authority vouches for this hub.
    pub(crate) fn needed_pin(&self) -> Option<KeyPin> {
        self.hub.options().needed_pin()
    }

    /// Where the owner key is, as far as this hub knows.
    pub(crate) fn print_owner_key(&self, output: &TerminalOutput) {
        let file = self.local.key_file.display();
        match self.hub.owner_key() {
            OwnerKeyState::InFile => output.say_styled(TextStyle::Dim, format_args!("The owner key is in {file}.")),
            OwnerKeyState::Recovered { revoked } => {
                let revoked = if revoked == 0 { "" } else { " The lost one is revoked." };
                output.say_styled(TextStyle::Busy, format_args!("A new owner key is in {file}.{revoked}"));
            }
            OwnerKeyState::Elsewhere => {
                output.say_styled(TextStyle::Bad, format_args!("There is no valid owner key in {file}."));
                output.say(LOST_KEY_HINT);
            }
        }
    }

    /// The principal of the owner key that the hub keeps on this machine.
    pub(crate) async fn owner(&self) -> Result<Principal, CommandFailure> {
        if self.hub.owner_key() == OwnerKeyState::Elsewhere {
            let file = self.local.key_file.display();
            return Err(CommandFailure::failed(format!("there is no valid owner key in {file}")).hint(LOST_KEY_HINT));
        }
        let key = home::read_secret(&self.local.key_file)?;
        self.hub.authenticate_key(key.expose()).await.map_err(|error| {
            CommandFailure::failed(format!(
                "the key in {} is not accepted: {}",
                self.local.key_file.display(),
                error.message
            ))
            .hint(LOST_KEY_HINT)
        })
    }

    /// Answers until it is asked to end, then finishes what is in flight; the second word ends it at once.
    pub(crate) async fn serve(self, ending: ShutdownSignals) -> Result<(), CommandFailure> {
        let Self { hub, local, listener, home, lock } = self;
        let console = attache_console::Options::for_origin(&hub.origin());
        let router = attache_hub::router(hub.clone())
            .merge(attache_a2a::router(hub.clone()))
            .merge(hub_agents::router(hub.clone(), ending.finish.clone()))
            .merge(attache_console::router(hub.clone(), console))
            .fallback_service(attache_console::not_found());
        let finish = ending.finish.clone();
        let served = attache_hub::serve(listener, router, hub, async move { finish.cancelled().await });
        let done = tokio::select! {
            () = served => Ok(()),
            () = ending.abort.cancelled() => Err(CommandFailure::quiet(exit::FAILED)),
        };
        home.forget_hub(&local);
        drop(lock);
        done
    }
}

/// A folder with the keys and artifacts of a hub whose database is gone is not the folder of a new hub.
fn refuse_missing_database(data: &Path, database: &Path) -> Result<(), CommandFailure> {
    let is_empty = fs::metadata(database).map_or(true, |metadata| metadata.len() == 0);
    let left = ["pairing.key", "seal.key", "blobs"].into_iter().find(|name| data.join(name).exists());
    match left.filter(|_| is_empty) {
        None => Ok(()),
        Some(left) => {
            let message = format!(
                "{} is missing or empty, but {} has the {left} of a hub: its database is lost or elsewhere",
                database.display(),
                data.display()
            );
            Err(CommandFailure::failed(message).hint(
                "Put the database back, from a backup if need be (docs/backup.md). To begin with a new and empty hub, use another folder: --data DIR.",
            ))
        }
    }
}

/// Why the store in the folder cannot be opened, and what to do about it.
fn unusable(data: &Path, error: &attache_store::Error) -> CommandFailure {
    use attache_store::{Error, StorageFault};
    let hint = match error {
        Error::Unusable { hint, .. } => hint,
        Error::Unwritable(StorageFault::DiskFull) => "Free some space, then start it again.",
        Error::Unwritable(StorageFault::ReadOnly) => {
            "Make the file system writable, or use another folder: --data DIR."
        }
        Error::Unwritable(StorageFault::Damaged) => {
            "Keep a copy of the folder as it is, then restore a backup: docs/backup.md says how."
        }
        _ => "Check that the folder belongs to you, and look at the disk.",
    };
    CommandFailure::failed(format!("cannot open the store in {}: {error}", data.display())).hint(hint)
}

/// One hub per folder.
async fn take(data: &Path) -> Result<fs::File, CommandFailure> {
    let path = data.join(home::HUB_LOCK);
    let failed = |error| CommandFailure::file("use", &path, &error);
    let file = open_private(&path).map_err(failed)?;
    for _ in 0..MAX_LOCK_ATTEMPTS {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(fs::TryLockError::WouldBlock) => tokio::time::sleep(LOCK_RETRY_INTERVAL).await,
            Err(fs::TryLockError::Error(error)) => return Err(failed(error)),
        }
    }
    Err(CommandFailure::failed(format!("another hub uses the folder {}", data.display()))
        .hint("Stop it first, or start this one with another folder: --data DIR."))
}

/// Opens a file as it is, or makes it empty, for its owner alone.
fn open_private(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)
}

/// How this machine reaches a listener.
fn origin(scheme: &str, listen: SocketAddr) -> String {
    let ip = match listen.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    format!("{scheme}://{}", SocketAddr::new(ip, listen.port()))
}

//! A hub and its console on one port of this machine; shared by `attache hub` and `attache up`.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use attache_hub::{Handle, Hub, Options, OwnerKey, OwnerKeyState, Principal, StartError, Tls, identity::key_ring};
use attache_protocol::{KeyPin, env::Env, error::exit};
use attache_store::sql::SqlStore;
use tokio::net::TcpListener;

use crate::{
    env::{
        context::CommandContext,
        home::{self, DATABASE, Home, LocalHub, MOVED_DATABASE},
    },
    server::{
        hub_agents, port_conflict,
        shared_database::{self, ClusterArgs},
        tls::TlsArgs,
    },
    text::{doctor, setup},
    ui::{
        failure::CommandFailure,
        output::{TerminalOutput, TextStyle},
        signals::ShutdownSignals,
    },
};

/// A hub that listens. It answers connections once `serve` is called.
#[derive(Debug)]
pub(crate) struct LocalServer {
    pub(crate) hub: Handle,
    /// How this machine reaches it, regardless of its public URL.
    pub(crate) local: LocalHub,
    /// What commands need to use this hub and not another one of this machine.
    pub(crate) selection: String,
    listener: TcpListener,
    home: Home,
    /// Held while the hub runs: two hubs on one database would each trust their own caches.
    lock: fs::File,
}

/// The data folder and the listen address.
#[derive(Debug)]
pub(crate) struct LocalServerOptions {
    pub(crate) listen: SocketAddr,
    pub(crate) data: Option<PathBuf>,
    pub(crate) tls: TlsArgs,
    /// By default, the database is a file in the data folder.
    pub(crate) database: Option<SqlStore>,
    /// Whether other hubs serve that database, too.
    pub(crate) cluster: Option<ClusterArgs>,
}

/// Other commands may hold the lock briefly to test it.
const LOCK_TIMEOUT: Duration = Duration::from_millis(200);

// === impl LocalServer ===

impl LocalServer {
    /// Locks the folder, binds the port, opens the store and starts the hub. `adjust` overrides default options.
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
        // Bind the port first: if a hub is already running, its address is a better explanation than its lock.
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
                    .hint("Check --tls-cert and --tls-key, or the `tls` folder in the data folder.")
            })?;
            options.tls = Some(tls);
        }
        let scheme = options.scheme();
        let store = match place.database {
            Some(store) => {
                if let Some(cluster) = &place.cluster {
                    cluster.apply(&mut options, &store, &env).await.map_err(|error| start_failure(&error))?;
                }
                let may_make_keys = matches!(options.owner_key, OwnerKey::Recover)
                    || !key_ring::is_empty(&store, &env).await.map_err(|error| start_failure(&error))?;
                refuse_other_hub(&data, &store, may_make_keys).await?;
                store
            }
            None => open_file(&data).await?,
        };
        let hub = Hub::start(options, Arc::new(store), env).await.map_err(|error| start_failure(&error))?;
        let local = LocalHub { origin: origin(scheme, listen), key_file: data.join("admin.key") };
        let mut selection = String::new();
        if let Some(first) = home.remember_hub(&local)? {
            selection = format!(" --hub {} --key-file {}", local.origin, local.key_file.display());
            context.output.say_styled(
                TextStyle::Busy,
                format_args!(
                    "Another hub is already running at {}; commands without --hub use that one.",
                    first.origin
                ),
            );
            context.output.say(format_args!("To use this one:{selection}"));
        }
        Ok(Self { hub, local, selection, listener, home, lock })
    }

    /// The pin of the hub's TLS key, if it uses TLS.
    pub(crate) fn pin(&self) -> Option<KeyPin> {
        self.hub.options().tls.as_ref().map(Tls::pin)
    }

    /// The pin if clients need it, which is when no certificate authority vouches for this hub.
    pub(crate) fn needed_pin(&self) -> Option<KeyPin> {
        self.hub.options().needed_pin()
    }

    /// Prints where the owner key is.
    pub(crate) fn print_owner_key(&self, output: &TerminalOutput) {
        let file = self.local.key_file.display();
        match self.hub.owner_key() {
            OwnerKeyState::InFile => output.say_styled(TextStyle::Dim, format_args!("The owner key is in {file}.")),
            OwnerKeyState::Recovered { revoked } => {
                let revoked = if revoked == 0 { "" } else { " The lost key is revoked." };
                output.say_styled(TextStyle::Busy, format_args!("A new owner key is in {file}.{revoked}"));
            }
            OwnerKeyState::Elsewhere if self.hub.options().nodes.is_some() => {
                output.say_styled(TextStyle::Dim, "The owner key is in the folder of the hub that started first.");
            }
            OwnerKeyState::Elsewhere => {
                output.say_styled(TextStyle::Bad, format_args!("No valid owner key in {file}."));
                output.say(doctor::lost_key());
            }
        }
    }

    /// The principal of the owner key that the hub keeps on this machine.
    pub(crate) async fn owner(&self) -> Result<Principal, CommandFailure> {
        if self.hub.owner_key() == OwnerKeyState::Elsewhere {
            let file = self.local.key_file.display();
            return Err(CommandFailure::failed(format!("no valid owner key in {file}")).hint(doctor::lost_key()));
        }
        let key = home::read_secret(&self.local.key_file)?;
        self.hub.authenticate_key(key.expose()).await.map_err(|error| {
            CommandFailure::failed(format!(
                "the hub rejects the key in {}: {}",
                self.local.key_file.display(),
                error.message
            ))
            .hint(doctor::lost_key())
        })
    }

    /// Serves until shutdown is requested, then finishes in-flight requests. A second request stops immediately.
    pub(crate) async fn serve(self, ending: ShutdownSignals) -> Result<(), CommandFailure> {
        let Self { hub, local, listener, home, lock, .. } = self;
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

fn start_failure(error: &StartError) -> CommandFailure {
    let exit = if matches!(error, StartError::PublicUrl(_)) { exit::USAGE } else { exit::FAILED };
    let failure = CommandFailure::new("failed", exit, error.to_string());
    match error {
        StartError::ClusterKey(_) => failure.hint("See docs/operations.md, Several hubs."),
        StartError::Artifacts(_) => failure.hint(
            "All hubs of a database need the same artifacts: --artifacts s3://…, or --artifacts-folder with a folder that they can all reach. To move to another place, first copy everything there, including `.attache-cluster` (cp -a); without the option, the first hub keeps its artifacts in `blobs` in its data folder.",
        ),
        StartError::TakenPlace(_) => failure.hint(
            "Check that this is the right database for it (--database-url, ATTACHE_DATABASE_URL). Two hubs would remove each other's artifacts, so each needs its own place (--data, --artifacts or --artifacts-folder). If the other hub is gone for good, remove the file or object `.attache-hub` there.",
        ),
        _ => failure,
    }
}

async fn open_file(data: &Path) -> Result<SqlStore, CommandFailure> {
    let path = data.join(DATABASE);
    refuse_missing_database(data, &path)?;
    // SQLite creates its other files with the mode of this one.
    attache_os::private_file::open_or_create(&path).map_err(|error| CommandFailure::file("use", &path, &error))?;
    let opened = tokio::task::spawn_blocking(move || SqlStore::open(&path)).await;
    let store = opened.map_err(|error| CommandFailure::failed(format!("can't open the store: {error}")))?;
    store.map_err(|error| unusable(data, &error))
}

/// Refuses a folder that has the keys and artifacts of a hub but no database, so that no empty hub replaces a lost one.
fn refuse_missing_database(data: &Path, database: &Path) -> Result<(), CommandFailure> {
    let is_empty = fs::metadata(database).map_or(true, |metadata| metadata.len() == 0);
    let left = ["pairing.key", "seal.key", "blobs"].into_iter().find(|name| data.join(name).exists());
    match left.filter(|_| is_empty) {
        None => Ok(()),
        Some(_) if data.join(MOVED_DATABASE).exists() => {
            let moved = format!("the database of the hub in {} was moved to PostgreSQL", data.display());
            Err(CommandFailure::failed(moved).hint(
                "Set ATTACHE_DATABASE_URL, or pass --database-url. To move it back: attache migrate --from postgres://…",
            ))
        }
        Some(left) => {
            let message = format!(
                "{} is missing or empty, but {} contains the {left} of a hub: its database was lost or moved",
                database.display(),
                data.display()
            );
            Err(CommandFailure::failed(message).hint(
                "Restore the database, from a backup if necessary (docs/backup.md). If it is on PostgreSQL, set ATTACHE_DATABASE_URL. To start with a new, empty hub, use another folder: --data DIR.",
            ))
        }
    }
}

/// Refuses a folder that doesn't belong to the database on the server. If that is empty and the folder has a database, that one
/// was never moved there, and an empty hub would take its place. If a hub has used it and the folder has no keys, new ones would
/// be made: no token, webhook or device would be trusted any more.
async fn refuse_other_hub(data: &Path, store: &SqlStore, may_make_keys: bool) -> Result<(), CommandFailure> {
    let has_hub = fs::metadata(data.join(DATABASE)).is_ok_and(|metadata| metadata.len() > 0);
    let has_keys = data.join("pairing.key").exists();
    let folder = data.display();
    match store.is_empty().await.map_err(|error| shared_database::refusal(&error))? {
        true if has_hub => Err(CommandFailure::failed(format!(
            "the database on the server is empty, and {folder} has the database of a hub"
        ))
        .hint("To move it there: attache migrate. To begin with an empty hub, use another folder: --data DIR.")),
        false if !has_keys && !may_make_keys => Err(CommandFailure::failed(format!(
            "the database on the server belongs to a hub whose keys aren't in {folder}"
        ))
        .hint("Use that hub's data folder, or a copy of it (docs/postgres.md). If it is lost, --recover-owner-key makes new keys; devices must be paired again.")),
        true | false => Ok(()),
    }
}

/// Why the store can't be opened, and how to fix it.
fn unusable(data: &Path, error: &attache_store::Error) -> CommandFailure {
    use attache_store::{Error, StorageFault};
    let hint = match error {
        Error::Unusable { hint, .. } => hint,
        Error::Unwritable(StorageFault::DiskFull) => "Free up disk space, then start the hub again.",
        Error::Unwritable(StorageFault::ReadOnly) => {
            "Make the file system writable, or use another folder: --data DIR."
        }
        Error::Unwritable(StorageFault::Damaged) => {
            "Copy the folder as it is now, then restore a backup (docs/backup.md)."
        }
        _ => "Check that you own the folder, and check the disk.",
    };
    CommandFailure::failed(format!("can't open the store in {}: {error}", data.display())).hint(hint)
}

/// Locks the data folder: one hub per folder.
async fn take(data: &Path) -> Result<fs::File, CommandFailure> {
    let path = data.join(home::HUB_LOCK);
    let failed = |error| CommandFailure::file("use", &path, &error);
    if let Some(held) = attache_os::lock::acquire(&path, LOCK_TIMEOUT).await.map_err(failed)? {
        return Ok(held);
    }
    Err(CommandFailure::failed(setup::folder_taken(data.display())).hint(setup::folder_taken_do()))
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

//! The data plane: opens the export of one lease, admits its key at the SSH server, and revokes both.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use attache_protocol::{
    Code, DelegationId, Json, Timestamp,
    env::Env,
    rules::delegation::LeaseTerms,
    wire::{
        awcp::{self, AwcpErrorCode, SshCredential, SshEndpoint},
        delegation::{DelegateRequest, DelegationFailure},
    },
};
use attache_workspace::{
    export::{
        self, Export, ExportAudit, ExportAuditEntry, ExportPatterns, FailedChanges, FailureCause, LeaseQuota,
        OriginalsFolder, is_of_repository, secrets_in, withhold_folder,
    },
    ssh::{HostKey, LeaseAccess, LeaseAdmission, SshServer, make_key},
};

use super::{
    DelegatorRefusal,
    audit::{DelegatorAuditEntry, DelegatorAuditSink},
    policy::DelegationAdmission,
    tunnel::ServedTunnel,
};
use crate::awcp_policy::delegator::ExportSection;

/// The SSH server that serves exports.
#[derive(Debug, Clone)]
pub(super) struct ExportServer {
    pub(super) server: SshServer,
    pub(super) address: SocketAddr,
    pub(super) host_key: String,
    pub(super) env: Env,
}

/// The folder to export, and on which terms.
#[derive(Debug)]
pub(super) struct ExportRequest<'a> {
    pub(super) delegation: DelegationId,
    pub(super) folder: &'a Path,
    /// The folder that keeps the originals of changed files.
    pub(super) before: &'a Path,
    pub(super) terms: LeaseTerms,
    /// Which paths are visible.
    pub(super) rules: ExportPatterns,
    pub(super) limits: &'a ExportSection,
    /// The remote's own public key, if it generated one.
    pub(super) client_key: Option<String>,
    /// The remote's mount point.
    pub(super) seen_at: PathBuf,
    /// The owner's folder, if this is a copy of it.
    pub(super) copy_of: Option<PathBuf>,
}

/// A folder that is being served, until it is revoked or dropped.
#[derive(Debug)]
pub(super) struct ActiveExport {
    admission: Arc<LeaseAdmission>,
    locator: String,
    credential: SshCredential,
    host_key: String,
    /// Mount options that the owner asks the remote to use.
    options: Vec<String>,
    tunnel: Option<ServedTunnel>,
    failed: Arc<Mutex<FailedChanges>>,
}

/// Copies the operations on the export to the delegator's audit.
struct ExportAuditor {
    sink: Arc<dyn DelegatorAuditSink>,
    delegation: DelegationId,
    env: Env,
    failed: Arc<Mutex<FailedChanges>>,
    /// The length of the refused operations that were recorded.
    refused: AtomicU64,
}

/// How many bytes of refused operations are recorded. They cost a remote nothing, so they could fill the disk.
const MAX_REFUSED: u64 = 8 << 20;
/// Recorded in place of those that follow.
const REFUSALS_UNLISTED: &str = "refusals_unlisted";
/// What an entry takes besides its paths, at least.
const ENTRY_LENGTH: u64 = 128;

/// OpenSSH clients require a user name. Only the key counts.
const USER: &str = "lease";

// === impl ExportServer ===

impl ExportServer {
    pub(super) fn new(address: SocketAddr, env: Env) -> Self {
        let host_key = HostKey::generate(&env);
        Self { server: SshServer::new(&host_key), address, host_key: host_key.public_openssh(), env }
    }

    /// Blocking.
    pub(super) fn open(
        &self,
        request: ExportRequest<'_>,
        audit: Arc<dyn DelegatorAuditSink>,
    ) -> Result<ActiveExport, DelegationFailure> {
        let defaults = LeaseQuota::default();
        let quota = LeaseQuota {
            bytes: request.limits.max_bytes.or(defaults.bytes),
            files: request.limits.max_files.or(defaults.files),
            operations_per_second: request.limits.max_ops_per_second.or(defaults.operations_per_second),
            ..defaults
        };
        let seen_at = Some(request.seen_at).filter(|path| path.is_absolute() && path.parent().is_some());
        let terms = export::ExportTerms {
            rules: request.rules,
            quota,
            seen_at,
            copy_of: request.copy_of,
            ..export::ExportTerms::new(request.terms.access_mode)
        };
        let failed = Arc::<Mutex<FailedChanges>>::default();
        let (delegation, env) = (request.delegation, self.env.clone());
        let auditor =
            ExportAuditor { sink: audit, delegation, env, failed: Arc::clone(&failed), refused: AtomicU64::new(0) };
        let export = Export::open(request.folder, terms, OriginalsFolder::in_folder(request.before), Arc::new(auditor));
        let export = export.map_err(|error| DelegationFailure {
            code: AwcpErrorCode::TaskFailed,
            message: format!("the folder can't be exported: {error}"),
            hint: "Fix that, then delegate again.".to_owned(),
        })?;
        let (key, credential) = match request.client_key {
            Some(key) => (key, SshCredential::ClientKey),
            None => {
                let pair = make_key(&self.env);
                (pair.public, SshCredential::PrivateKey { private_key: pair.private })
            }
        };
        let locator = self.locator();
        let access = LeaseAccess { key, locator: locator.clone(), export: Arc::new(export) };
        let admission = self.server.admit(access).map_err(|error| DelegationFailure {
            code: AwcpErrorCode::AuthFailed,
            message: format!("the remote's key can't be used: {error}"),
            hint: AwcpErrorCode::AuthFailed.hint().to_owned(),
        })?;
        let (admission, host_key) = (Arc::new(admission), self.host_key.clone());
        let options = request.limits.mount_options.clone();
        Ok(ActiveExport { admission, locator, credential, host_key, options, tunnel: None, failed })
    }

    /// Random, so that it reveals nothing about the folder.
    fn locator(&self) -> String {
        self.env.random_hex::<16>()
    }
}

// === impl ActiveExport ===

impl ActiveExport {
    /// The tunnel is closed together with the export.
    pub(super) fn with_tunnel(mut self, tunnel: ServedTunnel) -> Self {
        self.tunnel = Some(tunnel);
        self
    }

    /// The mount instructions for the remote.
    pub(super) fn mount(
        &self,
        transport: &str,
        host: String,
        port: u16,
        tunnel: Option<awcp::TunnelAccess>,
    ) -> awcp::AwcpMount {
        awcp::AwcpMount {
            transport: transport.to_owned(),
            endpoint: SshEndpoint { host, port, user: USER.to_owned(), tunnel },
            export_locator: self.locator.clone(),
            credential: self.credential.clone(),
            host_key: Some(self.host_key.clone()),
            mount_options: (!self.options.is_empty()).then(|| Json::of(&self.options)),
        }
    }

    /// When this returns, the key is refused, connections are closed and nothing changes any more. Returns what the
    /// owner of the folder has to know about failures on this machine.
    pub(super) async fn revoke(self) -> Option<String> {
        let admission = self.admission;
        // A file operation in progress finishes first, which can take a moment.
        let revoked = tokio::task::spawn_blocking(move || admission.revoke()).await;
        if let Err(error) = revoked {
            tracing::error!(%error, "failed to revoke a lease");
        }
        if let Some(tunnel) = self.tunnel {
            tunnel.close();
        }
        describe(&self.failed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Why work that the remote reports as done is incomplete.
    pub(super) fn incomplete(&self) -> Option<DelegationFailure> {
        incomplete(&self.failed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Describes failed changes for the owner of the folder.
pub(super) fn describe(failed: &FailedChanges) -> Option<String> {
    let notes: Vec<String> = failed
        .counts()
        .map(|(cause, times)| match cause {
            FailureCause::DiskFull => format!(
                "the disk of the delegating machine is full: {times} changes by the remote failed; free space \
                 where the folder and $AWCP_HOME are, then delegate again"
            ),
            FailureCause::Io => {
                format!("{times} changes by the remote failed with an I/O error on this machine; check its disk")
            }
            FailureCause::Limit(what) => format!(
                "{times} changes by the remote were refused by a limit of the lease ({what}); raise it in [delegator.export] \
                 of policy.toml, then delegate again"
            ),
            FailureCause::Interrupted => format!(
                "the connection broke while the remote had {times} files open for writing; its last writes may be missing"
            ),
        })
        .collect();
    Some(notes.join("\n")).filter(|notes| !notes.is_empty())
}

/// Why work that the remote reports as done is incomplete. `None` if every failed change was later made good.
pub(super) fn incomplete(failed: &FailedChanges) -> Option<DelegationFailure> {
    const SHOWN: usize = 5;
    if !failed.affects_work() {
        return None;
    }
    let paths: Vec<String> = failed.affected().take(SHOWN).map(export::show).collect();
    let more = match failed.affected().count().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(DelegationFailure {
        code: AwcpErrorCode::TaskFailed,
        message: format!("the remote reported DONE, but these changes failed: {}{more}", paths.join(", ")),
        hint:
            "The notes of the result say why. Check `attache delegations diff ID`, fix the cause, then delegate again."
                .to_owned(),
    })
}

// === impl ExportAuditor ===

impl ExportAudit for ExportAuditor {
    fn record(&self, entry: &ExportAuditEntry<'_>) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).note(entry);
        let (path, to, at) = (entry.path(), entry.to(), self.env.now());
        let refusal = entry.outcome.err().map(|refusal| refusal.name());
        if refusal.is_some() {
            let length = ENTRY_LENGTH + (path.len() + to.as_ref().map_or(0, String::len)) as u64;
            let before = self.refused.fetch_add(length, Ordering::Relaxed);
            if before >= MAX_REFUSED {
                return;
            }
            if before + length >= MAX_REFUSED {
                let record = DelegatorAuditEntry { ok: false, ..DelegatorAuditEntry::new(at, REFUSALS_UNLISTED) };
                return self.sink.record(self.delegation, &record);
            }
        }
        let record = DelegatorAuditEntry {
            path: Some(&path),
            bytes: entry.bytes,
            detail: refusal.or(to.as_deref()),
            ok: refusal.is_none(),
            ..DelegatorAuditEntry::new(at, entry.op.name())
        };
        self.sink.record(self.delegation, &record);
    }
}

/// Which paths are visible: the requested ones, without those that the owner's policy hides.
pub(super) fn rules(admitted: &DelegationAdmission, request: &DelegateRequest) -> ExportPatterns {
    let mut exclude = admitted.export.exclude.clone();
    exclude.extend(request.exclude.iter().cloned());
    let mut withhold = secrets_in(&admitted.folder);
    withhold.extend(admitted.export.withhold.iter().cloned());
    ExportPatterns { include: request.include.clone(), exclude, withhold }
}

/// Refuses a folder that has Attaché's keys and records, or is inside such a folder, whatever a policy says. `folder` is
/// canonical. Reads folders.
pub fn refuse_private(folder: &Path, private: &[PathBuf]) -> Result<(), DelegatorRefusal> {
    let private: Vec<PathBuf> = private.iter().filter_map(|home| home.canonicalize().ok()).collect();
    let around = private.iter().find(|home| folder.starts_with(home)).map(PathBuf::as_path);
    let Some(home) = around.or_else(|| folder.ancestors().find(|above| is_attache_folder(above))) else {
        return Ok(());
    };
    let message =
        format!("{} can't be delegated: {} contains keys and records of Attaché", folder.display(), home.display());
    Err(DelegatorRefusal::new(Code::InvalidRequest, message, "Delegate a folder outside it."))
}

/// Keeps the folders with Attaché's keys and records private: they are withheld below the exported folder, and a folder
/// that is one of them, or inside one, is refused. Reads folders.
pub(super) fn withhold_private(
    admitted: &mut DelegationAdmission,
    private: &[PathBuf],
) -> Result<(), DelegatorRefusal> {
    refuse_private(&admitted.folder, private)?;
    let private: Vec<PathBuf> = private.iter().filter_map(|home| home.canonicalize().ok()).collect();
    // Last, because the last matching pattern wins.
    admitted.export.withhold.extend(private.iter().filter_map(|home| withhold_folder(&admitted.folder, home)));
    Ok(())
}

/// Recognises a folder of Attaché by its files, for example the data folder of a hub started elsewhere.
fn is_attache_folder(folder: &Path) -> bool {
    const HOMES: [&[&str]; 4] =
        [&["hub.db"], &["hub.lock"], &["daemon.lock", "delegations"], &["runtime.json", "adapters"]];
    HOMES.iter().any(|parts| parts.iter().all(|part| folder.join(part).symlink_metadata().is_ok()))
}

/// Finds reasons why the folder can't be exported, before the remote is invited. Reads folders.
pub(super) fn check(
    home: &Path,
    admitted: &DelegationAdmission,
    request: &DelegateRequest,
) -> Result<(), DelegatorRefusal> {
    if let Err(error) = rules(admitted, request).check() {
        let hint = "Use .gitignore syntax: target/, *.log, /secret, !keep.log.";
        return Err(DelegatorRefusal::new(Code::InvalidRequest, error.to_string(), hint));
    }
    check_folder(home, &admitted.folder)
}

/// Finds reasons why no policy can admit this folder. `folder` is canonical. Reads folders.
pub(super) fn check_folder(home: &Path, folder: &Path) -> Result<(), DelegatorRefusal> {
    let unfit = |reason: &str, hint: &str| {
        let message = format!("{} can't be delegated: {reason}", folder.display());
        Err(DelegatorRefusal::new(Code::InvalidRequest, message, hint))
    };
    if let Ok(real) = home.canonicalize() {
        if real.starts_with(folder) {
            let hint = "Delegate a folder below it, or move AWCP_HOME elsewhere.";
            return unfit(&format!("it contains $AWCP_HOME ({})", home.display()), hint);
        }
        if folder.starts_with(&real) {
            let reason =
                format!("it is inside $AWCP_HOME ({}), which holds the records of other delegations", home.display());
            return unfit(&reason, "Delegate a folder outside it.");
        }
    }
    if is_of_repository(folder) {
        return unfit("it belongs to the internal files of a git repository", "Delegate the work tree instead.");
    }
    // Records store the path as text and must find the folder again by it.
    if folder.to_str().is_none() {
        return unfit("its real path is not UTF-8", "Rename it or its parent folder, then delegate again.");
    }
    Ok(())
}

/// The START message.
pub(super) fn start(
    delegation: DelegationId,
    expires_at: Timestamp,
    terms: LeaseTerms,
    mount: awcp::AwcpMount,
) -> awcp::AwcpStart {
    let ttl_seconds = Some(terms.ttl.as_secs());
    let lease = awcp::AwcpLease { expires_at, ttl_seconds, access_mode: terms.access_mode };
    awcp::AwcpStart { delegation_id: delegation.to_string(), lease, mount }
}

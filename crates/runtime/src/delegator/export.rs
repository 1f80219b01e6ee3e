//! The data plane: opens the export of one lease, gives its key a door at the SSH server, and closes both.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use attache_protocol::{
    Code, DelegationId, Json, Timestamp,
    env::Env,
    rules::delegation::LeaseTerms,
    wire::{
        awcp::{self, AwcpErrorCode, SSHFS, SshCredential, SshEndpoint},
        delegation::{DelegateRequest, DelegationFailure},
    },
};
use attache_workspace::{
    export::{
        self, Cause, Export, ExportAudit, ExportAuditEntry, ExportPatterns, FailedChanges, LeaseQuota, OriginalsFolder,
        is_of_repository, secrets_in, withhold_folder,
    },
    ssh::{HostKey, LeaseAccess, LeaseAdmission, SshServer, make_key},
};

use super::{
    DelegatorRefusal,
    audit::{DelegatorAuditEntry, DelegatorAuditSink},
    policy::DelegationAdmission,
    tunnel::TunnelServing,
};
use crate::awcp_policy::delegator::ExportSection;

/// Where folders are lent from.
#[derive(Debug, Clone)]
pub(super) struct ExportServer {
    pub(super) server: SshServer,
    pub(super) address: SocketAddr,
    pub(super) host_key: String,
    pub(super) env: Env,
}

/// What is to be lent, and how.
#[derive(Debug)]
pub(super) struct ExportRequest<'a> {
    pub(super) delegation: DelegationId,
    pub(super) folder: &'a Path,
    /// Where the originals of what changes are kept.
    pub(super) before: &'a Path,
    pub(super) terms: LeaseTerms,
    /// What of it is shown.
    pub(super) rules: ExportPatterns,
    pub(super) limits: &'a ExportSection,
    /// The remote's own key, if it made one.
    pub(super) client_key: Option<String>,
    /// Where the remote sees the folder.
    pub(super) seen_at: PathBuf,
}

/// A folder that is lent, until it is revoked or dropped.
#[derive(Debug)]
pub(super) struct ActiveExport {
    admission: Arc<LeaseAdmission>,
    locator: String,
    credential: SshCredential,
    host_key: String,
    /// What the owner would like of the mount.
    options: Vec<String>,
    tunnel: Option<TunnelServing>,
    failed: Arc<Mutex<FailedChanges>>,
}

/// Writes what happens in the folder to the audit.
struct ExportAuditor {
    sink: Arc<dyn DelegatorAuditSink>,
    delegation: DelegationId,
    env: Env,
    failed: Arc<Mutex<FailedChanges>>,
}

/// OpenSSH's clients want a name; the key alone decides.
const USER: &str = "lease";

// === impl ExportServer ===

impl ExportServer {
    pub(super) fn new(address: SocketAddr, env: Env) -> Self {
        let host_key = HostKey::generate(&env);
        Self { server: SshServer::new(&host_key), address, host_key: host_key.public_openssh(), env }
    }

    /// Blocks.
    pub(super) fn open(
        &self,
        loan: ExportRequest<'_>,
        audit: Arc<dyn DelegatorAuditSink>,
    ) -> Result<ActiveExport, DelegationFailure> {
        let defaults = LeaseQuota::default();
        let quota = LeaseQuota {
            bytes: loan.limits.max_bytes.or(defaults.bytes),
            files: loan.limits.max_files.or(defaults.files),
            operations_per_second: loan.limits.max_ops_per_second.or(defaults.operations_per_second),
            ..defaults
        };
        let seen_at = Some(loan.seen_at).filter(|path| path.is_absolute() && path.parent().is_some());
        let terms = export::ExportTerms {
            rules: loan.rules,
            quota,
            seen_at,
            ..export::ExportTerms::new(loan.terms.access_mode)
        };
        let failed = Arc::<Mutex<FailedChanges>>::default();
        let (delegation, env) = (loan.delegation, self.env.clone());
        let notes = ExportAuditor { sink: audit, delegation, env, failed: Arc::clone(&failed) };
        let export = Export::open(loan.folder, terms, OriginalsFolder::in_folder(loan.before), Arc::new(notes));
        let export = export.map_err(|error| DelegationFailure {
            code: AwcpErrorCode::TaskFailed,
            message: format!("the folder cannot be lent: {error}"),
            hint: "Mend that, then delegate again.".to_owned(),
        })?;
        let (key, credential) = match loan.client_key {
            Some(key) => (key, SshCredential::ClientKey),
            None => {
                let pair = make_key(&self.env);
                (pair.public, SshCredential::PrivateKey { private_key: pair.private })
            }
        };
        let locator = self.locator();
        let pass = LeaseAccess { key, locator: locator.clone(), export: Arc::new(export) };
        let admission = self.server.admit(pass).map_err(|error| DelegationFailure {
            code: AwcpErrorCode::AuthFailed,
            message: format!("the remote's key cannot be used: {error}"),
            hint: AwcpErrorCode::AuthFailed.hint().to_owned(),
        })?;
        let (admission, host_key) = (Arc::new(admission), self.host_key.clone());
        let options = loan.limits.mount_options.clone();
        Ok(ActiveExport { admission, locator, credential, host_key, options, tunnel: None, failed })
    }

    /// Says nothing about the folder.
    fn locator(&self) -> String {
        let mut bytes = [0; 16];
        self.env.fill(&mut bytes);
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

// === impl ActiveExport ===

impl ActiveExport {
    /// It is closed together with the lease.
    pub(super) fn with_tunnel(mut self, tunnel: TunnelServing) -> Self {
        self.tunnel = Some(tunnel);
        self
    }

    /// What the remote needs to mount it.
    pub(super) fn mount(&self, host: String, port: u16, tunnel: Option<awcp::TunnelAccess>) -> awcp::AwcpMount {
        awcp::AwcpMount {
            transport: SSHFS.to_owned(),
            endpoint: SshEndpoint { host, port, user: USER.to_owned(), tunnel },
            export_locator: self.locator.clone(),
            credential: self.credential.clone(),
            host_key: Some(self.host_key.clone()),
            mount_options: (!self.options.is_empty()).then(|| Json::of(&self.options)),
        }
    }

    /// The key is refused, connections are cut and nothing changes any more when this returns. Answers what the
    /// folder's owner has to know of this machine.
    pub(super) async fn revoke(self) -> Option<String> {
        let admission = self.admission;
        // A file call that is under way ends first, which may take a moment.
        let revoked = tokio::task::spawn_blocking(move || admission.revoke()).await;
        if let Err(error) = revoked {
            tracing::error!(%error, "a lease was not revoked as it should");
        }
        if let Some(tunnel) = self.tunnel {
            tunnel.close();
        }
        describe(&self.failed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Why work that the remote calls done is not.
    pub(super) fn incomplete(&self) -> Option<DelegationFailure> {
        incomplete(&self.failed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Of failed changes: what the folder's owner has to know.
pub(super) fn describe(failed: &FailedChanges) -> Option<String> {
    let told: Vec<String> = failed
        .counts()
        .map(|(cause, times)| match cause {
            Cause::DiskFull => format!(
                "the disk of the machine that lends the folder is full: {times} changes of the remote failed; make room \
                 where the folder and $AWCP_HOME are, then delegate again"
            ),
            Cause::Io => {
                format!("{times} changes of the remote failed with an I/O error of this machine; look at its disk")
            }
            Cause::Limit(what) => format!(
                "{times} changes of the remote were refused by a limit of the lease ({what}); raise it in [delegator.export] \
                 of policy.toml, then delegate again"
            ),
            Cause::Interrupted => format!(
                "the connection broke while the remote had {times} files open for writing; what it wrote last may be missing"
            ),
        })
        .collect();
    Some(told.join("\n")).filter(|told| !told.is_empty())
}

/// Why work that the remote calls done is not; none where everything that failed was overcome.
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
        message: format!("the remote says that it is done, but changes that failed are missing: {}{more}", paths.join(", ")),
        hint: "The notes of the result say why. Look at `attache delegations diff ID`, mend the cause, then delegate again."
            .to_owned(),
    })
}

// === impl ExportAuditor ===

impl ExportAudit for ExportAuditor {
    fn record(&self, line: &ExportAuditEntry<'_>) {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).note(line);
        let (path, to, at) = (line.path(), line.to(), self.env.now());
        let refusal = line.outcome.err().map(|refusal| refusal.name());
        let entry = DelegatorAuditEntry {
            path: Some(&path),
            bytes: line.bytes,
            detail: refusal.or(to.as_deref()),
            ok: refusal.is_none(),
            ..DelegatorAuditEntry::new(at, line.op.name())
        };
        self.sink.record(self.delegation, &entry);
    }
}

/// What of the folder is shown: what was asked for, without what the owner's policy hides.
pub(super) fn rules(admitted: &DelegationAdmission, request: &DelegateRequest) -> ExportPatterns {
    let mut exclude = admitted.export.exclude.clone();
    exclude.extend(request.exclude.iter().cloned());
    let mut withhold = secrets_in(&admitted.folder);
    withhold.extend(admitted.export.withhold.iter().cloned());
    ExportPatterns { include: request.include.clone(), exclude, withhold }
}

/// Where keys and records of ours are is shown to nobody: below the folder it is withheld, and the folder is not lent when it
/// is one of them, or in one. Reads folders.
pub(super) fn withhold_private(
    admitted: &mut DelegationAdmission,
    private: &[PathBuf],
) -> Result<(), DelegatorRefusal> {
    let folder = &admitted.folder;
    let refuse = |home: &Path| {
        let message =
            format!("{} cannot be lent: keys and records of Attaché are in {}", folder.display(), home.display());
        Err(DelegatorRefusal::new(Code::InvalidRequest, message, "Lend a folder elsewhere."))
    };
    let private: Vec<PathBuf> = private.iter().filter_map(|home| home.canonicalize().ok()).collect();
    let around = private.iter().find(|home| folder.starts_with(home)).map(PathBuf::as_path);
    if let Some(home) = around.or_else(|| folder.ancestors().find(|above| is_attache_folder(above))) {
        return refuse(home);
    }
    // Last, for the last line that matches decides.
    admitted.export.withhold.extend(private.iter().filter_map(|home| withhold_folder(&admitted.folder, home)));
    Ok(())
}

/// Whether a folder is one of ours by what is in it, for instance the data of a hub that was started elsewhere.
fn is_attache_folder(folder: &Path) -> bool {
    const HOMES: [&[&str]; 4] =
        [&["hub.db"], &["hub.lock"], &["daemon.lock", "delegations"], &["runtime.json", "adapters"]];
    HOMES.iter().any(|parts| parts.iter().all(|part| folder.join(part).symlink_metadata().is_ok()))
}

/// What would keep the folder from being lent, said before anybody is invited. Reads folders.
pub(super) fn check(
    home: &Path,
    admitted: &DelegationAdmission,
    request: &DelegateRequest,
) -> Result<(), DelegatorRefusal> {
    if let Err(error) = rules(admitted, request).check() {
        let hint = "Write patterns as in a .gitignore: target/, *.log, /secret, !keep.log.";
        return Err(DelegatorRefusal::new(Code::InvalidRequest, error.to_string(), hint));
    }
    let folder = &admitted.folder;
    let unfit = |why: &str, hint: &str| {
        let message = format!("{} cannot be lent: {why}", folder.display());
        Err(DelegatorRefusal::new(Code::InvalidRequest, message, hint))
    };
    if let Ok(real) = home.canonicalize() {
        if real.starts_with(folder) {
            let hint = "Lend a folder below it, or set AWCP_HOME to a folder elsewhere.";
            return unfit(&format!("$AWCP_HOME ({}) is in it", home.display()), hint);
        }
        if folder.starts_with(&real) {
            let why = format!("it is in $AWCP_HOME ({}), with what is known of other delegations", home.display());
            return unfit(&why, "Lend a folder elsewhere.");
        }
    }
    if is_of_repository(folder) {
        return unfit("it is a part of a git repository's own files", "Lend the folder in which people work.");
    }
    // It is written down and shown as text, and must be found again by that.
    if folder.to_str().is_none() {
        return unfit("its real path is not UTF-8", "Rename it, or the folder in which it is, then delegate again.");
    }
    Ok(())
}

/// A message for the remote with what it needs.
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

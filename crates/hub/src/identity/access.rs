//! The current access rules: loaded once, shared, and replaced on change.

mod caller_access;
mod file;
mod name_cache;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use attache_protocol::{
    Code, TenantId, Timestamp,
    access_file::{self, RulesFileReport},
    rules::access::{AccessRuleSet, Fallback},
};
use attache_store::{Store, WriteContext, record::user::AccessRulesRecord};
use tokio::{
    sync::{Mutex, MutexGuard},
    time::Instant,
};

use crate::{Error, Handle, Result, error::about, hub::StartError};

pub(crate) use caller_access::{CallerAccess, Visibility, has_part, holds};
use file::RulesFile;
use name_cache::NameCache;

/// The hub's access rules.
#[derive(Debug)]
pub(crate) struct AccessControl {
    in_force: RwLock<HashMap<TenantId, (Arc<ActiveRules>, Instant)>>,
    /// How long rules are believed that another node may change.
    believed: Option<Duration>,
    /// The rules file for the hub's own tenant, which is known from the start on.
    file: Option<RulesFile>,
    file_tenant: OnceLock<TenantId>,
    /// The hash of the file content that was read last.
    seen: std::sync::Mutex<Option<[u8; 32]>>,
    /// Why the current file content is not applied.
    problem: RwLock<Option<String>>,
    pub(crate) names: NameCache,
    /// Serializes changes, so that the file and the store stay equal.
    changing: Mutex<()>,
}

#[derive(Debug)]
pub(crate) struct ActiveRules {
    pub(crate) rules: AccessRuleSet,
    pub(crate) version: i64,
}

// === impl AccessControl ===

impl AccessControl {
    /// Without a file, rules live in the store. `believed` is how long rules are if other nodes may change them.
    pub(crate) fn new(file: Option<PathBuf>, names_believed: Duration, believed: Option<Duration>) -> Self {
        Self {
            in_force: RwLock::default(),
            believed,
            file: file.map(RulesFile::new),
            file_tenant: OnceLock::new(),
            seen: std::sync::Mutex::default(),
            problem: RwLock::default(),
            names: NameCache::new(names_believed),
            changing: Mutex::default(),
        }
    }

    /// Reads the file for this tenant. An invalid one fails the start.
    pub(crate) async fn open(
        &self,
        store: &dyn Store,
        tenant: TenantId,
        now: Timestamp,
    ) -> std::result::Result<(), StartError> {
        let _ = self.file_tenant.set(tenant);
        if let Some(file) = &self.file {
            let text = file.read().await.map_err(|unusable| StartError::Rules(unusable.to_string()))?;
            let rules = parse(&text).map_err(|report| StartError::Rules(file.wrong(&report).to_string()))?;
            let digest = digest(&text);
            let context = WriteContext::new(tenant, WriteContext::SYSTEM, now);
            let kept = store.set_access_rules(context, text, None).await.map_err(StartError::Store)?;
            self.put(tenant, ActiveRules { rules, version: kept.version });
            self.set_seen(Some(digest));
        }
        Ok(())
    }

    /// The file and its tenant.
    fn file(&self) -> Option<(TenantId, &RulesFile)> {
        self.file_tenant.get().copied().zip(self.file.as_ref())
    }

    pub(crate) fn file_of(&self, tenant: TenantId) -> Option<&RulesFile> {
        self.file().filter(|(of, _)| *of == tenant).map(|(_, file)| file)
    }

    /// 0 until the tenant's rules are first requested.
    pub(crate) fn version(&self, tenant: TenantId) -> i64 {
        let in_force = self.in_force.read().unwrap_or_else(PoisonError::into_inner);
        in_force.get(&tenant).map_or(0, |(known, _)| known.version)
    }

    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Only the holder of the guard may change rules.
    pub(crate) async fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().await
    }

    /// `None` if they must be read from the store.
    fn get(&self, tenant: TenantId) -> Option<Arc<ActiveRules>> {
        let in_force = self.in_force.read().unwrap_or_else(PoisonError::into_inner);
        let (known, read_at) = in_force.get(&tenant)?;
        self.believed.is_none_or(|believed| read_at.elapsed() < believed).then(|| known.clone())
    }

    /// Another node changed them.
    pub(crate) fn forget(&self, tenant: TenantId) {
        self.in_force.write().unwrap_or_else(PoisonError::into_inner).remove(&tenant);
    }

    /// Other nodes may have changed the rules of any tenant.
    pub(crate) fn forget_all(&self) {
        self.in_force.write().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// A late answer from the store doesn't replace a newer one.
    fn put(&self, tenant: TenantId, new: ActiveRules) -> Arc<ActiveRules> {
        self.put_read(tenant, new, Instant::now())
    }

    /// The same for rules that the store was asked for at this time.
    fn put_read(&self, tenant: TenantId, new: ActiveRules, asked_at: Instant) -> Arc<ActiveRules> {
        let mut in_force = self.in_force.write().unwrap_or_else(PoisonError::into_inner);
        match in_force.get(&tenant) {
            Some((known, _)) if known.version > new.version => known.clone(),
            Some(_) | None => {
                let new = Arc::new(new);
                in_force.insert(tenant, (new.clone(), asked_at));
                new
            }
        }
    }

    fn set_seen(&self, digest: Option<[u8; 32]>) {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = digest;
    }

    fn has_seen(&self, digest: [u8; 32]) -> bool {
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) == Some(digest)
    }

    /// Returns whether the problem changed.
    fn set_problem(&self, problem: Option<String>) -> bool {
        let mut known = self.problem.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = *known != problem;
        *known = problem;
        is_new
    }
}

/// Parses the rules. An empty text has none.
pub(crate) fn parse(text: &str) -> std::result::Result<AccessRuleSet, RulesFileReport> {
    access_file::parse(text)
}

pub(crate) fn invalid(report: &RulesFileReport) -> Error {
    Error::new(Code::RulesInvalid, report.to_string())
}

// === impl Handle ===

impl Handle {
    /// The tenant's rules, from memory unless this is the first request.
    pub(crate) async fn rules_in_force(&self, tenant: TenantId) -> Result<Arc<ActiveRules>> {
        if let Some(known) = self.access().get(tenant) {
            return Ok(known);
        }
        let asked_at = Instant::now();
        let stored = self.store().access_rules(tenant).await.map_err(about("tenant"))?;
        Ok(self.access().put_read(tenant, parse_stored(stored), asked_at))
    }

    /// Applies the text and logs the change. The caller has parsed it and holds [`AccessControl::change`].
    pub(crate) async fn put_in_force(
        &self,
        context: WriteContext,
        text: String,
        rules: AccessRuleSet,
        expected: Option<i64>,
    ) -> Result<AccessRulesRecord> {
        let tenant = context.tenant;
        let kept = self.store().set_access_rules(context, text, expected).await.map_err(about("tenant"))?;
        self.access().put(tenant, ActiveRules { rules, version: kept.version });
        Ok(kept)
    }

    /// Loads changes of the file.
    pub(crate) async fn watch_rules_file(&self) -> Result<()> {
        let Some((_, file)) = self.access().file() else { return Ok(()) };
        // Almost always nothing has changed, and the lock isn't needed.
        match file.read().await {
            Ok(text) if self.access().has_seen(digest(&text)) => Ok(()),
            Ok(_) | Err(_) => {
                let _turn = self.access().change().await;
                self.look_at_rules_file().await
            }
        }
    }

    /// Reads the file and applies its rules. An invalid file only changes the reported problem. The caller holds
    /// [`AccessControl::change`].
    pub(crate) async fn look_at_rules_file(&self) -> Result<()> {
        let Some((tenant, file)) = self.access().file() else { return Ok(()) };
        let (seen, looked) = match file.read().await {
            Ok(text) => match parse(&text) {
                Ok(rules) => (Some(digest(&text)), Ok((text, rules))),
                Err(report) => (Some(digest(&text)), Err(file.wrong(&report))),
            },
            Err(unusable) => (None, Err(unusable)),
        };
        let (text, rules) = match looked {
            Ok(good) => good,
            Err(unusable) => {
                self.access().set_seen(seen);
                if self.access().set_problem(Some(unusable.to_string())) {
                    tracing::warn!(problem = %unusable, "the previous rules stay active");
                }
                return Ok(());
            }
        };
        self.access().set_problem(None);
        let context = WriteContext::new(tenant, WriteContext::SYSTEM, self.now());
        let kept = self.put_in_force(context, text, rules, None).await?;
        self.access().set_seen(seen);
        tracing::debug!(rules.version = kept.version, "the rules of the file are active");
        Ok(())
    }
}

fn digest(text: &str) -> [u8; 32] {
    *blake3::hash(text.as_bytes()).as_bytes()
}

/// Stored rules were parsed before they were stored. If they still can't be read, everything is denied: a lost denial
/// must not grant access.
fn parse_stored(stored: Option<AccessRulesRecord>) -> ActiveRules {
    let Some(stored) = stored else { return ActiveRules { rules: AccessRuleSet::default(), version: 0 } };
    let rules = parse(&stored.text).unwrap_or_else(|report| {
        tracing::error!(problem = %report, "the stored rules can't be read, so agents have no access");
        AccessRuleSet { fallback: Fallback::Deny, entries: Vec::new() }
    });
    ActiveRules { rules, version: stored.version }
}

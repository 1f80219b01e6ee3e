//! The access rules in force: read once, shared by everybody who asks, and swapped when somebody changes them.

mod caller_access;
mod file;
mod name_cache;

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use attache_protocol::{
    Code, TenantId, Timestamp,
    access_file::{self, RulesFileReport},
    rules::access::{AccessRuleSet, Fallback},
};
use attache_store::{Store, WriteContext, record::user::AccessRulesRecord};
use tokio::sync::{Mutex, MutexGuard};

use crate::{Error, Handle, Result, error::about, hub::StartError};

pub(crate) use caller_access::{Visibility, has_part, holds};
use file::RulesFile;
use name_cache::NameCache;

/// Everything that the hub knows about access rules.
#[derive(Debug)]
pub(crate) struct AccessControl {
    in_force: RwLock<HashMap<TenantId, Arc<ActiveRules>>>,
    /// The file that holds the rules of the hub's own tenant.
    file: Option<(TenantId, RulesFile)>,
    /// The content of the file that was looked at last.
    seen: std::sync::Mutex<Option<[u8; 32]>>,
    /// Why the file as it is now is not in force.
    problem: RwLock<Option<String>>,
    pub(crate) names: NameCache,
    /// Changes come one after another, so that the file and the store say the same.
    changing: Mutex<()>,
}

#[derive(Debug)]
pub(crate) struct ActiveRules {
    pub(crate) rules: AccessRuleSet,
    pub(crate) version: i64,
}

// === impl AccessControl ===

impl AccessControl {
    /// Without a file, rules live in the store. With one, it is read now, and a wrong one is refused.
    pub(crate) async fn open(
        file: Option<PathBuf>,
        store: &dyn Store,
        tenant: TenantId,
        now: Timestamp,
        believed: Duration,
    ) -> std::result::Result<Self, StartError> {
        let access = Self {
            in_force: RwLock::default(),
            file: file.map(|path| (tenant, RulesFile::new(path))),
            seen: std::sync::Mutex::default(),
            problem: RwLock::default(),
            names: NameCache::new(believed),
            changing: Mutex::default(),
        };
        if let Some((_, file)) = &access.file {
            let text = file.read().await.map_err(|unusable| StartError::Rules(unusable.to_string()))?;
            let rules = parse(&text).map_err(|report| StartError::Rules(file.wrong(&report).to_string()))?;
            let digest = digest(&text);
            let context = WriteContext::new(tenant, WriteContext::SYSTEM, now);
            let kept = store.set_access_rules(context, text, None).await.map_err(StartError::Store)?;
            access.put(tenant, ActiveRules { rules, version: kept.version });
            access.set_seen(Some(digest));
        }
        Ok(access)
    }

    pub(crate) fn file_of(&self, tenant: TenantId) -> Option<&RulesFile> {
        self.file.as_ref().filter(|(of, _)| *of == tenant).map(|(_, file)| file)
    }

    /// 0 until somebody has asked for the tenant's rules.
    pub(crate) fn version(&self, tenant: TenantId) -> i64 {
        self.get(tenant).map_or(0, |known| known.version)
    }

    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Whoever holds it is the only one who changes rules.
    pub(crate) async fn change(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().await
    }

    fn get(&self, tenant: TenantId) -> Option<Arc<ActiveRules>> {
        self.in_force.read().unwrap_or_else(PoisonError::into_inner).get(&tenant).cloned()
    }

    /// An answer of the store that comes late does not undo a newer one.
    fn put(&self, tenant: TenantId, new: ActiveRules) -> Arc<ActiveRules> {
        let mut in_force = self.in_force.write().unwrap_or_else(PoisonError::into_inner);
        match in_force.get(&tenant) {
            Some(known) if known.version > new.version => known.clone(),
            Some(_) | None => {
                let new = Arc::new(new);
                in_force.insert(tenant, new.clone());
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

    /// Says whether it is another problem than before.
    fn set_problem(&self, problem: Option<String>) -> bool {
        let mut known = self.problem.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = *known != problem;
        *known = problem;
        is_new
    }
}

/// The text as rules; an empty text has none.
pub(crate) fn parse(text: &str) -> std::result::Result<AccessRuleSet, RulesFileReport> {
    access_file::parse(text)
}

pub(crate) fn invalid(report: &RulesFileReport) -> Error {
    Error::new(Code::RulesInvalid, report.to_string())
}

// === impl Handle ===

impl Handle {
    /// The rules of the tenant, from memory unless nobody has asked before.
    pub(crate) async fn rules_in_force(&self, tenant: TenantId) -> Result<Arc<ActiveRules>> {
        if let Some(known) = self.access().get(tenant) {
            return Ok(known);
        }
        let stored = self.store().access_rules(tenant).await.map_err(about("tenant"))?;
        Ok(self.access().put(tenant, understood(stored)))
    }

    /// Makes the text what is in force, and says so in the log. The caller has parsed it, and holds [`AccessControl::change`].
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

    /// Takes over what somebody wrote into the file.
    pub(crate) async fn watch_rules_file(&self) -> Result<()> {
        let Some((_, file)) = &self.access().file else { return Ok(()) };
        // Nearly always nothing happened, and then nobody is kept waiting.
        match file.read().await {
            Ok(text) if self.access().has_seen(digest(&text)) => Ok(()),
            Ok(_) | Err(_) => {
                let _turn = self.access().change().await;
                self.look_at_rules_file().await
            }
        }
    }

    /// Looks at the file and takes what it says now. A wrong file changes nothing but what is said about it. The caller
    /// holds [`AccessControl::change`].
    pub(crate) async fn look_at_rules_file(&self) -> Result<()> {
        let Some((tenant, file)) = &self.access().file else { return Ok(()) };
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
                    tracing::warn!(problem = %unusable, "the rules as they were stay in force");
                }
                return Ok(());
            }
        };
        self.access().set_problem(None);
        let context = WriteContext::new(*tenant, WriteContext::SYSTEM, self.now());
        let kept = self.put_in_force(context, text, rules, None).await?;
        self.access().set_seen(seen);
        tracing::debug!(rules.version = kept.version, "the rules of the file are in force");
        Ok(())
    }
}

fn digest(text: &str) -> [u8; 32] {
    *blake3::hash(text.as_bytes()).as_bytes()
}

/// What the store has was parsed before it was put there. If it cannot be read all the same, nobody reaches anything:
/// a denial that got lost must not open a door.
fn understood(stored: Option<AccessRulesRecord>) -> ActiveRules {
    let Some(stored) = stored else { return ActiveRules { rules: AccessRuleSet::default(), version: 0 } };
    let rules = parse(&stored.text).unwrap_or_else(|report| {
        tracing::error!(problem = %report, "the stored rules cannot be read, so agents reach nothing");
        AccessRuleSet { fallback: Fallback::Deny, entries: Vec::new() }
    });
    ActiveRules { rules, version: stored.version }
}

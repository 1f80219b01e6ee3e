//! The hub's keys in the database, encrypted, so that every node of a cluster has the same ones.
//!
//! Each node also has them in its own data folder, where everything else reads them, backups included.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::Path, time::Duration};

use attache_os::private_file;
use attache_protocol::{
    Secret, TenantId,
    digest::{hex, unhex},
    env::Env,
};
use attache_store::{
    Store,
    record::shared_value::{SharedValue, SharedValueKind, SharedValueLimit},
};

use super::{IdentityFolder, SealingKey};
use crate::StartError;

/// The encrypted values in the database.
struct KeyRing<'a> {
    seal: SealingKey,
    store: &'a dyn Store,
    env: &'a Env,
    tenant: TenantId,
}

const HOLDER: &str = "hub";
const ADDRESS: &str = "address";
const PLACE: &str = "artifacts";
/// A file by which nodes recognize the folder of their artifacts.
const ARTIFACT_MARK: &str = ".attache-cluster";
/// Keys don't expire, but shared values do.
const FOREVER: Duration = Duration::from_secs(200 * 365 * 24 * 60 * 60);

/// Reads the key of a cluster, which encrypts the hub's keys in the database. The first node creates the file; the others
/// must get a copy.
pub async fn open_cluster_key(file: &Path, store: &dyn Store, env: &Env) -> Result<Secret<[u8; 32]>, StartError> {
    let failed = |source| StartError::File { path: file.display().to_string(), source };
    if fs::metadata(file).is_ok_and(|found| found.mode() & 0o007 != 0) {
        return Err(StartError::ClusterKey(format!(
            "every user of this machine has access to {0}, which decrypts all of the hub's keys: chmod o= {0}",
            file.display()
        )));
    }
    match fs::read_to_string(file) {
        Ok(text) => unhex(text.trim())
            .map(Secret::new)
            .ok_or_else(|| failed(io::Error::other("it must contain 64 hexadecimal digits"))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if !is_empty(store, env).await? {
                return Err(StartError::ClusterKey(format!(
                    "{} is missing, but other hubs use this database with a cluster key: copy their file",
                    file.display()
                )));
            }
            let mut key = [0; 32];
            env.fill(&mut key);
            private_file::create(file, format!("{}\n", hex(&key)).as_bytes()).map_err(failed)?;
            Ok(Secret::new(key))
        }
        Err(error) => Err(failed(error)),
    }
}

// === impl KeyRing ===

impl KeyRing<'_> {
    async fn read(&self, name: &str) -> Result<Option<Secret<Vec<u8>>>, StartError> {
        let found = self.store.shared_value(SharedValueKind::HubKey, name, self.env.now()).await;
        let Some(found) = found.map_err(StartError::Store)? else { return Ok(None) };
        let opened = self.seal.unseal(&context(name), &found.value).map_err(|_| {
            StartError::ClusterKey(
                "it can't decrypt the hub's keys in the database, so it belongs to another hub".to_owned(),
            )
        })?;
        Ok(Some(opened))
    }

    async fn write(&self, name: &str, plain: &[u8]) -> Result<(), StartError> {
        let value = SharedValue {
            kind: SharedValueKind::HubKey,
            name: name.to_owned(),
            tenant: self.tenant,
            holder: HOLDER.to_owned(),
            value: self.seal.seal(self.env, &context(name), plain),
            expires_at: self.env.now().plus(FOREVER),
        };
        self.store.keep_value(value, SharedValueLimit::None, self.env.now()).await.map_err(StartError::Store)?;
        Ok(())
    }

    /// Writes a text that all nodes have in common. If another one is there, `differs` decides whether it is replaced.
    async fn agree(
        &self,
        name: &str,
        text: &str,
        differs: impl FnOnce(&str) -> Result<(), StartError> + Send,
    ) -> Result<(), StartError> {
        match self.read(name).await? {
            Some(other) if other.expose() == text.as_bytes() => return Ok(()),
            Some(other) => differs(&String::from_utf8_lossy(other.expose()))?,
            None => {}
        }
        self.write(name, text.as_bytes()).await
    }
}

/// Whether no node has put its keys into the database.
pub async fn is_empty(store: &dyn Store, env: &Env) -> Result<bool, StartError> {
    let keys = store.value_holders(SharedValueKind::HubKey, env.now()).await.map_err(StartError::Store)?;
    Ok(keys.is_empty())
}

/// Makes the keys in the folder and in the database the same. Keys that neither has are created. Only one node at a time may
/// do this.
pub(crate) async fn share(
    folder: &IdentityFolder,
    key: &Secret<[u8; 32]>,
    store: &dyn Store,
    env: &Env,
    tenant: TenantId,
) -> Result<(), StartError> {
    let ring = KeyRing { seal: SealingKey::new(key), store, env, tenant };
    let mut missing = Vec::new();
    for name in IdentityFolder::SHARED_KEYS {
        match ring.read(name).await? {
            Some(shared) => adopt(folder, name, shared.expose())?,
            None => missing.push(name),
        }
    }
    folder.create_missing(env).map_err(|source| folder_failed(folder, source))?;
    for name in missing {
        let own = fs::read(folder.file(name)).map_err(|source| folder_failed(folder, source))?;
        ring.write(name, &own).await?;
    }
    Ok(())
}

/// Remembers the address under which this node is reached, and warns if the last one to start has another: links, cards and
/// tokens of the two would differ. To change it, the nodes are restarted one after the other, so it isn't refused.
pub(crate) async fn share_address(
    address: &str,
    key: &Secret<[u8; 32]>,
    store: &dyn Store,
    env: &Env,
    tenant: TenantId,
) -> Result<(), StartError> {
    let ring = KeyRing { seal: SealingKey::new(key), store, env, tenant };
    ring.agree(ADDRESS, address, |others| {
        tracing::warn!(
            this = address,
            others,
            "the hubs of this database don't have the same --public-url; start all of them with the same one"
        );
        Ok(())
    })
    .await
}

/// Checks that this node has its artifacts where the others have them: in that bucket, or in a folder. A node that is alone may
/// move them.
pub(crate) async fn share_place(
    place: &str,
    is_alone: bool,
    key: &Secret<[u8; 32]>,
    store: &dyn Store,
    env: &Env,
    tenant: TenantId,
) -> Result<(), StartError> {
    let ring = KeyRing { seal: SealingKey::new(key), store, env, tenant };
    ring.agree(PLACE, place, |before| {
        if !is_alone {
            return Err(StartError::Artifacts(place.to_owned()));
        }
        tracing::warn!(
            this = place,
            before,
            "the artifacts were somewhere else before; those that weren't copied are missing"
        );
        Ok(())
    })
    .await
}

/// Checks that the folder for artifacts is the one of the other nodes. The first one marks it.
pub(crate) async fn share_artifacts(
    folder: &Path,
    key: &Secret<[u8; 32]>,
    store: &dyn Store,
    env: &Env,
    tenant: TenantId,
) -> Result<(), StartError> {
    let failed = |source| StartError::Folder { path: folder.display().to_string(), source };
    let ring = KeyRing { seal: SealingKey::new(key), store, env, tenant };
    private_file::folder(folder).map_err(failed)?;
    let mark = folder.join(ARTIFACT_MARK);
    let found = match fs::read(&mark) {
        Ok(found) => Some(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    match ring.read(ARTIFACT_MARK).await? {
        Some(shared) if found.as_ref() == Some(shared.expose()) => Ok(()),
        Some(_) => Err(StartError::Artifacts(folder.display().to_string())),
        None => {
            let mut mine = [0; 16];
            env.fill(&mut mine);
            private_file::write(&mark, hex(&mine).as_bytes()).map_err(failed)?;
            ring.write(ARTIFACT_MARK, hex(&mine).as_bytes()).await
        }
    }
}

/// The node's folder gets a key of the database, unless it has one of another hub.
fn adopt(folder: &IdentityFolder, name: &str, shared: &[u8]) -> Result<(), StartError> {
    let path = folder.file(name);
    match fs::read(&path) {
        Ok(own) if own == shared => Ok(()),
        Ok(_) => Err(StartError::ClusterKey(format!(
            "{} is another hub's: this node needs a data folder of its own (--data DIR)",
            path.display()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            private_file::write(&path, shared).map_err(|source| folder_failed(folder, source))
        }
        Err(source) => Err(folder_failed(folder, source)),
    }
}

fn context(name: &str) -> String {
    format!("hub_key/{name}")
}

fn folder_failed(folder: &IdentityFolder, source: io::Error) -> StartError {
    StartError::Folder { path: folder.path().display().to_string(), source }
}

//! Views that people keep.

use super::connection::Connection;
use attache_protocol::{TenantId, UserId};
use rusqlite::params;

use super::{rows::IdBytes, users::read_user, writer::WriteTransaction};
use crate::{
    Error, Result,
    record::user::{SavedView, UserRef},
};

// === impl WriteTransaction ===

impl WriteTransaction<'_, '_> {
    pub(super) fn save_view(&self, tenant: TenantId, user: UserId, view: &SavedView) -> Result<()> {
        self.present_user(tenant, &UserRef::Id(user))?;
        let user = || IdBytes(user.uuid());
        let changed = self
            .connection
            .prepare_cached("update saved_views set query = ?3 where user = ?1 and name = ?2")?
            .execute(params![user(), view.name, view.query])?;
        if changed == 0 {
            self.connection
                .prepare_cached("insert into saved_views (user, name, query) values (?1, ?2, ?3)")?
                .execute(params![user(), view.name, view.query])?;
        }
        Ok(())
    }

    pub(super) fn remove_view(&self, tenant: TenantId, user: UserId, name: &str) -> Result<()> {
        self.present_user(tenant, &UserRef::Id(user))?;
        let removed = self
            .connection
            .prepare_cached("delete from saved_views where user = ?1 and name = ?2")?
            .execute(params![IdBytes(user.uuid()), name])?;
        if removed > 0 { Ok(()) } else { Err(Error::NotFound) }
    }

    pub(super) fn remove_views_of(&self, user: UserId) -> Result<()> {
        self.connection.prepare_cached("delete from saved_views where user = ?1")?.execute([IdBytes(user.uuid())])?;
        Ok(())
    }
}

pub(super) fn saved_views(connection: &Connection, tenant: TenantId, user: UserId) -> Result<Vec<SavedView>> {
    read_user(connection, tenant, &UserRef::Id(user))?;
    let mut statement = connection.prepare_cached("select name, query from saved_views where user = ?1 order by no")?;
    let views =
        statement.query_map([IdBytes(user.uuid())], |row| Ok(SavedView { name: row.get(0)?, query: row.get(1)? }))?;
    Ok(views.collect::<rusqlite::Result<_>>()?)
}

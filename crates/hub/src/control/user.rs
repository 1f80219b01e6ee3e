//! Users: add, show, change, remove. No one can assign a role above their own, or change a user who has one.

use std::net::{IpAddr, Ipv4Addr};

use attache_protocol::{
    Code,
    wire::{
        key::Role,
        user::{CreateUserRequest, UpdateUserRequest, User, UserList},
    },
};
use attache_store::record::{
    self,
    user::{NewUser, UserPatch, UserRef},
};

use crate::{
    Error, Handle, Principal, Result,
    bus::Topic,
    check::{self, ME},
    control::PageRequest,
    error::{about, about_list},
    identity::{Action, Permit, PrincipalKind, password},
    render,
};

impl Handle {
    pub async fn create_user(&self, by: &Principal, request: CreateUserRequest) -> Result<User> {
        by.may_all(Action::CreateUser)?;
        by.lasting("add people")?;
        check::user_name(&request.name)?;
        let role = request.role.unwrap_or(Role::Operator);
        may_give(by, role)?;
        let password = match &request.password {
            Some(password) => {
                by.unscoped()?;
                self.check_endless(by).await?;
                password::check_new("password", password)?;
                Some(self.passwords().hash(self.env(), password).await?)
            }
            None => None,
        };
        let user = NewUser { id: self.env().user_id(), name: request.name, role, password };
        self.store().create_user(self.context(by), user).await.map(render::user).map_err(about("user"))
    }

    /// By id, by name, or `me`.
    pub async fn user(&self, by: &Principal, user: &str) -> Result<User> {
        let permit = match user {
            // Everyone may see themselves, whatever their scopes.
            ME => by.may_in_any_scope(Action::SeeUsers)?,
            _ => by.may(Action::SeeUsers)?,
        };
        self.find_user(&permit, user).await.map(render::user)
    }

    /// Users who were not removed, by name. Callers who can't see others get only themselves.
    pub async fn users(&self, by: &Principal, page: PageRequest) -> Result<UserList> {
        let page = page.page()?;
        let permit = by.may(Action::SeeUsers)?;
        if !permit.covers_others() {
            let own = match by.user {
                Some(_) => vec![render::user(self.find_user(&permit, ME).await?)],
                None => Vec::new(),
            };
            return Ok(UserList { users: own, next_cursor: None });
        }
        let failed = about_list("user", &page);
        let listed = self.store().users(by.tenant, page).await.map_err(failed)?;
        Ok(UserList { users: listed.items.into_iter().map(render::user).collect(), next_cursor: listed.next })
    }

    /// People can change their own password by giving the current one. Everything else is for admins.
    pub async fn update_user(&self, by: &Principal, user: &str, request: UpdateUserRequest) -> Result<User> {
        let permit = by.may(Action::EditUser)?;
        by.lasting("change people")?;
        let found = self.find_user(&permit, user).await?;
        let own = by.user == Some(found.id);
        if let Some(name) = &request.name {
            check::user_name(name)?;
        }
        if !permit.covers_others() && (request.name.is_some() || request.role.is_some()) {
            return Err(Error::forbidden("Only admins can change names and roles."));
        }
        if request.name.as_ref().is_some_and(|name| *name != found.name) {
            self.may_rename(by, &found).await?;
        }
        if let Some(role) = request.role {
            may_give(by, role)?;
            // A higher role stays when the credential is gone, and has no scopes.
            if role > found.role {
                by.unscoped()?;
                self.check_endless(by).await?;
            }
        }
        let password = match &request.password {
            Some(password) => {
                by.unscoped()?;
                self.check_endless(by).await?;
                password::check_new("password", password)?;
                if own {
                    self.check_current(by, &found, &request).await?;
                } else if by.role() != Some(Role::Owner) && by.role().is_none_or(|role| role <= found.role) {
                    // A password signs in as the person.
                    return Err(Error::forbidden("You can set passwords only for people whose role is below yours.")
                        .hint("Ask an owner of the hub."));
                }
                Some(self.passwords().hash(self.env(), password).await?)
            }
            None => None,
        };
        if own {
            self.attempts().credential(by)?;
        }
        let patch = UserPatch { name: request.name, role: request.role, password };
        let keep = match by.who {
            PrincipalKind::Key { key, .. } if own => Some(key),
            PrincipalKind::Key { .. }
            | PrincipalKind::Runtime { .. }
            | PrincipalKind::Outside { .. }
            | PrincipalKind::Run { .. }
            | PrincipalKind::Anonymous { .. } => None,
        };
        let updated = self.store().update_user(self.context(by), UserRef::Id(found.id), patch, keep).await;
        let updated = updated.map_err(about("user"))?;
        self.credentials().forget_user(updated.id);
        if updated.role != found.role {
            self.bus().wake([Topic::Rights(by.tenant)]);
        }
        self.access().names.users.forget(&updated.id);
        Ok(render::user(updated))
    }

    /// Immediately ends everything that acts for the user. Agents and runs stay.
    pub async fn remove_user(&self, by: &Principal, user: &str) -> Result<User> {
        let permit = by.may(Action::RemoveUser)?;
        by.lasting("remove people")?;
        let found = self.find_user(&permit, user).await?;
        let removed = self.store().remove_user(self.context(by), UserRef::Id(found.id)).await.map_err(about("user"))?;
        self.credentials().forget_user(removed.id);
        self.bus().wake([Topic::Rights(by.tenant)]);
        self.access().names.users.forget(&removed.id);
        Ok(render::user(removed))
    }

    /// Resolves a user's name or id in a body member.
    pub(crate) async fn named_user(&self, by: &Principal, field: &str, user: &str) -> Result<record::user::UserRecord> {
        let found = self.store().user(by.tenant, check::user_ref(field, user)?).await.map_err(about("user"))?;
        match found.removed_at {
            None => Ok(found),
            Some(_) => Err(Error::not_found("user")),
        }
    }

    /// The user, if the caller may do this to them: themselves, or people whose role is not above the caller's.
    async fn find_user(&self, permit: &Permit<'_>, user: &str) -> Result<record::user::UserRecord> {
        let by = permit.by();
        let user = match (user, by.user) {
            (ME, Some(id)) => UserRef::Id(id),
            (ME, None) => {
                return Err(Error::not_found("user").hint("This key has no user. Name a user instead."));
            }
            (user, _) => check::user_ref("user", user).map_err(|_| Error::not_found("user"))?,
        };
        let found = self.store().user(by.tenant, user).await.map_err(about("user"))?;
        // Callers who can't see others don't learn whether they exist.
        if !permit.covers_user(Some(found.id)) {
            return Err(Error::not_found("user"));
        }
        if by.is_below(&found) && permit.action() != Action::SeeUsers {
            return Err(Error::forbidden("You can't change a person whose role is above yours."));
        }
        Ok(found)
    }

    /// The user for whom a credential is created: the caller or, for admins, anyone whose role is not above theirs.
    pub(crate) async fn user_acted_for(
        &self,
        permit: &Permit<'_>,
        user: &str,
        one: &str,
        several: &str,
    ) -> Result<record::user::UserRecord> {
        let found = self.named_user(permit.by(), "user", user).await;
        let found = match permit.covers_others() {
            true => found?,
            // Callers who can't act for others don't learn whether they exist.
            false => found
                .ok()
                .filter(|found| permit.covers_user(Some(found.id)))
                .ok_or_else(|| Error::new(Code::Forbidden, format!("Only admins can {several} for others.")))?,
        };
        match permit.by().is_below(&found) {
            true => {
                Err(Error::new(Code::Forbidden, format!("You can't {one} for a person whose role is above yours.")))
            }
            false => Ok(found),
        }
    }

    /// Changing an existing password requires knowing it. Setting the first one requires a credential with all of the
    /// person's rights, because a password has them all.
    pub(super) async fn check_current(
        &self,
        by: &Principal,
        user: &record::user::UserRecord,
        request: &UpdateUserRequest,
    ) -> Result<()> {
        let Some(hash) = &user.password else {
            // Whoever issued the credential could sign in with it, so they must be allowed to set it themselves.
            return if by.role() == Some(user.role) && self.issuers_are_above(by, user.role).await? {
                Ok(())
            } else {
                Err(Error::forbidden("This credential has fewer rights than its user, or someone else issued it, and a password would have all rights.")
                    .hint("Use your own key or session, or ask someone with a higher role to set the password."))
            };
        };
        let Some(current) = &request.current_password else {
            return Err(Error::invalid("current_password", "is missing; send your current password as well"));
        };
        // The caller is already authenticated. This is not a sign-in, and no address applies.
        let attempt = (user.name.as_str(), IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let slot = self.attempts().by_name.reserve(attempt)?;
        let known = self.passwords().verify(current, Some(hash)).await;
        if known != Ok(false) {
            slot.give_back();
        }
        if known? { Ok(()) } else { Err(Error::forbidden("The current password is wrong.")) }
    }
}

fn may_give(by: &Principal, role: Role) -> Result<()> {
    match by.role() {
        Some(own) if role <= own => Ok(()),
        Some(_) | None => Err(Error::forbidden("You can't assign a role above your own.")),
    }
}

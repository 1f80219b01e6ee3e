//! People and keys as list rows and form choices.

use attache_protocol::{
    Timestamp, UserId,
    wire::{
        key::{Key, KeyScope, Role},
        user::User,
    },
};

use super::{actor::short, html::Markup, time::TimeElement};
use crate::text::Text;

/// The people that the viewer may see.
#[derive(Debug, Clone, Default)]
pub(crate) struct VisiblePeople {
    pub(crate) users: Vec<User>,
    pub(crate) me: Option<UserId>,
    pub(crate) more: bool,
}

#[derive(Debug, Clone)]
pub(crate) struct PersonListRow {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) role: &'static str,
    pub(crate) password: &'static str,
    pub(crate) keys: usize,
    pub(crate) since: TimeElement,
    pub(crate) removed: Option<Markup>,
}

#[derive(Debug, Clone)]
pub(crate) struct KeyListRow {
    pub(crate) id: String,
    pub(crate) short: String,
    pub(crate) name: String,
    pub(crate) who: String,
    pub(crate) scopes: String,
    pub(crate) note: Markup,
    /// Revoked or expired.
    pub(crate) gone: bool,
    pub(crate) revocable: bool,
}

/// A choice in a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FormChoice {
    pub(crate) value: String,
    pub(crate) label: String,
    pub(crate) chosen: bool,
}

// === impl VisiblePeople ===

impl VisiblePeople {
    /// The name of a person, or a placeholder if it isn't known.
    pub(crate) fn name(&self, user: Option<UserId>, t: &'static Text) -> String {
        let Some(id) = user else { return t.nobody.to_owned() };
        let known = self.users.iter().find(|user| user.user_id == id).map(|user| user.name.as_str());
        known.unwrap_or(if self.me == Some(id) { t.you } else { t.somebody }).to_owned()
    }

    /// All people, after an entry for no user.
    pub(crate) fn choices(&self, nobody: &str, chosen: &str) -> Vec<FormChoice> {
        let none = FormChoice { value: String::new(), label: nobody.to_owned(), chosen: chosen.is_empty() };
        let named = self.users.iter().map(|user| {
            let value = user.user_id.to_string();
            FormChoice { chosen: value == chosen, value, label: user.name.clone() }
        });
        std::iter::once(none).chain(named).collect()
    }
}

// === impl PersonListRow ===

impl PersonListRow {
    pub(crate) fn new(user: &User, keys: &[Key], now: Timestamp, t: &'static Text) -> Self {
        let alive = |key: &&Key| key.user_id == Some(user.user_id) && !is_over(key, now);
        Self {
            id: user.user_id.to_string(),
            name: user.name.clone(),
            role: role(user.role, t),
            password: if user.has_password { t.has_password } else { t.no_password },
            keys: keys.iter().filter(alive).count(),
            since: TimeElement::relative(user.created_at),
            removed: user.removed_at.map(|at| t.person_removed(at)),
        }
    }
}

// === impl KeyListRow ===

impl KeyListRow {
    pub(crate) fn new(key: &Key, people: &VisiblePeople, now: Timestamp, t: &'static Text) -> Self {
        let note = match (key.revoked_at, key.expires_at) {
            (Some(revoked), _) => t.revoked_at(revoked),
            (None, Some(until)) if until <= now => t.key_over(until),
            (None, Some(until)) => t.key_until(key.created_at, until),
            (None, None) => t.key_since(key.created_at),
        };
        let user = people.name(key.user_id, t);
        let scopes = match &key.scopes {
            None => t.key_all_scopes.to_owned(),
            Some(scopes) => scopes.iter().map(|one| scope(*one, t)).collect::<Vec<_>>().join(t.list_comma),
        };
        Self {
            id: key.key_id.to_string(),
            short: short(&key.key_id.to_string()),
            name: key.name.clone(),
            who: t.key_for(role(key.role, t), &user),
            scopes,
            note,
            gone: is_over(key, now),
            revocable: false,
        }
    }
}

fn is_over(key: &Key, now: Timestamp) -> bool {
    key.revoked_at.is_some() || key.expires_at.is_some_and(|at| at <= now)
}

pub(crate) fn role(role: Role, t: &Text) -> &'static str {
    match role {
        Role::Viewer => t.role_name_viewer,
        Role::Operator => t.role_name_operator,
        Role::Admin => t.role_name_admin,
        Role::Owner => t.role_name_owner,
    }
}

/// What a key with this scope may do.
pub(crate) fn scope(scope: KeyScope, t: &Text) -> &'static str {
    match scope {
        KeyScope::Read => t.scope_read,
        KeyScope::Call => t.scope_call,
        KeyScope::Decide => t.scope_decide,
        KeyScope::Manage => t.scope_manage,
        KeyScope::Admin => t.scope_admin,
    }
}

/// The roles that a person with this role may assign: none above their own.
pub(crate) fn roles(own: Role, chosen: Role, t: &'static Text) -> Vec<FormChoice> {
    let label = |role| match role {
        Role::Viewer => t.role_viewer,
        Role::Operator => t.role_operator,
        Role::Admin => t.role_admin,
        Role::Owner => t.role_owner,
    };
    let given = Role::ALL.into_iter().filter(|role| *role <= own);
    given
        .map(|role| FormChoice {
            value: role.as_str().to_owned(),
            label: label(role).to_owned(),
            chosen: role == chosen,
        })
        .collect()
}

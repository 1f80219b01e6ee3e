//! Steps around users, permissions of keys, and access rules.

use attache_protocol::{
    Secret, UserId,
    wire::key::{KeyScope, Role},
};

use super::StepGenerator;
use crate::{
    conformance::step::StoreStep,
    record::user::{NewUser, UserPatch, UserRef},
};

/// Only a few, so that they collide, in an order that a sorting engine may get wrong.
const NAMES: [&str; 6] = ["ada", "Ada", "ädä", "z'", "日本", ""];
const RULES: [&str; 4] = ["", "rules: []\n", "line\nbreak\ttab é 🦀", "rules: [] # another"];

// === impl StepGenerator ===

impl StepGenerator {
    pub(super) fn create_user(&self) -> StoreStep {
        let new = NewUser {
            id: self.draw.env.user_id(),
            name: self.user_name(),
            role: self.role(),
            password: self.draw.maybe_text().map(Secret::new),
        };
        StoreStep::CreateUser(self.context(), new)
    }

    pub(super) fn update_user(&self) -> StoreStep {
        let patch = UserPatch {
            name: self.draw.percent(40).then(|| self.user_name()),
            role: self.draw.percent(50).then(|| self.role()),
            password: self.draw.percent(50).then(|| Secret::new(self.draw.text())),
        };
        let keep = if self.draw.percent(30) { self.draw.recent(&self.known.keys) } else { None };
        StoreStep::UpdateUser(self.context(), self.user_ref(), patch, keep)
    }

    pub(super) fn remove_user(&self) -> StoreStep {
        StoreStep::RemoveUser(self.context(), self.user_ref())
    }

    /// Usually by someone who has seen the newest version.
    pub(super) fn set_rules(&self) -> StoreStep {
        let text = self.draw.one_of(&RULES).unwrap_or_default().to_owned();
        let expected = match self.draw.below(100) {
            0..50 => Some(self.known.rules),
            50..70 => Some(self.known.rules - 1),
            70..75 => Some(self.known.rules + 1),
            _ => None,
        };
        StoreStep::SetAccessRules(self.context(), text, expected)
    }

    pub(super) fn read_people(&self) -> StoreStep {
        let key = self.draw.recent(&self.known.keys).filter(|_| self.draw.percent(95));
        match self.draw.below(3) {
            0 => StoreStep::User(self.tenant(), self.user_ref()),
            1 => StoreStep::KeyCredential(key.unwrap_or_else(|| self.draw.env.key_id())),
            _ => StoreStep::AccessRules(self.tenant()),
        }
    }

    pub(super) fn user(&self) -> UserId {
        let unknown = self.draw.env.user_id();
        if self.draw.percent(4) { unknown } else { self.draw.recent(&self.known.users).unwrap_or(unknown) }
    }

    pub(super) fn scopes(&self) -> Option<Vec<KeyScope>> {
        let some = || KeyScope::ALL.into_iter().filter(|_| self.draw.percent(40)).collect();
        self.draw.percent(50).then(some)
    }

    fn user_ref(&self) -> UserRef {
        if self.draw.percent(30) { UserRef::Name(self.user_name()) } else { UserRef::Id(self.user()) }
    }

    fn user_name(&self) -> String {
        self.draw.one_of(&NAMES).unwrap_or_default().to_owned()
    }

    /// Owners are common, so that both the last one and others come up.
    fn role(&self) -> Role {
        let role = self.draw.one_of(&Role::ALL).filter(|_| self.draw.percent(70));
        role.unwrap_or(Role::Owner)
    }
}

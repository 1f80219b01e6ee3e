//! Who acts in person. Pure.
//!
//! A run that an agent's owner starts in person may work outside the walls of their device, with everything they may do
//! there. So only a credential that can do everything its person may creates such a run, and only one says something to it
//! or to those that come after it in its conversation.

use attache_protocol::wire::key::{KeyScope, Role};

/// What a credential can do, beside what its person may.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PersonalCredential<'a> {
    /// What it can do now: at most what its person, and whatever it was opened with, may.
    pub(crate) role: Role,
    pub(crate) scopes: Option<&'a [KeyScope]>,
    /// Somebody else had a part in making it, and may hold a copy.
    pub(crate) is_issued: bool,
    /// The current role of its person. `None` if it belongs to nobody.
    pub(crate) person: Option<Role>,
}

/// How a credential was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CredentialForm {
    /// A key, a client certificate or a session.
    Own,
    /// A token, which is made to be handed to something else, or a trace that a credential left.
    Derived,
}

// === impl PersonalCredential ===

impl PersonalCredential<'_> {
    /// Whether it is the person's own and can do everything they may.
    pub(crate) fn is_whole(self) -> bool {
        let Self { role, scopes, is_issued, person } = self;
        !is_issued && scopes.is_none() && person.is_some_and(|person| role >= person)
    }

    /// Whether a caller with this credential acts in person.
    pub(crate) fn is_in_person(self, form: CredentialForm) -> bool {
        form == CredentialForm::Own && self.is_whole()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every role of a credential beside every role of a person, in every form.
    #[test]
    fn only_a_credential_with_everything_its_person_may_acts_in_person() {
        const ROLES: [Role; 4] = [Role::Viewer, Role::Operator, Role::Admin, Role::Owner];
        let every = [KeyScope::Read, KeyScope::Call, KeyScope::Decide, KeyScope::Manage, KeyScope::Admin];
        let some = [KeyScope::Call, KeyScope::Read];
        let mut in_person = Vec::new();
        for person in [None, Some(Role::Viewer), Some(Role::Operator), Some(Role::Admin), Some(Role::Owner)] {
            for role in ROLES {
                for scopes in [None, Some(&every[..]), Some(&some[..]), Some(&[][..])] {
                    for is_issued in [false, true] {
                        let credential = PersonalCredential { role, scopes, is_issued, person };
                        let here = credential.is_in_person(CredentialForm::Own);
                        assert!(!credential.is_in_person(CredentialForm::Derived), "{credential:?}");
                        assert_eq!(credential.is_whole(), here, "{credential:?}");
                        if here {
                            assert_eq!((scopes, is_issued), (None, false), "{credential:?}");
                            in_person.push((person, role));
                        }
                    }
                }
            }
        }
        // A credential never has a higher role than its person. If it had, it could do what they may.
        let expected: Vec<_> = ROLES
            .into_iter()
            .flat_map(|person| {
                ROLES.into_iter().filter(move |role| *role >= person).map(move |role| (Some(person), role))
            })
            .collect();
        assert_eq!(in_person, expected);
    }
}

//! Steps that only read.

use attache_protocol::{RunId, secret::SecretHash};

use super::Generator;
use crate::conformance::step::{List, Step};

// === impl Generator ===

impl Generator {
    pub(super) fn read_one(&self) -> Step {
        let tenant = self.tenant();
        match self.draw.below(7) {
            0 => Step::Account(tenant, self.agent_ref()),
            1 => Step::Runtime(tenant, self.runtime()),
            2 => Step::Credential(self.any_secret()),
            3 => Step::Run(tenant, self.run()),
            4 => Step::Live(tenant),
            5 => Step::Conversation(tenant, self.conversation()),
            _ => Step::Artifact(tenant, self.artifact()),
        }
    }

    pub(super) fn read_events(&self) -> Step {
        let run: RunId = self.run();
        Step::RunEvents { tenant: self.tenant(), run, after: self.after(), limit: self.limit() }
    }

    pub(super) fn read_log(&self) -> Step {
        Step::Log { tenant: self.tenant(), after: self.after(), limit: self.limit() }
    }

    pub(super) fn list(&self) -> Step {
        Step::List { tenant: self.tenant(), list: self.any_list(), limit: self.limit() }
    }

    pub(super) fn list_tasks(&self) -> Step {
        Step::List { tenant: self.tenant(), list: List::Tasks(self.task_filter()), limit: self.limit() }
    }

    /// Of lists that exist: what an empty list says to a wrong cursor is nobody's business.
    pub(super) fn wrong_cursor(&self) -> Step {
        let list = match self.any_list() {
            List::Messages(_) | List::Artifacts(_) => List::Accounts,
            list => list,
        };
        Step::WrongCursor { tenant: self.tenant, list }
    }

    fn any_secret(&self) -> SecretHash {
        self.draw.recent(&self.known.secrets).unwrap_or_else(|| self.draw.secret())
    }

    pub(super) fn after(&self) -> i64 {
        let after = if self.draw.percent(40) { 0 } else { self.draw.below(30) };
        i64::try_from(after).unwrap_or(0)
    }

    pub(super) fn limit(&self) -> usize {
        self.draw.one_of(&[1, 2, 3, 5, 500]).unwrap_or(1)
    }
}

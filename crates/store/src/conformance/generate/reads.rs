//! Steps that only read.

use attache_protocol::{RunId, secret::SecretHash};

use super::StepGenerator;
use crate::conformance::step::{ListToRead, StoreStep};

// === impl StepGenerator ===

impl StepGenerator {
    pub(super) fn read_one(&self) -> StoreStep {
        let tenant = self.tenant();
        match self.draw.below(7) {
            0 => StoreStep::Account(tenant, self.agent_ref()),
            1 => StoreStep::Runtime(tenant, self.runtime()),
            2 => StoreStep::Credential(self.any_secret()),
            3 => StoreStep::Run(tenant, self.run()),
            4 => StoreStep::Live(tenant),
            5 => StoreStep::Conversation(tenant, self.conversation()),
            _ => StoreStep::Artifact(tenant, self.artifact()),
        }
    }

    pub(super) fn read_events(&self) -> StoreStep {
        let run: RunId = self.run();
        StoreStep::RunEvents { tenant: self.tenant(), run, after: self.after(), limit: self.limit() }
    }

    pub(super) fn read_log(&self) -> StoreStep {
        StoreStep::Log { tenant: self.tenant(), after: self.after(), limit: self.limit() }
    }

    pub(super) fn list(&self) -> StoreStep {
        StoreStep::List { tenant: self.tenant(), list: self.any_list(), limit: self.limit() }
    }

    pub(super) fn list_tasks(&self) -> StoreStep {
        StoreStep::List { tenant: self.tenant(), list: ListToRead::Tasks(self.task_filter()), limit: self.limit() }
    }

    /// Only of lists that exist: the answer of an empty list to a wrong cursor is unspecified.
    pub(super) fn wrong_cursor(&self) -> StoreStep {
        let list = match self.any_list() {
            ListToRead::Messages(_) | ListToRead::Artifacts(_) => ListToRead::Accounts,
            list => list,
        };
        StoreStep::WrongCursor { tenant: self.tenant, list }
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

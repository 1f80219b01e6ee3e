//! From a row to the driver that speaks with its host.

use std::sync::Arc;

use super::{Kind, Preset};
use crate::{
    Driver, Setup,
    driver::{Acp, Claude, Codex, Exec},
};

/// The driver of a host, as it was set up from its row.
pub fn driver(preset: &Preset, setup: Setup) -> Arc<dyn Driver> {
    match preset.driver {
        Kind::Claude => Arc::new(Claude::new(setup)),
        Kind::Codex => Arc::new(Codex::new(setup)),
        Kind::Acp => Arc::new(Acp::new(setup)),
        Kind::Exec => {
            let exec = Exec::new(setup, preset.output.clone());
            Arc::new(exec.with_limits(preset.enforces.clone()).with_budget(preset.budget.clone()))
        }
    }
}

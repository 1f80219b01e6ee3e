//! From a row to the driver that speaks with its host.

use std::sync::Arc;

use super::{DriverKind, Preset};
use crate::{
    Driver, HostSetup,
    driver::{AcpDriver, ClaudeDriver, CodexDriver, ExecDriver},
};

/// The driver of a host, as it was set up from its row.
pub fn driver(preset: &Preset, setup: HostSetup) -> Arc<dyn Driver> {
    match preset.driver {
        DriverKind::Claude => Arc::new(ClaudeDriver::new(setup)),
        DriverKind::Codex => Arc::new(CodexDriver::new(setup)),
        DriverKind::Acp => Arc::new(AcpDriver::new(setup)),
        DriverKind::Exec => {
            let exec = ExecDriver::new(setup, preset.output.clone());
            Arc::new(exec.with_limits(preset.enforces.clone()).with_budget(preset.budget.clone()))
        }
    }
}

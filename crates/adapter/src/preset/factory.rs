//! Creates the driver for a preset.

use std::sync::Arc;

use super::{DriverKind, Preset};
use crate::{
    Driver, HostSetup,
    driver::{AcpDriver, ClaudeDriver, CodexDriver, ExecDriver},
};

/// The driver for a host with this preset and setup.
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

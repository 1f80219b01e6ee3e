//! Sets up logging to standard error.

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::{
    env::{config::Config, executor::ProcessKind},
    ui::output::TerminalOutput,
};

/// `RUST_LOG` sets the level. By default, servers log normal operation and client commands log only problems.
pub(crate) fn start(config: &Config, output: &TerminalOutput, weight: ProcessKind) {
    let default = match weight {
        // On a terminal, log what happens but not every request of every device.
        ProcessKind::Server if output.talk_terminal => "info,rmcp=warn,attache::requests=warn",
        // The MCP library logs every single request; too noisy for people.
        ProcessKind::Server => "info,rmcp=warn",
        ProcessKind::Child | ProcessKind::Bench | ProcessKind::Client => "warn",
    };
    let filter = config.log.as_deref().and_then(|text| EnvFilter::try_new(text).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(default));
    let registry = tracing_subscriber::registry().with(filter);
    let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(output.talk_in_color());
    // A second start in the same process, as in tests, keeps the first subscriber.
    let _ = if output.talk_terminal {
        registry.with(layer.with_target(false)).try_init()
    } else {
        registry.with(layer.compact()).try_init()
    };
}

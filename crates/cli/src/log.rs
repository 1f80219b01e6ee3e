//! Where the log goes: standard error, in a form for whoever reads it.

use tracing_subscriber::{EnvFilter, fmt, layer::SubscriberExt as _, util::SubscriberInitExt as _};

use crate::{Config, commands::ProcessKind, output::TerminalOutput};

/// `RUST_LOG` decides; otherwise servers tell what happens and client commands only what goes wrong.
pub(crate) fn start(config: &Config, output: &TerminalOutput, weight: ProcessKind) {
    let default = match weight {
        // A person at a terminal wants to know what happens, not every request of every device.
        ProcessKind::Server if output.talk_terminal => "info,rmcp=warn,attache::requests=warn",
        // What the library for MCP says of every single request is not for people.
        ProcessKind::Server => "info,rmcp=warn",
        ProcessKind::Child | ProcessKind::Bench | ProcessKind::Client => "warn",
    };
    let filter = config.log.as_deref().and_then(|text| EnvFilter::try_new(text).ok());
    let filter = filter.unwrap_or_else(|| EnvFilter::new(default));
    let registry = tracing_subscriber::registry().with(filter);
    let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(output.talk_in_color());
    // A second start in one process, as tests do it, keeps the first.
    let _ = if output.talk_terminal {
        registry.with(layer.with_target(false)).try_init()
    } else {
        registry.with(layer.compact()).try_init()
    };
}

//! How a server process behaves towards its parent: it exits with it, and reports when it is ready.

use std::{path::Path, time::Duration};

use serde::Serialize;
use tokio::io::AsyncReadExt as _;

use crate::{
    env::{config, home},
    ui::failure::CommandFailure,
};

/// Resolves when standard input is closed, which happens when the parent process exits for any reason.
pub(crate) async fn parent_gone() {
    let mut input = tokio::io::stdin();
    let mut sink = [0; 256];
    loop {
        match input.read(&mut sink).await {
            Ok(0) | Err(_) => return,
            // A parent that writes is alive.
            Ok(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Writes the ready file, which tells scripts that the server is listening and where.
pub(crate) fn write_ready<T: Serialize>(file: Option<&Path>, ready: &T) -> Result<(), CommandFailure> {
    let Some(file) = file else { return Ok(()) };
    let mut text = serde_json::to_vec(ready).expect("our own types serialise to JSON");
    text.push(b'\n');
    home::write_private(file, &text).map_err(|error| CommandFailure::file("write the ready file", file, &error))
}

/// Tells the service manager that the server is listening (systemd's `Type=notify`).
pub(crate) fn notify_ready() {
    let Some(socket) = config::notify_socket() else { return };
    if let Err(error) = attache_os::service_manager::notify_ready(&socket) {
        tracing::warn!(%error, "can't tell the service manager that the server is ready");
    }
}

//! Reports when a hub can't write to its storage: runs stall and event streams stay silent.

use std::time::Duration;

use attache_client::HubClient;
use attache_protocol::wire::system::Storage;

use crate::{
    text::ask as text,
    ui::output::{TerminalOutput, TextStyle},
};

/// Interval between checks of the hub's storage.
const CHECK_INTERVAL: Duration = Duration::from_secs(3);

/// Prints a message when the hub's storage stops working and when it works again. Never returns.
pub(crate) async fn watch(output: TerminalOutput, hub: &HubClient) {
    let mut before = None;
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let Ok(health) = hub.health().await else { continue };
        let problem = health.storage.and_then(Storage::problem);
        match (before, problem) {
            (before, Some(problem)) if before != Some(problem) => {
                output.say_styled(TextStyle::Bad, text::storage_broken(problem));
            }
            (Some(_), None) => output.say_styled(TextStyle::Good, text::storage_works()),
            _ => {}
        }
        before = problem;
    }
}

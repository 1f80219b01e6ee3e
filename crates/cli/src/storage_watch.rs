//! Why everything stands still: a hub that can store nothing lets no run go on, and its streams stay silent.

use std::time::Duration;

use attache_client::HubClient;
use attache_protocol::wire::system::Storage;

use crate::{CommandContext, output::TextStyle};

/// How often a hub is asked while somebody waits for it.
const CHECK_INTERVAL: Duration = Duration::from_secs(3);

/// Says it when the hub can store nothing, and when it can again. Never ends.
pub(crate) async fn watch(context: &CommandContext, hub: &HubClient) {
    let mut before = None;
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let Ok(health) = hub.health().await else { continue };
        let problem = health.storage.and_then(Storage::problem);
        match (before, problem) {
            (before, Some(problem)) if before != Some(problem) => {
                context.output.say_styled(
                    TextStyle::Bad,
                    format_args!(
                        "The hub can store nothing now: {problem}. The run goes on by itself when that is over."
                    ),
                );
            }
            (Some(_), None) => context.output.say_styled(TextStyle::Good, "The hub can store again."),
            _ => {}
        }
        before = problem;
    }
}

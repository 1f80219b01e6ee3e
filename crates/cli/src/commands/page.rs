//! Which part of a list a command shows.

use attache_client::Page;

use crate::Context;

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PageArgs {
    /// How many to show at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) limit: u32,
    /// Go on where an earlier page ended
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}

// === impl PageArgs ===

impl PageArgs {
    pub(crate) fn page(&self) -> Page {
        Page { limit: Some(self.limit), cursor: self.cursor.clone() }
    }
}

impl Default for PageArgs {
    fn default() -> Self {
        Self { limit: 50, cursor: None }
    }
}

/// Tells a person how to see the rest.
pub(crate) fn more(context: &Context, next_cursor: Option<&str>) {
    if let Some(cursor) = next_cursor {
        context.output.say(format_args!("There are more: add --cursor {cursor}"));
    }
}

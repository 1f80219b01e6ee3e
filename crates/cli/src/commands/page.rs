//! Paged lists: the page arguments, and the table that every list command prints.

use attache_client::{HubClient, PageQuery};
use serde::Serialize;

use crate::{
    env::context::CommandContext,
    text::terms,
    ui::{
        failure::CommandFailure,
        names::DisplayNames,
        output::{TextCell, TextTable},
    },
};

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PageArgs {
    /// Maximum number of items
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) limit: u32,
    /// Continue from an earlier page
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}

/// A column's heading and the cell it shows for an item.
pub(crate) type Column<'a, T> = (&'static str, &'a dyn Fn(&T) -> TextCell);

/// One page of a list, as the hub returned it.
pub(crate) struct Listing<'a, L, T> {
    /// The complete response, for `--json`.
    pub(crate) answer: &'a L,
    pub(crate) items: &'a [T],
    pub(crate) next_cursor: Option<&'a str>,
    /// Printed if the list is empty, unless it is an empty string.
    pub(crate) when_empty: &'static str,
}

// === impl PageArgs ===

impl PageArgs {
    pub(crate) fn page(&self) -> PageQuery {
        PageQuery { limit: Some(self.limit), cursor: self.cursor.clone() }
    }
}

impl Default for PageArgs {
    fn default() -> Self {
        Self { limit: 50, cursor: None }
    }
}

// === impl Listing ===

impl<L: Serialize, T> Listing<'_, L, T> {
    /// Prints the response as JSON, or one row per item and a hint for the next page.
    pub(crate) fn print(&self, context: &CommandContext, columns: &[Column<'_, T>]) -> Result<(), CommandFailure> {
        let output = &context.output;
        if output.is_json() {
            return output.json(self.answer);
        }
        if self.items.is_empty() && !self.when_empty.is_empty() {
            output.say(self.when_empty);
        } else {
            let headings: Vec<_> = columns.iter().map(|(heading, _)| *heading).collect();
            let mut table = TextTable::new(&headings);
            for item in self.items {
                table.row(columns.iter().map(|(_, cell)| cell(item)));
            }
            output.table(&table)?;
        }
        more(context, self.next_cursor);
        Ok(())
    }
}

/// Looks up display names for a table. JSON output uses ids and needs none.
pub(crate) async fn names<T: ToString>(
    context: &CommandContext,
    hub: &HubClient,
    ids: impl IntoIterator<Item = T>,
) -> DisplayNames {
    if context.output.is_json() { DisplayNames::default() } else { DisplayNames::of(hub, ids).await }
}

/// Prints how to get the next page.
pub(crate) fn more(context: &CommandContext, next_cursor: Option<&str>) {
    if let Some(cursor) = next_cursor {
        context.output.say(terms::more_results(cursor));
    }
}

//! Lists: which part of one a command shows, and one table of columns for all of them.

use attache_client::{HubClient, PageQuery};
use serde::Serialize;

use crate::{
    CommandContext, CommandFailure,
    names::DisplayNames,
    output::{TextCell, TextTable},
};

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct PageArgs {
    /// How many to show at most
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) limit: u32,
    /// Go on where an earlier page ended
    #[arg(long, value_name = "CURSOR")]
    pub(crate) cursor: Option<String>,
}

/// What a column is called, and what it shows of an item.
pub(crate) type Column<'a, T> = (&'static str, &'a dyn Fn(&T) -> TextCell);

/// One page of a list as the hub answered it.
pub(crate) struct Listing<'a, L, T> {
    /// The whole answer, for `--json`.
    pub(crate) answer: &'a L,
    pub(crate) items: &'a [T],
    pub(crate) next_cursor: Option<&'a str>,
    /// What to say when there is nothing; an empty text says nothing.
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
    /// Prints it: the answer as JSON, or a row for each item and how to see the rest.
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

/// The names that a table needs; JSON has ids.
pub(crate) async fn names<T: ToString>(
    context: &CommandContext,
    hub: &HubClient,
    ids: impl IntoIterator<Item = T>,
) -> DisplayNames {
    if context.output.is_json() { DisplayNames::default() } else { DisplayNames::of(hub, ids).await }
}

/// Tells a person how to see the rest.
pub(crate) fn more(context: &CommandContext, next_cursor: Option<&str>) {
    if let Some(cursor) = next_cursor {
        context.output.say(format_args!("There are more: add --cursor {cursor}"));
    }
}

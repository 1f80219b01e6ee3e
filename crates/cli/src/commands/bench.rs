//! `attache bench`: measure this build on this machine.

pub(crate) use crate::bench::Args;
use crate::{CommandContext, CommandFailure, bench, output::OutputFormat};

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let shape = match context.output.format {
        OutputFormat::Json => bench::FiguresFormat::Json,
        OutputFormat::Text => bench::FiguresFormat::Table,
    };
    bench::run(args, shape).await.map_err(|error| CommandFailure::failed(error.to_string()))
}

//! `attache bench`: measure this build on this machine.

pub(crate) use attache_bench::Args;
use attache_bench::FiguresFormat;

use crate::{
    env::context::CommandContext,
    ui::{failure::CommandFailure, output::OutputFormat},
};

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let shape = match context.output.format {
        OutputFormat::Json => FiguresFormat::Json,
        OutputFormat::Text => FiguresFormat::Table,
    };
    attache_bench::run(args, shape).await.map_err(|error| CommandFailure::failed(error.to_string()))
}

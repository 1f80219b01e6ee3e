//! `attache bench`: measure this build on this machine.

pub(crate) use crate::bench::Args;
use crate::{Context, Failure, bench, output::Format};

pub(super) async fn run(context: Context, args: Args) -> Result<(), Failure> {
    let shape = match context.output.format {
        Format::Json => bench::Shape::Json,
        Format::Text => bench::Shape::Table,
    };
    bench::run(args, shape).await.map_err(|error| Failure::failed(error.to_string()))
}

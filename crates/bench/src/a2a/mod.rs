//! `attache bench a2a`: complete A2A messages per second (sent, made durable, executed by an agent in the hub's
//! process, answered with the finished task), compared with a server that answers the same JSON-RPC and does nothing
//! else. Also the time to a stream's first event.

mod bare;
mod hub;

use std::time::Duration;

use attache_protocol::Json;
use serde::Serialize;

use super::{
    BenchResult, FiguresFormat, RunsArgs,
    load::LoadMeasurement,
    probe,
    report::{median, millis},
    world::BenchFolder,
};

#[derive(Debug, Clone, Copy)]
struct A2aRound {
    fsyncs_per_second: f64,
    bare: LoadMeasurement,
    sent: LoadMeasurement,
    first_event: LoadMeasurement,
}

#[derive(Debug, Serialize)]
struct A2aFigures {
    connections: usize,
    seconds: u64,
    fsyncs_per_second: f64,
    bare_per_second: f64,
    messages_per_second: f64,
    of_bare: f64,
    p50_ms: f64,
    p99_ms: f64,
    first_event_p50_ms: f64,
    first_event_p99_ms: f64,
}

pub(super) async fn run(args: RunsArgs, shape: FiguresFormat) -> BenchResult<()> {
    let scratch = BenchFolder::make(args.dir.as_deref())?;
    let time = Duration::from_secs(args.seconds);
    let mut rounds = Vec::with_capacity(args.rounds);
    for round in 0..args.rounds {
        let fsyncs_per_second = probe::fsyncs_per_second(&scratch.folder("probe", round)?)?;
        let bare = bare::drive(args.callers, time).await?;
        let (sent, first_event) = hub::drive(&scratch.folder("hub", round)?, args.callers, time).await?;
        rounds.push(A2aRound { fsyncs_per_second, bare, sent, first_event });
        eprintln!("round {} of {} done", round + 1, args.rounds);
    }
    A2aFigures::of(&args, &rounds).print(shape);
    Ok(())
}

// === impl A2aFigures ===

impl A2aFigures {
    fn of(args: &RunsArgs, rounds: &[A2aRound]) -> Self {
        let middle = |pick: fn(&A2aRound) -> f64| median(rounds.iter().map(pick));
        Self {
            connections: args.callers,
            seconds: args.seconds,
            fsyncs_per_second: middle(|round| round.fsyncs_per_second),
            bare_per_second: middle(|round| round.bare.runs_per_second),
            messages_per_second: middle(|round| round.sent.runs_per_second),
            of_bare: middle(|round| round.sent.runs_per_second / round.bare.runs_per_second),
            p50_ms: middle(|round| millis(round.sent.p50)),
            p99_ms: middle(|round| millis(round.sent.p99)),
            first_event_p50_ms: middle(|round| millis(round.first_event.p50)),
            first_event_p99_ms: middle(|round| millis(round.first_event.p99)),
        }
    }

    #[allow(clippy::print_stdout, reason = "the report is the command's output")]
    fn print(&self, shape: FiguresFormat) {
        if shape == FiguresFormat::Json {
            return println!("{}", Json::of(self).get());
        }
        println!("{} connections, {} s per level and round, medians", self.connections, self.seconds);
        println!("{:<44} {:>12.0}", "disk flushes per second", self.fsyncs_per_second);
        println!("{:<44} {:>12.0}", "bare JSON-RPC server, answers per second", self.bare_per_second);
        println!("{:<44} {:>12.0}", "SendMessage, durable and done, per second", self.messages_per_second);
        println!("{:<44} {:>12.3}", "ratio to the bare server", self.of_bare);
        println!("{:<44} {:>9.2} ms, p99 {:.2} ms", "time to answer, p50", self.p50_ms, self.p99_ms);
        println!(
            "{:<44} {:>9.2} ms, p99 {:.2} ms",
            "time to a stream's first event, p50", self.first_event_p50_ms, self.first_event_p99_ms
        );
    }
}

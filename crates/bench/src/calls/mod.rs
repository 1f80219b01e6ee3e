//! `attache bench calls`: complete calls (call, execution by an agent on a channel, result) per second, compared with a
//! server that answers the same requests and does nothing else.

mod bare;
mod hub;
mod worker;

use std::time::Duration;

use attache_protocol::Json;
use serde::Serialize;

use self::hub::CallChecks;
use super::{
    BenchResult, FiguresFormat, RunsArgs,
    load::LoadMeasurement,
    report::{median, millis},
    world::BenchFolder,
};

/// One round of all levels.
#[derive(Debug, Clone, Copy)]
struct CallsRound {
    bare: LoadMeasurement,
    plain: LoadMeasurement,
    checked: LoadMeasurement,
}

#[derive(Debug, Serialize)]
struct CallsFigures {
    callers: usize,
    seconds: u64,
    bare: CallsLevel,
    plain: CallsLevel,
    checked: CallsLevel,
    /// The fraction of a call that the checks of identity, rules, quotas and limits take.
    checks_cost: f64,
}

#[derive(Debug, Serialize)]
struct CallsLevel {
    calls_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    of_bare: f64,
}

pub(super) async fn run(args: RunsArgs, shape: FiguresFormat) -> BenchResult<()> {
    let scratch = BenchFolder::make(args.dir.as_deref())?;
    let time = Duration::from_secs(args.seconds);
    let mut rounds = Vec::with_capacity(args.rounds);
    for round in 0..args.rounds {
        let bare = bare::drive(args.callers, time).await?;
        // The first one finds a colder machine, so the order alternates.
        let order =
            if round % 2 == 0 { [CallChecks::None, CallChecks::All] } else { [CallChecks::All, CallChecks::None] };
        let mut measured = Vec::with_capacity(order.len());
        for checks in order {
            let folder = scratch.folder(checks.name(), round)?;
            measured.push((checks, hub::drive(&folder, args.callers, time, checks).await?));
        }
        let of = |level| measured.iter().find(|(checks, _)| *checks == level).map(|(_, measured)| *measured);
        let (Some(plain), Some(checked)) = (of(CallChecks::None), of(CallChecks::All)) else {
            return Err("a level was not measured".into());
        };
        rounds.push(CallsRound { bare, plain, checked });
        eprintln!("round {} of {} done", round + 1, args.rounds);
    }
    CallsFigures::of(&args, &rounds).print(shape);
    Ok(())
}

// === impl CallsFigures ===

impl CallsFigures {
    fn of(args: &RunsArgs, rounds: &[CallsRound]) -> Self {
        let level = |pick: fn(&CallsRound) -> LoadMeasurement| CallsLevel {
            calls_per_second: median(rounds.iter().map(|round| pick(round).runs_per_second)),
            p50_ms: median(rounds.iter().map(|round| millis(pick(round).p50))),
            p99_ms: median(rounds.iter().map(|round| millis(pick(round).p99))),
            of_bare: median(rounds.iter().map(|round| pick(round).runs_per_second / round.bare.runs_per_second)),
        };
        let cost = |round: &CallsRound| 1.0 - round.checked.runs_per_second / round.plain.runs_per_second;
        Self {
            callers: args.callers,
            seconds: args.seconds,
            bare: level(|round| round.bare),
            plain: level(|round| round.plain),
            checked: level(|round| round.checked),
            checks_cost: median(rounds.iter().map(cost)),
        }
    }

    #[allow(clippy::print_stdout, reason = "the report is the command's output")]
    fn print(&self, shape: FiguresFormat) {
        if shape == FiguresFormat::Json {
            return println!("{}", Json::of(self).get());
        }
        println!("{} callers, {} s per level and round, medians", self.callers, self.seconds);
        println!("{:<34} {:>12} {:>10} {:>10} {:>9}", "", "calls/s", "p50 ms", "p99 ms", "of bare");
        let levels = [
            ("bare server (two requests)", &self.bare),
            ("owner key, no rules", &self.plain),
            ("rules, quotas, scopes, rate limits", &self.checked),
        ];
        for (name, CallsLevel { calls_per_second, p50_ms, p99_ms, of_bare }) in levels {
            println!("{name:<34} {calls_per_second:>12.0} {p50_ms:>10.1} {p99_ms:>10.1} {of_bare:>9.2}");
        }
        println!("checks take {:.1} % of a call", self.checks_cost * 100.0);
    }
}

//! `attache usage`: shows usage by day, agent or user.

use std::{collections::BTreeMap, time::Duration};

use attache_protocol::{
    rules::quota::{micro_usd, usd},
    wire::usage::UsageRow,
};
use clap::ValueEnum;

use crate::{
    env::context::{CommandContext, HubArgs},
    text::{people, terms},
    ui::{
        failure::CommandFailure,
        output::{TextCell, TextTable},
    },
};

/// Show usage: calls, tokens and cost
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  attache usage                    the last 30 days, by day, user and agent
  attache usage --days 7 --by agent
  attache usage --by user --json")]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    /// Number of days, including today
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=400))]
    days: u32,
    /// Group by day, agent or user
    #[arg(long, value_enum, value_name = "agent|user|day")]
    by: Option<UsageGroupArg>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum UsageGroupArg {
    Agent,
    User,
    Day,
}

/// The sum of several usage rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
struct UsageSum {
    calls: u64,
    failed: u64,
    tokens: u64,
    #[serde(rename = "cost_usd", serialize_with = "as_dollars")]
    micro_usd: u64,
    /// Number of calls whose usage was reported, estimated or is unknown.
    reported: u64,
    estimated: u64,
    unknown: u64,
    duration_ms: u64,
}

fn as_dollars<S: serde::Serializer>(micro_usd: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&attache_protocol::Json::from_text(usd(*micro_usd)).ok(), serializer)
}

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    let hub = context.hub(&args.hub)?;
    let output = &context.output;
    let report = hub.usage(Some(&first_day(&context, args.days)), None).await?;
    let Some(by) = args.by else {
        if output.is_json() {
            return output.json(&report);
        }
        let rows = report.rows.iter().rev().map(|row| {
            let keys =
                vec![row.day.clone(), row.user_name.clone().unwrap_or_else(|| "–".to_owned()), row.agent_name.clone()];
            (keys, UsageSum::default().plus(row))
        });
        return show(&context, &[people::day(), people::user(), terms::agent()], rows);
    };
    let mut sums: BTreeMap<String, UsageSum> = BTreeMap::new();
    for row in &report.rows {
        let key = match by {
            UsageGroupArg::Agent => row.agent_name.clone(),
            UsageGroupArg::User => row.user_name.clone().unwrap_or_else(|| "–".to_owned()),
            UsageGroupArg::Day => row.day.clone(),
        };
        let sum = sums.entry(key).or_default();
        *sum = sum.plus(row);
    }
    if output.is_json() {
        return output.json(&sums);
    }
    let title = match by {
        UsageGroupArg::Agent => terms::agent(),
        UsageGroupArg::User => people::user(),
        UsageGroupArg::Day => people::day(),
    };
    show(&context, &[title], sums.into_iter().map(|(key, sum)| (vec![key], sum)))
}

fn show(
    context: &CommandContext,
    keys: &[&'static str],
    rows: impl Iterator<Item = (Vec<String>, UsageSum)>,
) -> Result<(), CommandFailure> {
    let titles: Vec<&str> = keys
        .iter()
        .copied()
        .chain([people::calls(), people::failed(), people::tokens(), people::cost(), people::source()])
        .collect();
    let mut table = TextTable::new(&titles);
    let mut total = UsageSum::default();
    for (keys, sum) in rows {
        let cost = if sum.unknown == sum.calls && sum.micro_usd == 0 {
            "–".to_owned()
        } else {
            format!("${}", usd(sum.micro_usd))
        };
        let cells = keys.into_iter().map(TextCell::strong);
        let numbers = [sum.calls.to_string(), sum.failed.to_string(), sum.tokens.to_string(), cost, sum.source()];
        table.row(cells.chain(numbers.into_iter().map(TextCell::plain)));
        total = total.and(sum);
    }
    context.output.table(&table)?;
    let mut said = people::usage_total(total.calls, total.tokens, usd(total.micro_usd));
    if total.unknown > 0 {
        said += &people::usage_unknown(total.unknown);
    }
    context.output.say(said);
    Ok(())
}

fn first_day(context: &CommandContext, days: u32) -> String {
    let first = context.now().minus(Duration::from_secs(86_400 * u64::from(days - 1)));
    first.to_string().chars().take(10).collect()
}

// === impl UsageSum ===

impl UsageSum {
    fn plus(self, row: &UsageRow) -> Self {
        self.and(Self {
            calls: row.calls,
            failed: row.failed,
            tokens: row.tokens,
            micro_usd: micro_usd(row.cost_usd.get()).unwrap_or(0),
            reported: row.reported,
            estimated: row.estimated,
            unknown: row.unknown,
            duration_ms: row.duration_ms,
        })
    }

    /// The source of the figures: one word if all calls agree.
    fn source(self) -> String {
        let parts = [
            (self.reported, people::reported()),
            (self.estimated, people::estimated()),
            (self.unknown, people::unknown()),
        ];
        let parts: Vec<_> = parts.into_iter().filter(|(calls, _)| *calls > 0).collect();
        match parts.as_slice() {
            [] => "–".to_owned(),
            [(_, word)] => (*word).to_owned(),
            several => several.iter().map(|(calls, word)| format!("{calls} {word}")).collect::<Vec<_>>().join(", "),
        }
    }

    const fn and(self, other: Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            failed: self.failed.saturating_add(other.failed),
            tokens: self.tokens.saturating_add(other.tokens),
            micro_usd: self.micro_usd.saturating_add(other.micro_usd),
            reported: self.reported.saturating_add(other.reported),
            estimated: self.estimated.saturating_add(other.estimated),
            unknown: self.unknown.saturating_add(other.unknown),
            duration_ms: self.duration_ms.saturating_add(other.duration_ms),
        }
    }
}

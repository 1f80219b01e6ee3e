//! `attache audit`: reads, verifies and exports the tenant's audit log.

use std::{
    io::{self, BufRead as _, Write as _},
    path::{Path, PathBuf},
};

use attache_client::{HubClient, a2a::verify::verify_text};
use attache_protocol::{
    EventKind, Json, Timestamp, digest,
    error::exit,
    log,
    wire::audit::{AuditPage, Checkpoint},
};
use clap::Subcommand;
use serde::Serialize;

use crate::{
    env::context::{CommandContext, HubArgs},
    ui::{
        failure::CommandFailure,
        names::DisplayNames,
        output::{TextCell, TextStyle, TextTable, time},
    },
};

/// Read, verify and export the audit log
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:
  attache audit                          show the newest entries
  attache audit list --after 100
  attache audit verify                   recompute the hash chain of the complete log
  attache audit export > audit.jsonl     one JSON row per line
  attache audit verify --file audit.jsonl
  attache audit verify --against audit.jsonl     check that the hub's log still continues this export
  attache audit checkpoint > today.json          the head of the log, signed by the hub; store it off the hub
  attache audit verify --against today.json",
    args_conflicts_with_subcommands = true
)]
pub(crate) struct Args {
    #[command(flatten)]
    hub: HubArgs,
    #[command(flatten)]
    entries: AuditListArgs,
    #[command(subcommand)]
    command: Option<AuditCommand>,
}

#[derive(Debug, clap::Args)]
struct AuditListArgs {
    /// Start after this row number [default: show the newest rows]
    #[arg(long, value_name = "SEQ")]
    after: Option<i64>,
    /// Maximum number of rows
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: u32,
}

#[derive(Debug, Subcommand)]
enum AuditCommand {
    /// List entries (default)
    List(AuditListArgs),
    /// Recompute the hash chain; exits with 1 if it is broken
    Verify {
        /// Verify an exported file instead of the hub's log
        #[arg(long, value_name = "FILE")]
        file: Option<PathBuf>,
        /// Also check that the hub's log contains the last row of this earlier export or signed checkpoint, to detect a
        /// rewritten log
        #[arg(long, value_name = "FILE", conflicts_with = "file")]
        against: Option<PathBuf>,
    },
    /// Print the complete log, one JSON row per line
    Export,
    /// Print the head of the log, signed by the hub, as JSON
    Checkpoint,
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct AuditVerification {
    ok: bool,
    /// Number of rows checked.
    rows: u64,
    /// How many of them could not be checked, because their data belongs to someone else's private agent.
    withheld: u64,
    /// The first row checked.
    first: i64,
    /// The last valid row.
    head: i64,
    /// The chain's hash at that row, in hex. Store it elsewhere to compare later.
    hash: String,
    /// The first invalid row.
    broken_at: Option<i64>,
    /// Why that row is invalid.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<AuditProblem>,
    /// The first row of a file that starts later than the log. Its hash can't be verified and is trusted.
    start_missing: bool,
}

/// What is wrong with a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum AuditProblem {
    /// A row is missing, added or modified.
    Changed,
    /// Rows were removed before their retention period ended.
    RemovedEarly,
    /// Rows are missing at the start, and no log entry records that retention removed them.
    RemovalUnrecorded,
}

/// The state of the log at the time of an earlier export or checkpoint.
#[derive(Debug)]
struct AuditCheckpoint {
    head: i64,
    hash: String,
    /// The latest time at which that row was the newest.
    at: Timestamp,
}

/// Verifies rows in order.
#[derive(Debug)]
struct ChainVerifier {
    hash: [u8; 32],
    first: i64,
    head: i64,
    rows: u64,
    /// Rows whose data the hub withholds from this reader.
    withheld: u64,
    broken_at: Option<(i64, AuditProblem)>,
    /// The rows that retention recorded as removed.
    removed: Option<i64>,
}

const PAGE_SIZE: u32 = 200;

pub(super) async fn run(context: CommandContext, args: Args) -> Result<(), CommandFailure> {
    match args.command.unwrap_or(AuditCommand::List(args.entries)) {
        AuditCommand::Verify { file: Some(file), .. } => finish(&context, &verify_file(&file)?, Some(&file)),
        AuditCommand::Verify { file: None, against } => {
            let earlier = match against.as_deref().map(read_earlier).transpose()? {
                Some(Err(broken)) => return finish(&context, &broken, against.as_deref()),
                Some(Ok(earlier)) => Some(earlier),
                None => None,
            };
            let verdict = verify(&context.hub(&args.hub)?, earlier.as_ref(), context.now()).await?;
            finish(&context, &verdict, None)
        }
        AuditCommand::Checkpoint => {
            let page = context.hub(&args.hub)?.audit(i64::MAX / 2, Some(1)).await?;
            let checkpoint = page.checkpoint.ok_or_else(|| {
                CommandFailure::failed("this hub doesn't sign checkpoints")
                    .hint("Update the hub, or keep an export instead: attache audit export")
            })?;
            context.output.json(&checkpoint)
        }
        AuditCommand::List(AuditListArgs { after, limit }) => {
            list(&context, &context.hub(&args.hub)?, after, limit).await
        }
        AuditCommand::Export => export(&context.hub(&args.hub)?).await,
    }
}

async fn list(context: &CommandContext, hub: &HubClient, after: Option<i64>, limit: u32) -> Result<(), CommandFailure> {
    let output = &context.output;
    let after = match after {
        Some(after) => after,
        None => (hub.audit(i64::MAX / 2, Some(1)).await?.head - i64::from(limit)).max(0),
    };
    let page = hub.audit(after, Some(limit)).await?;
    if output.is_json() {
        return output.json(&page);
    }
    let names = DisplayNames::of(hub, page.events.iter().map(|row| &row.actor)).await;
    let mut table = TextTable::new(&["SEQ", "WHEN", "WHAT", "WHO", "RUN", "DATA"]);
    for row in &page.events {
        table.row([
            TextCell::dim(row.seq.to_string()),
            TextCell::plain(time::relative(row.at, context.now())),
            TextCell::strong(&row.kind),
            TextCell::plain(names.get(&row.actor)),
            TextCell::plain(row.run.map_or_else(|| "–".to_owned(), |run| run.to_string())),
            TextCell::excerpt(row.data.get()),
        ]);
    }
    output.table(&table)?;
    if page.next < page.head {
        output.say(format_args!("More entries: add --after {}", page.next));
    }
    Ok(())
}

/// Reads the log page by page, from its retention floor to the head it had when reading started.
async fn pages(
    hub: &HubClient,
    mut each: impl FnMut(&AuditPage) -> Result<(), CommandFailure>,
) -> Result<(), CommandFailure> {
    let mut after = 0;
    loop {
        let page = hub.audit(after, Some(PAGE_SIZE)).await?;
        each(&page)?;
        if page.events.is_empty() || page.next >= page.head {
            return Ok(());
        }
        after = page.next;
    }
}

/// Verifies the hub's log. It must contain the row that `earlier` ends with, unless that row's retention period is
/// over.
async fn verify(
    hub: &HubClient,
    earlier: Option<&AuditCheckpoint>,
    now: Timestamp,
) -> Result<AuditVerification, CommandFailure> {
    let mut chain: Option<ChainVerifier> = None;
    let mut kept_for = None;
    pages(hub, |page| {
        let begin = || ChainVerifier::after(page.floor, digest::unhex(&page.floor_hash).unwrap_or(log::GENESIS));
        let chain = chain.get_or_insert_with(begin);
        kept_for = page.kept_for_ms;
        for row in &page.events {
            chain.take(row);
            if let Some(earlier) = earlier.filter(|earlier| earlier.head == row.seq) {
                chain.expect(&earlier.hash);
            }
        }
        Ok(())
    })
    .await?;
    let mut chain = chain.unwrap_or_else(|| ChainVerifier::after(0, log::GENESIS));
    chain.explain_floor();
    if let Some(earlier) = earlier {
        chain.note_last_row(earlier.head);
        let due = kept_for.map(|kept| earlier.at.millis().saturating_add(kept));
        if due.is_none_or(|due| now.millis() < due) {
            chain.forbid_removal(earlier.head);
        }
    }
    Ok(chain.verdict())
}

/// Reads an export or a checkpoint. An export with a broken chain returns its verification right away.
fn read_earlier(path: &Path) -> Result<Result<AuditCheckpoint, AuditVerification>, CommandFailure> {
    let text = std::fs::read_to_string(path).map_err(|error| CommandFailure::file("read", path, &error))?;
    if let Ok(checkpoint) = serde_json::from_str::<Checkpoint>(&text) {
        verify_text(&checkpoint.message(), &checkpoint.signature, &Json::of(&checkpoint.key)).map_err(|_| {
            CommandFailure::new(
                "checkpoint_invalid",
                exit::FAILED,
                format!("{} was modified: its signature is invalid", path.display()),
            )
            .hint("Use the file exactly as the hub printed it.")
        })?;
        let Checkpoint { seq: head, hash, at, .. } = checkpoint;
        return Ok(Ok(AuditCheckpoint { head, hash, at }));
    }
    let verdict = verify_file(path)?;
    if !verdict.ok {
        return Ok(Err(verdict));
    }
    let last = text.lines().next_back().and_then(|line| serde_json::from_str::<log::LogRow>(line).ok());
    let at = last.map_or(Timestamp::default(), |row| row.at);
    Ok(Ok(AuditCheckpoint { head: verdict.head, hash: verdict.hash, at }))
}

/// Verifies an export on its own. Unless it starts with row 1, the hash before its first row has to be trusted.
fn verify_file(path: &Path) -> Result<AuditVerification, CommandFailure> {
    let failed = |error: io::Error| CommandFailure::file("read", path, &error);
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut chain: Option<ChainVerifier> = None;
    let mut start_missing = false;
    for (index, line) in io::BufReader::new(file).lines().enumerate() {
        let line = line.map_err(failed)?;
        let row: log::LogRow = serde_json::from_str(&line).map_err(|error| {
            CommandFailure::failed(format!("line {} of {} isn't a log row: {error}", index + 1, path.display()))
                .hint("Export it again: attache audit export")
        })?;
        match &mut chain {
            Some(chain) => chain.take(&row),
            None if row.seq == 1 => {
                let mut first = ChainVerifier::after(0, log::GENESIS);
                first.take(&row);
                chain = Some(first);
            }
            None => {
                start_missing = true;
                chain = Some(ChainVerifier::after(row.seq, digest::unhex(&row.hash).unwrap_or(log::GENESIS)));
            }
        }
    }
    let chain = chain.ok_or_else(|| {
        CommandFailure::usage(format!("{} is empty; there is nothing to verify", path.display()))
            .hint("Export the log again: attache audit export > FILE")
    })?;
    Ok(AuditVerification { start_missing, ..chain.verdict() })
}

/// Prints what was found in the hub's log or in a file.
fn finish(context: &CommandContext, verdict: &AuditVerification, file: Option<&Path>) -> Result<(), CommandFailure> {
    let output = &context.output;
    if output.is_json() {
        output.json(verdict)?;
    } else if verdict.ok {
        let good = output.paint(TextStyle::Good, "intact");
        let AuditVerification { rows, first, head, hash, .. } = verdict;
        if *rows == 0 {
            output.line(format_args!("{good}: no rows after {head}, hash {hash}"))?;
        } else {
            output.line(format_args!("{good}: {rows} rows from {first} to {head}, hash {hash}"))?;
        }
    }
    if verdict.withheld > 0 && !output.is_json() {
        output.say_styled(
            TextStyle::Busy,
            format_args!(
                "{} rows belong to other people's private agents; only their owners can verify the data.",
                verdict.withheld
            ),
        );
    }
    if verdict.start_missing && !output.is_json() {
        let believed = verdict.first - 1;
        output.say_styled(
            TextStyle::Busy,
            format_args!("The file starts at row {believed}; earlier rows are missing, so that row can't be verified."),
        );
    }
    let seq = verdict.broken_at.unwrap_or(verdict.head);
    let message = match verdict.problem {
        None => return Ok(()),
        Some(AuditProblem::Changed) if let Some(file) = file => {
            let message =
                format!("{} was modified at row {seq}; this says nothing about the hub's log", file.display());
            return Err(CommandFailure::new("chain_broken", exit::FAILED, message).hint(
                "Use a copy of the export that nobody has edited, or export the log again: attache audit export",
            ));
        }
        Some(AuditProblem::Changed) => format!("the log was modified at row {seq}"),
        Some(AuditProblem::RemovedEarly) => {
            format!("rows up to {seq} were removed before their retention period ended")
        }
        Some(AuditProblem::RemovalUnrecorded) => {
            format!("rows up to {seq} are missing, and the log has no record that retention removed them")
        }
    };
    Err(CommandFailure::new("chain_broken", exit::FAILED, message).hint(
        "Copy the data folder as it is now, then compare with an earlier export or checkpoint: attache audit verify --against FILE",
    ))
}

async fn export(hub: &HubClient) -> Result<(), CommandFailure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    pages(hub, |page| {
        for row in &page.events {
            serde_json::to_writer(&mut out, row).map_err(io::Error::from)?;
            out.write_all(b"\n")?;
        }
        Ok(())
    })
    .await?;
    Ok(out.flush()?)
}

// === impl ChainVerifier ===

impl ChainVerifier {
    const fn after(head: i64, hash: [u8; 32]) -> Self {
        Self { hash, first: head + 1, head, rows: 0, withheld: 0, broken_at: None, removed: None }
    }

    fn take(&mut self, row: &log::LogRow) {
        if self.broken_at.is_some() {
            return;
        }
        if row.seq != self.head + 1 || !row.follows(&self.hash) {
            return self.fail(row.seq, AuditProblem::Changed);
        }
        if row.kind == EventKind::LogRemoved
            && let Ok(removal) = row.data.parse::<log::LogRemoval>()
        {
            self.removed = Some(removal.through);
        }
        let Some(hash) = digest::unhex(&row.hash) else { return self.fail(row.seq, AuditProblem::Changed) };
        self.hash = hash;
        self.head = row.seq;
        self.rows += 1;
        self.withheld += u64::from(row.withheld);
    }

    fn fail(&mut self, seq: i64, problem: AuditProblem) {
        self.broken_at.get_or_insert((seq, problem));
    }

    /// The last row must have this hash.
    fn expect(&mut self, hash: &str) {
        if digest::hex(&self.hash) != hash {
            self.fail(self.head, AuditProblem::Changed);
        }
    }

    /// The log must reach at least this row.
    fn note_last_row(&mut self, seq: i64) {
        if self.head < seq {
            self.fail(self.head + 1, AuditProblem::Changed);
        }
    }

    /// Missing rows at the start must be covered by retention's own records.
    fn explain_floor(&mut self) {
        let floor = self.first - 1;
        if floor > 0 && self.removed != Some(floor) {
            self.fail(floor, AuditProblem::RemovalUnrecorded);
        }
    }

    /// This row is still within its retention period and must not be removed.
    fn forbid_removal(&mut self, seq: i64) {
        if seq < self.first {
            self.fail(self.first - 1, AuditProblem::RemovedEarly);
        }
    }

    fn verdict(self) -> AuditVerification {
        let Self { hash, first, head, rows, withheld, broken_at, .. } = self;
        let (broken_at, problem) = broken_at.unzip();
        let ok = broken_at.is_none();
        AuditVerification {
            ok,
            rows,
            withheld,
            first,
            head,
            hash: digest::hex(&hash),
            broken_at,
            problem,
            start_missing: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(count: i64) -> Vec<log::LogRow> {
        let mut hash = log::GENESIS;
        (1..=count)
            .map(|seq| {
                let mut row = log::LogRow {
                    seq,
                    at: Timestamp::from_millis(seq),
                    actor: "system".to_owned(),
                    kind: "task.created".to_owned(),
                    run: None,
                    run_seq: None,
                    data: Json::empty_object(),
                    withheld: false,
                    data_digest: None,
                    hash: String::new(),
                };
                hash = row.entry().chain(&hash);
                row.hash = digest::hex(&hash);
                row
            })
            .collect()
    }

    fn check(rows: &[log::LogRow]) -> AuditVerification {
        let mut chain = ChainVerifier::after(0, log::GENESIS);
        rows.iter().for_each(|row| chain.take(row));
        chain.verdict()
    }

    #[test]
    fn changed_removed_and_swapped_rows_are_found() {
        let whole = rows(5);
        let verdict = check(&whole);
        assert_eq!((verdict.ok, verdict.rows, verdict.head), (true, 5, 5));
        assert_eq!(verdict.hash, whole[4].hash);
        let mut changed = whole.clone();
        changed[2].actor = "key:other".to_owned();
        assert_eq!(check(&changed).broken_at, Some(3));
        let mut removed = whole.clone();
        removed.remove(1);
        assert_eq!(check(&removed).broken_at, Some(3));
        let mut swapped = whole;
        swapped.swap(3, 4);
        assert_eq!(check(&swapped).broken_at, Some(5));
    }

    #[test]
    fn rows_of_an_earlier_export_must_exist_unchanged() {
        let whole = rows(5);
        let after = |count: usize| {
            let mut chain = ChainVerifier::after(0, log::GENESIS);
            whole[..count].iter().for_each(|row| chain.take(row));
            chain
        };
        let broken = |count, change: &dyn Fn(&mut ChainVerifier)| {
            let mut chain = after(count);
            change(&mut chain);
            chain.verdict().broken_at
        };
        assert_eq!(broken(5, &|chain| chain.note_last_row(5)), None);
        assert_eq!(broken(4, &|chain| chain.note_last_row(5)), Some(5), "the newest row was removed");
        assert_eq!(broken(3, &|chain| chain.expect(&whole[2].hash)), None);
        assert_eq!(broken(3, &|chain| chain.expect(&whole[1].hash)), Some(3), "the chain was rewritten");
    }

    #[test]
    fn unexplained_gaps_and_early_removals_are_found() {
        let mut whole = rows(5);
        let floor = (2, digest::unhex(&whole[1].hash).unwrap());
        let check = |rows: &[log::LogRow], change: &dyn Fn(&mut ChainVerifier)| {
            let mut chain = ChainVerifier::after(floor.0, floor.1);
            rows.iter().for_each(|row| chain.take(row));
            change(&mut chain);
            chain.broken_at
        };
        let explained = |chain: &mut ChainVerifier| chain.explain_floor();
        assert_eq!(check(&whole[2..], &explained), Some((2, AuditProblem::RemovalUnrecorded)));
        let mut removal = log::LogRow { seq: 6, kind: EventKind::LogRemoved.to_string(), ..whole[4].clone() };
        removal.data = Json::of(&log::LogRemoval { through: 2, hash: whole[1].hash.clone() });
        removal.hash = digest::hex(&removal.entry().chain(&digest::unhex(&whole[4].hash).unwrap()));
        whole.push(removal);
        assert_eq!(check(&whole[2..], &explained), None);
        assert_eq!(check(&whole[2..], &|chain| chain.forbid_removal(3)), None);
        assert_eq!(check(&whole[2..], &|chain| chain.forbid_removal(2)), Some((2, AuditProblem::RemovedEarly)));
    }
}

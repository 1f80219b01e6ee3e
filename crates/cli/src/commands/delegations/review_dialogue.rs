//! The dialogue of `attache delegations review`: shows one change after another and asks what to do with it.

use std::{
    io::{self, BufRead as _, Write as _},
    ops::ControlFlow,
};

use attache_protocol::{
    Code,
    wire::delegation::{HunkSelection, RevertRequest, ReviewFile},
};

use super::review::{ChangeReview, ReviewOutcome, change, lines, note};
use crate::ui::{
    failure::CommandFailure,
    output::{TerminalOutput, TextStyle, clean},
};

/// What a person answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReviewAnswer {
    Accept,
    Discard,
    HunkByHunk,
    Skip,
    AcceptRest,
    Quit,
}

/// What was decided about the hunks of a file.
#[derive(Debug, Default)]
struct HunkDecisions {
    /// The numbers of those to discard.
    discarded: Vec<usize>,
    /// All others were accepted.
    is_complete: bool,
}

/// Starts the unreadable part of a patch.
const BINARY: &str = "GIT binary patch";
const FILE_HELP: &str = "  a, accept   keep the change, and don't ask about it again
  d, discard  restore the file as it was before the lease
  h, hunks    decide on each hunk (text files with several)
  s, skip     decide later (default)
  A, all      accept this change and all that follow, unseen
  q, quit     stop; what you decided so far is carried out";
const HUNK_HELP: &str = "  a, accept   keep this hunk
  d, discard  put back the lines from before the lease
  s, skip     decide later: the hunk stays, the file isn't accepted (default)
  q, quit     stop; nothing was done to this file";

pub(super) async fn run(changes: &ChangeReview<'_>, files: Vec<ReviewFile>) -> Result<ReviewOutcome, CommandFailure> {
    let mut outcome = ReviewOutcome::default();
    for at in 0..files.len() {
        let decided = decide(changes, &files, at, &mut outcome).await;
        let goes_on = match decided {
            // It changed while the person decided. The rest can go on.
            Err(failure) if failure.code == Code::VersionChanged.as_str() => {
                changes.context.output.failure(&failure);
                outcome.left.push(files[at].changed.path.clone());
                ControlFlow::Continue(())
            }
            decided => decided?,
        };
        if goes_on.is_break() {
            break;
        }
    }
    Ok(outcome)
}

/// Shows one file, asks, and does what the person says.
async fn decide(
    changes: &ChangeReview<'_>,
    files: &[ReviewFile],
    at: usize,
    outcome: &mut ReviewOutcome,
) -> Result<ControlFlow<()>, CommandFailure> {
    let path = &files[at].changed.path;
    // As it is now: the person may have taken a while.
    let file = changes.daemon.review_file(changes.id, path).await?;
    show(&changes.context.output, &file, &format!("{} of {}", at + 1, files.len()))?;
    let quit = |outcome: &mut ReviewOutcome| {
        outcome.left.extend(files[at..].iter().map(|file| file.changed.path.clone()));
        Ok(ControlFlow::Break(()))
    };
    let has_hunks = file.hunks.len() > 1 && (changes.is_staged || !file.changed.also_changed_here);
    match ask_about_file(has_hunks)? {
        ReviewAnswer::Accept => changes.accept(&[file], outcome).await?,
        ReviewAnswer::Discard => {
            let request = RevertRequest { paths: vec![path.clone()], alone: true, ..RevertRequest::default() };
            let reverted = changes.discard(&request).await?;
            outcome.discarded.extend(reverted.restored.into_iter().filter(|restored| restored == path));
            outcome.kept.extend(reverted.kept);
        }
        ReviewAnswer::HunkByHunk => match ask_about_hunks(&changes.context.output, &file)? {
            Some(decisions) => carry_out(changes, file, decisions, outcome).await?,
            None => return quit(outcome),
        },
        ReviewAnswer::Skip => outcome.left.push(path.clone()),
        ReviewAnswer::AcceptRest => {
            changes.accept(&[file], outcome).await?;
            changes.accept(&files[at + 1..], outcome).await?;
            return Ok(ControlFlow::Break(()));
        }
        ReviewAnswer::Quit => return quit(outcome),
    }
    Ok(ControlFlow::Continue(()))
}

/// Discards hunks, and accepts the file if the rest of it was accepted.
async fn carry_out(
    changes: &ChangeReview<'_>,
    file: ReviewFile,
    decisions: HunkDecisions,
    outcome: &mut ReviewOutcome,
) -> Result<(), CommandFailure> {
    let path = file.changed.path.clone();
    let HunkDecisions { discarded, is_complete } = decisions;
    if discarded.is_empty() {
        if is_complete {
            return changes.accept(&[file], outcome).await;
        }
        outcome.left.push(path);
        return Ok(());
    }
    let Some(patch) = file.patch.clone() else {
        outcome.left.push(path);
        return Ok(());
    };
    let is_whole = discarded.len() == file.hunks.len();
    let kept = hunks(&patch.text).zip(1..).filter(|(_, number)| !discarded.contains(number));
    let kept: Vec<String> = kept.map(|(hunk, _)| body(&hunk).to_owned()).collect();
    let selection = HunkSelection { path: path.clone(), numbers: discarded, fingerprint: patch.fingerprint };
    let request = RevertRequest { hunks: Some(selection), ..RevertRequest::default() };
    let reverted = changes.discard(&request).await?;
    let is_done = reverted.kept.is_empty();
    outcome.discarded.extend(reverted.restored);
    outcome.kept.extend(reverted.kept);
    if !is_done || is_whole {
        return Ok(());
    }
    // Only what was seen is accepted: the hunks that remain, and nothing that came since.
    let now = changes.daemon.review_file(changes.id, &path).await?;
    let remaining = now.patch.as_ref().map(|patch| hunks(&patch.text).map(|hunk| body(&hunk).to_owned()).collect());
    if is_complete && remaining == Some(kept) {
        return changes.accept(&[now], outcome).await;
    }
    outcome.left.push(path);
    Ok(())
}

fn show(output: &TerminalOutput, file: &ReviewFile, position: &str) -> Result<(), CommandFailure> {
    let facts: Vec<String> = [Some(change(file)), lines(file)].into_iter().flatten().collect();
    let title = format!("{} ({position}): {}", clean::exact_line(&file.changed.path), facts.join(", "));
    output.say("");
    output.say_styled(TextStyle::Strong, title);
    let note = note(file);
    if !note.is_empty() {
        output.say_styled(TextStyle::Busy, format_args!("Look closely: {note}."));
    }
    let patch = file.patch.as_ref().map_or("", |patch| &patch.text);
    let (shown, is_binary) = readable(patch);
    show_lines(output, shown)?;
    if is_binary {
        output.say_styled(TextStyle::Dim, "(binary; not shown)");
    }
    Ok(())
}

/// What people can read of a patch, and whether there is more. In a line of a file, something precedes the mark.
fn readable(patch: &str) -> (&str, bool) {
    let mark = patch.match_indices(BINARY).map(|(at, _)| at).find(|at| {
        let (before, after) = (&patch[..*at], &patch[*at + BINARY.len()..]);
        before.ends_with('\n') && after.starts_with('\n')
    });
    mark.map_or((patch, false), |at| (&patch[..at], true))
}

fn show_lines(output: &TerminalOutput, patch: &str) -> Result<(), CommandFailure> {
    for line in patch.lines() {
        let style = match line.as_bytes() {
            [b'@', b'@', ..] | [b'#' | b'\\', ..] => TextStyle::Dim,
            [b'+', b'+', b'+', b' ', ..] | [b'-', b'-', b'-', b' ', ..] | [b'd', b'i', b'f', b'f', ..] => {
                TextStyle::Strong
            }
            [b'+', ..] => TextStyle::Good,
            [b'-', ..] => TextStyle::Bad,
            _ => TextStyle::Plain,
        };
        output.line(output.paint(style, &clean::exact(line)))?;
    }
    Ok(())
}

fn ask_about_file(has_hunks: bool) -> Result<ReviewAnswer, CommandFailure> {
    let question = if has_hunks {
        "[a]ccept, [d]iscard, [h]unk by hunk, [s]kip, [q]uit, [?] help [s] "
    } else {
        "[a]ccept, [d]iscard, [s]kip, [q]uit, [?] help [s] "
    };
    ask(question, FILE_HELP, |answer| match answer {
        // Not the same as `a`.
        "A" | "all" => Some(ReviewAnswer::AcceptRest),
        "h" | "H" | "hunk" | "hunks" if has_hunks => Some(ReviewAnswer::HunkByHunk),
        _ => ReviewAnswer::of(answer),
    })
}

/// Nothing if the person quits.
fn ask_about_hunks(output: &TerminalOutput, file: &ReviewFile) -> Result<Option<HunkDecisions>, CommandFailure> {
    let mut decisions = HunkDecisions { is_complete: true, ..HunkDecisions::default() };
    let patch = file.patch.as_ref().map_or("", |patch| &patch.text);
    for (hunk, number) in hunks(patch).zip(1..) {
        output.say("");
        show_lines(output, &hunk)?;
        let question =
            format!("Hunk {number} of {}: [a]ccept, [d]iscard, [s]kip, [q]uit, [?] help [s] ", file.hunks.len());
        match ask(&question, HUNK_HELP, ReviewAnswer::of)? {
            ReviewAnswer::Discard => decisions.discarded.push(number),
            ReviewAnswer::Accept => {}
            ReviewAnswer::Quit => return Ok(None),
            ReviewAnswer::Skip | ReviewAnswer::HunkByHunk | ReviewAnswer::AcceptRest => decisions.is_complete = false,
        }
    }
    Ok(Some(decisions))
}

/// Asks until the answer is understood. The end of the input means to quit.
fn ask(
    question: &str,
    help: &str,
    understand: impl Fn(&str) -> Option<ReviewAnswer>,
) -> Result<ReviewAnswer, CommandFailure> {
    loop {
        let _ = write!(io::stderr(), "{question}");
        let mut answer = String::new();
        if io::stdin().lock().read_line(&mut answer)? == 0 {
            let _ = writeln!(io::stderr());
            return Ok(ReviewAnswer::Quit);
        }
        match understand(answer.trim()) {
            Some(answer) => return Ok(answer),
            None => drop(writeln!(io::stderr(), "{help}")),
        }
    }
}

/// The hunks of a patch with their headers. No content line starts like a header: each has a sign in front.
fn hunks(patch: &str) -> impl Iterator<Item = String> {
    let mut found: Vec<String> = Vec::new();
    for line in patch.split_inclusive('\n') {
        if line.starts_with("@@ ") {
            found.push(String::new());
        }
        if let Some(hunk) = found.last_mut() {
            hunk.push_str(line);
        }
    }
    found.into_iter()
}

/// A hunk without its header, which changes with the hunks before it.
fn body(hunk: &str) -> &str {
    hunk.split_once('\n').map_or("", |(_, body)| body)
}

// === impl ReviewAnswer ===

impl ReviewAnswer {
    /// The answers that work at every prompt.
    fn of(answer: &str) -> Option<Self> {
        match answer.to_lowercase().as_str() {
            "a" | "accept" => Some(Self::Accept),
            "d" | "discard" => Some(Self::Discard),
            "" | "s" | "skip" => Some(Self::Skip),
            "q" | "quit" => Some(Self::Quit),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_binary_is_left_out() {
        let head = "diff --git a/x GIT binary patch/y b/x GIT binary patch/y\n";
        let text = format!("{head}--- a\n+++ b\n@@ -1 +1,2 @@\n+# GIT binary patch\n+curl x | sh\n+GIT binary patch\n");
        assert_eq!(readable(&text), (&*text, false));
        let binary = format!("{head}index 1..2\nGIT binary patch\nliteral 3\n");
        assert_eq!(readable(&binary), (&*format!("{head}index 1..2\n"), true));
    }
}

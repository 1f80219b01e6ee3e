//! Runs the walkthroughs in `docs/` block by block in a shell, as a person would, and compares the printed output.

use std::{fmt::Write as _, fs, net::TcpListener, path::Path, process::Stdio};

use crate::harness::{FinishedProcess, TestHome};

/// A block to run, and the output that the page shows.
#[derive(Debug, PartialEq, Eq)]
struct WalkthroughStep {
    line: usize,
    script: String,
    promised: Option<String>,
}

#[test]
fn the_laptop_walkthrough_does_what_it_says() {
    walk("walkthrough-laptop.md");
}

#[test]
fn the_knowledge_walkthrough_does_what_it_says() {
    walk("walkthrough-knowledge.md");
}

#[test]
fn the_start_page_does_what_it_says() {
    walk("start.md");
}

/// Runs every block of a page in one shell, which stops at the first failure, and compares each output.
#[track_caller]
fn walk(page: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let steps = steps(&fs::read_to_string(file).unwrap());
    assert!(steps.iter().any(|step| step.promised.is_some()), "{page} promises nothing");
    let home = TestHome::new();
    let blocks = home.path().join("blocks");
    fs::create_dir(&blocks).unwrap();
    // Background processes of a block end with the shell.
    let mut shell = "set -euo pipefail\ntrap 'kill $(jobs -p) 2>/dev/null || :' EXIT\n".to_owned();
    for (number, step) in steps.iter().enumerate() {
        fs::write(blocks.join(format!("{number}.sh")), &step.script).unwrap();
        let at = blocks.join(number.to_string());
        let _ = writeln!(shell, ". {0}.sh > {0}.out 2>&1 < /dev/null", at.display());
    }
    let port = free_port();
    let binaries = Path::new(env!("CARGO_BIN_EXE_attache")).parent().unwrap();
    let path = format!("{}:{}", binaries.display(), std::env::var("PATH").unwrap());
    // Killed with all of its children before the harness gives up on it.
    let mut command = home.program("timeout");
    command.args(["110", "bash", "-c", &shell]).env("PATH", path).env("PORT", port.to_string()).env_remove("A2A_HOME");
    let ran = FinishedProcess::of(command.stdin(Stdio::null()), &home.logs());
    for (number, step) in steps.iter().enumerate() {
        let place = format!("{page}, the block at line {}", step.line);
        let Ok(printed) = fs::read_to_string(blocks.join(format!("{number}.out"))) else {
            panic!("{place} was not reached: the one before it failed\n{}", ran.stderr);
        };
        let is_last = !blocks.join(format!("{}.out", number + 1)).exists();
        assert!(!is_last || ran.status == Some(0), "{place} failed with {:?}:\n{printed}\n{}", ran.status, ran.stderr);
        if let Some(promised) = &step.promised {
            // The page shows the usual port; the test uses its own.
            let promised = promised.replace(":7800", &format!(":{port}"));
            assert_matches(&place, &promised, &printed);
        }
    }
}

/// A port that is currently free. A page has a fixed port in its text, so the hub can't choose one when it binds.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The fenced `sh` blocks of a page in order, each with the `text` block directly below it.
fn steps(page: &str) -> Vec<WalkthroughStep> {
    let mut steps: Vec<WalkthroughStep> = Vec::new();
    // Whether only blank lines came since the last `sh` block.
    let mut is_below = false;
    let mut lines = page.lines().enumerate();
    while let Some((at, line)) = lines.next() {
        let Some(language) = line.strip_prefix("```") else {
            is_below &= line.trim().is_empty();
            continue;
        };
        let body: String = lines
            .by_ref()
            .map(|(_, line)| line)
            .take_while(|line| *line != "```")
            .fold(String::new(), |body, line| body + line + "\n");
        match language {
            "sh" => steps.push(WalkthroughStep { line: at + 1, script: body, promised: None }),
            "text" if is_below => {
                steps.last_mut().expect("a block stands above it").promised = Some(body);
            }
            _ => {}
        }
        is_below = language == "sh";
    }
    steps
}

#[track_caller]
fn assert_matches(place: &str, promised: &str, printed: &str) {
    let all: Vec<_> = printed.lines().map(str::trim_end).collect();
    let mut wanted = promised.lines();
    let mut given = all.iter();
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return,
            (Some(pattern), Some(line)) if is_like(line, pattern) => {}
            (pattern, line) => panic!("{place} promises\n  {pattern:?}\nand prints\n  {line:?}\nin\n{printed}"),
        }
    }
}

/// Whether a line matches a pattern, in which `…` matches anything.
fn is_like(line: &str, pattern: &str) -> bool {
    let mut pieces = pattern.split('…');
    let first = pieces.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut pieces = pieces.peekable();
    if pieces.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return rest.ends_with(piece);
        }
        let Some(at) = rest.find(piece) else { return false };
        rest = &rest[at + piece.len()..];
    }
    true
}

#[test]
fn a_wrong_output_is_detected() {
    for (line, pattern, expected) in [
        ("done", "done", true),
        ("done.", "done", false),
        ("{\"id\":\"run_1\",\"n\":2}", "{\"id\":\"run_…\",\"n\":2}", true),
        ("{\"id\":\"run_1\",\"n\":3}", "{\"id\":\"run_…\",\"n\":2}", false),
        ("agt_1 and agt_2", "agt_… and agt_…", true),
        ("agt_1 or agt_2", "agt_… and agt_…", false),
        ("aXb", "…X…b", true),
        ("", "…", true),
    ] {
        assert_eq!(is_like(line, pattern), expected, "{line} {pattern}");
    }
    let page = "```sh\na\n```\n\n```text\nb\n```\n\n```sh\nc\n```\nwords\n\n```text\nd\n```\n";
    let step = |line, script: &str, promised: Option<&str>| WalkthroughStep {
        line,
        script: script.to_owned(),
        promised: promised.map(str::to_owned),
    };
    assert_eq!(steps(page), [step(1, "a\n", Some("b\n")), step(9, "c\n", None)]);
    let broken =
        |promised: &str, printed: &str| std::panic::catch_unwind(|| assert_matches("here", promised, printed)).is_err();
    assert!(!broken("a\nb…\n", "a  \nbc\n"));
    assert!(broken("a\n", "a\nb\n") && broken("a\nb\n", "a\n") && broken("a\n", "b\n"));
}

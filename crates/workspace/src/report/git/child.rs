//! Git as a child process with a limit of time. What a run left in a repository can make git wait for ever, and what git
//! prints about it can be the content of any file, so its messages go nowhere.

use std::{
    io::{Read as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, Command, Output, Stdio},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use attache_os::process_tree;
use rustix::process::{Pid, Signal, kill_process_group};

use super::Error;

/// More than git needs for any repository that is worked in.
const TIMEOUT: Duration = Duration::from_secs(300);

/// How often a git that has closed its output is looked at.
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The output of a git that has to succeed.
pub(super) fn run(what: &str, command: &mut Command, input: Option<&[u8]>) -> Result<Vec<u8>, Error> {
    let output = output(what, command, input)?;
    if output.status.success() { Ok(output.stdout) } else { Err(Error::Failed(what.to_owned())) }
}

/// The output and the status. The input is written while the output is read.
pub(super) fn output(what: &str, command: &mut Command, input: Option<&[u8]>) -> Result<Output, Error> {
    output_within(TIMEOUT, what, command, input)
}

pub(super) fn output_within(
    limit: Duration,
    what: &str,
    command: &mut Command,
    input: Option<&[u8]>,
) -> Result<Output, Error> {
    let stdin = if input.is_some() { Stdio::piped() } else { Stdio::null() };
    command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::null()).process_group(0);
    // An adapter ends what a run left behind, which this isn't.
    let mut child = process_tree::start_blocking(command).map_err(Error::Missing)?;
    let deadline = Instant::now() + limit;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (closed, is_closed) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            // A git that exits early has its own reason.
            let _ = stdin.zip(input).map(|(mut stdin, input)| stdin.write_all(input));
        });
        let reader = scope.spawn(move || {
            let mut read = Vec::new();
            let result = stdout.map_or(Ok(0), |mut stdout| stdout.read_to_end(&mut read));
            let _ = closed.send(());
            result.map(|_| read)
        });
        let _ = is_closed.recv_timeout(limit);
        let status = wait_until(deadline, &mut child)?;
        let stdout = reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(Error::Missing)?;
        let timed_out = || Error::TimedOut { what: what.to_owned(), limit };
        Ok(Output { status: status.ok_or_else(timed_out)?, stdout, stderr: Vec::new() })
    })
}

/// `None` if it had to be killed, with everything that it started.
fn wait_until(deadline: Instant, child: &mut Child) -> Result<Option<std::process::ExitStatus>, Error> {
    loop {
        if let Some(status) = child.try_wait().map_err(Error::Missing)? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            let _ = kill_process_group(Pid::from_child(child), Signal::KILL);
            child.wait().map_err(Error::Missing)?;
            return Ok(None);
        }
        thread::sleep(POLL_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_waits_for_ever_is_killed_with_its_children() {
        let mut shell = Command::new("sh");
        shell.args(["-c", "sleep 1000 & sleep 1000"]);
        let started = Instant::now();
        let Err(Error::TimedOut { what, .. }) = output_within(Duration::from_millis(200), "gc", &mut shell, None)
        else {
            panic!("it ended")
        };
        assert_eq!(what, "gc");
        assert!(started.elapsed() < Duration::from_secs(60));
    }

    #[test]
    fn what_it_prints_as_an_error_is_not_in_ours() {
        let mut shell = Command::new("sh");
        let failed = run("gc", shell.args(["-c", "cat; echo secret >&2; exit 1"]), Some(b"in")).unwrap_err();
        assert_eq!(failed.to_string(), "git gc failed; `git fsck` in the repository may show why");
        let mut shell = Command::new("sh");
        assert_eq!(run("gc", shell.args(["-c", "cat"]), Some(&vec![b'x'; 1 << 20])).unwrap(), vec![b'x'; 1 << 20]);
    }
}

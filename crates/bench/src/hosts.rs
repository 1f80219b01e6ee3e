//! Our overhead on top of a host's own program: the bare program compared with the same task through hub, runtime and
//! adapter, and the delay until a watcher sees its output.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::Instant,
};

use attache_client::{CallReply, CallUpdate, Client};
use attache_protocol::{Json, env::Env, wire::run::Sandbox};
use serde::Serialize;

use super::{
    BenchResult, FiguresFormat,
    machine::{self, BenchMachine, text},
    report::{median, millis},
    world::BenchFolder,
};

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Number of measurements per figure; the median is reported
    #[arg(long, default_value_t = 10)]
    times: usize,
    /// A host preset, such as claude_cli; default: a shell script
    #[arg(long = "type", value_name = "PRESET", requires = "bare")]
    kind: Option<String>,
    /// The prompt for the host
    #[arg(long, default_value = "SAY:hello")]
    prompt: String,
    /// The host's own command line, `{}` for the prompt
    #[arg(last = true, value_name = "PROG")]
    bare: Vec<String>,
    /// Folder for the test data
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

#[derive(Serialize)]
struct HostFigures {
    bare_ms: f64,
    ours_ms: f64,
    /// The median of the per-round differences.
    added_ms: f64,
    /// The same task inside the machine's walls, without network. None where they don't hold.
    walled_ms: Option<f64>,
    /// The median of the per-round differences to `ours_ms`.
    walls_ms: Option<f64>,
    /// Why a run inside walls failed.
    walls_failed: Option<String>,
    /// How long a task's own work takes once it runs, outside and inside walls.
    work_ms: f64,
    walled_work_ms: Option<f64>,
    printed_to_watcher_ms: f64,
    printed_to_watcher_worst_ms: f64,
}

/// A host that only starts and answers.
const ANSWER: &str = "sh -c cat";

/// Prints the time about as often as a person would see words appear.
const CLOCK: &str = "for i in 1 2 3 4 5 6 7 8 9 10; do date +%s%N; sleep 0.12; done";

/// What the walls could slow down after the start: files, processes and system calls. Prints the nanoseconds it took.
const WORK: &str = r#"begin=$(date +%s%N)
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
    for j in 1 2 3 4 5 6 7 8 9 10; do echo "$i" > "work-$i-$j"; read -r line < "work-$i-$j"; done
    cat work-"$i"-* > /dev/null
done
dd if=/dev/zero of=work-file bs=512 count=20000 2> /dev/null
rm work-*
echo $(($(date +%s%N) - begin))"#;

#[allow(clippy::print_stdout, reason = "the report is the command's output")]
pub(super) async fn run(args: Args, shape: FiguresFormat) -> BenchResult<()> {
    let scratch = BenchFolder::make(args.dir.as_deref())?;
    let (hub, key) = machine::hub(&scratch).await?;
    let client = Client::connect(&hub.url, hub.key.expose())?;

    let folder = scratch.folder("folder", 0)?;
    let mut device = BenchMachine::new(scratch.folder("device", 0)?);
    let host: &[&str] = match &args.kind {
        Some(kind) => &["--local-executor-type", kind],
        None => &["--local-executor-type", "command", "--local-executor-ref", ANSWER],
    };
    device.serve(&hub, &key, "host", &[host, &["--workspace", text(&folder)?]].concat())?;
    let mut printer = BenchMachine::new(scratch.folder("printer", 0)?);
    let printed = scratch.folder("printed", 0)?;
    printer.serve(&hub, &key, "printer", &["--workspace", text(&printed)?])?;

    let limits = Sandbox { cwd_only: Some(true), allow_network: Some(false), ..Sandbox::default() };
    let (mut bare, mut ours, mut walled) = (Vec::new(), Vec::new(), Vec::new());
    let (mut work, mut walled_work) = (Vec::new(), Vec::new());
    let mut walls_failed = None;
    // The first round warms up caches and connections.
    for round in 0..=args.times {
        let alone = program(&args, &folder)?;
        let begun = Instant::now();
        client.call(&args.prompt).agent_type("host").wait().await?;
        let through = millis(begun.elapsed());
        let begun = Instant::now();
        let call = client.call(&args.prompt).agent_type("host").sandbox(limits).wait().await;
        let inside = millis(begun.elapsed());
        walls_failed = walls_failed.or(call.err().map(|error| error.to_string()));
        let worked = work_time(&client.call(WORK).agent_type("printer").wait().await?)?;
        let worked_inside = match &walls_failed {
            None => Some(work_time(&client.call(WORK).agent_type("printer").sandbox(limits).wait().await?)?),
            Some(_) => None,
        };
        if round > 0 {
            bare.push(alone);
            ours.push(through);
            walled.push(inside);
            work.push(worked);
            walled_work.extend(worked_inside);
        }
    }
    let holds = walls_failed.is_none();
    let delays = delays(&client).await?;
    let figures = HostFigures {
        bare_ms: median(bare.iter().copied()),
        ours_ms: median(ours.iter().copied()),
        added_ms: median(ours.iter().zip(&bare).map(|(ours, bare)| ours - bare)),
        walled_ms: holds.then(|| median(walled.iter().copied())),
        walls_ms: holds.then(|| median(walled.iter().zip(&ours).map(|(walled, ours)| walled - ours))),
        walls_failed,
        work_ms: median(work.iter().copied()),
        walled_work_ms: holds.then(|| median(walled_work.iter().copied())),
        printed_to_watcher_ms: median(delays.iter().copied()),
        printed_to_watcher_worst_ms: delays.iter().copied().fold(0.0, f64::max),
    };
    match shape {
        FiguresFormat::Json => println!("{}", Json::of(&figures).get()),
        FiguresFormat::Table => figures.print(&args),
    }
    Ok(())
}

/// Runs the bare program from start to end.
fn program(args: &Args, folder: &std::path::Path) -> BenchResult<f64> {
    let words: Vec<String> = match args.bare.as_slice() {
        [] => ["sh", "-c", "cat"].map(str::to_owned).into(),
        words => words.iter().map(|word| word.replace("{}", &args.prompt)).collect(),
    };
    let begun = Instant::now();
    let mut command = Command::new(&words[0]);
    let output = command.args(&words[1..]).current_dir(folder).stdin(Stdio::null()).output()?;
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`{}` failed: {stderr}", words.join(" ")).into());
    }
    Ok(millis(begun.elapsed()))
}

/// What a run of [`WORK`] printed.
fn work_time(reply: &CallReply) -> BenchResult<f64> {
    Ok(reply.summary.trim().parse::<f64>()? / 1e6)
}

/// How old each line is when a watcher of the call reads it.
async fn delays(client: &Client) -> BenchResult<Vec<f64>> {
    let mut stream = client.call(CLOCK).agent_type("printer").stream().await?;
    let (mut delays, mut rest) = (Vec::new(), String::new());
    while let Some(update) = stream.next().await {
        let CallUpdate::Message { kind, text: Some(text), .. } = update? else { continue };
        if kind != "chunk" {
            continue;
        }
        let now = Env::system().now().millis();
        rest.push_str(&text);
        while let Some(end) = rest.find('\n') {
            let line: String = rest.drain(..=end).collect();
            delays.push(now as f64 - line.trim().parse::<f64>()? / 1e6);
        }
    }
    Ok(delays)
}

// === impl HostFigures ===

impl HostFigures {
    #[allow(clippy::print_stdout, reason = "the report is the command's output")]
    fn print(&self, args: &Args) {
        let host = args.kind.as_deref().unwrap_or("sh -c cat");
        println!("{} rounds of {host}, medians; all on this machine", args.times);
        println!("bare program                   {:>8.1} ms", self.bare_ms);
        println!("hub, runtime, adapter and host {:>8.1} ms", self.ours_ms);
        println!("overhead                       {:>8.1} ms", self.added_ms);
        match (self.walled_ms, self.walls_ms) {
            (Some(walled), Some(walls)) => {
                println!("the same in the sandbox        {walled:>8.1} ms (the sandbox adds {walls:.1})");
            }
            _ => println!(
                "the same in the sandbox        not available: {}",
                self.walls_failed.as_deref().unwrap_or("see `attache doctor sandbox`")
            ),
        }
        println!("a task's own work              {:>8.1} ms", self.work_ms);
        if let Some(inside) = self.walled_work_ms {
            println!("the same in the sandbox        {inside:>8.1} ms ({:.2} of it)", inside / self.work_ms);
        }
        println!(
            "delay from print to a watcher   {:>7.1} ms (worst {:.1})",
            self.printed_to_watcher_ms, self.printed_to_watcher_worst_ms
        );
    }
}

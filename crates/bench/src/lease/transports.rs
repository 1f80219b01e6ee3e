//! The transports of a delegated folder side by side over links of different latency: what a person or an agent does
//! there all day, in a git repository with many files.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use attache_os::program;
use attache_protocol::{env::Env, wire::awcp::AccessMode};
use attache_workspace::mount::{GuardCommand, MountHandle, MountPoint, MountRequest, MountTransport, mount};
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::{LOCATOR, SimulatedLink, admit_lease, memory};

/// What to measure.
#[derive(Debug, Clone)]
pub struct TransportOptions {
    /// An empty folder for all test data.
    pub dir: PathBuf,
    pub files: usize,
    /// The size of the file that is written, and of the one that is read.
    pub megabytes: usize,
    pub round_trips: Vec<Duration>,
    pub transports: Vec<MountTransport>,
    /// A step that takes longer is given up.
    pub limit: Duration,
    /// Starts the process that owns a mount.
    pub guard: GuardCommand,
}

/// One column of the table. Seconds, unless the name says otherwise. `None`: it took longer than the limit.
#[derive(Debug, Clone, Serialize)]
pub struct TransportFigures {
    pub transport: &'static str,
    pub round_trip_ms: Option<u128>,
    pub mount: Option<f64>,
    pub status_cold: Option<f64>,
    pub status_again: Option<f64>,
    pub grep_cold: Option<f64>,
    pub grep_again: Option<f64>,
    pub find_cold: Option<f64>,
    pub find_again: Option<f64>,
    /// A small crate without dependencies, for the first time and after an edit.
    pub check_cold: Option<f64>,
    pub check_again: Option<f64>,
    /// Written beside the file and renamed over it.
    pub save_ms: Option<f64>,
    /// With an `fsync` before the rename.
    pub synced_save_ms: Option<f64>,
    pub creates_1000: Option<f64>,
    pub read_mb_per_second: Option<f64>,
    pub write_mb_per_second: Option<f64>,
    pub revoke_to_error_ms: Option<f64>,
    /// The most that the file system used, contents included.
    pub client_mb: Option<f64>,
    /// The most that the host used for it.
    pub host_mb: Option<f64>,
}

const FILES_PER_FOLDER: usize = 12;
const SAVES: usize = 10;
const CREATES: usize = 1000;
const CHUNK: usize = 1 << 20;
/// The modules of the crate that is checked.
const MODULES: usize = 20;

/// Measures, and blocks until done. The first column is the folder itself.
pub fn compare(options: &TransportOptions, runtime: &tokio::runtime::Handle) -> io::Result<Vec<TransportFigures>> {
    let mut columns = Vec::new();
    let local = tree(options, &options.dir.join("local"))?;
    columns.push(measure_local(options, &local)?);
    // A large tree takes a lot of space.
    let _ = fs::remove_dir_all(options.dir.join("local"));
    for round_trip in &options.round_trips {
        for transport in &options.transports {
            let dir = options.dir.join(format!("{}-{}", transport.name().replace('/', "-"), round_trip.as_millis()));
            columns.push(measure_mounted(options, *transport, *round_trip, &dir, runtime)?);
            let _ = fs::remove_dir_all(&dir);
        }
    }
    Ok(columns)
}

/// A git repository with text files, and one large file beside it.
fn tree(options: &TransportOptions, dir: &Path) -> io::Result<PathBuf> {
    let host = dir.join("host");
    for number in 0..options.files {
        let folder = host.join(format!("part{}/folder{}", number / (FILES_PER_FOLDER * 20), number / FILES_PER_FOLDER));
        fs::create_dir_all(&folder)?;
        let line = format!("line of file {number}: the quick brown fox jumps over the lazy dog\n");
        fs::write(folder.join(format!("file{number}.txt")), line.repeat(20 + number % 180))?;
    }
    write_crate(&host.join("crate"))?;
    for args in [&["init", "--quiet"][..], &["add", "."], &["commit", "--quiet", "-m", "tree"]] {
        let identity = ["-c", "user.name=bench", "-c", "user.email=bench@localhost", "-c", "gc.auto=0"];
        let status = Command::new(program::path("git")).arg("-C").arg(&host).args(identity).args(args).status()?;
        if !status.success() {
            return Err(io::Error::other("git failed while the tree was prepared"));
        }
    }
    let mut large = File::create(host.join(".git/large"))?;
    for _ in 0..options.megabytes {
        large.write_all(&vec![b'l'; CHUNK])?;
    }
    large.sync_all()?;
    Ok(host)
}

/// A small library, as a person might write it in an afternoon.
fn write_crate(at: &Path) -> io::Result<()> {
    fs::create_dir_all(at.join("src"))?;
    fs::write(
        at.join("Cargo.toml"),
        "[package]\nname = \"small\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n",
    )?;
    fs::write(at.join("Cargo.lock"), "version = 3\n\n[[package]]\nname = \"small\"\nversion = \"0.1.0\"\n")?;
    fs::write(at.join(".gitignore"), "target\n")?;
    let modules: String = (0..MODULES).map(|number| format!("pub mod part{number};\n")).collect();
    fs::write(at.join("src/lib.rs"), modules)?;
    for number in 0..MODULES {
        let function = |name: usize| {
            format!(
                "pub fn step{name}(values: &[u64]) -> u64 {{\n    values.iter().map(|value| value * {name}).sum()\n}}\n"
            )
        };
        fs::write(at.join(format!("src/part{number}.rs")), (0..50).map(function).collect::<String>())?;
    }
    Ok(())
}

fn measure_local(options: &TransportOptions, host: &Path) -> io::Result<TransportFigures> {
    let limit = options.limit;
    let mut figures = TransportFigures::empty("local", None);
    figures.status_cold = git_status(host, limit)?;
    figures.status_again = git_status(host, limit)?;
    figures.grep_cold = grep(host, limit)?;
    figures.grep_again = grep(host, limit)?;
    figures.find_cold = find(host, limit)?;
    figures.find_again = find(host, limit)?;
    measure_changes(options, host, &mut figures)?;
    Ok(figures)
}

fn measure_mounted(
    options: &TransportOptions,
    transport: MountTransport,
    round_trip: Duration,
    dir: &Path,
    runtime: &tokio::runtime::Handle,
) -> io::Result<TransportFigures> {
    let host = tree(options, dir)?;
    let stop = CancellationToken::new();
    let _stop_at_the_end = stop.clone().drop_guard();
    memory::forget_peak();
    let before = memory::now();
    let (login, admission) = admit_lease(dir, &host, runtime, stop.clone())?;
    let login = SimulatedLink { runtime, round_trip }.delay(login, &stop)?;
    let mut figures = TransportFigures::empty(transport.name(), Some(round_trip.as_millis()));
    let fresh = || -> io::Result<(MountHandle, f64)> {
        let root = dir.join("mounts");
        fs::create_dir_all(&root)?;
        fs::set_permissions(&root, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        let place = MountPoint::reserve(&[root.canonicalize()?], "bench", &Env::system()).map_err(io::Error::other)?;
        let request = MountRequest {
            host: "127.0.0.1".to_owned(),
            port: login.port,
            user: login.user.clone(),
            locator: LOCATOR.to_owned(),
            host_key: login.host_key.clone(),
            private_key: login.private_key.clone(),
            access_mode: AccessMode::Rw,
            lasts: Duration::from_secs(24 * 3600),
            options: Vec::new(),
            transport,
        };
        let begin = Instant::now();
        let mounted = runtime.block_on(mount(&options.guard, place, request)).map_err(io::Error::other)?;
        Ok((mounted, begin.elapsed().as_secs_f64()))
    };
    let limit = options.limit;
    // Each cold figure needs a mount that has not shown anything yet.
    let (mounted, seconds) = fresh()?;
    figures.mount = Some(seconds);
    figures.status_cold = git_status(mounted.mount_point(), limit)?;
    if figures.status_cold.is_some() {
        figures.status_again = git_status(mounted.mount_point(), limit)?;
    }
    runtime.block_on(mounted.unmount());
    let (mounted, _) = fresh()?;
    figures.grep_cold = grep(mounted.mount_point(), limit)?;
    if figures.grep_cold.is_some() {
        figures.grep_again = grep(mounted.mount_point(), limit)?;
    }
    runtime.block_on(mounted.unmount());
    let (mounted, _) = fresh()?;
    figures.find_cold = find(mounted.mount_point(), limit)?;
    if figures.find_cold.is_some() {
        figures.find_again = find(mounted.mount_point(), limit)?;
    }
    measure_changes(options, mounted.mount_point(), &mut figures)?;
    figures.client_mb = mounted.guard_pid().and_then(memory::peak_of_child);
    figures.host_mb = memory::peak().zip(before).map(|(peak, before)| peak - before);
    let at = mounted.mount_point().to_owned();
    let writer = std::thread::spawn(move || super::measure::write_until_it_fails(&at, super::REVOKE_TIMEOUT));
    // After a delay: the writer must be in the middle of its work.
    sleep(Duration::from_millis(200) + round_trip * 4);
    let revoked = Instant::now();
    admission.revoke();
    let failed = writer.join().map_err(|_| io::Error::other("the writer panicked"))??;
    figures.revoke_to_error_ms = Some(failed.duration_since(revoked).as_secs_f64() * 1000.0);
    runtime.block_on(mounted.unmount());
    Ok(figures)
}

#[allow(clippy::cast_precision_loss, reason = "figures for people")]
fn measure_changes(options: &TransportOptions, at: &Path, figures: &mut TransportFigures) -> io::Result<()> {
    figures.check_cold = cargo_check(at, options.limit)?;
    if figures.check_cold.is_some() {
        let edited = at.join("crate/src/part0.rs");
        let text = fs::read_to_string(&edited)?;
        fs::write(&edited, text + "pub fn added() {}\n")?;
        figures.check_again = cargo_check(at, options.limit)?;
    }
    let save = |finish: &dyn Fn(&File) -> io::Result<()>| -> io::Result<f64> {
        let begin = Instant::now();
        for number in 0..SAVES {
            let (new, old) = (at.join(".saved.tmp"), at.join("saved"));
            let mut file = File::create(&new)?;
            file.write_all(&[u8::try_from(number).unwrap_or(0); 4096])?;
            finish(&file)?;
            drop(file);
            fs::rename(new, old)?;
        }
        Ok(begin.elapsed().as_secs_f64() * 1000.0 / SAVES as f64)
    };
    figures.save_ms = Some(save(&|_| Ok(()))?);
    figures.synced_save_ms = Some(save(&File::sync_all)?);
    fs::create_dir_all(at.join("created"))?;
    figures.creates_1000 =
        within(options.limit, CREATES, |number| fs::write(at.join(format!("created/{number}")), [b'c'; 4096]))?;
    let mut buffer = vec![0; CHUNK];
    let mut large = File::open(at.join(".git/large"))?;
    let read = within(options.limit, options.megabytes, |_| large.read_exact(&mut buffer))?;
    figures.read_mb_per_second = read.map(|seconds| options.megabytes as f64 / seconds);
    let mut written = File::create(at.join("written"))?;
    let begin = Instant::now();
    let done = within(options.limit, options.megabytes, |_| written.write_all(&buffer))?;
    written.sync_all()?;
    figures.write_mb_per_second = done.map(|_| options.megabytes as f64 / begin.elapsed().as_secs_f64());
    Ok(())
}

/// The seconds for so many steps. `None` if they take longer than the limit.
fn within(limit: Duration, steps: usize, mut step: impl FnMut(usize) -> io::Result<()>) -> io::Result<Option<f64>> {
    let begin = Instant::now();
    for number in 0..steps {
        step(number)?;
        if begin.elapsed() > limit {
            return Ok(None);
        }
    }
    Ok(Some(begin.elapsed().as_secs_f64()))
}

fn git_status(at: &Path, limit: Duration) -> io::Result<Option<f64>> {
    let mut git = Command::new(program::path("git"));
    git.arg("-C").arg(at).args(["-c", "safe.directory=*", "status", "--porcelain"]);
    timed(&mut git, limit)
}

fn grep(at: &Path, limit: Duration) -> io::Result<Option<f64>> {
    timed(
        Command::new(program::path("grep")).args(["-r", "--exclude-dir=.git", "a word that is nowhere"]).arg(at),
        limit,
    )
}

/// `None` also if there is no cargo.
fn cargo_check(at: &Path, limit: Duration) -> io::Result<Option<f64>> {
    let at = at.join("crate");
    let mut cargo = Command::new("cargo");
    cargo.args(["check", "--offline", "--quiet"]).current_dir(&at).arg("--target-dir").arg(at.join("target"));
    for variable in ["CARGO_TARGET_DIR", "CARGO_INCREMENTAL", "CARGO_BUILD_RUSTC_WRAPPER", "RUSTC_WRAPPER", "RUSTFLAGS"]
    {
        cargo.env_remove(variable);
    }
    match timed(&mut cargo, limit) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        done => done,
    }
}

fn find(at: &Path, limit: Duration) -> io::Result<Option<f64>> {
    timed(
        Command::new(program::path("find")).arg(at).args([
            "-path",
            "*/.git",
            "-prune",
            "-o",
            "-size",
            "+1000000k",
            "-print",
        ]),
        limit,
    )
}

/// How long a program takes. `None` if it was stopped at the limit.
fn timed(command: &mut Command, limit: Duration) -> io::Result<Option<f64>> {
    let begin = Instant::now();
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    while begin.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            let seconds = begin.elapsed().as_secs_f64();
            // A program that fails at once would look fast. grep finds nothing, and says so.
            return if status.code().is_some_and(|code| code <= 1) {
                Ok(Some(seconds))
            } else {
                Err(io::Error::other(format!("{:?} failed", command.get_program())))
            };
        }
        sleep(Duration::from_millis(2));
    }
    let _ = child.kill();
    let _ = child.wait();
    Ok(None)
}

// === impl TransportFigures ===

impl TransportFigures {
    const fn empty(transport: &'static str, round_trip_ms: Option<u128>) -> Self {
        Self {
            transport,
            round_trip_ms,
            mount: None,
            status_cold: None,
            status_again: None,
            grep_cold: None,
            grep_again: None,
            find_cold: None,
            find_again: None,
            check_cold: None,
            check_again: None,
            save_ms: None,
            synced_save_ms: None,
            creates_1000: None,
            read_mb_per_second: None,
            write_mb_per_second: None,
            revoke_to_error_ms: None,
            client_mb: None,
            host_mb: None,
        }
    }

    /// The rows of the table, in order.
    pub fn rows(&self) -> [(&'static str, Option<f64>); 17] {
        [
            ("mount, s", self.mount),
            ("git status cold, s", self.status_cold),
            ("git status again, s", self.status_again),
            ("grep -r cold, s", self.grep_cold),
            ("grep -r again, s", self.grep_again),
            ("find cold, s", self.find_cold),
            ("find again, s", self.find_again),
            ("cargo check, s", self.check_cold),
            ("cargo check again, s", self.check_again),
            ("atomic save 4 KB, ms", self.save_ms),
            ("the same with fsync, ms", self.synced_save_ms),
            ("1,000 creates, s", self.creates_1000),
            ("sequential read, MB/s", self.read_mb_per_second),
            ("sequential write, MB/s", self.write_mb_per_second),
            ("revoke to error, ms", self.revoke_to_error_ms),
            ("client memory, MB", self.client_mb),
            ("host memory, MB", self.host_mb),
        ]
    }
}

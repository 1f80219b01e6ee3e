//! The measurements on one mounted folder. Each uses files that this mount has not seen, so that no cache of sshfs or
//! the kernel answers.

use std::{
    fs::{self, File},
    io::{self, Read, Write},
    path::Path,
    time::{Duration, Instant},
};

/// The size of a small file.
const SMALL_FILE: usize = 4096;
const CHUNK: usize = 1 << 20;

/// How much work each measurement does.
#[derive(Debug, Clone, Copy)]
pub(super) struct MeasureSize {
    pub(super) megabytes: usize,
    pub(super) files: usize,
}

/// The figures of one mount, higher is better: MB/s and operations per second.
#[derive(Debug, Clone, Copy)]
pub(super) struct MountFigures {
    pub(super) write: f64,
    pub(super) read: f64,
    pub(super) create: f64,
    pub(super) open: f64,
    pub(super) stat: f64,
}

/// Prepares files on the host before it is mounted: a big one to read, small ones to open and others to stat.
pub(super) fn prepare(host: &Path, amount: MeasureSize) -> io::Result<()> {
    for folder in ["read", "stat", "new"] {
        fs::create_dir_all(host.join(folder))?;
    }
    let mut big = File::create(host.join("big"))?;
    for number in 0..amount.megabytes {
        big.write_all(&chunk(number))?;
    }
    for number in 0..amount.files {
        fs::write(host.join(format!("read/{number}")), vec![b'r'; SMALL_FILE])?;
        fs::write(host.join(format!("stat/{number}")), b"s")?;
    }
    // Flushed, so that the connection is measured instead of the disk.
    big.sync_all()
}

pub(super) fn measure(mounted: &Path, amount: MeasureSize) -> io::Result<MountFigures> {
    let write = rate(amount.megabytes, || {
        let mut file = File::create(mounted.join("written"))?;
        for number in 0..amount.megabytes {
            file.write_all(&chunk(number))?;
        }
        file.sync_all()
    })?;
    let read = rate(amount.megabytes, || {
        let mut file = File::open(mounted.join("big"))?;
        let mut buffer = vec![0; CHUNK];
        for number in 0..amount.megabytes {
            file.read_exact(&mut buffer)?;
            // Wrong bytes could be fast, so the content is checked.
            if buffer != chunk(number) {
                return Err(io::Error::other("the file reads differently through the mount"));
            }
        }
        Ok(())
    })?;
    let each = |work: &dyn Fn(usize) -> io::Result<()>| rate(amount.files, || (0..amount.files).try_for_each(work));
    let create = each(&|number| fs::write(mounted.join(format!("new/{number}")), [b'n'; SMALL_FILE]))?;
    let open = each(&|number| fs::read(mounted.join(format!("read/{number}"))).map(drop))?;
    let stat = each(&|number| fs::metadata(mounted.join(format!("stat/{number}"))).map(drop))?;
    Ok(MountFigures { write, read, create, open, stat })
}

/// Writes until it fails, and returns when that was.
pub(super) fn write_until_it_fails(mounted: &Path, give_up: Duration) -> io::Result<Instant> {
    let begin = Instant::now();
    let mut file = File::create(mounted.join("endless"))?;
    while begin.elapsed() < give_up {
        if file.write_all(&[0; SMALL_FILE]).and_then(|()| file.sync_all()).is_err() {
            return Ok(Instant::now());
        }
    }
    Err(io::Error::other("writes still succeeded after the lease had ended"))
}

fn chunk(number: usize) -> Vec<u8> {
    let mut chunk = vec![0x5a; CHUNK];
    chunk[..8].copy_from_slice(&number.to_le_bytes());
    chunk
}

fn rate(count: usize, work: impl FnOnce() -> io::Result<()>) -> io::Result<f64> {
    let begin = Instant::now();
    work()?;
    #[allow(clippy::cast_precision_loss, reason = "a figure for people")]
    Ok(count as f64 / begin.elapsed().as_secs_f64())
}

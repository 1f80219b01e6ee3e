//! Random operations on the mount and on a local folder: both must answer the same, look the same, and leave the same on
//! the host.

use std::{
    collections::BTreeMap,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use attache_workspace::mount::MountTransport;

use super::{MountedLease, cannot_mount};
use crate::ssh::unauthenticated::CuttablePort;

/// Each operation happens in both folders.
struct Twins {
    mounted: PathBuf,
    model: PathBuf,
    open: Vec<(File, File)>,
    dice: OperationDice,
}

/// A small random generator: a failure can be replayed from its seed.
struct OperationDice(u64);

const NAMES: [&str; 6] = ["a", "b", "c", "d", "long name with ü", "e"];
const MAX_OPEN: usize = 6;
/// How often the complete trees are compared.
const COMPARE_EVERY: usize = 250;
/// How often the connection breaks, or the host edits something, if they do.
const CUT_EVERY: usize = 397;
const EDIT_EVERY: usize = 41;
const SEEN_TIMEOUT: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn random_operations_do_the_same_as_on_a_local_folder() {
    if cannot_mount() {
        return;
    }
    let mounted = MountedLease::start().await;
    let (at, there) = (mounted.mount.mount_point.clone(), mounted.lease.folder.clone());
    compare_operations(at, there, Acknowledged::ByTheHost, undisturbed()).await;
}

/// The host has them later, but all of them, in the same order.
#[tokio::test(flavor = "multi_thread")]
async fn random_operations_that_are_acknowledged_early_do_the_same() {
    if cannot_mount() {
        return;
    }
    let host = crate::ssh::SshTestHost::start().await;
    let lease = host.lend("loc");
    let mounted = lease.mount_write_back(host.port).await;
    compare_operations(mounted.mount_point.clone(), lease.folder.clone(), Acknowledged::Early, undisturbed()).await;
    let ended = mounted.unmount().await;
    assert_eq!(ended.lost, []);
}

/// In a copy, which is a local folder: the host has the same after a while.
#[tokio::test(flavor = "multi_thread")]
async fn random_operations_in_a_copy_reach_the_host() {
    let host = crate::ssh::SshTestHost::start().await;
    let lease = host.lend("loc");
    let mounted = lease.mount_as(MountTransport::Sync).await;
    compare_operations(mounted.mount_point.clone(), lease.folder.clone(), Acknowledged::InACopy, undisturbed()).await;
    let ended = mounted.unmount().await;
    assert_eq!(ended.lost, []);
}

/// The connection breaks again and again, with changes under way. Nothing is lost or done twice.
#[tokio::test(flavor = "multi_thread")]
async fn outages_make_no_difference() {
    if cannot_mount() {
        return;
    }
    let host = crate::ssh::SshTestHost::start().await;
    let lease = host.lend("loc");
    let port = CuttablePort::to(host.port).await;
    let mounted = lease.mount_write_back(port.port).await;
    let at = mounted.mount_point.clone();
    let cut = move |_: &mut Twins, _| {
        port.cut();
        // Requests that somebody waits for may fail until it is connected again.
        let since = Instant::now();
        while File::open(&at).and_then(|folder| folder.sync_all()).is_err() {
            assert!(since.elapsed() < Duration::from_secs(30), "it is never connected again");
        }
    };
    let cuts = Disturbance { every: CUT_EVERY, act: Box::new(cut) };
    compare_operations(mounted.mount_point.clone(), lease.folder.clone(), Acknowledged::Early, cuts).await;
    let ended = mounted.unmount().await;
    assert_eq!(ended.lost, []);
}

/// Somebody edits the same files on the host. What the kernel and the client remember must not hide it.
#[tokio::test(flavor = "multi_thread")]
async fn edits_on_the_host_in_between_make_no_difference() {
    if cannot_mount() {
        return;
    }
    let host = crate::ssh::SshTestHost::start().await;
    let lease = host.lend("loc");
    let mounted = lease.mount_write_back(host.port).await;
    let (at, there) = (mounted.mount_point.clone(), lease.folder.clone());
    let edit = move |twins: &mut Twins, number| {
        // Whoever edits at the same moment has a conflict. Here, everything is on the host.
        File::open(&at).and_then(|folder| folder.sync_all()).unwrap();
        let what = twins.edit_on_host(&there, number);
        let since = Instant::now();
        while let Some(difference) = difference(&at, &twins.model) {
            assert!(since.elapsed() < SEEN_TIMEOUT, "operation {number}, {what} on the host isn't seen: {difference}");
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let edits = Disturbance { every: EDIT_EVERY, act: Box::new(edit) };
    compare_operations(mounted.mount_point.clone(), lease.folder.clone(), Acknowledged::Early, edits).await;
    let ended = mounted.unmount().await;
    assert_eq!(ended.lost, []);
}

/// Both sides do whatever they like to the same names at the same time. Who wins is open, but both see the same in the end.
#[tokio::test(flavor = "multi_thread")]
async fn both_sides_at_once_agree_in_the_end() {
    if cannot_mount() {
        return;
    }
    let host = crate::ssh::SshTestHost::start().await;
    let lease = host.lend("loc");
    let mounted = lease.mount_write_back(host.port).await;
    edit_both_sides(mounted.mount_point.clone(), lease.folder.clone(), FolderModes::Same).await;
    mounted.unmount().await;
}

/// In a copy, a version that lost against the host's has another name, on both sides.
#[tokio::test(flavor = "multi_thread")]
async fn a_copy_and_the_host_agree_in_the_end() {
    let host = crate::ssh::SshTestHost::start().await;
    let lease = host.lend("loc");
    let mounted = lease.mount_as(MountTransport::Sync).await;
    edit_both_sides(mounted.mount_point.clone(), lease.folder.clone(), FolderModes::Ignored).await;
    mounted.unmount().await;
}

async fn edit_both_sides(at: PathBuf, there: PathBuf, modes: FolderModes) {
    const ROUNDS: u64 = 10;
    const OPERATIONS: usize = 200;
    let seed = seed().unwrap_or(0);
    println!("seed {seed}");
    tokio::task::spawn_blocking(move || {
        for round in 0..ROUNDS {
            std::thread::scope(|scope| {
                for (side, root) in [(1, &at), (2, &there)] {
                    scope.spawn(move || {
                        let mut edits = Edits(OperationDice(seed.wrapping_add(round * 10 + side)));
                        for _ in 0..OPERATIONS {
                            // Each may fail, because of what the other does.
                            let _ = edits.next().act(root);
                        }
                    });
                }
            });
            // A change that lost against the host's is reported here, and by name when it is unmounted.
            let _ = File::open(&at).and_then(|folder| folder.sync_all());
            let since = Instant::now();
            while let Some(difference) = difference_of(&at, &there, modes) {
                assert!(since.elapsed() < SEEN_TIMEOUT, "after round {round}: {difference}");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    })
    .await
    .unwrap();
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Acknowledged {
    ByTheHost,
    Early,
    /// Nobody can wait for the host.
    InACopy,
}

/// Whether the modes of folders are compared. A copy doesn't carry them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FolderModes {
    Same,
    Ignored,
}

/// What happens after an operation with this number.
type Disturb = dyn FnMut(&mut Twins, usize) + Send;

/// Something that happens between operations.
struct Disturbance {
    every: usize,
    act: Box<Disturb>,
}

fn undisturbed() -> Disturbance {
    Disturbance { every: usize::MAX, act: Box::new(|_, _| {}) }
}

async fn compare_operations(at: PathBuf, there: PathBuf, acknowledged: Acknowledged, mut disturbance: Disturbance) {
    let operations = if std::env::var_os("ATTACHE_LONG").is_some() { 1_000_000 } else { 10_000 };
    let seed = seed().unwrap_or(20_260_214);
    println!("seed {seed}, {operations} operations");
    let model = tempfile::tempdir().unwrap();
    tokio::task::spawn_blocking(move || {
        let mut twins =
            Twins { mounted: at.clone(), model: model.path().to_owned(), open: Vec::new(), dice: OperationDice(seed) };
        for number in 0..operations {
            twins.step(number);
            if number % disturbance.every == disturbance.every - 1 {
                (disturbance.act)(&mut twins, number);
            }
            if number.is_multiple_of(COMPARE_EVERY) {
                compare(&at, model.path(), number);
                // Nothing is kept back: what a call acknowledged is on the host, except writes to files that are open.
                twins.open.clear();
                if acknowledged == Acknowledged::Early {
                    File::open(&at).and_then(|folder| folder.sync_all()).unwrap();
                }
                compare_host(&there, model.path(), number, acknowledged);
            }
        }
        twins.open.clear();
        compare(&at, model.path(), operations);
        File::open(&at).and_then(|folder| folder.sync_all()).unwrap();
        compare_host(&there, model.path(), operations, acknowledged);
    })
    .await
    .unwrap();
}

fn seed() -> Option<u64> {
    std::env::var_os("ATTACHE_MODEL_SEED")?.to_str()?.parse().ok()
}

fn compare_host(there: &Path, model: &Path, number: usize, acknowledged: Acknowledged) {
    if acknowledged != Acknowledged::InACopy {
        return compare(there, model, number);
    }
    let since = Instant::now();
    while let Some(difference) = difference_of(there, model, FolderModes::Ignored) {
        assert!(since.elapsed() < SEEN_TIMEOUT, "after operation {number}: {difference}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

impl OperationDice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }
}

/// An outcome that can be compared: what was read, or which error it was.
type Outcome = Result<Vec<u8>, Option<i32>>;

fn outcome<T>(result: io::Result<T>, show: impl FnOnce(T) -> Vec<u8>) -> Outcome {
    result.map(show).map_err(|error| error.raw_os_error())
}

fn silent<T>(result: io::Result<T>) -> Outcome {
    outcome(result, |_| Vec::new())
}

fn stat(path: &Path) -> Outcome {
    outcome(fs::symlink_metadata(path), |found| {
        // A folder's size depends on the file system.
        let size = if found.is_dir() { 0 } else { found.len() };
        // Not the number of links: the host keeps an original as one more name of the same file.
        format!("{:o} {size}", found.mode()).into_bytes()
    })
}

fn list(path: &Path) -> Outcome {
    outcome(fs::read_dir(path).and_then(|entries| entries.collect::<Result<Vec<_>, _>>()), |entries| {
        let mut names: Vec<Vec<u8>> = entries.iter().map(|entry| entry.file_name().into_encoded_bytes()).collect();
        names.sort();
        names.join(&b'\n')
    })
}

/// Edits of files and folders, without open ones.
struct Edits(OperationDice);

struct Edit {
    what: &'static str,
    one: PathBuf,
    other: PathBuf,
    data: Vec<u8>,
}

// === impl Edits ===

impl Edits {
    fn next(&mut self) -> Edit {
        const ALL: [&str; 9] = ["write", "append", "save", "mkdir", "rmdir", "unlink", "rename", "symlink", "chmod"];
        let (one, other, data) = (self.0.path(), self.0.path(), self.0.data());
        Edit { what: ALL[self.0.roll(ALL.len())], one, other, data }
    }
}

// === impl Edit ===

impl Edit {
    fn act(&self, root: &Path) -> Outcome {
        let (one, other) = (root.join(&self.one), root.join(&self.other));
        silent(match self.what {
            "write" => fs::write(one, &self.data),
            "append" => OpenOptions::new().append(true).open(one).and_then(|mut file| file.write_all(&self.data)),
            "save" => {
                let beside = root.join("saved");
                fs::write(&beside, &self.data)
                    .and_then(|()| fs::rename(&beside, one))
                    .inspect_err(|_| drop(fs::remove_file(&beside)))
            }
            "mkdir" => fs::create_dir(one),
            "rmdir" => fs::remove_dir(one),
            "unlink" => fs::remove_file(one),
            "rename" => fs::rename(one, other),
            "symlink" => symlink("a", one),
            _ => fs::set_permissions(one, fs::Permissions::from_mode(0o640)),
        })
    }
}

impl OperationDice {
    fn path(&mut self) -> PathBuf {
        let depth = 1 + self.roll(3);
        (0..depth).map(|_| NAMES[self.roll(NAMES.len())]).collect()
    }

    fn data(&mut self) -> Vec<u8> {
        let length = match self.roll(8) {
            0 => 0,
            1 => 200_000 + self.roll(100_000),
            _ => self.roll(5000),
        };
        let byte = u8::try_from(self.roll(256)).unwrap();
        (0..length).map(|at| byte ^ u8::try_from(at % 251).unwrap()).collect()
    }
}

impl Twins {
    /// The same edit on the host and in the model. Returns what it was.
    fn edit_on_host(&mut self, there: &Path, number: usize) -> String {
        let mut edits = Edits(OperationDice(self.dice.0));
        let edit = edits.next();
        self.dice = edits.0;
        let what = format!("{} {} {}", edit.what, edit.one.display(), edit.other.display());
        let (done, expected) = (edit.act(there), edit.act(&self.model));
        assert!(done == expected, "operation {number}, {what}: {} instead of {}", brief(&done), brief(&expected));
        what
    }

    /// Does the same in both folders, and compares.
    fn both(&self, what: &str, number: usize, act: impl Fn(&Path) -> Outcome) {
        let (here, there) = (act(&self.mounted), act(&self.model));
        assert!(here == there, "operation {number}, {what}: {} instead of {}", brief(&here), brief(&there));
    }

    fn step(&mut self, number: usize) {
        let (one, other, data) = (self.dice.path(), self.dice.path(), self.dice.data());
        let shown = format!("{} {}", one.display(), other.display());
        let what = self.dice.roll(22);
        let named = |name: &str| format!("{name} {shown}");
        match what {
            0..3 => self.both(&named("write"), number, |at| silent(fs::write(at.join(&one), &data))),
            3 => self.both(&named("append"), number, |at| {
                let opened = OpenOptions::new().append(true).open(at.join(&one));
                silent(opened.and_then(|mut file| file.write_all(&data)))
            }),
            4 => self.both(&named("create new"), number, |at| {
                silent(OpenOptions::new().write(true).create_new(true).open(at.join(&one)))
            }),
            5 => {
                let size = self.dice.roll(6000) as u64;
                self.both(&named("truncate"), number, |at| {
                    silent(OpenOptions::new().write(true).open(at.join(&one)).and_then(|file| file.set_len(size)))
                });
            }
            6..8 => self.both(&named("mkdir"), number, |at| silent(fs::create_dir(at.join(&one)))),
            8 => self.both(&named("rmdir"), number, |at| silent(fs::remove_dir(at.join(&one)))),
            9 => self.both(&named("unlink"), number, |at| silent(fs::remove_file(at.join(&one)))),
            10..12 => self.both(&named("rename"), number, |at| silent(fs::rename(at.join(&one), at.join(&other)))),
            // A second name for a symbolic link is refused by the export.
            12 if self.model.join(&one).is_symlink() => {}
            12 => self.both(&named("hard link"), number, |at| silent(fs::hard_link(at.join(&one), at.join(&other)))),
            13 => self.both(&named("symlink"), number, |at| silent(symlink("a", at.join(&one)))),
            14 => {
                let mode = [0o644, 0o755, 0o600, 0o700][self.dice.roll(4)];
                self.both(&named("chmod"), number, |at| {
                    silent(fs::set_permissions(at.join(&one), fs::Permissions::from_mode(mode)))
                });
            }
            15 => self.both(&named("read"), number, |at| outcome(fs::read(at.join(&one)), |bytes| bytes)),
            16 => self.both(&named("stat"), number, |at| stat(&at.join(&one))),
            17 => self.both(&named("list"), number, |at| list(&at.join(&one))),
            18 => self.both(&named("read link"), number, |at| {
                outcome(fs::read_link(at.join(&one)), |target| target.into_os_string().into_encoded_bytes())
            }),
            19 => self.open(&one, number),
            _ => self.use_open(&data, number),
        }
    }

    fn open(&mut self, path: &Path, number: usize) {
        if self.open.len() >= MAX_OPEN {
            let at = self.dice.roll(self.open.len());
            drop(self.open.swap_remove(at));
        }
        let open =
            |at: &Path| OpenOptions::new().read(true).write(true).create(true).truncate(false).open(at.join(path));
        match (open(&self.mounted), open(&self.model)) {
            (Ok(here), Ok(there)) => self.open.push((here, there)),
            (here, there) => {
                let (here, there) = (silent(here), silent(there));
                assert_eq!(here, there, "operation {number}, open {}", path.display());
            }
        }
    }

    /// Something with a file that is open, whatever became of its name.
    fn use_open(&mut self, data: &[u8], number: usize) {
        if self.open.is_empty() {
            return;
        }
        let at = self.dice.roll(self.open.len());
        let (offset, what) = (self.dice.roll(20_000) as u64, self.dice.roll(6));
        let act = |file: &mut File| match what {
            0 => silent(file.write_all_at(data, offset)),
            1 => silent(file.set_len(offset)),
            2 => silent(file.sync_all()),
            3 => outcome(file.metadata(), |found| found.len().to_string().into_bytes()),
            4 => silent(file.seek(SeekFrom::End(0)).and_then(|_| file.write_all(data))),
            _ => {
                let mut bytes = Vec::new();
                let read = file.seek(SeekFrom::Start(0)).and_then(|_| file.read_to_end(&mut bytes));
                outcome(read, |_| bytes)
            }
        };
        let (here, there) = &mut self.open[at];
        let (here, there) = (act(here), act(there));
        assert!(here == there, "operation {number}, open file, {what}: {} not {}", brief(&here), brief(&there));
    }
}

fn brief(outcome: &Outcome) -> String {
    match outcome {
        Ok(bytes) => format!("{} bytes {:?}", bytes.len(), String::from_utf8_lossy(&bytes[..bytes.len().min(60)])),
        Err(errno) => format!("error {errno:?}"),
    }
}

/// Everything in both folders: names, kinds, modes, contents.
fn compare(one: &Path, other: &Path, number: usize) {
    if let Some(difference) = difference(one, other) {
        panic!("after operation {number}: {difference}");
    }
}

fn difference(one: &Path, other: &Path) -> Option<String> {
    difference_of(one, other, FolderModes::Same)
}

fn difference_of(one: &Path, other: &Path, modes: FolderModes) -> Option<String> {
    let (one, other) = match (whole(one, modes), whole(other, modes)) {
        (Ok(one), Ok(other)) => (one, other),
        (Err(error), _) | (_, Err(error)) => return Some(error.to_string()),
    };
    let path = one.keys().chain(other.keys()).find(|path| one.get(*path) != other.get(*path))?;
    let show = |of: &BTreeMap<PathBuf, (String, Vec<u8>)>| {
        of.get(path).map(|(facts, content)| format!("{facts}, {} bytes", content.len()))
    };
    Some(format!("{}: {:?} and {:?} differ", path.display(), show(&one), show(&other)))
}

fn whole(root: &Path, modes: FolderModes) -> io::Result<BTreeMap<PathBuf, (String, Vec<u8>)>> {
    let mut found = BTreeMap::new();
    let mut paths = vec![root.to_owned()];
    while let Some(path) = paths.pop() {
        let stat = fs::symlink_metadata(&path)?;
        let content = if stat.is_file() {
            fs::read(&path)?
        } else if stat.is_symlink() {
            fs::read_link(&path)?.into_os_string().into_encoded_bytes()
        } else {
            for entry in fs::read_dir(&path)? {
                paths.push(entry?.path());
            }
            Vec::new()
        };
        let relative = path.strip_prefix(root).unwrap().to_owned();
        let is_ignored = relative.as_os_str().is_empty() || (stat.is_dir() && modes == FolderModes::Ignored);
        let mode = if is_ignored { 0 } else { stat.mode() };
        found.insert(relative, (format!("{mode:o}"), content));
    }
    Ok(found)
}

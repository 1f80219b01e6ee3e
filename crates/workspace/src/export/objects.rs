//! The object store of a repository: what a remote adds must match its name. Git on the host doesn't check again when
//! it reads, so an object under a wrong name would be mistaken for another one.

use std::{
    fs,
    io::{self, BufReader, Read as _},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use attache_os::program;
use attache_protocol::digest::hex;
use aws_lc_rs::digest::{Algorithm, Context, SHA1_FOR_LEGACY_USE_ONLY, SHA256};
use rustix::{
    fs::OFlags,
    io::Errno,
    process::{Pid, Resource, Rlimit, prlimit},
};

use super::{
    ExportRefusal,
    inflate::{InflateError, inflate},
    root::PathHandle,
};

/// The meaning of names in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GitStoreFile {
    /// `objects/ab/cdef…`
    Object,
    /// `objects/pack/*.pack`
    Pack,
    /// `objects/pack/*.idx` and `*.rev`: the position of each object in the pack.
    PackIndex,
    /// `lfs/objects/ab/cd/abcdef…`
    LargeFile,
}

const OTHER: ExportRefusal =
    ExportRefusal::Denied("its content doesn't match its name; git on the host would mistake it for another object");
const NO_PACK: ExportRefusal = ExportRefusal::Denied("add the pack before its index, so that they can be compared");
const HAS_INDEX: ExportRefusal = ExportRefusal::Denied("this pack already has an index; add another pack");
const NO_GIT: ExportRefusal =
    ExportRefusal::Denied("the host has no git to check the pack; add its objects one by one");
/// More than any header: a kind, a space, a number.
const LONGEST_HEADER: usize = 32;
/// What git can use to read a pack.
const MAX_INDEX_MEMORY: u64 = 2 << 30;
const MAX_INDEX_SECONDS: u64 = 600;
/// How often the end of the lease is checked while git reads a pack.
const LOOK: Duration = Duration::from_millis(20);

/// What a path below `.git` is in a store, if git on the host would read it there.
pub(super) fn stored(names: &[&[u8]]) -> Option<GitStoreFile> {
    match names {
        [b"objects", fan, rest] if fan.len() == 2 && matches!(rest.len(), 38 | 62) && is_hex(fan) && is_hex(rest) => {
            Some(GitStoreFile::Object)
        }
        [b"objects", b"pack", name] if name.ends_with(b".pack") => Some(GitStoreFile::Pack),
        [b"objects", b"pack", name] if name.ends_with(b".idx") || name.ends_with(b".rev") => {
            Some(GitStoreFile::PackIndex)
        }
        [b"lfs", b"objects", .., name] if is_large_file(name) => Some(GitStoreFile::LargeFile),
        _ => None,
    }
}

pub(super) fn is_hex(name: &[u8]) -> bool {
    name.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

pub(super) fn is_large_file(name: &[u8]) -> bool {
    name.len() == 64 && is_hex(name)
}

/// A pack gets its name before its index, and keeps it.
pub(super) fn check_pack(has_index: bool) -> Result<(), ExportRefusal> {
    if has_index { Err(HAS_INDEX) } else { Ok(()) }
}

/// Whether the file contains the object with the id formed by the last two names.
pub(super) fn check_object(
    found: &PathHandle,
    names: &[&[u8]],
    go_on: &dyn Fn() -> Result<(), ExportRefusal>,
) -> Result<(), ExportRefusal> {
    let [.., fan, rest] = names else { return Err(OTHER) };
    let id = [*fan, *rest].concat();
    let mut digest = Context::new(algorithm(id.len() / 2));
    let (mut header, mut content) = (Vec::new(), None::<(u64, u64)>);
    let mut stopped = None;
    let mut sink = |piece: &[u8]| {
        if let Err(refusal) = go_on() {
            stopped = Some(refusal);
            return Err(InflateError::Data);
        }
        digest.update(piece);
        let mut piece = piece;
        if content.is_none() {
            let end = piece.iter().position(|&byte| byte == 0);
            header.extend_from_slice(&piece[..end.unwrap_or(piece.len()).min(LONGEST_HEADER + 1)]);
            if header.len() > LONGEST_HEADER {
                return Err(InflateError::Data);
            }
            let Some(end) = end else { return Ok(()) };
            content = Some((size(&header).ok_or(InflateError::Data)?, 0));
            piece = &piece[end + 1..];
        }
        if let Some((size, seen)) = &mut content {
            *seen += piece.len() as u64;
            if *seen > *size {
                return Err(InflateError::Data);
            }
        }
        Ok(())
    };
    let input = BufReader::with_capacity(64 << 10, fs::File::from(found.reopen(OFlags::RDONLY)?));
    let read = inflate(input, &mut sink);
    if let Some(refusal) = stopped {
        return Err(refusal);
    }
    match read {
        Ok(()) => {}
        Err(InflateError::Data) => return Err(OTHER),
        Err(InflateError::Io(error)) => return Err(error.into()),
    }
    let is_whole = content.is_some_and(|(size, seen)| size == seen);
    if is_whole && hex(digest.finish().as_ref()).as_bytes() == id { Ok(()) } else { Err(OTHER) }
}

/// The 12 of `blob 12`.
fn size(header: &[u8]) -> Option<u64> {
    let (kind, size) = std::str::from_utf8(header).ok()?.split_once(' ')?;
    let is_number = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_digit());
    (matches!(kind, "blob" | "tree" | "commit" | "tag") && is_number).then(|| size.parse().ok()).flatten()
}

/// Whether the name is the SHA-256 of the bytes.
pub(super) fn check_large_file(
    found: &PathHandle,
    name: &[u8],
    go_on: &dyn Fn() -> Result<(), ExportRefusal>,
) -> Result<(), ExportRefusal> {
    let (mut file, mut digest) = (fs::File::from(found.reopen(OFlags::RDONLY)?), Context::new(&SHA256));
    let mut piece = vec![0; 256 << 10];
    loop {
        go_on()?;
        match file.read(&mut piece)? {
            0 => break,
            length => digest.update(&piece[..length]),
        }
    }
    if hex(digest.finish().as_ref()).as_bytes() == name { Ok(()) } else { Err(OTHER) }
}

/// Whether an index is byte for byte what git itself generates for the pack. `scratch` is a private folder of this
/// lease.
pub(super) fn check_index(
    found: &PathHandle,
    name: &[u8],
    pack: Option<&PathHandle>,
    id: usize,
    scratch: &Path,
    go_on: &dyn Fn() -> Result<(), ExportRefusal>,
) -> Result<(), ExportRefusal> {
    let pack = pack.ok_or(NO_PACK)?;
    let (index, reverse) = (scratch.join("made.idx"), scratch.join("made.rev"));
    let remove = || [&index, &reverse].into_iter().for_each(|file| drop(fs::remove_file(file)));
    remove();
    let made = index_pack(pack, &index, id, go_on).and_then(|()| {
        let ours = if name.ends_with(b".rev") { &reverse } else { &index };
        let (mut ours, mut theirs) = (fs::File::open(ours)?, fs::File::from(found.reopen(OFlags::RDONLY)?));
        Ok(same(&mut ours, &mut theirs)?)
    });
    remove();
    if made? { Ok(()) } else { Err(OTHER) }
}

fn index_pack(
    pack: &PathHandle,
    index: &Path,
    id: usize,
    go_on: &dyn Fn() -> Result<(), ExportRefusal>,
) -> Result<(), ExportRefusal> {
    let format = if id == 32 { "sha256" } else { "sha1" };
    // Open already, and opened again by git under the name that it has there: nothing else can be read.
    let pack = fs::File::from(pack.reopen(OFlags::RDONLY)?);
    let mut git = Command::new(program::path("git"));
    git.env("PATH", program::SYSTEM_PATH);
    git.args(["index-pack", "--rev-index", &format!("--object-format={format}"), "-o"]).arg(index).arg("/dev/fd/0");
    git.current_dir("/").env("GIT_CEILING_DIRECTORIES", "/").env("GIT_DIR", "/nonexistent");
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env_remove("GIT_CONFIG_COUNT");
    git.env_remove("GIT_CONFIG_PARAMETERS").env_remove("GIT_OBJECT_DIRECTORY").env_remove("GIT_TRACE");
    git.stdin(pack).stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = git.spawn().map_err(|_| NO_GIT)?;
    // A few bytes of a pack can describe an object of any size. Git doesn't start with it.
    if let Err(error) = limit(&child) {
        stop(&mut child);
        return Err(error.into());
    }
    loop {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(()),
            Some(_) => return Err(OTHER),
            None => {}
        }
        if let Err(refusal) = go_on() {
            stop(&mut child);
            return Err(refusal);
        }
        thread::sleep(LOOK);
    }
}

fn limit(child: &Child) -> io::Result<()> {
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    for (resource, most) in [(Resource::As, MAX_INDEX_MEMORY), (Resource::Cpu, MAX_INDEX_SECONDS)] {
        match prlimit(id, resource, Rlimit { current: Some(most), maximum: Some(most) }) {
            // It has ended already.
            Ok(_) | Err(Errno::SRCH) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn stop(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn same(left: &mut fs::File, right: &mut fs::File) -> io::Result<bool> {
    if left.metadata()?.len() != right.metadata()?.len() {
        return Ok(false);
    }
    let (mut left, mut right) = (BufReader::new(left).bytes(), BufReader::new(right).bytes());
    loop {
        match (left.next().transpose()?, right.next().transpose()?) {
            (None, None) => return Ok(true),
            (mine, theirs) if mine == theirs => {}
            _ => return Ok(false),
        }
    }
}

fn algorithm(id: usize) -> &'static Algorithm {
    if id == 32 { &SHA256 } else { &SHA1_FOR_LEGACY_USE_ONLY }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pack with a blob of zeros, and a delta that repeats it.
    fn pack(blob: usize, times: usize) -> Vec<u8> {
        let number = |mut number: usize| {
            let mut bytes = Vec::new();
            while number > 0x7f {
                bytes.push(0x80 | (number & 0x7f) as u8);
                number >>= 7;
            }
            bytes.push(number as u8);
            bytes
        };
        // The kind and the lowest four bits of the size, then the rest of it.
        let header = |kind: usize, size: usize| {
            let first = (kind << 4) | (size & 0xf);
            if size < 16 { vec![first as u8] } else { [&[0x80 | first as u8][..], &number(size >> 4)].concat() }
        };
        let packed = |bytes: &[u8]| miniz_oxide::deflate::compress_to_vec_zlib(bytes, 1);
        let base = [header(3, blob), packed(&vec![0; blob])].concat();
        // Each byte copies 64 KiB from the beginning.
        let copies = vec![0x80; blob * times / 0x1_0000];
        let delta = [number(blob), number(blob * times), copies].concat();
        let mut back = vec![(base.len() & 0x7f) as u8];
        let mut rest = base.len() >> 7;
        while rest > 0 {
            rest -= 1;
            back.insert(0, 0x80 | (rest & 0x7f) as u8);
            rest >>= 7;
        }
        let count = 2_u32.to_be_bytes();
        let mut pack =
            [&b"PACK\0\0\0\x02"[..], &count, &base, &header(6, delta.len()), &back, &packed(&delta)].concat();
        let sum = aws_lc_rs::digest::digest(&SHA1_FOR_LEGACY_USE_ONLY, &pack);
        pack.extend_from_slice(sum.as_ref());
        pack
    }

    #[test]
    fn a_pack_that_grows_too_large_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let index = |times: usize| {
            let file = folder.path().join("pack");
            fs::write(&file, pack(1 << 20, times)).unwrap();
            let handle = PathHandle::of(fs::File::open(&file).unwrap().into()).unwrap();
            index_pack(&handle, &folder.path().join("made.idx"), 20, &|| Ok(()))
        };
        index(2).unwrap();
        // 3 GiB from a few kilobytes.
        assert_eq!(index(3 << 10).unwrap_err().name(), "denied");
    }
}

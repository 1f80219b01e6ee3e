//! Checks files that git on the host would trust before they get the name under which git looks for them: `HEAD`, refs,
//! packed refs and the index. A remote can commit through them, but can't redirect git or hide anything from it.

use std::collections::BTreeSet;

use super::{
    git_guard::{TrustedGitFile, is_ref_part},
    git_index,
    refusal::ExportRefusal,
};

/// The size limit of each kind of file.
pub(super) const fn longest(kind: TrustedGitFile) -> u64 {
    match kind {
        TrustedGitFile::Head | TrustedGitFile::Ref | TrustedGitFile::Id | TrustedGitFile::Conflicts => 4 << 10,
        TrustedGitFile::PackedRefs => 64 << 20,
        TrustedGitFile::Index => 256 << 20,
        TrustedGitFile::Stored(_) => u64::MAX,
    }
}

const BAD_REF: ExportRefusal =
    ExportRefusal::Denied("git on the host couldn't read it: a ref is an object id or `ref: refs/…`");
const BAD_HEAD: ExportRefusal =
    ExportRefusal::Denied("git on the host couldn't read it: HEAD is an object id or `ref: refs/heads/…`");
const BAD_ID: ExportRefusal = ExportRefusal::Denied("git on the host would follow it: it must be an object id");
const CONFLICTS: ExportRefusal = ExportRefusal::Denied(
    "git on the host would copy and overwrite the files that it names; resolve conflicts without rerere",
);
const BAD_PACKED: ExportRefusal =
    ExportRefusal::Denied("git on the host couldn't read it: each line of packed-refs is an id and a ref");
const OURS: ExportRefusal = ExportRefusal::Denied("refs/attache is reserved for the host's snapshots");

/// Whether `new` can replace `old`. `id` is the length of an object id in bytes.
pub(super) fn check(kind: TrustedGitFile, new: &[u8], old: Option<&[u8]>, id: usize) -> Result<(), ExportRefusal> {
    match kind {
        TrustedGitFile::Head if is_head(new, id) => Ok(()),
        TrustedGitFile::Head => Err(BAD_HEAD),
        TrustedGitFile::Ref if is_ref(new, id) => Ok(()),
        TrustedGitFile::Ref => Err(BAD_REF),
        TrustedGitFile::Id if is_id(new.strip_suffix(b"\n").unwrap_or(new), id) => Ok(()),
        TrustedGitFile::Id => Err(BAD_ID),
        // Git writes it after every commit where rerere is on.
        TrustedGitFile::Conflicts if new.is_empty() => Ok(()),
        TrustedGitFile::Conflicts => Err(CONFLICTS),
        TrustedGitFile::PackedRefs => {
            let kept = |text: &[u8]| {
                Ok::<_, ExportRefusal>(packed(text, id)?.into_iter().map(<[u8]>::to_vec).collect::<BTreeSet<_>>())
            };
            if kept(new)? == old.map_or_else(|| Ok(BTreeSet::new()), kept)? { Ok(()) } else { Err(OURS) }
        }
        TrustedGitFile::Index => {
            let old = old.and_then(|old| git_index::hidden(old, id).ok()).unwrap_or_default();
            git_index::check(new, id, |hidden| old.contains(hidden))
        }
        // Checked piece by piece, in `objects`.
        TrustedGitFile::Stored(_) => Ok(()),
    }
}

/// `id` is the length in bytes: git takes no other.
fn is_id(text: &[u8], id: usize) -> bool {
    text.len() == 2 * id && text.iter().all(u8::is_ascii_hexdigit)
}

fn is_ref_name(name: &[u8]) -> bool {
    name.starts_with(b"refs/") && name.split(|&byte| byte == b'/').all(is_ref_part)
}

fn is_ref(text: &[u8], id: usize) -> bool {
    let line = text.strip_suffix(b"\n").unwrap_or(text);
    is_id(line, id) || line.strip_prefix(b"ref: ").is_some_and(is_ref_name)
}

fn is_head(text: &[u8], id: usize) -> bool {
    let line = text.strip_suffix(b"\n").unwrap_or(text);
    is_id(line, id)
        || line.strip_prefix(b"ref: ").is_some_and(|name| name.starts_with(b"refs/heads/") && is_ref_name(name))
}

/// The lines that belong to the host.
fn packed(text: &[u8], id: usize) -> Result<Vec<&[u8]>, ExportRefusal> {
    let mut ours = Vec::new();
    for line in text.split(|&byte| byte == b'\n').filter(|line| !line.is_empty() && !line.starts_with(b"#")) {
        if line.strip_prefix(b"^").is_some_and(|peeled| is_id(peeled, id)) {
            continue;
        }
        let at = line.iter().position(|&byte| byte == b' ').ok_or(BAD_PACKED)?;
        let name = &line[at + 1..];
        if !is_id(&line[..at], id) || !is_ref_name(name) {
            return Err(BAD_PACKED);
        }
        if name.starts_with(b"refs/attache/") || name.starts_with(b"refs/replace/") {
            ours.push(line);
        }
    }
    Ok(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789012345678901234567890123456789";
    const LONG: &str = "0123456789012345678901234567890123456789012345678901234567890123";

    #[test]
    fn heads_and_refs_are_validated() {
        let ok = |kind, text: &str| check(kind, text.as_bytes(), None, 20).is_ok();
        for (text, head, reference) in [
            ("ref: refs/heads/main\n", true, true),
            ("ref: refs/heads/topic/x", true, true),
            (ID, true, true),
            (LONG, false, false),
            ("ref: refs/remotes/origin/main\n", false, true),
            ("nonsense\n", false, false),
            ("", false, false),
            ("ref: ../../etc/passwd\n", false, false),
            ("ref: refs/heads/../../x\n", false, false),
            ("ref: refs/heads/a b\n", false, false),
            ("ref: refs/heads/main\nmore\n", false, false),
        ] {
            assert_eq!((ok(TrustedGitFile::Head, text), ok(TrustedGitFile::Ref, text)), (head, reference), "{text:?}");
        }
    }

    #[test]
    fn packed_refs_keep_the_refs_of_the_host() {
        let ok =
            |new: &str, old: &str| check(TrustedGitFile::PackedRefs, new.as_bytes(), Some(old.as_bytes()), 20).is_ok();
        let ours = format!("# pack-refs with: peeled\n{ID} refs/attache/dlg_1\n{ID} refs/heads/main\n^{ID}\n");
        assert!(ok(&ours, &ours) && ok(&format!("{ID} refs/attache/dlg_1\n"), &ours));
        assert!(!ok(&format!("{ID} refs/heads/main\n"), &ours) && !ok(&ours, ""));
        assert!(!ok(&format!("{ID} refs/replace/{ID}\n"), ""));
        assert!(!ok("nonsense", "") && !ok(&format!("{ID} ../x\n"), "") && !ok("zz refs/heads/x\n", ""));
    }
}

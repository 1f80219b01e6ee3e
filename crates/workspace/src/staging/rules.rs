//! What becomes of a path that the remote changed in its copy, given how it was when the copy was made, and how it is in the
//! owner's folder by now. Pure: nothing is read or written here.

use aws_lc_rs::digest::SHA256_OUTPUT_LEN;

/// What is at a path, as far as it is applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathVersion {
    Absent,
    Folder {
        mode: u32,
    },
    File {
        content: ContentDigest,
        mode: u32,
    },
    Link(Vec<u8>),
    /// A device, for example. It is left alone.
    Special,
}

pub(super) type ContentDigest = [u8; SHA256_OUTPUT_LEN];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ApplyStep {
    /// The folder has the remote's change already.
    Settled,
    /// The folder gets this. A file's content is the remote's.
    Put(PathVersion),
    /// Only the mode changes.
    SetMode(u32),
    /// Both sides changed the content of a file.
    Merge { mode: u32 },
    /// Both sides changed it.
    Conflict,
}

/// Lets others write where they could before.
const OTHERS_WRITE: u32 = 0o022;

// === impl PathVersion ===

impl PathVersion {
    /// The remote's version without what it has no say in: who else may write to a file or folder of the owner. That is as it
    /// was before, or is now.
    pub(super) fn within(self, base: &Self, ours: &Self) -> Self {
        let shared = (base.mode() | ours.mode()) & OTHERS_WRITE;
        match self {
            Self::File { content, mode } => Self::File { content, mode: unshared(mode) | (mode & shared) },
            Self::Folder { mode } => Self::Folder { mode: unshared(mode) | (mode & shared) },
            other => other,
        }
    }

    const fn mode(&self) -> u32 {
        match self {
            Self::File { mode, .. } | Self::Folder { mode } => *mode,
            Self::Absent | Self::Link(_) | Self::Special => 0,
        }
    }
}

/// The mode of something new, which only its owner can change.
pub(super) const fn unshared(mode: u32) -> u32 {
    mode & !OTHERS_WRITE
}

/// The step that brings the change from `base` to `theirs` to the folder, where the path is `ours`.
pub(super) fn decide(base: &PathVersion, ours: &PathVersion, theirs: &PathVersion) -> ApplyStep {
    use PathVersion::{File, Folder};
    if theirs == base || ours == theirs {
        return ApplyStep::Settled;
    }
    match (base, ours, theirs) {
        (_, PathVersion::Special, _) | (_, _, PathVersion::Special) => ApplyStep::Conflict,
        (Folder { mode: base }, Folder { mode: ours }, Folder { mode: theirs }) => {
            match merge_mode(*base, *ours, *theirs) {
                Some(mode) if mode == *ours => ApplyStep::Settled,
                Some(mode) => ApplyStep::SetMode(mode),
                None => ApplyStep::Conflict,
            }
        }
        // Both made it.
        (_, Folder { .. }, Folder { .. }) => ApplyStep::Settled,
        (
            File { content: base, mode: base_mode },
            File { content: ours, mode: our_mode },
            File { content: theirs, mode: their_mode },
        ) => match merge_mode(*base_mode, *our_mode, *their_mode) {
            None => ApplyStep::Conflict,
            Some(mode) if theirs == base || theirs == ours => {
                if mode == *our_mode {
                    ApplyStep::Settled
                } else {
                    ApplyStep::SetMode(mode)
                }
            }
            Some(mode) if ours == base => ApplyStep::Put(File { content: *theirs, mode }),
            Some(mode) => ApplyStep::Merge { mode },
        },
        _ if ours == base => ApplyStep::Put(theirs.clone()),
        _ => ApplyStep::Conflict,
    }
}

fn merge_mode(base: u32, ours: u32, theirs: u32) -> Option<u32> {
    match () {
        () if theirs == base || theirs == ours => Some(ours),
        () if ours == base => Some(theirs),
        () => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn versions() -> impl Strategy<Value = PathVersion> {
        let mode = proptest::sample::select(vec![0o644_u32, 0o755, 0o600]);
        prop_oneof![
            1 => Just(PathVersion::Absent),
            1 => mode.clone().prop_map(|mode| PathVersion::Folder { mode }),
            4 => (0_u8..3, mode).prop_map(|(content, mode)| PathVersion::File { content: [content; 32], mode }),
            1 => (0_u8..3).prop_map(|target| PathVersion::Link(vec![target])),
            1 => Just(PathVersion::Special),
        ]
    }

    /// The path in the folder after the step. `None` if a person is asked.
    fn after(ours: &PathVersion, step: &ApplyStep) -> Option<PathVersion> {
        match (step, ours) {
            (ApplyStep::Settled, _) => Some(ours.clone()),
            (ApplyStep::Put(version), _) => Some(version.clone()),
            (ApplyStep::SetMode(mode), PathVersion::Folder { .. }) => Some(PathVersion::Folder { mode: *mode }),
            (ApplyStep::SetMode(mode), PathVersion::File { content, .. }) => {
                Some(PathVersion::File { content: *content, mode: *mode })
            }
            (ApplyStep::SetMode(_), _) => panic!("{ours:?} has no mode"),
            (ApplyStep::Merge { .. } | ApplyStep::Conflict, _) => None,
        }
    }

    #[test]
    fn nobody_else_gets_to_write_because_of_a_remote() {
        let file = |mode| PathVersion::File { content: [1; 32], mode };
        let folder = |mode| PathVersion::Folder { mode };
        let absent = PathVersion::Absent;
        assert_eq!(file(0o777).within(&absent, &absent), file(0o755));
        assert_eq!(folder(0o777).within(&absent, &absent), folder(0o755));
        assert_eq!(file(0o777).within(&file(0o644), &file(0o644)), file(0o755));
        // A group that works in the folder still can.
        assert_eq!(file(0o777).within(&file(0o664), &file(0o664)), file(0o775));
        assert_eq!(file(0o777).within(&file(0o644), &file(0o664)), file(0o775));
        assert_eq!(folder(0o700).within(&folder(0o777), &folder(0o777)), folder(0o700));
        // Applied once more, it changes nothing.
        let applied = file(0o777).within(&file(0o644), &file(0o755));
        assert_eq!(decide(&file(0o644), &file(0o755), &applied), ApplyStep::Settled);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4_000))]

        #[test]
        fn an_untouched_folder_gets_what_the_remote_made((base, theirs) in (versions(), versions())) {
            let step = decide(&base, &base, &theirs);
            let is_special = [&base, &theirs].contains(&&PathVersion::Special) && base != theirs;
            prop_assert_eq!(after(&base, &step), (!is_special).then_some(theirs));
        }

        #[test]
        fn what_the_remote_left_alone_stays((base, ours) in (versions(), versions())) {
            prop_assert_eq!(decide(&base, &ours, &base), ApplyStep::Settled);
        }

        /// Nothing that the owner changed is replaced without being asked about, but where the remote did the same.
        #[test]
        fn no_change_of_the_owner_is_lost((base, ours, theirs) in (versions(), versions(), versions())) {
            let step = decide(&base, &ours, &theirs);
            let Some(result) = after(&ours, &step) else {
                prop_assert!(base != ours && base != theirs && ours != theirs || ours == PathVersion::Special
                    || theirs == PathVersion::Special);
                return Ok(());
            };
            match (&base, &ours, &result) {
                (PathVersion::File { content: old, mode: old_mode }, PathVersion::File { content, mode },
                    PathVersion::File { content: new, mode: new_mode }) => {
                    prop_assert!(content == old || content == new);
                    prop_assert!(mode == old_mode || mode == new_mode);
                }
                (PathVersion::Folder { mode: old }, PathVersion::Folder { mode }, PathVersion::Folder { mode: new }) => {
                    prop_assert!(mode == old || mode == new);
                }
                _ => prop_assert!(ours == base || result == ours),
            }
            // Once more changes nothing: an interrupted apply can be repeated.
            prop_assert_eq!(decide(&base, &result, &theirs), ApplyStep::Settled);
        }
    }
}

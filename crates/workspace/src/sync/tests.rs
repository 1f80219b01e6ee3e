//! The rules against random edits on both sides: both sides end up the same, and no edit gets lost.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::rules::{FileContent, PathOutcome, PathState, PathStates, folders_above, settle};
use crate::chunks::ContentId;

type ModelTree = BTreeMap<Vec<u8>, PathState>;

const PATHS: [&str; 7] = ["a", "b", "d", "d/x", "d/y", "d/e", "d/e/z"];

/// What somebody does to a path.
#[derive(Debug, Clone)]
enum ModelEdit {
    Write(u8),
    Remove,
    MakeFolder,
    Link,
}

fn edit() -> impl Strategy<Value = (usize, ModelEdit)> {
    let edits = prop_oneof![
        4 => any::<u8>().prop_map(ModelEdit::Write),
        2 => Just(ModelEdit::Remove),
        2 => Just(ModelEdit::MakeFolder),
        1 => Just(ModelEdit::Link),
    ];
    (0..PATHS.len(), edits)
}

fn file(number: u8, who: u8) -> PathState {
    let mut id = [who; 32];
    id[0] = number;
    PathState::File { content: FileContent::Known(ContentId(id)), mode: 0o644 }
}

fn get(tree: &ModelTree, path: &[u8]) -> PathState {
    tree.get(path).cloned().unwrap_or(PathState::Absent)
}

fn remove(tree: &mut ModelTree, path: &[u8]) {
    tree.retain(|known, _| known != path && !folders_above(known).any(|folder| folder == path));
}

fn act(tree: &mut ModelTree, (at, edit): &(usize, ModelEdit), who: u8) {
    let path = PATHS[*at].as_bytes();
    if folders_above(path).any(|folder| get(tree, folder) != PathState::Folder) {
        return;
    }
    match edit {
        ModelEdit::Remove => remove(tree, path),
        ModelEdit::MakeFolder if get(tree, path) == PathState::Folder => {}
        ModelEdit::MakeFolder | ModelEdit::Write(_) | ModelEdit::Link => {
            remove(tree, path);
            let state = match edit {
                ModelEdit::Write(number) => file(*number, who),
                ModelEdit::Link => PathState::Link(vec![who]),
                _ => PathState::Folder,
            };
            tree.insert(path.to_vec(), state);
        }
    }
}

/// Carries out a pass, as the engine does. Returns whether anything is left to do.
fn pass(base: &mut ModelTree, local: &mut ModelTree, host: &mut ModelTree) -> bool {
    let paths: Vec<Vec<u8>> = base.keys().chain(local.keys()).chain(host.keys()).cloned().collect();
    let states = |path: &Vec<u8>| PathStates { base: get(base, path), local: get(local, path), host: get(host, path) };
    let changed: BTreeMap<Vec<u8>, PathStates> = paths.iter().map(|path| (path.clone(), states(path))).collect();
    let changed: BTreeMap<_, _> =
        changed.into_iter().filter(|(_, states)| states.base != states.local || states.base != states.host).collect();
    if changed.is_empty() {
        return false;
    }
    for (path, outcome) in settle(&changed) {
        match outcome {
            PathOutcome::Agree(state) => {
                for tree in [&mut *base, &mut *local, &mut *host] {
                    if state != PathState::Folder && get(tree, &path) != state {
                        remove(tree, &path);
                    }
                    if state != PathState::Absent {
                        tree.insert(path.clone(), state.clone());
                    }
                }
            }
            // As if nothing could be merged.
            PathOutcome::Merge { .. } | PathOutcome::Conflict => {
                let aside = |known: &[u8]| [&path, &b"!"[..], &known[path.len()..]].concat();
                let moved: Vec<_> = local
                    .iter()
                    .filter(|(known, _)| **known == path || folders_above(known).any(|folder| folder == path))
                    .map(|(known, state)| (aside(known), state.clone()))
                    .collect();
                remove(local, &path);
                remove(base, &path);
                local.extend(moved);
                return true;
            }
        }
    }
    true
}

proptest! {
    #[test]
    fn both_sides_agree_and_no_edit_gets_lost(
        before in proptest::collection::vec(edit(), 0..10),
        ours in proptest::collection::vec(edit(), 0..8),
        theirs in proptest::collection::vec(edit(), 0..8),
    ) {
        let mut base = ModelTree::new();
        before.iter().for_each(|edit| act(&mut base, edit, 0));
        let (mut local, mut host) = (base.clone(), base.clone());
        ours.iter().for_each(|edit| act(&mut local, edit, 1));
        theirs.iter().for_each(|edit| act(&mut host, edit, 2));
        let (our_version, their_version) = (local.clone(), host.clone());
        let mut passes = 0;
        while pass(&mut base, &mut local, &mut host) {
            passes += 1;
            prop_assert!(passes < 30, "{local:?}\n{host:?}");
        }
        prop_assert_eq!(&local, &host);
        prop_assert_eq!(&base, &host);
        for path in host.keys() {
            prop_assert!(folders_above(path).all(|folder| get(&host, folder) == PathState::Folder), "{host:?}");
        }
        // What the host edited keeps its name.
        for (path, state) in their_version.iter().filter(|(_, state)| !is_base(state)) {
            prop_assert_eq!(&get(&host, path), state);
        }
        // What the remote edited is somewhere.
        for state in our_version.values().filter(|state| !is_base(state)) {
            prop_assert!(host.values().any(|kept| kept == state), "{state:?} of the remote");
        }
    }
}

/// Whether it was there before anybody edited.
fn is_base(state: &PathState) -> bool {
    match state {
        PathState::File { content: FileContent::Known(id), .. } => id.0[1] == 0,
        PathState::Link(target) => target == &[0],
        _ => true,
    }
}

#[test]
fn an_edit_beats_a_removal_and_modes_are_merged() {
    let decide = |base: &PathState, local: &PathState, host: &PathState| {
        let states = PathStates { base: base.clone(), local: local.clone(), host: host.clone() };
        settle(&BTreeMap::from([(b"a".to_vec(), states)])).remove(&b"a"[..]).unwrap()
    };
    let (one, other) = (file(1, 0), file(2, 1));
    let agreed = |state: &PathState| PathOutcome::Agree(state.clone());
    assert_eq!(decide(&one, &PathState::Absent, &other), agreed(&other));
    assert_eq!(decide(&one, &other, &PathState::Absent), agreed(&other));
    assert_eq!(decide(&one, &PathState::Absent, &one), agreed(&PathState::Absent));
    assert_eq!(decide(&one, &one, &other), agreed(&other));
    assert_eq!(decide(&PathState::Absent, &one, &other), PathOutcome::Merge { mode: 0o644 });
    assert_eq!(decide(&PathState::Absent, &PathState::Folder, &one), PathOutcome::Conflict);
    let with_mode = |state: &PathState, mode| match state {
        PathState::File { content, .. } => PathState::File { content: *content, mode },
        other => other.clone(),
    };
    // The content of one side, and the mode of the other.
    let executable = with_mode(&one, 0o755);
    assert_eq!(decide(&one, &executable, &other), agreed(&with_mode(&other, 0o755)));
    assert_eq!(decide(&one, &other, &executable), agreed(&with_mode(&other, 0o755)));
    assert_eq!(decide(&one, &with_mode(&one, 0o700), &executable), agreed(&executable));
}

//! The format against itself, and against random input.

use proptest::prelude::*;

use super::*;
use crate::export::{AttributeChange, LockKind, LockRange, SizeAfter};

fn time() -> impl Strategy<Value = FileTime> {
    (any::<i64>(), any::<u32>()).prop_map(|(seconds, nanos)| FileTime { seconds, nanos })
}

fn attributes() -> impl Strategy<Value = FsAttributes> {
    let kinds =
        prop_oneof![Just(FileKind::File), Just(FileKind::Folder), Just(FileKind::Link), Just(FileKind::Special)];
    (kinds, any::<(u32, u32)>(), any::<(u64, u64)>(), time(), time(), time()).prop_map(
        |(kind, (mode, links), (inode, size), accessed, modified, changed)| FsAttributes {
            kind,
            mode,
            links,
            inode,
            size,
            accessed,
            modified,
            changed,
        },
    )
}

fn entry() -> impl Strategy<Value = FsEntry> {
    (attributes(), any::<Option<Vec<u8>>>()).prop_map(|(attributes, target)| FsEntry { attributes, target })
}

fn change() -> impl Strategy<Value = AttributeChange> {
    (any::<Option<u64>>(), any::<Option<u32>>(), proptest::option::of(time()), proptest::option::of(time()))
        .prop_map(|(size, mode, accessed, modified)| AttributeChange { size, mode, accessed, modified })
}

/// Every kind of request with the same fields, so that one round covers all of them.
fn requests<'a>(one: &'a [u8], other: &'a [u8], id: u32, handle: u64, change: AttributeChange) -> Vec<FsRequest<'a>> {
    let flags = FsOpenFlags { write: id.is_multiple_of(2), exclusive: id.is_multiple_of(3), ..FsOpenFlags::default() };
    let time = FileTime { seconds: handle.cast_signed(), nanos: id };
    let version = FsVersion { inode: handle, size: handle, modified: time, changed: time };
    let range = LockRange { start: handle, end: handle };
    let (kind, size) = match id % 2 {
        0 => (LockKind::Shared, SizeAfter::Unchanged),
        _ => (LockKind::Exclusive, SizeAfter::Extended),
    };
    let wanted = WantedLock { handle, file: handle, owner: handle, range, kind };
    vec![
        FsRequest::Allocate { id, handle, offset: handle, length: handle, size },
        FsRequest::Lock { id, wanted },
        FsRequest::Unlock { id, file: handle, owner: handle, range },
        FsRequest::TestLock { id, wanted },
        FsRequest::Hello { version: id, locator: one, push_bytes: handle, push_file: handle, mount: handle },
        FsRequest::List { id, path: one },
        FsRequest::Stat { id, path: one },
        FsRequest::Open { id, handle, path: one, flags, mode: id },
        FsRequest::Read { id, handle, offset: handle, length: id },
        FsRequest::Write { id, handle, offset: handle, data: other },
        FsRequest::Close { id, handle },
        FsRequest::Sync { id, handle },
        FsRequest::HandleStat { id, handle },
        FsRequest::SetAttributes { id, path: one, change },
        FsRequest::SetHandleAttributes { id, handle, change },
        FsRequest::RemoveFile { id, path: one },
        FsRequest::RemoveDir { id, path: one },
        FsRequest::MakeDir { id, path: one, mode: id },
        FsRequest::Rename { id, from: one, to: other, replace: id.is_multiple_of(2) },
        FsRequest::Symlink { id, path: one, target: other },
        FsRequest::HardLink { id, from: one, to: other },
        FsRequest::Space { id },
        FsRequest::Fetch { id, path: one },
        FsRequest::Received { bytes: handle },
        FsRequest::Copy { id, from: handle, offset: handle, length: handle, to: handle, to_offset: handle },
        FsRequest::Chunks { id, path: one },
        FsRequest::Replace { id, from: one, to: other, version },
        FsRequest::RemoveVersion { id, path: one, version },
        FsRequest::SetVersionAttributes { id, path: one, version, change },
    ]
}

fn only(bytes: &[u8]) -> Vec<u8> {
    let mut buffer = FrameBuffer::default();
    buffer.extend(bytes);
    let frame = buffer.next().unwrap().unwrap().to_vec();
    assert_eq!(buffer.waiting(), 0);
    frame
}

proptest! {
    #[test]
    fn written_requests_are_read_unchanged(one: Vec<u8>, other: Vec<u8>, id: u32, handle: u64, change in change()) {
        for request in requests(&one, &other, id, handle, change) {
            let frame = only(&request.write());
            prop_assert_eq!(FsRequest::read(&frame), Ok(request));
            for end in 0..frame.len() {
                prop_assert!(FsRequest::read(&frame[..end]).is_err());
            }
            prop_assert!(FsRequest::read(&[&frame[..], b"x"].concat()).is_err());
        }
    }

    #[test]
    fn written_events_are_read_unchanged(
        path: Vec<u8>, name: Vec<u8>, data: Vec<u8>, stamp: u64, id: u32, own in attributes(), entry in entry(),
        some in proptest::option::of(attributes()), is_last: bool,
    ) {
        let entries = vec![(name.clone(), entry.clone()), (path.clone(), entry.clone())];
        let events = [
            FsEvent::Welcome(FsWelcome { version: id, carried_out: is_last.then_some(id), failed: vec![(id, 5); 3] }),
            FsEvent::Listing(FsListing { id, path: path.clone(), stamp, is_watched: !is_last, is_last, own, entries }),
            FsEvent::Content { path: path.clone(), stamp, attributes: own, data: data.clone() },
            FsEvent::Done(FsReply {
                id,
                stamp,
                entry: Some(entry.clone()),
                before: some,
                folder: some,
                from_folder: None,
                lock: is_last.then_some((LockRange::WHOLE, LockKind::Shared)),
                data,
            }),
            FsEvent::Failed(FsFailure { id, errno: id }),
            FsEvent::Changed(FsTreeChange { stamp, folder: path, own, name, entry: some.map(|_| entry) }),
            FsEvent::Reset,
            FsEvent::TreeComplete,
            FsEvent::Ended,
        ];
        for event in events {
            prop_assert_eq!(FsEvent::read(&only(&event.write())), Ok(event));
        }
    }

    #[test]
    fn random_input_is_a_frame_or_an_error(noise: Vec<u8>, kind in 0_u8..32) {
        let frame = [&[kind][..], &noise].concat();
        let _ = FsRequest::read(&frame);
        let _ = FsEvent::read(&frame);
        let mut buffer = FrameBuffer::default();
        buffer.extend(&noise);
        while let Ok(Some(_)) = buffer.next() {}
    }

    #[test]
    fn frames_arrive_in_any_pieces(frames in proptest::collection::vec(any::<Vec<u8>>(), 1..8), piece in 1_usize..40) {
        let whole: Vec<Vec<u8>> =
            frames.iter().map(|data| FsRequest::Write { id: 1, handle: 2, offset: 3, data }.write()).collect();
        let mut buffer = FrameBuffer::default();
        let mut got = Vec::new();
        for piece in whole.concat().chunks(piece) {
            buffer.extend(piece);
            while let Some(frame) = buffer.next().unwrap() {
                got.push(frame.to_vec());
            }
        }
        prop_assert_eq!(got, whole.iter().map(|frame| frame[4..].to_vec()).collect::<Vec<_>>());
    }
}

#[test]
fn an_oversized_frame_is_refused_before_it_is_read() {
    for (length, expected) in
        [(MAX_FRAME + 1, Err(MalformedFrame::Length)), (0, Err(MalformedFrame::Length)), (MAX_FRAME, Ok(None))]
    {
        let mut buffer = FrameBuffer::default();
        buffer.extend(&u32::try_from(length).unwrap().to_be_bytes());
        assert_eq!(buffer.next(), expected);
    }
}

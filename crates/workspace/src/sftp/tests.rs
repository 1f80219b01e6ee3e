//! The codec against itself, and against random input.

use proptest::prelude::*;

use super::{
    reply,
    request::{MalformedPacket, SftpRequest, first_packet, read_request, read_version},
    wire::{MAX_DATA, MAX_PACKET, SftpAttributes, attribute, kind},
};

/// Writes a request as a client does.
fn write(id: u32, request: &SftpRequest<'_>) -> Vec<u8> {
    let mut out = vec![0; 4];
    let string = |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
    let with = |kind: u8, parts: &[Vec<u8>]| [&[kind][..], &id.to_be_bytes(), &parts.concat()].concat();
    let attributes = |attributes: &SftpAttributes| {
        let mut out = Vec::new();
        attributes.write(&mut out);
        out
    };
    let extended = |name: &str, parts: &[&[u8]]| {
        let parts = parts.iter().map(|part| string(part));
        with(kind::EXTENDED, &std::iter::once(string(name.as_bytes())).chain(parts).collect::<Vec<_>>())
    };
    out.extend(match request {
        SftpRequest::Open { path, flags, attributes: change } => {
            with(kind::OPEN, &[string(path), flags.to_be_bytes().into(), attributes(change)])
        }
        SftpRequest::Close { handle } => with(kind::CLOSE, &[string(handle)]),
        SftpRequest::Read { handle, offset, length } => {
            with(kind::READ, &[string(handle), offset.to_be_bytes().into(), length.to_be_bytes().into()])
        }
        SftpRequest::Write { handle, offset, data } => {
            with(kind::WRITE, &[string(handle), offset.to_be_bytes().into(), string(data)])
        }
        SftpRequest::LinkAttributes { path } => with(kind::LSTAT, &[string(path)]),
        SftpRequest::HandleAttributes { handle } => with(kind::FSTAT, &[string(handle)]),
        SftpRequest::SetAttributes { path, attributes: change } => {
            with(kind::SETSTAT, &[string(path), attributes(change)])
        }
        SftpRequest::SetHandleAttributes { handle, attributes: change } => {
            with(kind::FSETSTAT, &[string(handle), attributes(change)])
        }
        SftpRequest::OpenDirectory { path } => with(kind::OPENDIR, &[string(path)]),
        SftpRequest::ReadDirectory { handle } => with(kind::READDIR, &[string(handle)]),
        SftpRequest::Remove { path } => with(kind::REMOVE, &[string(path)]),
        SftpRequest::MakeDirectory { path, attributes: change } => {
            with(kind::MKDIR, &[string(path), attributes(change)])
        }
        SftpRequest::RemoveDirectory { path } => with(kind::RMDIR, &[string(path)]),
        SftpRequest::RealPath { path } => with(kind::REALPATH, &[string(path)]),
        SftpRequest::Attributes { path } => with(kind::STAT, &[string(path)]),
        SftpRequest::Rename { from, to } => with(kind::RENAME, &[string(from), string(to)]),
        SftpRequest::ReadLink { path } => with(kind::READLINK, &[string(path)]),
        SftpRequest::Symlink { target, path } => with(kind::SYMLINK, &[string(target), string(path)]),
        SftpRequest::PosixRename { from, to } => extended("posix-rename@openssh.com", &[from, to]),
        SftpRequest::HardLink { from, to } => extended("hardlink@openssh.com", &[from, to]),
        SftpRequest::Space { path } => extended("statvfs@openssh.com", &[path]),
        SftpRequest::HandleSpace { handle } => extended("fstatvfs@openssh.com", &[handle]),
        SftpRequest::Sync { handle } => extended("fsync@openssh.com", &[handle]),
        SftpRequest::Limits => extended("limits@openssh.com", &[]),
        SftpRequest::Unknown => extended("copy-data", &[b"x"]),
    });
    let length = u32::try_from(out.len() - 4).unwrap();
    out[..4].copy_from_slice(&length.to_be_bytes());
    out
}

fn attributes() -> impl Strategy<Value = SftpAttributes> {
    let parts = (any::<Option<u64>>(), any::<Option<(u32, u32)>>(), any::<Option<u32>>(), any::<Option<(u32, u32)>>());
    parts.prop_map(|(size, owner, permissions, times)| SftpAttributes { size, owner, permissions, times })
}

/// Every kind of request with the same fields, so that one round covers all of them.
fn every<'a>(
    one: &'a [u8],
    other: &'a [u8],
    number: u64,
    small: u32,
    attributes: SftpAttributes,
) -> Vec<SftpRequest<'a>> {
    vec![
        SftpRequest::Open { path: one, flags: small, attributes },
        SftpRequest::Close { handle: one },
        SftpRequest::Read { handle: one, offset: number, length: small },
        SftpRequest::Write { handle: one, offset: number, data: other },
        SftpRequest::LinkAttributes { path: one },
        SftpRequest::HandleAttributes { handle: one },
        SftpRequest::SetAttributes { path: one, attributes },
        SftpRequest::SetHandleAttributes { handle: one, attributes },
        SftpRequest::OpenDirectory { path: one },
        SftpRequest::ReadDirectory { handle: one },
        SftpRequest::Remove { path: one },
        SftpRequest::MakeDirectory { path: one, attributes },
        SftpRequest::RemoveDirectory { path: one },
        SftpRequest::RealPath { path: one },
        SftpRequest::Attributes { path: one },
        SftpRequest::Rename { from: one, to: other },
        SftpRequest::ReadLink { path: one },
        SftpRequest::Symlink { target: one, path: other },
        SftpRequest::PosixRename { from: one, to: other },
        SftpRequest::HardLink { from: one, to: other },
        SftpRequest::Space { path: one },
        SftpRequest::HandleSpace { handle: one },
        SftpRequest::Sync { handle: one },
        SftpRequest::Limits,
        SftpRequest::Unknown,
    ]
}

proptest! {
    #[test]
    fn a_written_request_is_parsed_unchanged(
        one: Vec<u8>, other: Vec<u8>, number: u64, small: u32, id: u32, attributes in attributes(),
    ) {
        for request in every(&one, &other, number, small, attributes) {
            let bytes = write(id, &request);
            let packet = first_packet(&bytes).unwrap().unwrap();
            prop_assert_eq!(packet.len() + 4, bytes.len());
            prop_assert_eq!(read_request(packet).unwrap(), (id, Some(request.clone())));
            // Cut short anywhere, it isn't a request. With something after it, it still is.
            for end in 0..bytes.len() {
                prop_assert_eq!(first_packet(&bytes[..end]).unwrap(), None);
            }
            let cut = read_request(&packet[..packet.len() - 1]);
            if request != SftpRequest::Limits && request != SftpRequest::Unknown {
                prop_assert!(matches!(cut, Err(MalformedPacket::Short) | Ok((_, None))));
            }
        }
    }

    #[test]
    fn random_input_is_answered_or_ends_the_session(mut noise: Vec<u8>, kind: u8) {
        let _ = first_packet(&noise);
        let _ = read_version(&noise);
        let _ = read_request(&noise);
        if let Some(first) = noise.first_mut() {
            *first = kind % 21;
            let is_whole = noise.len() >= 5;
            prop_assert_eq!(read_request(&noise).is_ok(), is_whole);
        }
    }
}

#[test]
fn an_oversized_packet_ends_the_session_before_it_is_read() {
    let length = |length: usize| u32::try_from(length).unwrap().to_be_bytes();
    assert_eq!(first_packet(&length(MAX_PACKET + 1)), Err(MalformedPacket::Length));
    assert_eq!(first_packet(&length(0)), Err(MalformedPacket::Length));
    assert_eq!(first_packet(&length(MAX_PACKET)), Ok(None));
}

#[test]
fn the_session_starts_with_the_version() {
    assert_eq!(read_version(&[1, 0, 0, 0, 3]), Ok(3));
    // Later versions add extensions.
    assert_eq!(read_version(&[1, 0, 0, 0, 6, 0, 0, 0, 0]), Ok(6));
    for other in [&[][..], &[1], &[1, 0, 0, 0], &[3, 0, 0, 0, 3]] {
        assert_eq!(read_version(other), Err(MalformedPacket::NoVersion));
    }
}

#[test]
fn extended_attributes_are_skipped_and_bounded_by_the_packet() {
    let mut bytes = vec![kind::SETSTAT, 0, 0, 0, 9, 0, 0, 0, 1, b'a'];
    bytes.extend((attribute::EXTENDED | attribute::PERMISSIONS).to_be_bytes());
    bytes.extend(0o640_u32.to_be_bytes());
    bytes.extend(1_u32.to_be_bytes());
    bytes.extend([0, 0, 0, 1, b'k', 0, 0, 0, 1, b'v']);
    let attributes = SftpAttributes { permissions: Some(0o640), ..SftpAttributes::default() };
    assert_eq!(read_request(&bytes), Ok((9, Some(SftpRequest::SetAttributes { path: b"a", attributes }))));
    bytes[18..22].copy_from_slice(&u32::MAX.to_be_bytes());
    assert_eq!(read_request(&bytes), Ok((9, None)));
}

#[test]
fn content_is_written_directly_into_the_reply() {
    let mut out = b"before".to_vec();
    let read = |count: usize| {
        move |buffer: &mut [u8]| -> Result<usize, ()> {
            buffer[..count].fill(b'x');
            Ok(count)
        }
    };
    assert_eq!(reply::write_data(&mut out, 7, 100, read(3)), Ok(3));
    assert_eq!(out, b"before\0\0\0\x0c\x67\0\0\0\x07\0\0\0\x03xxx");
    // The end of a file and a failure append nothing.
    assert_eq!(reply::write_data(&mut out, 8, 100, read(0)), Ok(0));
    assert_eq!(reply::write_data(&mut out, 8, 100, |_| Err(())), Err(()));
    assert_eq!(out.len(), 6 + 4 + 1 + 4 + 4 + 3);
    assert_eq!(reply::write_data::<()>(&mut out, 8, usize::MAX, |buffer| Ok(buffer.len())), Ok(MAX_DATA));
}

//! After the process that served a mount was killed: sends what it had acknowledged and the host doesn't have.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
};

use fuser::Errno;

use super::{
    FLUSH_TIMEOUT, MountRecovery,
    journal::Journal,
    link::{self, EarlierFileHandles, Link, LinkUser},
    report_losses,
};
use crate::{
    fs_connect::LinkTerms,
    fs_wire::{FrameBuffer, FsEvent, FsListing, FsRequest},
    mount::{MountError, MountRequest},
};

/// Nobody looks at the folder any more.
struct NoLinkUser;

impl LinkUser for NoLinkUser {
    fn on_connected(&self, _handles: EarlierFileHandles) {}

    fn on_event(&self, _event: FsEvent) {}

    fn on_listing(&self, _listing: &FsListing) -> Result<(), Errno> {
        Ok(())
    }

    fn on_disconnected(&self) {}

    fn on_lost(&self) {}
}

/// Sends the journal, and reports what the host didn't take.
pub(crate) fn replay(request: &MountRequest, recovery: &MountRecovery) -> Result<(), MountError> {
    let failed = |error: std::io::Error| MountError::Guard(error.to_string());
    let records = Journal::read(&recovery.journal).map_err(failed)?;
    let lost = Arc::new(Mutex::new(BTreeMap::<Vec<u8>, Errno>::new()));
    let link = Arc::new(Link::new(None));
    for (path, frame) in records {
        let Some(id) = id_of(&frame) else { continue };
        let lost = Arc::clone(&lost);
        let note = move |done: Result<_, Errno>| {
            if let Err(errno) = done
                && !path.is_empty()
            {
                lost.lock().unwrap_or_else(PoisonError::into_inner).entry(path).or_insert(errno);
            }
        };
        link.adopt(id, frame, Box::new(note));
    }
    let terms = LinkTerms::new(request, recovery.number);
    let (ready, connected) = mpsc::channel();
    let linked = Arc::clone(&link);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    thread::spawn(move || runtime.block_on(link::run(&linked, &NoLinkUser, &terms, ready)));
    if matches!(connected.recv(), Ok(Ok(()))) {
        link.close(FLUSH_TIMEOUT);
    } else {
        link.close(std::time::Duration::ZERO);
    }
    report_losses(&lost.lock().unwrap_or_else(PoisonError::into_inner));
    Ok(())
}

fn id_of(frame: &[u8]) -> Option<u32> {
    let mut frames = FrameBuffer::default();
    frames.extend(frame);
    let frame = frames.next().ok()??;
    FsRequest::read(frame).ok()?.id()
}

//! The host's side of attache-fs: an SSH subsystem over an export. Every request goes through the same calls of
//! [`Export`] as SFTP's, so that all its rules hold.
//!
//! Four threads serve a channel: one carries out requests in order (`session`), one lists the tree and pushes small
//! files ahead of any request (`pusher`), one reports what changes on the host (`watcher`), and one sends, urgent frames
//! first (`outbox`).

mod host;
mod incomplete;
mod mounts;
mod outbox;
mod pusher;
mod session;
#[cfg(test)]
mod tests;
mod watcher;

use std::{io, sync::Arc, thread};

pub(crate) use self::mounts::FsMounts;
use self::{host::FsHost, outbox::FsOutbox, session::FsSession};
use crate::{
    fs_wire::{FrameBuffer, SUBSYSTEM},
    ssh::{RequestQueue, Subsystem, SubsystemChannel, SubsystemInbox},
};

pub(crate) struct AttacheFs;

struct FsInbox {
    queue: Arc<RequestQueue>,
    host: Arc<FsHost>,
}

// === impl AttacheFs ===

impl Subsystem for AttacheFs {
    fn name(&self) -> &'static str {
        SUBSYSTEM
    }

    fn start(&self, channel: SubsystemChannel) -> io::Result<Arc<dyn SubsystemInbox>> {
        let SubsystemChannel { export, locator, handles, mounts, gate, outbox: channel, running } = channel;
        let room = mounts.channel().ok_or_else(|| io::Error::other("the lease has too many attache-fs channels"))?;
        let host = Arc::new(FsHost::new(export, FsOutbox::default()));
        let queue = Arc::new(RequestQueue::new(Arc::clone(&gate)));
        host.takes(&queue);
        let inbox = Arc::new(FsInbox { queue, host: Arc::clone(&host) });
        let sender = {
            let host = Arc::clone(&host);
            let spawned = thread::Builder::new().name("attache-fs-send".to_owned()).spawn(move || {
                while let Some(batch) = host.outbox.next_batch() {
                    if !channel.send(&gate, batch) {
                        break;
                    }
                }
                host.end();
                channel.close();
            });
            spawned?
        };
        let requests = Arc::clone(&inbox);
        let worker = thread::Builder::new().name("attache-fs".to_owned()).spawn(move || {
            let others = requests.answer_all(FsSession::new(Arc::clone(&requests.host), locator, handles, mounts));
            requests.host.end();
            requests.queue.abandon();
            for thread in others.into_iter().chain([sender]) {
                let _ = thread.join();
            }
            drop((room, running));
        });
        if let Err(error) = worker {
            host.end();
            return Err(error);
        }
        Ok(inbox)
    }
}

// === impl FsInbox ===

impl FsInbox {
    /// Answers until the client has no more requests or is gone. Returns the threads that were started meanwhile.
    fn answer_all(&self, mut session: FsSession) -> Vec<thread::JoinHandle<()>> {
        let mut frames = FrameBuffer::default();
        let mut bytes = Vec::new();
        // Unread bytes of an incomplete frame still count as unanswered.
        let mut unanswered = 0;
        'requests: while self.queue.take(&mut bytes) {
            unanswered += bytes.len();
            frames.extend(&bytes);
            bytes.clear();
            loop {
                match frames.next() {
                    Ok(Some(frame)) => {
                        if let Err(error) = session.carry_out(frame) {
                            tracing::debug!(%error, "closing the attache-fs channel");
                            break 'requests;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => {
                        tracing::debug!(%error, "closing the attache-fs channel");
                        break 'requests;
                    }
                }
            }
            self.queue.answered(unanswered - frames.waiting());
            unanswered = frames.waiting();
        }
        self.queue.answered(unanswered);
        session.finish()
    }
}

impl SubsystemInbox for FsInbox {
    fn push(&self, bytes: &[u8]) {
        self.queue.push(bytes);
    }

    fn finish(&self) {
        self.queue.finish();
    }

    fn abandon(&self) {
        self.queue.abandon();
        self.host.end();
    }
}

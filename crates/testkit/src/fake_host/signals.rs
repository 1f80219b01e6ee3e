//! SIGINT and SIGTERM, as programs on Node take them: the first interrupts, the second ends with status 143.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::SyncSender,
    },
    thread,
};

use tokio::{
    runtime::Builder,
    signal::unix::{SignalKind, signal},
};

use super::client::FakeHostInput;

/// Watches until the program ends; while `hanging` is set both signals are ignored.
pub(super) fn watch(sender: SyncSender<FakeHostInput>, hanging: Arc<AtomicBool>) {
    let (ready, is_ready) = std::sync::mpsc::sync_channel(1);
    thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_io().build().expect("a thread can wait for signals");
        runtime.block_on(async {
            let mut interrupt = signal(SignalKind::interrupt()).expect("SIGINT can be caught");
            let mut terminate = signal(SignalKind::terminate()).expect("SIGTERM can be caught");
            let _ = ready.send(());
            loop {
                let interrupted = tokio::select! {
                    _ = interrupt.recv() => true,
                    _ = terminate.recv() => false,
                };
                if hanging.load(Ordering::Relaxed) {
                    continue;
                }
                if !interrupted {
                    std::process::exit(143);
                }
                let _ = sender.try_send(FakeHostInput::Interrupt);
            }
        });
    });
    let _ = is_ready.recv();
}

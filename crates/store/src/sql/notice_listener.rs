//! Hears what other writers on the same PostgreSQL database wake. A connection of its own, which only listens; when it was
//! lost, everything is woken once, because hints may have been missed meanwhile.

use std::{
    future::poll_fn,
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use tokio::{
    sync::oneshot,
    time::{sleep, timeout},
};
use tokio_postgres::AsyncMessage;

use super::{
    connection::{NOTICES, PostgresServer},
    notices,
    writer::WakeListenerCell,
};
use crate::{Error, Result, WakeHint};

/// How long the server may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// How often the connection is tried, and how soon it is made again.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
const RECONNECT_INTERVAL: Duration = Duration::from_secs(1);

/// Listens until it is dropped.
#[derive(Debug)]
pub(super) struct NoticeListener {
    _stop: oneshot::Sender<()>,
}

// === impl NoticeListener ===

impl NoticeListener {
    pub(super) fn start(
        server: PostgresServer,
        listener: Arc<WakeListenerCell>,
    ) -> Result<(Self, thread::JoinHandle<()>)> {
        let failed = |error: std::io::Error| Error::Internal(format!("cannot start the listener: {error}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (stop, mut stopped) = oneshot::channel();
        let listening = async move {
            loop {
                tokio::select! {
                    _ = &mut stopped => return,
                    error = listen(&server, &listener) => tracing::debug!(%error, "wake-ups of other nodes are late"),
                }
                tokio::select! {
                    _ = &mut stopped => return,
                    () = sleep(RECONNECT_INTERVAL) => {}
                }
            }
        };
        let thread = thread::Builder::new()
            .name("store-listener".to_owned())
            .spawn(move || runtime.block_on(listening))
            .map_err(failed)?;
        Ok((Self { _stop: stop }, thread))
    }
}

/// Returns why it can't go on.
async fn listen(server: &PostgresServer, listener: &Arc<WakeListenerCell>) -> String {
    let (client, mut connection) = match timeout(ANSWER_TIMEOUT, server.config.connect(server.tls.clone())).await {
        Ok(Ok(connected)) => connected,
        Ok(Err(error)) => return error.to_string(),
        Err(_) => return "no connection".to_owned(),
    };
    let hearing = async {
        while let Some(message) = poll_fn(|context| connection.poll_message(context)).await {
            match message {
                Ok(AsyncMessage::Notification(notice)) => {
                    let (writer, hints) = notices::read(notice.payload());
                    if writer != Some(server.writer.load(Ordering::Relaxed)) {
                        wake(listener, &hints);
                    }
                }
                Ok(_) => {}
                Err(error) => return error.to_string(),
            }
        }
        "the connection was closed".to_owned()
    };
    let checking = async {
        // A listener that takes nothing for long would keep the server's queue of notifications from being emptied.
        let begin =
            format!("set application_name = 'attache listener'; set tcp_user_timeout = '30s'; listen {NOTICES}");
        let mut statement = begin.as_str();
        loop {
            match timeout(ANSWER_TIMEOUT, client.batch_execute(statement)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => return error.to_string(),
                Err(_) => return "no answer".to_owned(),
            }
            if !statement.is_empty() {
                wake(listener, &[WakeHint::Everything]);
                statement = "";
            }
            sleep(CHECK_INTERVAL).await;
        }
    };
    tokio::select! {
        error = hearing => error,
        error = checking => error,
    }
}

fn wake(listener: &Arc<WakeListenerCell>, hints: &[WakeHint]) {
    if let Some(listener) = listener.get() {
        listener(hints);
    }
}

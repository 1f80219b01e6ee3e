//! What became of a delegation: what changed in the folder, how it ended, and who has to know.

use attache_protocol::{
    DelegationId,
    rules::delegation::Status,
    wire::delegation::{Changes, Delegate, Outcome},
};

use super::{
    desk::{Delegator, blocking},
    notify,
    policy::Admitted,
};

/// Before the folder is lent.
pub(super) fn begin(_desk: &Delegator, _id: DelegationId, _admitted: &Admitted) {}

/// Writes down how it ended, shows it, and lets go of what it held.
pub(super) async fn end(
    desk: &Delegator,
    id: DelegationId,
    status: Status,
    result: Outcome,
    admitted: Option<&Admitted>,
    request: Option<&Delegate>,
) {
    let changes = changes(desk, id, admitted).await;
    let event = match status {
        Status::Completed => "done",
        Status::Cancelled => "cancel",
        Status::Expired => "expire",
        _ => "error",
    };
    desk.note(id, event, result.error.as_ref().map(|failure| failure.message.as_str()));
    let now = desk.env().now();
    let Ok(mut ended) = desk.get(id) else { return };
    ended.status = status;
    ended.ended_at = Some(now);
    ended.waits_for = None;
    ended.result = Some(result.clone());
    ended.changes = changes;
    ended.revision += 1;
    // On disk before anybody hears of it, so that what was heard is still so after a crash.
    let (records, written, request) = (desk.0.records.clone(), ended.clone(), request.cloned());
    let kept = blocking(move || {
        records.unpoint(id);
        records.keep_result(id, &result)?;
        records.keep(&written)?;
        request.map_or(Ok(()), |request| records.describe(&written, &request))
    });
    if let Err(error) | Ok(Err(error)) = kept.await.map(|kept| kept.map_err(super::Refused::from)) {
        tracing::error!(delegation.id = %id, error = error.message, "the end cannot be written down");
    }
    desk.0.options.audit.close(id);
    let session = ended.session_id.clone();
    desk.show(id, |shown| *shown = ended);
    desk.release(id);
    tracing::info!(delegation.id = %id, status = status.as_str(), "delegation ended");
    if let Some(done) = session.and_then(|session| desk.0.sessions.end(&session, id)) {
        notify::all_done(desk, done);
    }
}

async fn changes(_desk: &Delegator, _id: DelegationId, _admitted: Option<&Admitted>) -> Option<Changes> {
    None
}

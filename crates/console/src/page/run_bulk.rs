//! Cancelling several runs, or running them again.

use attache_protocol::{Code, RunId, wire::run::CancelRequest};

use crate::{
    form::SubmittedForm,
    page::{redirect_after_form, run_new},
    problem::{PageError, PageResult},
    view::status,
};

/// The most runs of one form: as many as a page shows.
const MAX_RUNS: usize = 100;

pub(crate) async fn submit(posted: SubmittedForm) -> PageResult {
    let SubmittedForm { session, fields } = posted;
    let runs: Vec<RunId> = fields.all("run").take(MAX_RUNS).filter_map(|run| run.parse().ok()).collect();
    let mut changed = 0;
    let said = match fields.get("do") {
        "cancel" => {
            for run in runs {
                match session.hub.cancel_run(&session.principal, run, CancelRequest::default()).await {
                    Ok(_) => changed += 1,
                    Err(error) if matches!(error.code, Code::RunEnded | Code::NotFound) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            if changed > 0 { "cancelled" } else { "cancelled_none" }
        }
        "again" => {
            for run in runs {
                let old = match session.hub.run(&session.principal, run).await {
                    Ok(old) => old,
                    Err(error) if error.code == Code::NotFound => continue,
                    Err(error) => return Err(error.into()),
                };
                if status::has_ended(old.status) {
                    let key = fields.non_empty("key").map(|key| format!("{key}-{run}"));
                    run_new::repeat(&session, old, None, key).await?;
                    changed += 1;
                }
            }
            if changed > 0 { "rerun" } else { "rerun_none" }
        }
        _ => return Err(PageError::Form),
    };
    // The filters of the list stay.
    let back = Some(fields.get("back")).filter(|back| back.starts_with("/runs?")).unwrap_or("/runs");
    let joint = if back.contains('?') { '&' } else { '?' };
    Ok(redirect_after_form(&format!("{back}{joint}said={said}")))
}

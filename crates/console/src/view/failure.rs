//! Titles and advice for failure codes.

use attache_protocol::rules::run::FailureCode;

use crate::text::Text;

/// The title and advice for a failure code.
pub(crate) fn explain(code: &str, t: &'static Text) -> (&'static str, &'static str) {
    let quoted = format!("\"{code}\"");
    match serde_json::from_str::<FailureCode>(&quoted) {
        Ok(FailureCode::TaskFailed) => (t.fail_task_failed, t.fail_task_failed_do),
        Ok(FailureCode::RuntimeLost) => (t.fail_runtime_lost, t.fail_runtime_lost_do),
        Ok(FailureCode::TimedOut) => (t.fail_timed_out, t.fail_timed_out_do),
        Ok(FailureCode::Expired) => (t.fail_expired, t.fail_expired_do),
        Ok(FailureCode::Rejected) => (t.fail_rejected, t.fail_rejected_do),
        Ok(FailureCode::Refused) => (t.fail_refused, t.fail_refused_do),
        Ok(FailureCode::QuotaExceeded) => (t.fail_quota_exceeded, t.fail_quota_exceeded_do),
        Ok(FailureCode::PermissionDenied) => (t.fail_permission_denied, t.fail_permission_denied_do),
        Ok(FailureCode::AdapterUnreachable) => (t.fail_adapter_unreachable, t.fail_adapter_unreachable_do),
        Ok(FailureCode::AdapterInvalidReply) => (t.fail_adapter_invalid_reply, t.fail_adapter_invalid_reply_do),
        Ok(FailureCode::HostCrashed) => (t.fail_host_crashed, t.fail_host_crashed_do),
        Ok(FailureCode::ModelUnreachable) => (t.fail_model_unreachable, t.fail_model_unreachable_do),
        Ok(FailureCode::UsageLimit) => (t.fail_usage_limit, t.fail_usage_limit_do),
        Ok(FailureCode::SignInRequired) => (t.fail_sign_in_required, t.fail_sign_in_required_do),
        Ok(FailureCode::LoopRefused) => (t.fail_loop_refused, t.fail_loop_refused_do),
        Err(_) => (t.fail_unknown, t.fail_unknown_do),
    }
}

//! Judges what several hubs did while they were killed, from what callers, people, webhooks and tasks recorded. It only reads
//! JSON, and shares no code with the hub.

use std::collections::BTreeMap;

use serde_json::Value;

/// A decision on an approval request that a hub acknowledged with 200.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcknowledgedDecision {
    pub request: String,
    pub approved: bool,
}

/// The events of a run lead without gaps from its creation to one end, which is the run's own. Its epochs rise one by one,
/// and each of its requests is decided once.
pub fn judge_history(run: &Value, events: &[Value]) -> Result<(), String> {
    let numbers: Vec<u64> = events.iter().filter_map(|event| event["seq"].as_u64()).collect();
    if events.is_empty() || !numbers.iter().copied().eq(1..=events.len() as u64) {
        return Err(format!("a gap in the events: {numbers:?}"));
    }
    if run["last_seq"] != numbers.len() {
        return Err(format!("{} of {} events", numbers.len(), run["last_seq"]));
    }
    let (mut state, mut epoch, mut requests) = ("new", 0, BTreeMap::<&str, usize>::new());
    for event in events {
        let kind = event["type"].as_str().unwrap_or_default();
        let request = event["data"]["permission_request_id"].as_str().unwrap_or_default();
        state = match (state, kind) {
            ("new", "task.created") => "pending",
            ("pending", "task.claimed") => {
                epoch += 1;
                if event["data"]["epoch"] != epoch {
                    return Err(format!("the claim {} where {epoch} is next", event["data"]["epoch"]));
                }
                "running"
            }
            ("running", "task.requeued") => "pending",
            ("running", "permission.requested") => {
                requests.insert(request, 0);
                "running"
            }
            ("running", "permission.decided") => {
                match requests.get_mut(request) {
                    Some(decided @ 0) => *decided = 1,
                    Some(_) => return Err(format!("{request} was decided twice")),
                    None => return Err(format!("{request} was decided and never requested")),
                }
                "running"
            }
            ("running", "action.required" | "task.waiting" | "task.progress" | "task.chunk" | "task.log") => "running",
            ("running", "task.completed") => "completed",
            ("pending" | "running", "task.failed") => "failed",
            ("pending" | "running", "task.cancelled") => "cancelled",
            _ => return Err(format!("{kind} of a run that was {state}")),
        };
    }
    if run["status"] != state || run["epoch"] != epoch {
        return Err(format!(
            "the events end as {state} in epoch {epoch}, and the run is {} in {}",
            run["status"], run["epoch"]
        ));
    }
    Ok(())
}

/// Everything was executed once: neither lost nor repeated.
pub fn judge_executions(executed: &str, wanted: &[&str]) -> Result<(), String> {
    let mut counts: BTreeMap<&str, usize> = wanted.iter().map(|mark| (*mark, 0)).collect();
    for mark in executed.lines() {
        *counts.entry(mark).or_default() += 1;
    }
    let wrong: Vec<String> = counts
        .into_iter()
        .filter(|(mark, count)| *count != 1 || !wanted.contains(mark))
        .map(|(mark, count)| format!("{mark} was executed {count} times"))
        .collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join(", ")) }
}

/// What people were told about a request is what is stored, and what its run did.
pub fn judge_decisions(request: &Value, run: &Value, decisions: &[AcknowledgedDecision]) -> Result<(), String> {
    let id = request["permission_request_id"].as_str().unwrap_or_default();
    let state = request["state"].as_str().unwrap_or_default();
    let approved = match state {
        "approved" => true,
        "denied" => false,
        _ => return Err(format!("{id} is {state}")),
    };
    if let Some(other) = decisions.iter().find(|decision| decision.request == id && decision.approved != approved) {
        return Err(format!("{id} is {state}, and somebody was told that it is {other:?}"));
    }
    if run["status"] != (if approved { "completed" } else { "failed" }) {
        return Err(format!("{id} is {state}, and its run {}", run["status"]));
    }
    Ok(())
}

/// No more than the quota was accepted, and all that was acknowledged is stored.
pub fn judge_quota(limit: usize, acknowledged: usize, stored: usize) -> Result<(), String> {
    if stored > limit {
        return Err(format!("{stored} of at most {limit} runs were accepted"));
    }
    if acknowledged > stored {
        return Err(format!("{acknowledged} runs were acknowledged, and {stored} are stored"));
    }
    Ok(())
}

/// The callback of a run told its end, and every repeat had the same content.
pub fn judge_callback(run: &str, received: &[(String, Value)]) -> Result<(), String> {
    let delivery = run.replace("run_", "dlv_");
    let mut bodies = received.iter().filter(|(_, body)| body["task_run_id"] == run).peekable();
    let Some((_, first)) = bodies.peek().copied() else { return Err(format!("nobody was told of the end of {run}")) };
    match bodies.find(|(id, body)| *id != delivery || body != first) {
        Some((id, other)) => Err(format!("{run} was delivered as {first}, and by {id} as {other}")),
        None => Ok(()),
    }
}

/// Each judge must catch its kind of fault.
mod planted {
    use serde_json::{Value, json};

    use super::*;

    fn event(seq: u64, kind: &str, data: Value) -> Value {
        json!({ "seq": seq, "type": kind, "data": data })
    }

    /// A run that was lost once, asked, and completed.
    fn honest() -> (Value, Vec<Value>) {
        let request = json!({ "permission_request_id": "prm_1" });
        let events = vec![
            event(1, "task.created", json!({})),
            event(2, "task.claimed", json!({ "epoch": 1 })),
            event(3, "task.requeued", json!({ "reason": "runtime_lost" })),
            event(4, "task.claimed", json!({ "epoch": 2 })),
            event(5, "permission.requested", request.clone()),
            event(6, "task.waiting", json!({})),
            event(7, "permission.decided", request),
            event(8, "task.completed", json!({})),
        ];
        (json!({ "status": "completed", "epoch": 2, "last_seq": 8 }), events)
    }

    /// The events with the numbers that they would have if somebody had written them so.
    fn renumbered(mut events: Vec<Value>) -> (Value, Vec<Value>) {
        for (index, event) in events.iter_mut().enumerate() {
            event["seq"] = json!(index + 1);
        }
        (json!({ "status": "completed", "epoch": 2, "last_seq": events.len() }), events)
    }

    #[track_caller]
    fn catches((run, events): (Value, Vec<Value>), expected: &str) {
        let found = judge_history(&run, &events).expect_err(expected);
        assert!(found.contains(expected), "{expected:?} is not in {found:?}");
    }

    #[test]
    fn an_honest_history_is_accepted() {
        let (run, events) = honest();
        assert_eq!(judge_history(&run, &events), Ok(()));
    }

    #[test]
    fn every_planted_fault_of_a_history_is_caught() {
        let without = |seq: usize| {
            let mut events = honest().1;
            events.remove(seq - 1);
            events
        };
        let twice = |seq: usize| {
            let mut events = honest().1;
            events.insert(seq, events[seq - 1].clone());
            events
        };
        // An event that a reader never got, in the middle and at the end.
        catches((honest().0, without(3)), "a gap in the events");
        catches((honest().0, without(8)), "7 of 8 events");
        catches((honest().0, Vec::new()), "a gap in the events");
        // The same, where the numbers hide it.
        catches(renumbered(without(1)), "task.claimed of a run that was new");
        catches(renumbered(without(3)), "task.claimed of a run that was running");
        catches(renumbered(without(5)), "decided and never requested");
        catches(renumbered(without(8)), "the events end as running");
        // What may happen once happened twice.
        catches(renumbered(twice(1)), "task.created of a run that was pending");
        catches(renumbered(twice(4)), "task.claimed of a run that was running");
        catches(renumbered(twice(7)), "prm_1 was decided twice");
        catches(renumbered(twice(8)), "task.completed of a run that was completed");
        // Two nodes gave out the same epoch, or one skipped one.
        for epoch in [1, 3] {
            let mut events = honest().1;
            events[3]["data"]["epoch"] = json!(epoch);
            catches(renumbered(events), "where 2 is next");
        }
        // The run says something else than its log.
        for (member, value) in [("status", json!("failed")), ("status", json!("running")), ("epoch", json!(1))] {
            let (mut run, events) = honest();
            run[member] = value;
            catches((run, events), "the events end as completed in epoch 2");
        }
        // A progress report after the end.
        let mut events = honest().1;
        events.push(event(9, "task.progress", json!({})));
        catches(renumbered(events), "task.progress of a run that was completed");
    }

    #[test]
    fn lost_repeated_and_unknown_executions_are_caught() {
        assert_eq!(judge_executions("b\na\n", &["a", "b"]), Ok(()));
        assert_eq!(judge_executions("a\n", &["a", "b"]), Err("b was executed 0 times".to_owned()));
        assert_eq!(judge_executions("a\nb\na\n", &["a", "b"]), Err("a was executed 2 times".to_owned()));
        assert_eq!(judge_executions("a\nc\n", &["a"]), Err("c was executed 1 times".to_owned()));
    }

    #[test]
    fn two_verdicts_on_one_request_are_caught() {
        let told = |approved| [AcknowledgedDecision { request: "prm_1".to_owned(), approved }];
        let request = |state: &str| json!({ "permission_request_id": "prm_1", "state": state });
        let run = |status: &str| json!({ "status": status });
        assert_eq!(judge_decisions(&request("approved"), &run("completed"), &told(true)), Ok(()));
        assert_eq!(judge_decisions(&request("denied"), &run("failed"), &[]), Ok(()));
        for (state, status, decisions, expected) in [
            ("approved", "completed", &told(false)[..], "somebody was told"),
            ("denied", "failed", &told(true), "somebody was told"),
            ("denied", "completed", &told(false), "and its run"),
            ("approved", "failed", &told(true), "and its run"),
            ("pending", "running", &told(true), "prm_1 is pending"),
        ] {
            let found = judge_decisions(&request(state), &run(status), decisions).expect_err(expected);
            assert!(found.contains(expected), "{expected:?} is not in {found:?}");
        }
    }

    #[test]
    fn an_overspent_quota_and_lost_runs_are_caught() {
        assert_eq!((judge_quota(3, 3, 3), judge_quota(3, 2, 3)), (Ok(()), Ok(())));
        assert_eq!(judge_quota(3, 3, 4), Err("4 of at most 3 runs were accepted".to_owned()));
        assert_eq!(judge_quota(3, 3, 2), Err("3 runs were acknowledged, and 2 are stored".to_owned()));
    }

    #[test]
    fn missing_and_different_callbacks_are_caught() {
        let body = |status: &str| json!({ "task_run_id": "run_1", "status": status });
        let good = ("dlv_1".to_owned(), body("completed"));
        assert_eq!(judge_callback("run_1", &[good.clone(), good.clone()]), Ok(()));
        for (received, expected) in [
            (vec![("dlv_2".to_owned(), json!({ "task_run_id": "run_2" }))], "nobody was told"),
            (vec![good.clone(), ("dlv_1".to_owned(), body("failed"))], "was delivered as"),
            (vec![good, ("dlv_3".to_owned(), body("completed"))], "by dlv_3"),
        ] {
            let found = judge_callback("run_1", &received).expect_err(expected);
            assert!(found.contains(expected), "{expected:?} is not in {found:?}");
        }
    }
}

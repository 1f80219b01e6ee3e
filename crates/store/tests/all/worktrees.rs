//! Decisions about worktrees by example, on both engines.

use std::time::Duration;

use attache_protocol::{
    Actor, RunId,
    wire::worktree::{WorktreeAction, WorktreeOutcome, WorktreeResult},
};
use attache_store::{
    Error,
    record::worktree::{NewWorktreeDecision, WorktreeDecisionRecord},
};

use crate::peers::World;

const TIMEOUT: Duration = Duration::from_secs(600);

// === impl World ===

impl World {
    async fn decide(&self, run: RunId, action: WorktreeAction) -> Result<WorktreeDecisionRecord, Error> {
        let expires_at = self.env.now().plus(TIMEOUT);
        let new = NewWorktreeDecision { run, action, message: Some("ä".to_owned()), expires_at };
        self.store.decide_worktree(self.context("key:owner"), new).await
    }

    async fn pending(&self) -> Vec<WorktreeDecisionRecord> {
        self.store.pending_worktrees(self.agent, self.env.now()).await.unwrap()
    }
}

fn outcome(result: WorktreeResult) -> WorktreeOutcome {
    WorktreeOutcome { files: vec!["a\"b".to_owned()], ..WorktreeOutcome::of(result) }
}

#[tokio::test]
async fn a_decision_waits_for_the_device_and_its_first_report_counts() {
    for world in World::all().await {
        let run = world.queue(world.new_run()).await.unwrap();
        let head = world.head().await;
        let unknown = world.env.run_id();
        assert_eq!(world.decide(unknown, WorktreeAction::Apply).await, Err(Error::NotFound));
        assert_eq!(world.store.worktree_decision(world.tenant, run).await, Ok(None));

        let first = world.decide(run, WorktreeAction::Apply).await.unwrap();
        let expected = WorktreeDecisionRecord {
            run,
            tenant: world.tenant,
            agent: world.agent,
            number: 1,
            action: WorktreeAction::Apply,
            message: Some("ä".to_owned()),
            decided_by: Actor::from("key:owner"),
            decided_at: world.env.now(),
            expires_at: world.env.now().plus(TIMEOUT),
            outcome: None,
        };
        assert_eq!(first, expected);
        assert_eq!(world.pending().await, std::slice::from_ref(&expected));
        assert_eq!(world.decide(run, WorktreeAction::Discard).await, Err(Error::VersionChanged));
        assert_eq!(world.store.worktree_decision(world.env.tenant_id(), run).await, Ok(None));

        let settle = async |runtime, number, result| {
            world.store.settle_worktree(runtime, run, number, outcome(result), world.env.now()).await
        };
        assert_eq!(settle(world.env.runtime_id(), 1, WorktreeResult::Done).await, Err(Error::NotFound));
        assert_eq!(settle(world.runtime, 2, WorktreeResult::Done).await, Err(Error::NotFound));
        let settled = settle(world.runtime, 1, WorktreeResult::Conflict).await.unwrap();
        let answer = Some((outcome(WorktreeResult::Conflict), world.env.now()));
        assert_eq!(settled, WorktreeDecisionRecord { outcome: answer, ..expected });
        assert_eq!(settle(world.runtime, 1, WorktreeResult::Done).await, Ok(settled.clone()));
        assert_eq!(world.store.worktree_decision(world.tenant, run).await, Ok(Some(settled)));
        assert_eq!(world.pending().await, []);

        // One that the device doesn't answer in time makes room for another. Its answer may still come.
        let second = world.decide(run, WorktreeAction::Commit).await.unwrap();
        assert_eq!((second.number, &second.outcome), (2, &None));
        world.env.advance(TIMEOUT);
        assert_eq!(world.pending().await, []);
        settle(world.runtime, 2, WorktreeResult::Done).await.unwrap();
        let third = world.decide(run, WorktreeAction::Discard).await.unwrap();
        assert_eq!(third.number, 3);
        assert_eq!(settle(world.runtime, 2, WorktreeResult::Done).await, Err(Error::NotFound));
        let (actor, device) = ("key:owner", format!("runtime:{}", world.runtime));
        assert_eq!(
            world.log(head).await,
            [
                format!(r#"{actor} worktree.decided {{"task_run_id":"{run}","action":"apply"}}"#),
                format!(r#"{device} worktree.settled {{"task_run_id":"{run}","action":"apply","result":"conflict"}}"#),
                format!(r#"{actor} worktree.decided {{"task_run_id":"{run}","action":"commit"}}"#),
                format!(r#"{device} worktree.settled {{"task_run_id":"{run}","action":"commit","result":"done"}}"#),
                format!(r#"{actor} worktree.decided {{"task_run_id":"{run}","action":"discard"}}"#),
            ]
        );

        world.store.cancel_run(world.context("key:owner"), run, None).await.unwrap();
        world.store.delete_run(world.context("key:owner"), run).await.unwrap();
        assert_eq!(world.store.worktree_decision(world.tenant, run).await, Ok(None));
        assert_eq!(world.pending().await, []);
    }
}

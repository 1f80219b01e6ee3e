//! Properties of permissions for every request, grant and order of decisions.

use std::time::Duration;

use attache_protocol::{
    Actor, AgentId, ChannelId, ConversationId, GrantId, Json, RunId, Timestamp, UserId,
    rules::{
        permission::{
            ApprovalDecision, ApprovalMode, DecisionScope, DecisionVerdict, ForwardingCheck, GrantPattern, GrantReach,
            OnceReason, PermissionFacts, PermissionState, PermissionSubject, PriorDecision, StandingGrant, decide,
            forwarding, hides_input, judge, matches, once, widest,
        },
        permission_mode::{PLAN_TOOL, PlanState},
    },
    wire::account::Callers,
};
use proptest::prelude::*;
use uuid::Uuid;

/// Patterns of tools.
const PATTERN: &str = "([ab*]{0,3}|remote_agent/[a*])";
const NOW: Timestamp = Timestamp::from_millis(1_000_000);

/// A request that owns its tool's name.
#[derive(Debug, Clone)]
struct OwnedRequest {
    run: RunId,
    conversation: ConversationId,
    agent: AgentId,
    channel: Option<ChannelId>,
    tool: String,
    subject: PermissionSubject,
    once: Option<OnceReason>,
    in_person: Option<UserId>,
}

// === impl OwnedRequest ===

impl OwnedRequest {
    fn request(&self) -> PermissionFacts<'_> {
        let Self { run, conversation, agent, channel, tool, subject, once, in_person } = self;
        PermissionFacts {
            run: *run,
            conversation: *conversation,
            agent: *agent,
            channel: *channel,
            tool,
            subject: *subject,
            once: *once,
            in_person: *in_person,
        }
    }
}

fn uuid() -> impl Strategy<Value = Uuid> {
    (0..2_u128).prop_map(Uuid::from_u128)
}

fn subject() -> impl Strategy<Value = PermissionSubject> {
    (0..2_u8).prop_map(|byte| PermissionSubject([byte; 32]))
}

fn channel() -> impl Strategy<Value = Option<ChannelId>> {
    proptest::option::of(uuid().prop_map(ChannelId::from_uuid))
}

fn person() -> impl Strategy<Value = Option<UserId>> {
    proptest::option::of(uuid().prop_map(UserId::from_uuid))
}

fn once_reason() -> impl Strategy<Value = Option<OnceReason>> {
    proptest::option::of(proptest::sample::select(OnceReason::ALL.to_vec()))
}

fn asked() -> impl Strategy<Value = OwnedRequest> {
    (uuid(), uuid(), uuid(), channel(), "([ab]{0,4}|remote_agent/[ab])", subject(), once_reason(), person()).prop_map(
        |(run, conversation, agent, channel, tool, subject, once, in_person)| OwnedRequest {
            run: RunId::from_uuid(run),
            conversation: ConversationId::from_uuid(conversation),
            agent: AgentId::from_uuid(agent),
            channel,
            tool,
            subject,
            once,
            in_person,
        },
    )
}

/// Around now, so that some have ended.
fn until() -> impl Strategy<Value = Option<Timestamp>> {
    proptest::option::of((-1..2_i64).prop_map(|millis| Timestamp::from_millis(NOW.millis() + millis)))
}

fn grant() -> impl Strategy<Value = StandingGrant> {
    let reach = prop_oneof![
        uuid().prop_map(|run| GrantReach::Run(RunId::from_uuid(run))),
        (uuid(), uuid()).prop_map(|(conversation, agent)| GrantReach::Conversation {
            conversation: ConversationId::from_uuid(conversation),
            agent: AgentId::from_uuid(agent),
        }),
        uuid().prop_map(|agent| GrantReach::Agent(AgentId::from_uuid(agent))),
    ];
    let what = prop_oneof![subject().prop_map(GrantPattern::Subject), PATTERN.prop_map(GrantPattern::Tools)];
    (any::<u128>(), any::<bool>(), reach, what, channel(), until(), proptest::bool::weighted(0.2), person()).prop_map(
        |(id, approved, reach, what, channel, until, revoked, giver)| StandingGrant {
            id: GrantId::from_uuid(Uuid::from_u128(id)),
            approved,
            reach,
            what,
            channel,
            until,
            revoked,
            giver,
        },
    )
}

fn decision() -> impl Strategy<Value = ApprovalDecision> {
    (
        any::<bool>(),
        proptest::sample::select(DecisionScope::ALL.to_vec()),
        proptest::option::of(PATTERN),
        until(),
        any::<bool>(),
        proptest::option::of("[xy]"),
    )
        .prop_map(|(approved, scope, tool_pattern, until, this_channel_only, comment)| ApprovalDecision {
            approved,
            scope,
            tool_pattern,
            until,
            this_channel_only,
            comment,
        })
}

/// A reference implementation of pattern matching.
fn means(pattern: &[u8], tool: &[u8]) -> bool {
    match (pattern.split_first(), tool.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), None) => means(rest, tool),
        (Some((b'*', rest)), Some((_, later))) => means(rest, tool) || means(pattern, later),
        (Some((letter, rest)), Some((first, later))) => letter == first && means(rest, later),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn a_denial_beats_every_grant(grants in proptest::collection::vec(grant(), 0..8), asked in asked()) {
        let covering: Vec<&StandingGrant> = grants.iter().filter(|grant| grant.covers(asked.request(), NOW)).collect();
        let wanted = match covering.iter().find(|grant| !grant.approved) {
            Some(denial) => Some(denial.id),
            None => covering.first().map(|grant| grant.id),
        };
        prop_assert_eq!(judge(&grants, asked.request(), NOW).map(|grant| grant.id), wanted);
        // The order of grants doesn't change the answer.
        let forwards = judge(&grants, asked.request(), NOW).map(|grant| grant.approved);
        prop_assert_eq!(judge(grants.iter().rev(), asked.request(), NOW).map(|grant| grant.approved), forwards);
    }

    #[test]
    fn a_request_is_decided_once(said in proptest::collection::vec((0..3_u8, decision()), 1..12)) {
        let mut settled: Option<(Actor, ApprovalDecision)> = None;
        for (person, decision) in said {
            let by = Actor::from(format!("key:{person}").as_str());
            let before = settled.as_ref().map(|(by, decision)| PriorDecision {
                state: PermissionState::decided(decision.approved),
                by,
                decision: Some(decision),
            });
            let verdict = decide(before, &by, &decision);
            match &settled {
                None => {
                    prop_assert_eq!(verdict, DecisionVerdict::Settles);
                    settled = Some((by, decision));
                }
                Some((first, before)) => {
                    let adds_nothing = decision.comment.is_none() || decision.comment == before.comment;
                    let is_same = ApprovalDecision { comment: None, ..before.clone() }
                        == ApprovalDecision { comment: None, ..decision.clone() };
                    let repeats = *first == by && is_same && adds_nothing;
                    let wanted = if repeats { DecisionVerdict::Repeats } else { DecisionVerdict::TooLate };
                    prop_assert_eq!(verdict, wanted);
                }
            }
        }
    }

    #[test]
    fn decisions_after_the_end_are_too_late(decision in decision(), expired in any::<bool>()) {
        let state = if expired { PermissionState::Expired } else { PermissionState::Cancelled };
        let settled = PriorDecision { state, by: &Actor::System, decision: None };
        for by in [&Actor::System, &Actor::from("key:owner")] {
            prop_assert_eq!(decide(Some(settled), by, &decision), DecisionVerdict::TooLate);
        }
        prop_assert_eq!(state.approved(), Some(false));
    }

    #[test]
    fn a_grant_covers_what_it_was_made_for_until_it_ends(
        decision in decision(), giver in person(), asked in asked()
    ) {
        let id = GrantId::from_uuid(Uuid::from_u128(1));
        let Some(grant) = StandingGrant::of(id, &decision, giver, asked.request()) else {
            let is_homeless = decision.this_channel_only && asked.channel.is_none();
            let is_blind = decision.approved && asked.once.is_some();
            prop_assert!(decision.scope == DecisionScope::Once || is_homeless || is_blind, "{decision:?}");
            return Ok(());
        };
        let is_meant = decision.tool_pattern.as_ref().is_none_or(|pattern| matches(pattern, &asked.tool));
        let is_alive = decision.until.is_none_or(|until| NOW < until);
        let is_named = decision.tool_pattern.is_none_or(|pattern| !asked.tool.contains('/') || pattern == asked.tool);
        let may_approve = is_named && (asked.in_person.is_none() || asked.in_person == giver);
        let may_answer = !decision.approved || may_approve;
        prop_assert_eq!(grant.covers(asked.request(), NOW), is_meant && is_alive && may_answer);
        let revoked = StandingGrant { revoked: true, ..grant.clone() };
        prop_assert!(!revoked.covers(asked.request(), NOW));
        let much_later = NOW.plus(Duration::from_secs(1_000_000));
        prop_assert!(decision.until.is_none() || !grant.covers(asked.request(), much_later));
        let elsewhere = OwnedRequest { channel: Some(ChannelId::from_uuid(Uuid::from_u128(99))), ..asked };
        prop_assert!(!decision.this_channel_only || !grant.covers(elsewhere.request(), NOW));
    }

    #[test]
    fn a_standing_grant_never_allows_what_counts_once(
        decision in decision(), reason in proptest::sample::select(OnceReason::ALL.to_vec()), grants in proptest::collection::vec(grant(), 0..8), asked in asked()
    ) {
        let unseen = OwnedRequest { once: Some(reason), ..asked };
        prop_assert!(judge(&grants, unseen.request(), NOW).is_none_or(|grant| !grant.approved));
        let grant = StandingGrant::of(GrantId::from_uuid(Uuid::nil()), &decision, None, unseen.request());
        prop_assert!(grant.is_none_or(|grant| !grant.approved));
    }

    #[test]
    fn without_a_pattern_only_the_same_subject_is_covered(decision in decision(), asked in asked(), other in asked()) {
        let decision = ApprovalDecision { tool_pattern: None, ..decision };
        if let Some(grant) = StandingGrant::of(GrantId::from_uuid(Uuid::nil()), &decision, None, asked.request())
            && grant.covers(other.request(), NOW)
        {
            prop_assert_eq!((other.subject, other.agent == asked.agent || other.run == asked.run), (asked.subject, true));
        }
    }

    /// Before the plan is approved, standing grants only deny.
    #[test]
    fn no_grant_approves_before_the_plan_is(grants in proptest::collection::vec(grant(), 0..8), asked in asked()) {
        let open = judge(&grants, asked.request().with_plan(PlanState::Open), NOW);
        prop_assert!(open.is_none_or(|grant| !grant.approved));
        let settled = judge(&grants, asked.request().with_plan(PlanState::Settled), NOW);
        prop_assert_eq!(settled, judge(&grants, asked.request(), NOW));
    }

    #[test]
    fn a_star_stands_for_any_characters(pattern in "[ab*]{0,6}", tool in "[ab]{0,6}") {
        prop_assert_eq!(matches(&pattern, &tool), means(pattern.as_bytes(), tool.as_bytes()));
    }
}

proptest! {
    #[test]
    fn a_private_agent_is_called_only_with_approval_that_counts_once(
        mode in proptest::sample::select(vec![ApprovalMode::Yes, ApprovalMode::No]),
        callers in proptest::sample::select(Callers::ALL.to_vec()),
        undisclosed in proptest::collection::vec("[a-z]{0,4}", 0..3),
        tool in proptest::sample::select(vec!["Bash", PLAN_TOOL]),
    ) {
        let check = forwarding(mode, callers);
        prop_assert_eq!(check == ForwardingCheck::Free, callers == Callers::Everyone && mode == ApprovalMode::Yes);
        let ForwardingCheck::NeedsApproval(reason) = check else { return Ok(()) };
        prop_assert_eq!(reason.is_private(), callers == Callers::Owner);
        let reason = once(tool, reason.is_private(), &undisclosed);
        prop_assert_eq!(reason == Some(OnceReason::PrivateAgent), callers == Callers::Owner);
        let is_plan = tool == PLAN_TOOL;
        prop_assert_eq!(reason.is_some(), callers == Callers::Owner || is_plan || hides_input(&undisclosed));
        prop_assert_eq!(widest(true, reason) == DecisionScope::Once, reason.is_some());
        prop_assert_eq!(widest(false, reason), DecisionScope::Agent);
    }
}

#[test]
fn only_undisclosed_input_counts_as_hidden() {
    let hides =
        |undisclosed: &[&str]| hides_input(&undisclosed.iter().map(|what| (*what).to_owned()).collect::<Vec<_>>());
    assert!(!hides(&[]) && !hides(&["paths", "more paths", "the rest of the diff"]));
    assert!(hides(&["input"]) && hides(&["paths", "the rest of the input"]) && hides(&["a word of tomorrow"]));
}

#[test]
fn a_subject_distinguishes_every_field() {
    let json = |text: &str| Json::from_text(text).unwrap();
    let paths = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>();
    let subjects = [
        PermissionSubject::of("ab", &json("1"), None, &[]),
        PermissionSubject::of("a", &json("1"), None, &[]),
        PermissionSubject::of("ab", &json("1.0"), None, &[]),
        PermissionSubject::of("ab", &json("1"), Some(""), &[]),
        PermissionSubject::of("ab", &json("1"), Some("x"), &[]),
        PermissionSubject::of("ab", &json("1"), None, &paths(&[""])),
        PermissionSubject::of("ab", &json("1"), None, &paths(&["x"])),
        PermissionSubject::of("ab", &json("1"), None, &paths(&["x", "y"])),
        PermissionSubject::of("ab", &json("1"), None, &paths(&["xy"])),
        PermissionSubject::of("ab", &json("1"), None, &paths(&["y", "x"])),
    ];
    for (index, subject) in subjects.iter().enumerate() {
        assert!(!subjects[..index].contains(subject), "number {index} is like one before it");
    }
}

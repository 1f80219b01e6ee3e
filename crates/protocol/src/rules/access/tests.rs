//! The seed's example, edge cases of patterns, and properties of all rule sets.

use proptest::prelude::*;

use super::*;

fn patterns(texts: &[&str]) -> Vec<AccessPattern> {
    texts.iter().map(|text| text.parse().unwrap()).collect()
}

fn entry(agents: &str, can: &[&str], cannot: &[&str]) -> AccessRule {
    AccessRule { agents: agents.parse().unwrap(), can_access: patterns(can), cannot_access: patterns(cannot) }
}

fn rules(entries: Vec<AccessRule>) -> AccessRuleSet {
    AccessRuleSet { fallback: Fallback::Own, entries }
}

const LAPTOP: RuleAgent<'static> = RuleAgent { name: "user123-laptop", id: "agt_1", owner: Some("user123") };
const SHARED: RuleAgent<'static> = RuleAgent { name: "knowledge", id: "agt_2", owner: None };

fn chat<'a>(user: &'a str, id: &'a str) -> AccessObject<'a> {
    AccessObject::Conversation { user, id }
}

fn file<'a>(space: &'a str, name: &'a str) -> AccessObject<'a> {
    AccessObject::Artifact { space, name, owner: None }
}

fn memory(path: &str) -> AccessObject<'_> {
    AccessObject::Memory { agent: SHARED, path }
}

fn allowed(rules: &AccessRuleSet, agent: RuleAgent<'_>, object: AccessObject<'_>) -> bool {
    rules.rights(agent).decide(object).is_allowed()
}

#[test]
fn the_seeds_example_means_what_it_says() {
    let rules = rules(vec![entry(
        "user123-laptop",
        &["conversations/user123/*", "resources/public/*"],
        &["conversations/other_users/*", "agents/*/memory/*"],
    )]);
    let decide = |object| allowed(&rules, LAPTOP, object);
    assert!(decide(chat("user123", "cnv_1")));
    assert!(decide(file("public", "handbook/crawlers.md")));
    assert!(!decide(chat("ann", "cnv_1")));
    assert!(!decide(file("finance", "q3.pdf")));
    assert!(decide(AccessObject::Agent(SHARED)));
    let foreign = RuleAgent { owner: Some("ann"), ..SHARED };
    assert!(!decide(AccessObject::Agent(foreign)));
    let own = RuleAgent { owner: LAPTOP.owner, ..SHARED };
    assert!(decide(AccessObject::Agent(own)));
    assert!(!decide(AccessObject::Memory { agent: own, path: "notes" }));
    let rights = rules.rights(LAPTOP);
    assert_eq!(
        rights.decide(chat("ann", "1")),
        RuleDecision::Denied(RuleReason::Rule(&rules.entries[0].cannot_access[0]))
    );
    assert_eq!(rights.decide(AccessObject::Agent(foreign)), RuleDecision::Denied(RuleReason::Fallback));
    assert_eq!(rights.decide(AccessObject::Agent(SHARED)), RuleDecision::Allowed(RuleReason::Own));
    assert_eq!(rights.decide(AccessObject::Agent(own)), RuleDecision::Allowed(RuleReason::Own));
}

#[test]
fn other_users_means_everyone_but_the_agents_owner() {
    let rules = rules(vec![entry("*", &["conversations/*/*"], &["conversations/other_users/*"])]);
    assert!(allowed(&rules, LAPTOP, chat("user123", "1")));
    assert!(!allowed(&rules, LAPTOP, chat("ann", "1")));
    assert!(!allowed(&rules, SHARED, chat("ann", "1")), "an agent of nobody has only other users");
}

#[test]
fn a_grant_for_an_agent_excludes_its_memory_and_a_denial_includes_it() {
    let open = rules(vec![entry("*", &["agents/*"], &[])]);
    assert!(allowed(&open, LAPTOP, AccessObject::Agent(SHARED)));
    assert!(!allowed(&open, LAPTOP, memory("a")));
    let remembering = rules(vec![entry("*", &["agents/knowledge/memory/notes/*"], &[])]);
    assert!(allowed(&remembering, LAPTOP, memory("notes/2026/a")));
    assert!(!allowed(&remembering, LAPTOP, memory("keys")));
    let foreign = RuleAgent { owner: Some("ann"), ..SHARED };
    assert!(!allowed(&remembering, LAPTOP, AccessObject::Agent(foreign)));
    let closed = rules(vec![entry("*", &["*"], &["agents/agt_2"])]);
    assert!(!allowed(&closed, LAPTOP, AccessObject::Agent(SHARED)), "an agent may be written as its id");
    assert!(!allowed(&closed, LAPTOP, memory("a")));
    assert!(allowed(&closed, LAPTOP, chat("ann", "1")));
    let a_names = rules(vec![entry("*", &["agents/a*"], &[])]);
    assert!(!allowed(&a_names, LAPTOP, AccessObject::Agent(foreign)), "ids all begin with an a");
}

#[test]
fn every_matching_entry_counts() {
    let rules = rules(vec![
        entry("user123-*", &["resources/a/*"], &[]),
        entry("agt_1", &["resources/b/*"], &[]),
        entry("*", &[], &["resources/*/secret*"]),
        entry("knowledge", &["resources/c/*"], &[]),
    ]);
    let reach = |object| allowed(&rules, LAPTOP, object);
    assert_eq!([reach(file("a", "x")), reach(file("b", "x")), reach(file("c", "x"))], [true, true, false]);
    assert!(!reach(file("a", "secret.txt")));
}

#[test]
fn an_impossible_name_is_never_reached() {
    let rules = AccessRuleSet { fallback: Fallback::Allow, entries: vec![entry("*", &["*"], &[])] };
    for object in [
        file("public", "../finance/q3.pdf"),
        file("public", "a//b"),
        file("", "a"),
        file("a/b", "c"),
        chat("user123", ".."),
        chat("user123", "a/b"),
        memory("./a"),
        AccessObject::Agent(RuleAgent { name: "", ..SHARED }),
    ] {
        assert_eq!(rules.rights(LAPTOP).decide(object), RuleDecision::Denied(RuleReason::NoSuchName), "{object}");
    }
}

#[test]
fn a_pattern_that_covers_nothing_is_rejected() {
    let forms = "Write agents/NAME, agents/NAME/memory/PATH, conversations/USER/ID, resources/SPACE/ARTIFACT or *.";
    for (text, hint) in [
        ("", forms),
        ("files/a", forms),
        ("*/a", forms),
        ("Agents/a", forms),
        ("agents", "Write agents/* to cover everything."),
        ("agents/", "Write agents/* to cover everything."),
        ("conversations/ann", "Write conversations/ann/* to cover everything."),
        ("resources/*", "Write resources/*/* to cover everything."),
        ("agents/a/*", "Write agents/a/memory/*."),
        ("agents/a/memory", "Write agents/a/memory/*."),
        ("agents/a/memory/", "Write the path with a single / between its parts."),
        ("resources/a/../b", "Write the path with a single / between its parts."),
        ("resources/a/**", "Use a single *. At the end, it covers everything below."),
        ("conversations/ann/a/b", "A conversation is conversations/USER/ID."),
        ("conversations/an?/*", "Only * is a wildcard. Names can't contain spaces or ? [ ] { } \\ !."),
        ("conversations/a b/*", "Only * is a wildcard. Names can't contain spaces or ? [ ] { } \\ !."),
        ("conversations//*", "Write a name, or * for every name."),
    ] {
        assert_eq!(text.parse::<AccessPattern>().unwrap_err().hint, hint, "{text}");
    }
}

fn word() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("a"), Just("b"), Just("ab"), Just("ann")]
}

fn star_word() -> impl Strategy<Value = &'static str> {
    prop_oneof![word(), Just("*"), Just("a*"), Just("*b")]
}

fn pattern() -> impl Strategy<Value = AccessPattern> {
    let user = prop_oneof![4 => star_word(), 1 => Just(OTHERS)];
    prop_oneof![
        1 => Just("*".to_owned()),
        3 => star_word().prop_map(|name| format!("agents/{name}")),
        3 => (star_word(), star_word()).prop_map(|(name, path)| format!("agents/{name}/memory/{path}")),
        3 => (user, star_word()).prop_map(|(user, id)| format!("conversations/{user}/{id}")),
        3 => (star_word(), star_word()).prop_map(|(space, name)| format!("resources/{space}/x/{name}")),
    ]
    .prop_map(|text| text.parse().unwrap())
}

fn some_entry() -> impl Strategy<Value = AccessRule> {
    let list = || proptest::collection::vec(pattern(), 0..4);
    (star_word(), list(), list()).prop_map(|(agents, can_access, cannot_access)| AccessRule {
        agents: agents.parse().unwrap(),
        can_access,
        cannot_access,
    })
}

fn some_rules() -> impl Strategy<Value = AccessRuleSet> {
    let fallback = prop_oneof![Just(Fallback::Own), Just(Fallback::Deny), Just(Fallback::Allow)];
    (fallback, proptest::collection::vec(some_entry(), 0..5))
        .prop_map(|(fallback, entries)| AccessRuleSet { fallback, entries })
}

fn agent() -> impl Strategy<Value = RuleAgent<'static>> {
    (word(), proptest::option::of(word())).prop_map(|(name, owner)| RuleAgent { name, id: "agt_0", owner })
}

fn object() -> impl Strategy<Value = AccessObject<'static>> {
    let path = || prop_oneof![word(), Just("x/a"), Just("x/ab"), Just("a/../b"), Just("")];
    prop_oneof![
        agent().prop_map(AccessObject::Agent),
        (agent(), path()).prop_map(|(agent, path)| AccessObject::Memory { agent, path }),
        (word(), word()).prop_map(|(user, id)| AccessObject::Conversation { user, id }),
        (word(), path(), proptest::option::of(word())).prop_map(|(space, name, owner)| AccessObject::Artifact {
            space,
            name,
            owner
        }),
    ]
}

proptest! {
    #[test]
    fn a_denial_beats_everything(rules in some_rules(), agent in agent(), object in object()) {
        let denies = rules.entries.iter().filter(|entry| entry.agents.names(agent)).any(|entry| {
            entry.cannot_access.iter().any(|pattern| pattern.covers(object, agent.owner))
        });
        if denies {
            prop_assert!(!allowed(&rules, agent, object));
        }
    }

    #[test]
    fn one_more_denial_never_allows_more(
        rules in some_rules(), denial in pattern(), who in star_word(), agent in agent(), object in object(),
    ) {
        let mut stricter = rules.clone();
        let agents: NameGlob = who.parse().unwrap();
        stricter.entries.push(AccessRule { agents: agents.clone(), can_access: vec![], cannot_access: vec![denial.clone()] });
        let (before, after) = (allowed(&rules, agent, object), allowed(&stricter, agent, object));
        prop_assert!(before || !after);
        if agents.names(agent) && denial.covers(object, agent.owner) {
            prop_assert!(!after);
        }
    }

    #[test]
    fn one_more_grant_never_denies_more(
        rules in some_rules(), grant in pattern(), who in star_word(), agent in agent(), object in object(),
    ) {
        let mut wider = rules.clone();
        wider.entries.push(AccessRule { agents: who.parse().unwrap(), can_access: vec![grant], cannot_access: vec![] });
        prop_assert!(!allowed(&rules, agent, object) || allowed(&wider, agent, object));
    }

    #[test]
    fn the_order_of_entries_does_not_matter(rules in some_rules(), agent in agent(), object in object()) {
        let mut reversed = rules.clone();
        reversed.entries.reverse();
        prop_assert_eq!(allowed(&rules, agent, object), allowed(&reversed, agent, object));
    }

    #[test]
    fn without_rules_an_agent_reaches_its_own_users_things_and_shared_agents(agent in agent(), object in object()) {
        let reached = allowed(&AccessRuleSet::default(), agent, object);
        let own = agent.owner.is_some() && object.owner() == agent.owner;
        let shared = matches!(object, AccessObject::Agent(RuleAgent { owner: None, .. }));
        prop_assert_eq!(reached, (own || shared) && object.is_named());
    }
}

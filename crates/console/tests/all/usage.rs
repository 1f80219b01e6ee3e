//! Usage and quotas: chart and table, what each role sees, and the forms.

use std::{collections::BTreeMap, time::Duration};

use attache_protocol::wire::{key::Role, run::CreateRunRequest, usage::SetQuotaRequest};
use axum::http::StatusCode;

use crate::world::{ConsoleDevice, ConsoleWorld, TestVisitor, between};

const DAY: Duration = Duration::from_secs(86_400);

/// Two agents that work for two people on three days.
async fn spent() -> (ConsoleWorld, TestVisitor, TestVisitor) {
    let world = ConsoleWorld::paused().await;
    world.agent("builder").await;
    world.agent("scribe").await;
    let (_, alice) = world.person("alice", Role::Operator).await;
    let (_, bob) = world.person("bob", Role::Operator).await;
    for (day, cost) in [(0, "0.25"), (1, "0.5"), (2, "1.25")] {
        if day > 0 {
            world.hub.env().advance(DAY);
        }
        let builder = world.pair("builder", "workstation-2", "claude_cli").await;
        let scribe = world.pair("scribe", "ops laptop", "codex").await;
        let told = format!(r#"{{"tokens":1000,"cost_usd":{cost}}}"#);
        work(&world, &alice, "builder", &builder, Some(&told)).await;
        let guessed = r#"{"tokens":10,"cost_usd":0.01,"cost_source":"estimated"}"#;
        work(&world, &bob, "scribe", &scribe, Some(guessed)).await;
        if day == 1 {
            work(&world, &bob, "builder", &builder, None).await;
        }
    }
    (world, alice, bob)
}

async fn work(world: &ConsoleWorld, by: &TestVisitor, agent: &str, device: &ConsoleDevice, usage: Option<&str>) {
    let by = by.principal(world).await;
    let run = world.ask_with(&by, agent, "work", CreateRunRequest::default()).await;
    assert_eq!(device.claim().await, run);
    device.complete_for(run, "done", usage).await;
}

/// The values of the chart's bars, by day and name.
fn bars(page: &str) -> BTreeMap<(String, String), String> {
    let plot = between(page, "<svg class=\"plot\"", "</svg>");
    let titles = plot.split("<title>").skip(1).map(|rest| rest.split("</title>").next().unwrap());
    titles
        .map(|title| {
            let (who, value) = title.split_once(": ").unwrap();
            let (day, name) = who.split_once(", ").unwrap();
            ((day.to_owned(), name.to_owned()), value.to_owned())
        })
        .collect()
}

/// The nonzero values of the table, by day and name.
fn cells(page: &str) -> BTreeMap<(String, String), String> {
    let table = between(page, "id=\"by-day\">", "</table>");
    let head = between(table, "<thead>", "</thead>");
    let names: Vec<_> = head.split("<bdi>").skip(1).map(|rest| rest.split('<').next().unwrap()).collect();
    let mut found = BTreeMap::new();
    for row in between(table, "<tbody>", "</tbody>").split("<tr>").skip(1) {
        let day = between(row, "class=\"nowrap\">", "<");
        let values = row.split("<td class=\"num\">").skip(1).map(|rest| rest.split('<').next().unwrap());
        for (name, value) in names.iter().zip(values) {
            if value != "0" && value != "$0.00" {
                found.insert((day.to_owned(), (*name).to_owned()), value.to_owned());
            }
        }
    }
    found
}

#[tokio::test]
async fn the_chart_and_its_table_have_the_same_numbers() {
    let (world, ..) = spent().await;
    let owner = world.signed_in(Role::Owner).await;
    let mut seen = Vec::new();
    for measure in ["calls", "tokens", "cost"] {
        for (days, by) in [(7, "agent"), (30, "user"), (90, "agent")] {
            let page = owner.get(&format!("/usage?show={measure}&days={days}&by={by}")).await.body;
            let bars = bars(&page);
            assert_eq!(bars, cells(&page), "{measure} {days} {by}");
            assert!(!page.contains("style="), "colours come from the style sheet");
            if days == 7 {
                let mut values: Vec<_> = bars.into_values().collect();
                values.sort();
                seen.push(values.join(" "));
            }
        }
    }
    let thousand = "1\u{202f}000";
    assert_eq!(
        seen,
        [
            "1 1 1 1 1 2".to_owned(),
            format!("10 10 10 {thousand} {thousand} {thousand}"),
            "$0.01 $0.01 $0.01 $0.25 $0.50 $1.25".to_owned(),
        ]
    );
}

#[tokio::test]
async fn totals_show_their_certainty_and_each_role_sees_its_own_scope() {
    let (world, alice, _) = spent().await;
    let viewer = world.signed_in(Role::Viewer).await;
    let page = viewer.get("/usage?show=cost&days=7").await.body;
    let figures = between(&page, "<dl class=\"figures\">", "</dl>");
    assert!(figures.contains("<dd class=\"v\">$2.03</dd>"), "{figures}");
    assert!(figures.contains("3 reported, 3 estimated, 1 unknown"), "{figures}");
    let totals = between(&page, "id=\"totals\">", "</table>");
    assert!(totals.contains("<bdi>builder</bdi>") && totals.contains("1 unknown"), "{totals}");
    assert!(totals.contains("<span class=\"tag wait\">estimated</span>"), "{totals}");
    assert!(!page.contains("id=\"quotas\""), "quotas are for admins");

    // An operator sees only their own usage.
    let page = alice.get("/usage?show=calls&days=7&by=user").await.body;
    let names: Vec<_> = bars(&page).into_keys().map(|(_, name)| name).collect();
    assert_eq!(names, ["alice", "alice", "alice"]);
    let page = alice.get("/usage?show=nonsense&days=x&by=%3Cscript%3E").await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.body.contains("30 days"));
}

#[tokio::test]
async fn a_quota_is_set_shown_changed_and_removed() {
    let world = ConsoleWorld::new().await;
    let agent = world.agent("builder").await;
    let device = world.pair("builder", "workstation-2", "claude_cli").await;
    let (alice, _) = world.person("alice", Role::Operator).await;
    let owner = world.signed_in(Role::Owner).await;
    let (user, id) = (alice.user_id.to_string(), agent.agent_id.to_string());
    assert!(owner.get("/usage").await.body.contains("No quotas. Usage is unlimited."));

    let set = owner.post("/usage/quotas", &[("agent", &id), ("calls", "2"), ("cost", "$1.50"), ("tokens", "")]).await;
    assert_eq!(set.header("location"), "/usage?said=quota#quotas");
    let quotas = world.hub.quotas(&world.owner).await.unwrap().quotas;
    assert_eq!((quotas[0].calls, quotas[0].tokens, quotas[0].agent_id), (Some(2), None, Some(agent.agent_id)));
    assert_eq!(quotas[0].cost_usd.as_ref().unwrap().get(), "1.5");

    let run = world.ask("builder", "one").await;
    let page = owner.get("/usage").await.body;
    let quota = between(&page, "<article class=\"quota\">", "</article>");
    assert!(quota.contains("aria-label=\"Calls: 0 used and 1 reserved of 2\""), "{quota}");
    device.claim().await;
    device.complete_for(run, "done", Some(r#"{"cost_usd":0.5}"#)).await;
    world.ask("builder", "two").await;
    let page = owner.get("/usage").await.body;
    let quota = between(&page, "<article class=\"quota\">", "</article>");
    assert!(quota.contains("aria-label=\"Calls: 1 used and 1 reserved of 2\""), "{quota}");
    assert!(quota.contains("class=\"gauge full\"") && quota.contains("Used up"), "{quota}");

    // The form is prefilled with the current quota.
    let page = owner.get(&format!("/usage?user=&agent={id}")).await.body;
    assert!(page.contains("name=\"calls\" inputmode=\"numeric\" maxlength=\"20\" value=\"2\""), "{page}");
    assert!(page.contains(&format!("<option value=\"{id}\" selected>builder</option>")));

    for (fields, why) in [
        ([("user", &*user), ("calls", "many"), ("tokens", "5")], "“many” isn’t a valid limit"),
        ([("user", &user), ("calls", "-1"), ("tokens", "5")], "“-1” isn’t a valid limit"),
        ([("user", &user), ("calls", ""), ("tokens", "")], "Enter at least one limit."),
        ([("user", &user), ("cost", "<script>"), ("tokens", "5")], "isn’t a valid limit"),
    ] {
        let page = owner.post("/usage/quotas", &fields).await;
        assert_eq!(page.status, StatusCode::BAD_REQUEST, "{why}");
        assert!(page.body.contains(why) && !page.body.contains("“<script>”"), "{why}");
        assert!(page.body.contains(&format!("<option value=\"{user}\" selected>alice</option>")), "{why}");
        assert!(fields[2].1.is_empty() || page.body.contains("value=\"5\""), "what was typed stays: {why}");
    }
    let removed = owner.post("/usage/quotas/remove", &[("user", ""), ("agent", &id)]).await;
    assert_eq!(removed.header("location"), "/usage?said=removed#quotas");
    assert_eq!(world.hub.quotas(&world.owner).await.unwrap().quotas.len(), 0);

    let viewer = world.signed_in(Role::Viewer).await;
    assert_eq!(viewer.post("/usage/quotas", &[("calls", "5")]).await.status, StatusCode::FORBIDDEN);
    let request = SetQuotaRequest { calls: Some(5), ..SetQuotaRequest::default() };
    world.hub.set_quota(&world.owner, request).await.unwrap();
    assert_eq!(viewer.post("/usage/quotas/remove", &[]).await.status, StatusCode::FORBIDDEN);
    assert!(owner.get("/usage").await.body.contains("Whole hub"));
}

#[tokio::test]
async fn an_unknown_cost_is_not_shown_as_zero() {
    let world = ConsoleWorld::paused().await;
    world.agent("builder").await;
    let (_, alice) = world.person("alice", Role::Operator).await;
    let builder = world.pair("builder", "workstation-2", "claude_cli").await;
    work(&world, &alice, "builder", &builder, None).await;
    let page = world.signed_in(Role::Owner).await.get("/usage").await.body;
    let totals = between(&page, "id=\"totals\">", "</table>");
    assert!(totals.contains("<td class=\"num\">–</td>") && !totals.contains("$0.00"), "{totals}");
}

//! An agent's callsign: five bars and a colour drawn from its id, the same on every page.

use std::fmt::Write as _;

use attache_protocol::AgentId;

use super::html::Markup;

pub(crate) const COLOURS: u8 = 7;
const TOPS: [&str; 4] = ["7.0", "5.6", "4.0", "2.0"];
const HEIGHTS: [&str; 4] = ["2.0", "4.8", "8.0", "12.0"];
const PLACES: [&str; 5] = ["2.4", "5.2", "8.0", "10.8", "13.6"];

pub(crate) fn small(agent: AgentId) -> Markup {
    draw(agent, "")
}

pub(crate) fn big(agent: AgentId) -> Markup {
    draw(agent, " big")
}

/// The number of the agent's colour, from 1.
pub(crate) fn colour(agent: AgentId) -> u8 {
    agent.uuid().as_bytes()[15] % COLOURS + 1
}

fn draw(agent: AgentId, size: &str) -> Markup {
    let uuid = agent.uuid();
    // The first bytes of a version 7 UUID are a timestamp, the last ones are random.
    let random = &uuid.as_bytes()[10..];
    let mut bars = String::with_capacity(80);
    for (place, byte) in PLACES.iter().zip(random) {
        let level = usize::from(byte & 3);
        let _ = write!(bars, "M{place} {}v{}", TOPS[level], HEIGHTS[level]);
    }
    let colour = colour(agent);
    Markup::trusted(format!(
        "<svg class=\"sign a{colour}{size}\" viewBox=\"0 0 16 16\" aria-hidden=\"true\"><path d=\"{bars}\"/></svg>"
    ))
}

//! Edits the text of `policy.toml` in place: adds and removes peer blocks and entries of `roots`.

use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::{DelegatorSection, TrustedPeer};

#[derive(Deserialize)]
struct PolicySpans {
    #[serde(default)]
    delegator: DelegatorSpans,
}

#[derive(Default, Deserialize)]
struct DelegatorSpans {
    #[serde(default)]
    roots: Option<Spanned<Vec<Spanned<String>>>>,
}

const PEERS: &str = "[[delegator.peers]]";
const SECTION: &str = "[delegator]";

/// Applies the difference between the two sections to the text. `None` if the text is written in a way that this can't
/// edit.
pub(super) fn apply(text: &str, before: &DelegatorSection, wanted: &DelegatorSection) -> Option<String> {
    let mut text = text.to_owned();
    for peer in before.peers.iter().filter(|peer| !wanted.peers.contains(peer)) {
        text = without_peer(&text, &peer.url)?;
    }
    for peer in wanted.peers.iter().filter(|peer| !before.peers.contains(peer)) {
        text = with_peer(text, peer);
    }
    for root in before.roots.iter().filter(|root| !wanted.roots.contains(root)) {
        text = without_root(&text, root)?;
    }
    for root in wanted.roots.iter().filter(|root| !before.roots.contains(root)) {
        text = with_root(text, root)?;
    }
    Some(text)
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

fn with_peer(text: String, peer: &TrustedPeer) -> String {
    let mut text = with_final_newline(text);
    if !text.is_empty() {
        text.push('\n');
    }
    text += &format!("{PEERS}\nurl = {}\n", quoted(&peer.url));
    let pin = peer.pin.map(|pin| pin.to_string());
    for (name, value) in [("key_file", &peer.key_file), ("pin", &pin), ("advertise", &peer.advertise)] {
        if let Some(value) = value {
            text += &format!("{name} = {}\n", quoted(value));
        }
    }
    match peer.reach {
        super::RouteMode::Auto => {}
        super::RouteMode::Direct => text += "reach = \"direct\"\n",
        super::RouteMode::Tunnel => text += "reach = \"tunnel\"\n",
    }
    text
}

/// Adds a final newline unless the text is empty.
fn with_final_newline(mut text: String) -> String {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text
}

fn without_peer(text: &str, url: &str) -> Option<String> {
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let is_header = |line: &str| line.trim_start().starts_with('[');
    let mut start = 0;
    while start < lines.len() {
        if lines[start].split('#').next().unwrap_or_default().split_whitespace().collect::<String>() != PEERS {
            start += 1;
            continue;
        }
        let mut end = (start + 1..lines.len()).find(|line| is_header(lines[*line])).unwrap_or(lines.len());
        let block = lines[start..end].concat();
        let peer = toml::from_str::<DelegatorOnly>(&block).ok().and_then(|mut parsed| parsed.delegator.peers.pop());
        if peer.is_some_and(|peer| peer.url == url) {
            // Comments right above the next block belong to that block.
            while end < lines.len() && end > start + 1 && is_blank_or_comment(lines[end - 1]) {
                end -= 1;
            }
            let begin = if start > 0 && lines[start - 1].trim().is_empty() { start - 1 } else { start };
            return Some([&lines[..begin], &lines[end..]].concat().concat());
        }
        start = end;
    }
    None
}

#[derive(Deserialize)]
struct DelegatorOnly {
    delegator: DelegatorSection,
}

fn is_blank_or_comment(line: &str) -> bool {
    let line = line.trim();
    line.is_empty() || line.starts_with('#')
}

/// The span of `roots`, and its entries.
type RootSpans = (Range<usize>, Vec<Spanned<String>>);

fn root_spans(text: &str) -> Option<Option<RootSpans>> {
    let spans: PolicySpans = toml::from_str(text).ok()?;
    Some(spans.delegator.roots.map(|roots| (roots.span(), roots.into_inner())))
}

fn with_root(text: String, root: &str) -> Option<String> {
    match root_spans(&text)? {
        Some((_, roots)) if !roots.is_empty() => {
            let at = roots.last().expect("it is not empty").span().end;
            Some(format!("{}, {}{}", &text[..at], quoted(root), &text[at..]))
        }
        Some((span, _)) => Some(format!("{}[{}]{}", &text[..span.start], quoted(root), &text[span.end..])),
        None => {
            let line = format!("roots = [{}]\n", quoted(root));
            let mut at = 0;
            for existing in text.split_inclusive('\n') {
                at += existing.len();
                if existing.split('#').next().unwrap_or_default().trim() == SECTION {
                    let begin = with_final_newline(text[..at].to_owned());
                    return Some(format!("{begin}{line}{}", &text[at..]));
                }
            }
            let mut text = with_final_newline(text);
            if !text.is_empty() {
                text.push('\n');
            }
            Some(format!("{text}{SECTION}\n{line}"))
        }
    }
}

fn without_root(text: &str, root: &str) -> Option<String> {
    let (span, roots) = root_spans(text)??;
    let index = roots.iter().position(|entry| entry.get_ref() == root)?;
    let cut = match (roots.len(), roots.get(index + 1)) {
        (1, _) => return Some(format!("{}[]{}", &text[..span.start], &text[span.end..])),
        (_, Some(next)) => roots[index].span().start..next.span().start,
        (_, None) => roots[index - 1].span().end..roots[index].span().end,
    };
    Some(format!("{}{}", &text[..cut.start], &text[cut.end..]))
}

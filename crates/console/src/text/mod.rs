//! The text catalogue: every text of the console, one table per language.
//!
//! To add a language, add a file like `en.rs` and a line in [`ALL`]. A missing text is a compile error.
//! Placeholders are written `{name}` and are the same in every language.

mod admin;
mod en;
mod en_admin;
mod fields;

use axum::http::{HeaderMap, header};

pub(crate) use admin::AdminText;
pub(crate) use fields::Text;

/// All languages. The first one is the default.
pub(crate) const ALL: &[&Text] = &[&en::TEXT];

/// The supported language that the browser prefers.
pub(crate) fn for_request(headers: &HeaderMap) -> &'static Text {
    let wanted = headers.get(header::ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    wanted
        .split(',')
        .filter_map(|part| part.split(';').next())
        .find_map(|tag| {
            let primary = tag.trim().split('-').next().unwrap_or_default();
            ALL.iter().copied().find(|text| text.lang.split('-').next() == Some(primary))
        })
        .unwrap_or(ALL[0])
}

/// Fills the placeholders with plain text. The name of a placeholder without a value stays visible.
pub(crate) fn fill(template: &str, blanks: &[(&str, &str)]) -> String {
    let mut filled = String::with_capacity(template.len() + 32);
    for piece in parts(template) {
        match piece {
            SentencePart::Text(words) => filled.push_str(words),
            SentencePart::Placeholder(name) => match blanks.iter().find(|(blank, _)| *blank == name) {
                Some((_, value)) => filled.push_str(value),
                None => filled.push_str(name),
            },
        }
    }
    filled
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SentencePart<'a> {
    Text(&'a str),
    Placeholder(&'a str),
}

/// Splits a template into text and placeholders.
pub(crate) fn parts(template: &str) -> Vec<SentencePart<'_>> {
    let mut pieces = Vec::new();
    let mut rest = template;
    while let Some(start) = rest.find('{') {
        let Some(length) = rest[start..].find('}') else { break };
        if start > 0 {
            pieces.push(SentencePart::Text(&rest[..start]));
        }
        pieces.push(SentencePart::Placeholder(&rest[start + 1..start + length]));
        rest = &rest[start + length + 1..];
    }
    if !rest.is_empty() {
        pieces.push(SentencePart::Text(rest));
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blanks(template: &str) -> Vec<&str> {
        let mut names: Vec<_> = parts(template)
            .into_iter()
            .filter_map(|piece| match piece {
                SentencePart::Placeholder(name) => Some(name),
                SentencePart::Text(_) => None,
            })
            .collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn every_language_has_every_text_with_the_same_placeholders() {
        for text in ALL {
            for ((name, sentence), (_, first)) in text.entries().into_iter().zip(ALL[0].entries()) {
                assert!(!sentence.trim().is_empty(), "{}: {name} is empty", text.lang);
                assert_eq!(blanks(sentence), blanks(first), "{}: {name}", text.lang);
            }
        }
    }

    #[test]
    fn a_value_is_never_parsed_as_a_placeholder() {
        assert_eq!(fill("{a} and {b}", &[("a", "{b}"), ("b", "2")]), "{b} and 2");
        assert_eq!(fill("{missing}, open {", &[]), "missing, open {");
    }

    #[test]
    fn an_unknown_language_falls_back() {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT_LANGUAGE, "xx-YY;q=0.9, en-GB;q=0.5".parse().unwrap());
        assert_eq!(for_request(&headers).lang, "en");
        assert_eq!(for_request(&HeaderMap::new()).lang, "en");
    }
}

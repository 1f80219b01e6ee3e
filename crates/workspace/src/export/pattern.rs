//! Patterns in gitignore syntax, over bytes: names need not be UTF-8. The last matching pattern wins.

use super::refusal::ExportError;

#[derive(Debug, Clone, Default)]
pub(crate) struct GlobPatterns(Vec<GlobPattern>);

#[derive(Debug, Clone)]
struct GlobPattern {
    segments: Vec<GlobSegment>,
    negated: bool,
    folder_only: bool,
    /// The first and last byte of the last name, if known: most names fail here already.
    first: Option<u8>,
    last: Option<u8>,
}

#[derive(Debug, Clone)]
enum GlobSegment {
    /// `**`: any number of names.
    Deep,
    Name(Vec<GlobToken>),
}

#[derive(Debug, Clone)]
enum GlobToken {
    Byte(u8),
    /// `?`
    One,
    /// `*`
    Many,
    Class {
        negated: bool,
        ranges: Vec<(u8, u8)>,
    },
}

// === impl GlobPatterns ===

impl GlobPatterns {
    pub(crate) fn parse<'a>(
        lines: impl IntoIterator<Item = &'a str>,
        prepare: fn(&[u8]) -> Vec<u8>,
    ) -> Result<Self, ExportError> {
        let mut patterns = Vec::new();
        for line in lines {
            let parsed = GlobPattern::parse(&prepare(line.as_bytes()))
                .map_err(|reason| ExportError::Pattern { pattern: line.to_owned(), reason })?;
            patterns.extend(parsed);
        }
        Ok(Self(patterns))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this exact path is listed. `None` if no pattern matches. Parents are up to the caller.
    pub(crate) fn lists(&self, path: &[u8], folder: bool) -> Option<bool> {
        let found = self.0.iter().rev().find(|pattern| (folder || !pattern.folder_only) && pattern.matches(path))?;
        Some(!found.negated)
    }

    /// Whether something below this folder could be listed.
    pub(super) fn lead_below(&self, folder: &[u8]) -> bool {
        self.0.iter().any(|pattern| !pattern.negated && pattern.leads_below(folder))
    }
}

// === impl GlobPattern ===

impl GlobPattern {
    /// `None` for a blank line or a comment.
    fn parse(line: &[u8]) -> Result<Option<Self>, &'static str> {
        let mut rest = line.strip_suffix(b"\r").unwrap_or(line);
        while let Some(shorter) = rest.strip_suffix(b" ") {
            if shorter.ends_with(b"\\") {
                break;
            }
            rest = shorter;
        }
        if rest.is_empty() || rest.starts_with(b"#") {
            return Ok(None);
        }
        let negated = rest.starts_with(b"!");
        if negated {
            rest = &rest[1..];
        }
        let folder_only = rest.ends_with(b"/");
        if folder_only {
            rest = &rest[..rest.len() - 1];
        }
        let anchored = rest.contains(&b'/');
        let rest = rest.strip_prefix(b"/").unwrap_or(rest);
        if rest.is_empty() {
            return Err("it matches nothing");
        }
        let mut segments = Vec::new();
        if !anchored {
            segments.push(GlobSegment::Deep);
        }
        for part in rest.split(|&byte| byte == b'/') {
            match part {
                b"" | b"." | b".." => return Err("a name in it is empty, . or .."),
                b"**" if matches!(segments.last(), Some(GlobSegment::Deep)) => {}
                b"**" => segments.push(GlobSegment::Deep),
                name => segments.push(GlobSegment::Name(tokens(name)?)),
            }
        }
        let (first, last) = match segments.last() {
            Some(GlobSegment::Name(pieces)) => (byte(pieces.first()), byte(pieces.last())),
            Some(GlobSegment::Deep) | None => (None, None),
        };
        Ok(Some(Self { segments, negated, folder_only, first, last }))
    }

    fn matches(&self, path: &[u8]) -> bool {
        let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
        let differs = |wanted: Option<u8>, found: Option<&u8>| wanted.is_some() && wanted.as_ref() != found;
        if differs(self.first, name.first()) || differs(self.last, name.last()) {
            return false;
        }
        // Most patterns are one name at any depth.
        if let [GlobSegment::Deep, GlobSegment::Name(pieces)] = &self.segments[..] {
            return fits(pieces, name);
        }
        self.reach(path)[self.segments.len()]
    }

    fn leads_below(&self, folder: &[u8]) -> bool {
        self.reach(folder)[..self.segments.len()].contains(&true)
    }

    /// Which positions in the pattern can be reached by consuming every name of the path.
    fn reach(&self, path: &[u8]) -> Vec<bool> {
        let end = self.segments.len();
        let mut at = vec![false; end + 1];
        at[0] = true;
        self.skip_deep(&mut at);
        for name in path.split(|&byte| byte == b'/').filter(|name| !name.is_empty()) {
            let mut next = vec![false; end + 1];
            for (position, segment) in self.segments.iter().enumerate().filter(|(position, _)| at[*position]) {
                match segment {
                    GlobSegment::Deep => {
                        next[position] = true;
                        // `a/**` is everything inside `a`, but not `a` itself.
                        next[end] |= position + 1 == end;
                    }
                    GlobSegment::Name(pieces) => next[position + 1] |= fits(pieces, name),
                }
            }
            self.skip_deep(&mut next);
            at = next;
        }
        at
    }

    /// `**` in the middle can also match no name at all.
    fn skip_deep(&self, at: &mut [bool]) {
        for (position, segment) in self.segments.iter().enumerate() {
            if at[position] && matches!(segment, GlobSegment::Deep) && position + 1 < self.segments.len() {
                at[position + 1] = true;
            }
        }
    }
}

const fn byte(piece: Option<&GlobToken>) -> Option<u8> {
    match piece {
        Some(GlobToken::Byte(byte)) => Some(*byte),
        _ => None,
    }
}

fn tokens(name: &[u8]) -> Result<Vec<GlobToken>, &'static str> {
    let mut pieces = Vec::new();
    let mut rest = name;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match byte {
            b'?' => pieces.push(GlobToken::One),
            b'*' if matches!(pieces.last(), Some(GlobToken::Many)) => {}
            b'*' => pieces.push(GlobToken::Many),
            b'[' => {
                let (class, after) = class(rest)?;
                pieces.push(class);
                rest = after;
            }
            b'\\' => {
                let (&escaped, after) = rest.split_first().ok_or("it ends with a backslash")?;
                pieces.push(GlobToken::Byte(escaped));
                rest = after;
            }
            byte => pieces.push(GlobToken::Byte(byte)),
        }
    }
    Ok(pieces)
}

/// `a-z0]`, after the opening bracket.
fn class(text: &[u8]) -> Result<(GlobToken, &[u8]), &'static str> {
    const OPEN: &str = "a [ is never closed";
    let mut rest = text;
    let negated = matches!(rest.first(), Some(b'!' | b'^'));
    if negated {
        rest = &rest[1..];
    }
    let mut ranges = Vec::new();
    loop {
        let (&first, after) = rest.split_first().ok_or(OPEN)?;
        rest = after;
        match first {
            b']' if !ranges.is_empty() => return Ok((GlobToken::Class { negated, ranges }, rest)),
            b'[' if matches!(rest.first(), Some(b':' | b'.' | b'=')) => return Err("named classes are not supported"),
            _ => {}
        }
        let low = if first == b'\\' { escaped(&mut rest).ok_or(OPEN)? } else { first };
        let high = match rest {
            [b'-', high, tail @ ..] if *high != b']' => {
                rest = tail;
                if *high == b'\\' { escaped(&mut rest).ok_or(OPEN)? } else { *high }
            }
            _ => low,
        };
        ranges.push((low, high));
    }
}

fn escaped(rest: &mut &[u8]) -> Option<u8> {
    let (&byte, after) = rest.split_first()?;
    *rest = after;
    Some(byte)
}

/// Whether one name matches. `*` backtracks only to its last occurrence, so the time is at most quadratic.
fn fits(pieces: &[GlobToken], name: &[u8]) -> bool {
    let (mut piece, mut byte) = (0, 0);
    let mut again: Option<(usize, usize)> = None;
    while byte < name.len() {
        let one = match pieces.get(piece) {
            Some(GlobToken::Many) => {
                again = Some((piece, byte));
                piece += 1;
                continue;
            }
            Some(GlobToken::Byte(wanted)) => *wanted == name[byte],
            Some(GlobToken::One) => true,
            Some(GlobToken::Class { negated, ranges }) => {
                ranges.iter().any(|(low, high)| (*low..=*high).contains(&name[byte])) != *negated
            }
            None => false,
        };
        if one {
            piece += 1;
            byte += 1;
        } else if let Some((star, from)) = again {
            piece = star + 1;
            byte = from + 1;
            again = Some((star, byte));
        } else {
            return false;
        }
    }
    pieces[piece..].iter().all(|piece| matches!(piece, GlobToken::Many))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(lines: &[&str]) -> GlobPatterns {
        GlobPatterns::parse(lines.iter().copied(), <[u8]>::to_vec).unwrap()
    }

    #[test]
    fn patterns_match_like_git() {
        for (pattern, path, folder, expected) in [
            ("foo", "foo", false, Some(true)),
            ("foo", "a/foo", false, Some(true)),
            ("foo", "foot", false, None),
            ("/foo", "a/foo", false, None),
            ("a/foo", "a/foo", false, Some(true)),
            ("a/foo", "b/a/foo", false, None),
            ("foo/", "foo", false, None),
            ("foo/", "a/foo", true, Some(true)),
            ("*.log", "x/y.log", false, Some(true)),
            ("*.log", "y.log/x", false, None),
            ("a/*/c", "a/b/c", false, Some(true)),
            ("a/*/c", "a/b/b/c", false, None),
            ("a/**/c", "a/c", false, Some(true)),
            ("a/**/c", "a/b/b/c", false, Some(true)),
            ("**/c", "c", false, Some(true)),
            ("**/c/d", "x/c/d", false, Some(true)),
            ("a/**", "a", true, None),
            ("a/**", "a/b/c", false, Some(true)),
            ("!foo", "foo", false, Some(false)),
            ("f?o", "fo", false, None),
            ("f[a-cx]o", "fxo", false, Some(true)),
            ("f[!a-c]o", "fbo", false, None),
            ("f[]]o", "f]o", false, Some(true)),
            ("\\!foo", "!foo", false, Some(true)),
            ("a\\*", "a*", false, Some(true)),
            ("a\\*", "ab", false, None),
            ("*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaac", false, None),
            ("foo  ", "foo", false, Some(true)),
            ("# foo", "# foo", false, None),
        ] {
            assert_eq!(parse(&[pattern]).lists(path.as_bytes(), folder), expected, "{pattern} of {path}");
        }
        assert_eq!(parse(&["*.log", "!keep.log"]).lists(b"keep.log", false), Some(false));
        assert_eq!(parse(&["*\u{e9}"]).lists(b"\xff\xc3\xa9", false), Some(true));
        for bad in ["a[", "a\\", "/", "a//b", "../x", "[[:alpha:]]"] {
            assert!(GlobPatterns::parse([bad], <[u8]>::to_vec).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_folder_leads_to_possible_matches_below_it() {
        for (pattern, folder, expected) in [
            ("/src/lib/*.rs", "src", true),
            ("/src/lib/*.rs", "src/lib", true),
            ("/src/lib/*.rs", "src/bin", false),
            ("*.md", "any/where", true),
            ("/a/**/z", "a/b/c", true),
            ("/a", "b", false),
        ] {
            assert_eq!(parse(&[pattern]).lead_below(folder.as_bytes()), expected, "{pattern} below {folder}");
        }
    }
}

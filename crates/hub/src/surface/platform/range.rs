//! Parses the byte range of a request.

use attache_protocol::Code;
use axum::http::{HeaderMap, header};

use crate::{Error, Result};

/// A part of the content, both ends inclusive, never empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ByteRange {
    pub(super) first: u64,
    pub(super) last: u64,
}

/// The requested range. Multiple ranges, other units and a changed artifact get the complete content, as HTTP allows.
pub(super) fn part(headers: &HeaderMap, size: u64, etag: &str) -> Result<Option<ByteRange>> {
    if headers.get(header::IF_RANGE).is_some_and(|condition| condition != etag) {
        return Ok(None);
    }
    let Some(text) = headers.get(header::RANGE).and_then(|value| value.to_str().ok()) else { return Ok(None) };
    let Some(spec) = text.strip_prefix("bytes=").filter(|spec| !spec.contains(',')) else { return Ok(None) };
    let Some((first, last)) = spec.trim().split_once('-') else { return Ok(None) };
    let number = |text: &str| text.parse::<u64>().ok();
    let part = match (number(first), number(last)) {
        (Some(first), Some(last)) if first <= last => ByteRange { first, last: last.min(size.saturating_sub(1)) },
        (Some(first), None) if last.is_empty() => ByteRange { first, last: size.saturating_sub(1) },
        (None, Some(suffix)) if first.is_empty() => {
            let first = if suffix == 0 { size } else { size.saturating_sub(suffix) };
            ByteRange { first, last: size.saturating_sub(1) }
        }
        _ => return Ok(None),
    };
    if part.first >= size {
        return Err(Error::new(Code::RangeInvalid, format!("The artifact is {size} bytes long.")));
    }
    Ok(Some(part))
}

// === impl ByteRange ===

impl ByteRange {
    pub(super) const fn length(self) -> u64 {
        self.last - self.first + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(range: &str, size: u64) -> Result<Option<(u64, u64)>> {
        let mut headers = HeaderMap::new();
        headers.insert(header::RANGE, range.parse().unwrap());
        part(&headers, size, "\"x\"").map(|part| part.map(|part| (part.first, part.last)))
    }

    #[test]
    fn one_range_is_supported_and_anything_else_gets_everything() {
        assert_eq!(asked("bytes=0-0", 10), Ok(Some((0, 0))));
        assert_eq!(asked("bytes=2-", 10), Ok(Some((2, 9))));
        assert_eq!(asked("bytes=2-99", 10), Ok(Some((2, 9))));
        assert_eq!(asked("bytes=-3", 10), Ok(Some((7, 9))));
        assert_eq!(asked("bytes=-30", 10), Ok(Some((0, 9))));
        for whole in ["bytes=1-2,4-5", "lines=1-2", "bytes=5-2", "bytes=a-b", "bytes=-", "bytes=99999999999999999999-"]
        {
            assert_eq!(asked(whole, 10), Ok(None), "{whole}");
        }
        for beyond in ["bytes=10-", "bytes=-0", "bytes=11-12"] {
            assert_eq!(asked(beyond, 10).unwrap_err().code, Code::RangeInvalid, "{beyond}");
        }
        assert_eq!(asked("bytes=0-", 0).unwrap_err().code, Code::RangeInvalid);
    }
}

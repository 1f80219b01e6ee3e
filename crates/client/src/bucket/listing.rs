//! The two answers of an object store that have a body of XML: a page of a listing, and an error. Both are read leniently.

use attache_protocol::Timestamp;

/// A page of a listing.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct BucketPage {
    pub objects: Vec<BucketObject>,
    /// Passed to the next call. `None`: this was the last page.
    pub next: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct BucketObject {
    pub key: String,
    /// When it was written. `None` if the store doesn't say.
    pub modified: Option<Timestamp>,
}

// === impl BucketPage ===

impl BucketPage {
    pub(super) fn from_xml(text: &str) -> Self {
        let more = values(text, "IsTruncated").next().is_some_and(|truncated| truncated.trim() == "true");
        let next = values(text, "NextContinuationToken").next().filter(|_| more);
        let objects = values(text, "Contents").filter_map(BucketObject::from_xml).collect();
        Self { objects, next: next.map(unescape) }
    }
}

// === impl BucketObject ===

impl BucketObject {
    fn from_xml(text: &str) -> Option<Self> {
        let key = unescape(values(text, "Key").next()?);
        let modified = values(text, "LastModified").next().and_then(|time| time.trim().parse().ok());
        Some(Self { key, modified })
    }
}

/// The code and the sentence of an error.
pub(super) fn refusal(text: &str) -> (String, String) {
    let value = |tag| values(text, tag).next().map(unescape).unwrap_or_default();
    (value("Code"), value("Message"))
}

/// The texts of all elements with this name.
fn values<'a>(text: &'a str, tag: &str) -> impl Iterator<Item = &'a str> {
    let (open, close) = (format!("<{tag}>"), format!("</{tag}>"));
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once(&open)?;
        let (value, after) = after.split_once(&close)?;
        rest = after;
        Some(value)
    })
}

fn unescape(text: &str) -> String {
    // The ampersand last, because the others contain one.
    [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#34;", "\""), ("&#39;", "'"), ("&amp;", "&")]
        .iter()
        .fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_its_keys_and_where_the_next_one_begins() {
        let text = "<?xml version=\"1.0\"?><ListBucketResult><IsTruncated>true</IsTruncated>\
                    <NextContinuationToken>a&amp;b&amp;lt;=</NextContinuationToken>\
                    <Contents><Key>p/ab/01</Key><LastModified>2009-10-12T17:50:30.000Z</LastModified></Contents>\
                    <Contents><Key>p/cd/02</Key></Contents>\
                    </ListBucketResult>";
        let page = BucketPage::from_xml(text);
        let object = |key: &str, modified| BucketObject { key: key.into(), modified };
        let objects = vec![object("p/ab/01", Some(Timestamp::from_millis(1_255_369_830_000))), object("p/cd/02", None)];
        assert_eq!(page, BucketPage { objects, next: Some("a&b&lt;=".into()) });
        let last = text.replace("true", "false");
        assert_eq!(BucketPage::from_xml(&last).next, None);
        assert_eq!(BucketPage::from_xml("<html>not found</html>"), BucketPage::default());
    }

    #[test]
    fn an_error_has_a_code_and_a_sentence() {
        let text = "<Error><Code>NoSuchBucket</Code><Message>It doesn&apos;t exist</Message></Error>";
        assert_eq!(refusal(text), ("NoSuchBucket".to_owned(), "It doesn't exist".to_owned()));
    }
}

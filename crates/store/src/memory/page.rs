//! Cuts a list into pages. A cursor is the key of the last item of the page before.

use std::{convert::Infallible, fmt, str::FromStr};

use crate::{
    Error, MAX_PAGE_BYTES, Result,
    record::{ListPage, Pagination},
    weight::{PageWeight, PageWeightLimit},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PageOrder {
    Ascending,
    Descending,
}

/// A name as a key. The prefix distinguishes our cursors from any other text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NameCursor(pub(super) String);

/// The page of `items`, which are sorted by key.
pub(super) fn cut<K: Ord + ToString + FromStr, T: PageWeight>(
    items: impl Iterator<Item = (K, T)>,
    order: PageOrder,
    page: &Pagination,
) -> Result<ListPage<T>> {
    let after = match &page.cursor {
        None => None,
        Some(cursor) => Some(cursor.parse::<K>().map_err(|_| Error::NotFound)?),
    };
    let rest = items.filter(|(key, _)| match (&after, order) {
        (None, _) => true,
        (Some(after), PageOrder::Ascending) => key > after,
        (Some(after), PageOrder::Descending) => key < after,
    });
    let (mut shown, mut last, mut scales) = (Vec::new(), None, PageWeightLimit::new(MAX_PAGE_BYTES));
    for (key, item) in rest {
        if shown.len() >= page.limit.max(1) || !scales.takes(item.weight()) {
            return Ok(ListPage { items: shown, next: last });
        }
        shown.push(item);
        last = Some(key.to_string());
    }
    Ok(ListPage { items: shown, next: None })
}

// === impl NameCursor ===

impl fmt::Display for NameCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "name:{}", self.0)
    }
}

impl FromStr for NameCursor {
    type Err = Option<Infallible>;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        text.strip_prefix("name:").map(|name| Self(name.to_owned())).ok_or(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    struct TestItem(i64);

    impl PageWeight for TestItem {
        fn weight(&self) -> usize {
            0
        }
    }

    fn page(limit: usize, cursor: Option<&str>) -> Pagination {
        Pagination { limit, cursor: cursor.map(str::to_owned) }
    }

    #[test]
    fn pages_follow_each_other_to_the_end() {
        let numbers = || [5_i64, 4, 3].into_iter().map(|number| (number, TestItem(number)));
        let first = cut(numbers(), PageOrder::Descending, &page(2, None)).unwrap();
        assert_eq!(first, ListPage { items: vec![TestItem(5), TestItem(4)], next: Some("4".to_owned()) });
        let second = cut(numbers(), PageOrder::Descending, &page(2, Some("4"))).unwrap();
        assert_eq!(second, ListPage { items: vec![TestItem(3)], next: None });
        // A cursor keeps its position even if its item is gone.
        let without = cut(numbers().skip(2), PageOrder::Descending, &page(2, Some("4"))).unwrap();
        assert_eq!(without, ListPage { items: vec![TestItem(3)], next: None });
        assert_eq!(cut(numbers(), PageOrder::Descending, &page(2, Some("four"))), Err(Error::NotFound));
        let names = [(NameCursor("a".to_owned()), TestItem(1))];
        assert_eq!(cut(names.into_iter(), PageOrder::Ascending, &page(2, Some("a"))), Err(Error::NotFound));
    }
}

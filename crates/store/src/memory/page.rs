//! Cuts a list into pages. A cursor is the key of the last item of the page before.

use std::{convert::Infallible, fmt, str::FromStr};

use crate::{
    Error, MAX_PAGE_BYTES, Result,
    record::{Listed, Page},
    weight::{Scales, Weigh},
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    Ascending,
    Descending,
}

/// A name as a key; the prefix tells a cursor of ours from any other text.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name(pub(super) String);

/// The page of `items`, which are sorted by key in this order.
pub(super) fn cut<K: Ord + ToString + FromStr, T: Weigh>(
    items: impl Iterator<Item = (K, T)>,
    order: Order,
    page: &Page,
) -> Result<Listed<T>> {
    let after = match &page.cursor {
        None => None,
        Some(cursor) => Some(cursor.parse::<K>().map_err(|_| Error::NotFound)?),
    };
    let rest = items.filter(|(key, _)| match (&after, order) {
        (None, _) => true,
        (Some(after), Order::Ascending) => key > after,
        (Some(after), Order::Descending) => key < after,
    });
    let (mut shown, mut last, mut scales) = (Vec::new(), None, Scales::new(MAX_PAGE_BYTES));
    for (key, item) in rest {
        if shown.len() >= page.limit.max(1) || !scales.takes(item.weight()) {
            return Ok(Listed { items: shown, next: last });
        }
        shown.push(item);
        last = Some(key.to_string());
    }
    Ok(Listed { items: shown, next: None })
}

// === impl Name ===

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "name:{}", self.0)
    }
}

impl FromStr for Name {
    type Err = Option<Infallible>;

    fn from_str(text: &str) -> std::result::Result<Self, Self::Err> {
        text.strip_prefix("name:").map(|name| Self(name.to_owned())).ok_or(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    struct Item(i64);

    impl Weigh for Item {
        fn weight(&self) -> usize {
            0
        }
    }

    fn page(limit: usize, cursor: Option<&str>) -> Page {
        Page { limit, cursor: cursor.map(str::to_owned) }
    }

    #[test]
    fn pages_follow_each_other_until_nothing_is_left() {
        let numbers = || [5_i64, 4, 3].into_iter().map(|number| (number, Item(number)));
        let first = cut(numbers(), Order::Descending, &page(2, None)).unwrap();
        assert_eq!(first, Listed { items: vec![Item(5), Item(4)], next: Some("4".to_owned()) });
        let second = cut(numbers(), Order::Descending, &page(2, Some("4"))).unwrap();
        assert_eq!(second, Listed { items: vec![Item(3)], next: None });
        // A cursor holds its place also when its item is gone.
        let without = cut(numbers().skip(2), Order::Descending, &page(2, Some("4"))).unwrap();
        assert_eq!(without, Listed { items: vec![Item(3)], next: None });
        assert_eq!(cut(numbers(), Order::Descending, &page(2, Some("four"))), Err(Error::NotFound));
        let names = [(Name("a".to_owned()), Item(1))];
        assert_eq!(cut(names.into_iter(), Order::Ascending, &page(2, Some("a"))), Err(Error::NotFound));
    }
}

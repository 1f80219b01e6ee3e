//! One page of a list of which the caller sees only a part: what is hidden leaves neither gaps nor traces. A page ends
//! after something that the caller sees, and says that more follows only if they see that, too.

use attache_store::{
    MAX_PAGE_BYTES, PageWeight,
    record::{ListPage, Pagination},
};

use crate::{Handle, Principal, check::MAX_PAGE, long_reads::LongReadTurn};

/// How many parts of the list are read for one page. If nothing visible is among them, the response says where to
/// continue: only so many hidden items in a row show.
const MAX_LOOKS: usize = 100;
/// With more parts than this, it is a long read.
const SHORT_READ: usize = 2;

/// Collects what the caller sees: [`Self::next_read`] says which part of the list to read, [`Self::take`] takes it.
#[derive(Debug)]
pub(crate) struct VisiblePage<T> {
    wanted: usize,
    shown: Vec<T>,
    weight: usize,
    looks: usize,
    /// The part to read next.
    asked: Option<Pagination>,
    /// The part that is asked for ends with the last item of the page.
    is_last_part: bool,
    /// The page is full and ends here. What is read now only tells whether the caller sees any more.
    end: Option<String>,
    next: Option<String>,
    is_long: bool,
    turn: Option<LongReadTurn>,
}

// === impl VisiblePage ===

impl<T: PageWeight> VisiblePage<T> {
    pub(crate) fn new(page: Pagination) -> Self {
        Self {
            wanted: page.limit,
            shown: Vec::new(),
            weight: 0,
            looks: 0,
            asked: Some(page),
            is_last_part: false,
            end: None,
            next: None,
            is_long: false,
            turn: None,
        }
    }

    /// Every part takes long to read.
    pub(crate) fn of_long_read(self, is_long: bool) -> Self {
        Self { is_long, ..self }
    }

    /// The part of the list to read, if any is needed. Long reads wait for their turn.
    pub(crate) async fn next_read(&mut self, hub: &Handle, by: &Principal) -> Option<Pagination> {
        let asked = self.asked.clone()?;
        if self.turn.is_none() && (self.is_long || self.looks >= SHORT_READ) {
            self.turn = Some(hub.long_read(by).await);
        }
        Some(asked)
    }

    /// Takes the part that was asked for. `seen` says of each item whether the caller sees it.
    pub(crate) fn take(&mut self, listed: ListPage<T>, seen: &[bool]) {
        let Some(asked) = self.asked.take() else { return };
        self.looks += 1;
        let (may_look, ListPage { items, next }) = (self.looks < MAX_LOOKS, listed);
        if let Some(end) = self.end.take() {
            match next {
                Some(from) if may_look && !seen.contains(&true) => {
                    (self.end, self.asked) = (Some(end), part(MAX_PAGE, from));
                }
                Some(_) => self.next = Some(end),
                None => self.next = seen.contains(&true).then_some(end),
            }
            return;
        }
        let is_seen = |index: &usize| seen.get(*index).copied().unwrap_or(false);
        let (mut count, mut weight, mut upto, mut more_follows) = (self.shown.len(), self.weight, 0, false);
        for (index, item) in items.iter().enumerate().filter(|(index, _)| is_seen(index)) {
            let with_it = weight.saturating_add(item.weight());
            if count == self.wanted || (count > 0 && with_it > MAX_PAGE_BYTES) {
                more_follows = true;
                break;
            }
            (count, weight, upto) = (count + 1, with_it, index + 1);
        }
        let is_full = more_follows || count == self.wanted || (self.is_last_part && upto > 0);
        self.is_last_part = false;
        if is_full && upto == 0 {
            self.next = asked.cursor;
            return;
        }
        if is_full && upto < items.len() {
            // Only the end of a part has a cursor, and a cursor after what is hidden would tell of it.
            (self.is_last_part, self.asked) = (true, Some(Pagination { limit: upto, ..asked }));
            return;
        }
        let hides = seen.contains(&false);
        self.shown.extend(items.into_iter().enumerate().filter(|(index, _)| is_seen(index)).map(|(_, item)| item));
        self.weight = weight;
        match next {
            Some(end) if is_full && may_look => (self.end, self.asked) = (Some(end.clone()), part(1, end)),
            Some(from) if may_look => self.asked = part(if hides { MAX_PAGE } else { self.wanted - count }, from),
            next => self.next = next,
        }
    }

    /// What the caller sees, and the cursor of the next page if they see more.
    pub(crate) fn finish(self) -> (Vec<T>, Option<String>) {
        (self.shown, self.next)
    }
}

fn part(limit: usize, cursor: String) -> Option<Pagination> {
    Some(Pagination { limit, cursor: Some(cursor) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    struct TestItem {
        place: usize,
        weight: usize,
    }

    impl PageWeight for TestItem {
        fn weight(&self) -> usize {
            self.weight
        }
    }

    /// A list of a store: the cursor is the place of the last item of the page before.
    fn read(items: &[TestItem], asked: &Pagination) -> ListPage<TestItem> {
        let from = asked.cursor.as_ref().map_or(0, |cursor| cursor.parse::<usize>().unwrap() + 1);
        let (mut page, mut weight) = (Vec::new(), 0);
        for item in &items[from..] {
            weight += item.weight;
            if page.len() == asked.limit || (!page.is_empty() && weight > MAX_PAGE_BYTES) {
                return ListPage { next: page.last().map(|last: &TestItem| last.place.to_string()), items: page };
            }
            page.push(*item);
        }
        ListPage { items: page, next: None }
    }

    /// The pages of a list, as the places of what they show and their cursors.
    fn pages(items: &[TestItem], limit: usize, sees: impl Fn(usize) -> bool) -> Vec<(Vec<usize>, Option<String>)> {
        let (mut pages, mut cursor) = (Vec::new(), None);
        loop {
            let mut page = VisiblePage::new(Pagination { limit, cursor: cursor.take() });
            while let Some(asked) = page.asked.clone() {
                let listed = read(items, &asked);
                let seen: Vec<bool> = listed.items.iter().map(|item| sees(item.place)).collect();
                page.take(listed, &seen);
            }
            let (shown, next) = page.finish();
            cursor.clone_from(&next);
            pages.push((shown.into_iter().map(|item| item.place).collect(), next));
            if cursor.is_none() {
                return pages;
            }
        }
    }

    fn light(count: usize) -> Vec<TestItem> {
        (0..count).map(|place| TestItem { place, weight: 1 }).collect()
    }

    #[test]
    fn every_page_ends_with_what_the_caller_sees_and_the_last_one_says_so() {
        let hidden = |place: usize| !matches!(place, 0 | 1 | 5 | 9 | 10 | 11);
        let expected = [
            (vec![0, 1], Some("1".to_owned())),
            (vec![5, 9], Some("9".to_owned())),
            // What follows is hidden.
            (vec![10, 11], None),
        ];
        assert_eq!(pages(&light(900), 2, |place| !hidden(place)), expected);
        assert_eq!(pages(&light(900), 200, |place| !hidden(place)), [(vec![0, 1, 5, 9, 10, 11], None)]);
        assert_eq!(pages(&light(900), 3, |_| false), [(vec![], None)]);
        assert_eq!(pages(&[], 3, |_| true), [(vec![], None)]);
        assert_eq!(pages(&light(4), 2, |_| true), [(vec![0, 1], Some("1".to_owned())), (vec![2, 3], None)]);
    }

    /// Whoever can't see an item gets the same pages whether it is there or not: compared by what comes before each cursor.
    #[test]
    fn hidden_items_change_no_page() {
        for pattern in 0..1_u32 << 9 {
            let sees = |place: usize| pattern >> place & 1 == 1;
            let visible: Vec<usize> = (0..9).filter(|place| sees(*place)).collect();
            for limit in 1..=4 {
                let shown = pages(&light(9), limit, sees);
                let alone = pages(&light(visible.len()), limit, |_| true);
                let of = |place: &usize| visible[*place];
                let alone: Vec<(Vec<usize>, Option<String>)> = alone
                    .into_iter()
                    .map(|(items, next)| {
                        let next = next.map(|next| of(&next.parse().unwrap()).to_string());
                        (items.iter().map(of).collect(), next)
                    })
                    .collect();
                assert_eq!(shown, alone, "{pattern:b} {limit}");
            }
        }
    }

    #[test]
    fn a_page_is_never_heavier_than_allowed() {
        let heavy: Vec<TestItem> = (0..7)
            .map(|place| TestItem { place, weight: if place == 3 { MAX_PAGE_BYTES * 2 } else { MAX_PAGE_BYTES / 2 } })
            .collect();
        let expected = [
            (vec![0, 2], Some("2".to_owned())),
            (vec![3], Some("3".to_owned())),
            (vec![4, 5], Some("5".to_owned())),
            (vec![6], None),
        ];
        assert_eq!(pages(&heavy, 50, |place| place != 1), expected);
    }

    #[test]
    fn reading_ends_somewhere() {
        let items = light(MAX_LOOKS * MAX_PAGE * 2);
        let (shown, next) = pages(&items, 1, |place| place == 0 || place + 1 == items.len()).swap_remove(0);
        assert_eq!((shown, next), (vec![0], Some("0".to_owned())));
    }
}

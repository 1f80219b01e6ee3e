//! Lists that are longer than a page.

use std::{collections::VecDeque, fmt, pin::Pin};

/// The items of a list, read page by page as they are needed.
pub struct AllPages<'a, T, E> {
    read: Box<dyn FnMut(Option<String>) -> PageRead<'a, T, E> + Send + 'a>,
    ready: VecDeque<T>,
    /// Where the next page starts. `None`: there is none.
    next: Option<Option<String>>,
    pages_left: usize,
}

/// A page and the cursor of the next one, on the way.
type PageRead<'a, T, E> = Pin<Box<dyn Future<Output = Result<(Vec<T>, Option<String>), E>> + Send + 'a>>;

/// Every item of a list. `read` gets a cursor, and returns that page and the cursor of the next one. At most `max_pages`
/// are read, and a page that points to itself is the last one, so that a wrong answer never becomes an endless loop.
pub fn all_pages<'a, T, E, F>(
    max_pages: usize,
    mut read: impl FnMut(Option<String>) -> F + Send + 'a,
) -> AllPages<'a, T, E>
where
    F: Future<Output = Result<(Vec<T>, Option<String>), E>> + Send + 'a,
{
    let read = Box::new(move |cursor| -> PageRead<'a, T, E> { Box::pin(read(cursor)) });
    AllPages { read, ready: VecDeque::new(), next: Some(None), pages_left: max_pages }
}

// === impl AllPages ===

impl<T, E> AllPages<'_, T, E> {
    pub async fn next(&mut self) -> Result<Option<T>, E> {
        while self.ready.is_empty() && self.pages_left > 0 {
            let Some(cursor) = self.next.take() else { break };
            self.pages_left -= 1;
            let (items, next) = (self.read)(cursor.clone()).await?;
            self.ready = items.into();
            self.next = next.filter(|next| Some(next) != cursor.as_ref()).map(Some);
        }
        Ok(self.ready.pop_front())
    }

    /// Reads to the end, or as far as the bound allows.
    pub async fn collect(&mut self) -> Result<Vec<T>, E> {
        let mut items = Vec::new();
        while let Some(item) = self.next().await? {
            items.push(item);
        }
        Ok(items)
    }

    /// Whether there are more items than the bound allowed to read.
    pub fn has_more(&self) -> bool {
        self.next.is_some()
    }
}

impl<T, E> fmt::Debug for AllPages<'_, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllPages")
            .field("next", &self.next)
            .field("pages_left", &self.pages_left)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    /// Three pages of two numbers.
    async fn page(cursor: Option<String>) -> Result<(Vec<u32>, Option<String>), Infallible> {
        let page: u32 = cursor.map_or(0, |cursor| cursor.parse().unwrap());
        Ok((vec![page * 2, page * 2 + 1], (page < 2).then(|| (page + 1).to_string())))
    }

    #[tokio::test]
    async fn every_page_is_read_once_up_to_the_bound() {
        let mut all = all_pages(10, page);
        assert_eq!((all.collect().await, all.has_more()), (Ok(vec![0, 1, 2, 3, 4, 5]), false));
        let mut some = all_pages(2, page);
        assert_eq!((some.collect().await, some.has_more()), (Ok(vec![0, 1, 2, 3]), true));
    }

    #[tokio::test]
    async fn no_page_is_read_before_it_is_needed_and_empty_pages_are_skipped() {
        let mut read = Vec::new();
        let mut pages = all_pages(10, |cursor: Option<String>| {
            read.push(cursor.clone());
            async move {
                Ok::<_, Infallible>(match cursor {
                    None => (vec![], Some("a".to_owned())),
                    Some(_) => (vec![7], Some("b".to_owned())),
                })
            }
        });
        assert_eq!(pages.next().await, Ok(Some(7)));
        drop(pages);
        assert_eq!(read, [None, Some("a".to_owned())]);
    }

    #[tokio::test]
    async fn a_cursor_that_repeats_ends_the_list() {
        let mut pages = all_pages(usize::MAX, |_| async { Ok::<_, Infallible>((vec![1], Some("same".to_owned()))) });
        assert_eq!((pages.collect().await, pages.has_more()), (Ok(vec![1, 1]), false));
    }

    #[tokio::test]
    async fn an_error_ends_the_list() {
        let mut pages = all_pages(10, |cursor: Option<String>| async move {
            if cursor.is_none() { Ok((vec![1], Some("a".to_owned()))) } else { Err("broken") }
        });
        assert_eq!(pages.collect().await, Err("broken"));
    }
}

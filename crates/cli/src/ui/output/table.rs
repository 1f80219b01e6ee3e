//! Plain-text tables: aligned columns, a dim heading, no borders.

use super::{clean, style::TextStyle, width};

#[derive(Debug, Clone)]
pub(crate) struct TextTable {
    headings: Vec<&'static str>,
    rows: Vec<Vec<TextCell>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TextCell {
    text: String,
    style: TextStyle,
}

const GAP: usize = 2;

// === impl TextTable ===

impl TextTable {
    pub(crate) fn new(headings: &[&'static str]) -> Self {
        Self { headings: headings.to_vec(), rows: Vec::new() }
    }

    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = TextCell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Renders the table. The last column is shortened if the terminal is narrow.
    pub(super) fn render(&self, color: bool, width: Option<usize>) -> String {
        let columns = self.headings.len();
        let mut widths: Vec<usize> = self.headings.iter().map(|heading| width::of(heading)).collect();
        for row in &self.rows {
            for (widest, cell) in widths.iter_mut().zip(row) {
                *widest = (*widest).max(width::of(&cell.text));
            }
        }
        let before: usize = widths.iter().take(columns.saturating_sub(1)).map(|width| width + GAP).sum();
        let room = width.map_or(usize::MAX, |width| width.saturating_sub(before).max(8));
        let mut text = String::new();
        let headings: Vec<_> = self.headings.iter().map(|heading| TextCell::dim(*heading)).collect();
        // A key-value table has no headings.
        let first = Some(&headings).filter(|_| self.headings.iter().any(|heading| !heading.is_empty()));
        for row in first.into_iter().chain(&self.rows) {
            let mut line = String::new();
            for (index, cell) in row.iter().enumerate() {
                let last = index + 1 == columns;
                let shown = if last { shorten(&cell.text, room) } else { cell.text.clone() };
                let padding = if last { 0 } else { widths[index] - width::of(&shown) + GAP };
                line += &cell.style.paint(&shown, color);
                line += &" ".repeat(padding);
            }
            text += line.trim_end();
            text.push('\n');
        }
        text
    }
}

fn shorten(text: &str, room: usize) -> String {
    if width::of(text) <= room {
        return text.to_owned();
    }
    format!("{}…", width::start(text, room.saturating_sub(1)))
}

// === impl TextCell ===

impl TextCell {
    pub(crate) fn styled(text: impl AsRef<str>, style: TextStyle) -> Self {
        Self { text: clean::line(text.as_ref()).into_owned(), style }
    }

    pub(crate) fn plain(text: impl AsRef<str>) -> Self {
        Self::styled(text, TextStyle::Plain)
    }

    pub(crate) fn strong(text: impl AsRef<str>) -> Self {
        Self::styled(text, TextStyle::Strong)
    }

    pub(crate) fn dim(text: impl AsRef<str>) -> Self {
        Self::styled(text, TextStyle::Dim)
    }

    /// The first line of a longer text, shortened.
    pub(crate) fn excerpt(text: &str) -> Self {
        Self::plain(shorten(text.trim().lines().next().unwrap_or_default(), 80))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_align_and_the_last_one_is_shortened() {
        let mut table = TextTable::new(&["NAME", "STATE", "TEXT"]);
        table.row([TextCell::strong("local"), TextCell::plain("online"), TextCell::excerpt("uname -a\nsecond")]);
        table.row([
            TextCell::strong("über-agent"),
            TextCell::plain("offline"),
            TextCell::plain("a long text that does not fit"),
        ]);
        let expected = "NAME        STATE    TEXT\nlocal       online   uname -a\nüber-agent  offline  a long te…\n";
        assert_eq!(table.render(false, Some(31)), expected);
        assert!(table.render(true, None).contains("\x1b[1mlocal\x1b[0m"));
    }

    #[test]
    fn wide_characters_take_two_columns() {
        let mut table = TextTable::new(&["名称", "STATE", "任务"]);
        table.row([TextCell::plain("智能体"), TextCell::plain("运行中"), TextCell::plain("检查项目的架构")]);
        table.row([TextCell::plain("local"), TextCell::plain("online"), TextCell::plain("uname")]);
        let expected = "名称    STATE   任务\n智能体  运行中  检查项…\nlocal   online  uname\n";
        assert_eq!(table.render(false, Some(24)), expected);
    }
}

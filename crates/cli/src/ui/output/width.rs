//! How many columns of a terminal a text takes: two for an East Asian wide character, none for a combining mark.

/// The columns of a text without control characters.
pub(super) fn of(text: &str) -> usize {
    text.chars().map(character).sum()
}

/// As much of the start of a text as fits into so many columns.
pub(super) fn start(text: &str, columns: usize) -> &str {
    let mut taken = 0;
    for (at, one) in text.char_indices() {
        taken += character(one);
        if taken > columns {
            return &text[..at];
        }
    }
    text
}

/// The wide blocks of Unicode's East Asian Width (UAX #11), as far as text that we show has them.
const fn character(character: char) -> usize {
    match character {
        // Combining marks, joiners and variation selectors.
        '\u{300}'..='\u{36f}' | '\u{200b}'..='\u{200d}' | '\u{fe00}'..='\u{fe0f}' => 0,
        // Hangul; CJK radicals, punctuation, kana and ideographs; Yi; Hangul syllables; compatibility and full-width
        // forms; emoji; further ideographs.
        '\u{1100}'..='\u{115f}'
        | '\u{2e80}'..='\u{303e}'
        | '\u{3041}'..='\u{4dbf}'
        | '\u{4e00}'..='\u{a4cf}'
        | '\u{a960}'..='\u{a97f}'
        | '\u{ac00}'..='\u{d7a3}'
        | '\u{f900}'..='\u{faff}'
        | '\u{fe30}'..='\u{fe6f}'
        | '\u{ff00}'..='\u{ff60}'
        | '\u{ffe0}'..='\u{ffe6}'
        | '\u{1f300}'..='\u{1f64f}'
        | '\u{1f680}'..='\u{1f6ff}'
        | '\u{1f900}'..='\u{1f9ff}'
        | '\u{20000}'..='\u{3fffd}' => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chinese_is_twice_as_wide() {
        assert_eq!(
            ["", "abc", "über", "运行中", "（等待）", "e\u{301}", "🚀", "日本語 한국어"].map(of),
            [0, 3, 4, 6, 8, 1, 2, 13]
        );
    }

    #[test]
    fn no_character_is_cut_in_half() {
        assert_eq!(start("运行中", 5), "运行");
        assert_eq!(start("a运行", 3), "a运");
        assert_eq!(start("abc", 3), "abc");
        assert_eq!(start("e\u{301}x", 1), "e\u{301}");
    }
}

//! Which characters a screen doesn't show, or shows as something else.

/// Whether a character is a control, is invisible, looks like a plain space, or changes the order in which others are
/// displayed. Whoever decides on a text must see them. Line breaks and tabs are controls, too.
pub const fn is_hidden(character: char) -> bool {
    matches!(
        character,
        '\0'..='\x1f' | '\x7f'..='\u{9f}'
        // Spaces that a shell doesn't treat as spaces, and blank letters.
        | '\u{a0}' | '\u{115f}' | '\u{1160}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}'
        | '\u{2800}' | '\u{3000}' | '\u{3164}' | '\u{ffa0}' | '\u{1d159}'
        // Invisible characters.
        | '\u{ad}' | '\u{34f}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200d}'
        | '\u{2060}'..='\u{2065}' | '\u{fe00}'..='\u{fe0e}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{13430}'..='\u{1343f}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}'
        // Line separators and bidirectional controls.
        | '\u{2028}' | '\u{2029}' | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{206f}'
    )
}

/// Whether a letter belongs to a script that is written from right to left: next to it, other characters change places.
pub const fn is_right_to_left(character: char) -> bool {
    matches!(
        character,
        '\u{590}'..='\u{8ff}' | '\u{fb1d}'..='\u{fdff}' | '\u{fe70}'..='\u{feff}' | '\u{10800}'..='\u{10fff}'
        | '\u{1e800}'..='\u{1efff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_screen_shows_is_hidden_and_what_it_shows_is_not() {
        for hidden in
            ['\n', '\x1b', '\u{a0}', '\u{34f}', '\u{17b4}', '\u{2003}', '\u{200b}', '\u{2800}', '\u{3000}', '\u{202e}']
        {
            assert!(is_hidden(hidden), "{hidden:?}");
        }
        for shown in [' ', 'a', 'é', '漢', '|', '😀', '\u{fe0f}', 'ا'] {
            assert!(!is_hidden(shown), "{shown:?}");
        }
        assert!(is_right_to_left('ا') && !is_right_to_left('漢'));
    }
}

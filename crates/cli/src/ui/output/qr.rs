//! A QR code in the terminal, two modules per character.

use qrcode::{Color, EcLevel, QrCode};

/// None if the text is too long for a code that a phone can scan from a screen.
pub(crate) fn render(text: &str) -> Option<String> {
    let code = QrCode::with_error_correction_level(text, EcLevel::L).ok()?;
    let (width, colors) = (code.width(), code.to_colors());
    if width > 61 {
        return None;
    }
    // Draw the light modules, including the quiet zone, so that the code scans on a dark terminal.
    let is_light = |x: isize, y: isize| match (usize::try_from(x), usize::try_from(y)) {
        (Ok(x), Ok(y)) if x < width && y < width => colors[y * width + x] == Color::Light,
        _ => true,
    };
    let (side, quiet) = (isize::try_from(width).ok()?, 2);
    let mut drawn = String::new();
    for y in (-quiet..side + quiet).step_by(2) {
        for x in -quiet..side + quiet {
            drawn.push(match (is_light(x, y), is_light(x, y + 1)) {
                (true, true) => '█',
                (true, false) => '▀',
                (false, true) => '▄',
                (false, false) => ' ',
            });
        }
        drawn.push('\n');
    }
    Some(drawn)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_a_square_with_a_quiet_zone() {
        let drawn = render("http://127.0.0.1:7800/pair?code=K7QM-2XHD").unwrap();
        let lines: Vec<_> = drawn.lines().collect();
        let width = lines[0].chars().count();
        assert!(lines.iter().all(|line| line.chars().count() == width), "{drawn}");
        assert_eq!(lines.len(), width.div_ceil(2));
        assert!(lines[0].chars().all(|character| character == '█'), "{drawn}");
        assert_eq!(render(&"x".repeat(2000)), None);
    }
}

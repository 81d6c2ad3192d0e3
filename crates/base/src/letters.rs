//! Characters that readers do not see as they are.

/// Returns true for a character that is not shown, or that changes the order of the letters around it: blanks without
/// width, joiners, and marks of the direction of a text. Control characters are not among them.
pub fn is_formatting(letter: char) -> bool {
    matches!(
        letter,
        '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
    )
}

//! What is written on the terminal at once.

use crate::agent::event_log::replace_controls;

/// Lines are not wrapped: letters may be wider than one column.
pub(super) const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
pub(super) const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
pub(super) const HOME: &str = "\x1b[H";
pub(super) const REST_OF_SCREEN: &str = "\x1b[J";
const REST_OF_LINE: &str = "\x1b[K";
const REVERSE: &str = "\x1b[7m";
const USUAL: &str = "\x1b[0m";

/// A line of the screen.
#[derive(Debug, Default)]
pub(super) struct ScreenLine {
    pub text: String,
    /// Whether it stands out.
    pub is_selected: bool,
}

impl From<String> for ScreenLine {
    fn from(text: String) -> Self {
        Self { text, is_selected: false }
    }
}

/// What is written: as many lines as there is room for, none longer than the terminal is wide.
pub(super) fn render_frame(lines: &[ScreenLine], columns: usize, height: usize) -> String {
    let shown = &lines[..lines.len().min(height.max(1))];
    let last = shown.len().saturating_sub(1);
    let mut frame = String::new();
    for (at, line) in shown.iter().enumerate() {
        let text = replace_controls(&line.text).chars().take(columns).collect::<String>();
        match line.is_selected {
            true => frame.extend([REVERSE, &text, USUAL]),
            false => frame.push_str(&text),
        }
        frame.push_str(REST_OF_LINE);
        // A line break in the last line would push the first one out.
        frame.push_str(if at < last { "\r\n" } else { "" });
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_the_terminal_and_does_nothing_to_it() {
        let lines = ["123456789", "a\x1b[2J", "three"].map(|text| text.to_owned().into());

        assert_eq!(render_frame(&lines, 5, 2), "12345\x1b[K\r\na\u{fffd}[2J\x1b[K");
        assert_eq!(render_frame(&lines, 80, 9).matches("\r\n").count(), 2);
    }

    #[test]
    fn a_selected_line_stands_out() {
        let line = ScreenLine { text: "12\x1b[0m".to_owned(), is_selected: true };

        assert_eq!(render_frame(&[line], 80, 1), "\x1b[7m12\u{fffd}[0m\x1b[0m\x1b[K");
    }
}

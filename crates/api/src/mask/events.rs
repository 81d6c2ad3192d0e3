//! Event streams: `text/event-stream` of the HTML standard, section 9.2.

use super::text;

/// An event stream whose data are masked as texts. The data of an event may be in several lines.
pub(super) fn mask_events(source: &str) -> String {
    let mut masked = String::with_capacity(source.len());
    let mut lines = source.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let Some(first) = data_value(line) else {
            masked.push_str(&text(line));
            continue;
        };
        let mut data_lines = first.to_owned();
        while let Some(more) = lines.peek().and_then(|next| data_value(next)) {
            data_lines.push_str(more);
            lines.next();
        }
        for line in text(&data_lines).split_inclusive('\n') {
            masked.push_str("data: ");
            masked.push_str(line);
        }
        let end = if data_lines.ends_with("\r\n") { "\r\n" } else { "\n" };
        if data_lines.ends_with('\n') && !masked.ends_with('\n') {
            masked.push_str(end);
        }
    }
    masked
}

/// The value of a line of data, with its end.
fn data_value(line: &str) -> Option<&str> {
    let value = line.strip_prefix("data:")?;
    Some(value.strip_prefix(' ').unwrap_or(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::MASK;

    #[test]
    fn data_of_events_is_masked() {
        for (source, expected) in [
            ("event: a\ndata: {\"token\": [\"x\"]}\n\n", "event: a\ndata: {\"token\": \"#\"}\n\n"),
            (
                "data: {\"tokens\": [\ndata: \"x\"]}\n\ndata: kept\n",
                "data: {\"tokens\": \"#\"}\n\ndata: kept\n",
            ),
            ("data: {\"max_tokens\": 5}\r\n\r\n", "data: {\"max_tokens\": 5}\r\n\r\n"),
            ("data: token=x", "data: token=#"),
        ] {
            assert_eq!(mask_events(source), expected.replace('#', MASK), "{source}");
        }
    }
}

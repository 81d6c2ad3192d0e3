//! Doc comments of the operation table as text for readers.
//!
//! A doc comment arrives with a space before each line and with the line breaks of the source.

/// Returns the text without the indentation of the comment. Lines and paragraphs stay as they are.
pub fn unindent_doc(doc: &str) -> String {
    let lines: Vec<_> =
        doc.lines().map(|line| line.strip_prefix(' ').unwrap_or(line).trim_end()).collect();
    lines.join("\n").trim().to_owned()
}

/// Returns the text in one line, without a final full stop.
pub fn in_one_line(doc: &str) -> String {
    let words: Vec<_> = doc.split_whitespace().collect();
    let line = words.join(" ");
    line.strip_suffix('.').map(str::to_owned).unwrap_or(line)
}

/// Returns the first sentence in one line, without its full stop.
pub fn first_sentence(doc: &str) -> String {
    split_summary(doc).0
}

/// Returns the first sentence in one line, without its full stop, and the text after it.
pub fn split_summary(doc: &str) -> (String, String) {
    let text = unindent_doc(doc);
    let (first, rest) = text.split_at(end_of_sentence(&text));
    (in_one_line(first), rest.trim().to_owned())
}

/// Returns the position after the first sentence. A sentence ends with its paragraph at the latest.
fn end_of_sentence(text: &str) -> usize {
    let paragraph = text.find("\n\n").unwrap_or(text.len());
    let mut is_code = false;
    for (at, letter) in text[..paragraph].char_indices() {
        is_code ^= letter == '`';
        if letter == '.' && !is_code && begins_sentence(&text[at + 1..paragraph]) {
            return at + 1;
        }
    }
    paragraph
}

/// Returns true if a new sentence follows a full stop. Abbreviations continue in lower case.
fn begins_sentence(rest: &str) -> bool {
    let next = rest.trim_start().chars().next();
    rest.starts_with(char::is_whitespace) && next.is_some_and(|letter| !letter.is_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_is_the_first_sentence_across_lines() {
        for (doc, first, rest) in [
            (" One line.\n", "One line", ""),
            (" No full stop\n", "No full stop", ""),
            (" Two lines of\n one sentence. And more.\n", "Two lines of one sentence", "And more."),
            (" The first. `Second` one.\n", "The first", "`Second` one."),
            (" A paragraph\n over lines\n\n More.\n", "A paragraph over lines", "More."),
            (" Names, e.g. of hosts, in `a. B`.\n", "Names, e.g. of hosts, in `a. B`", ""),
            (" Version 1.5 or later.\n", "Version 1.5 or later", ""),
            ("", "", ""),
        ] {
            assert_eq!(split_summary(doc), (first.to_owned(), rest.to_owned()), "{doc:?}");
        }
    }

    #[test]
    fn unindented_text_keeps_its_paragraphs_and_lists() {
        let doc = " One\n two.\n\n - an item\n   with more\n";

        assert_eq!(unindent_doc(doc), "One\ntwo.\n\n- an item\n  with more");
    }
}

//! Elements of XML that have the name and the value of a secret: `<name>password</name><value>x</value>`, and in
//! property lists `<key>password</key><string>x</string>`.

use std::collections::{BTreeMap, HashMap};

use super::escapes::{Entities, resolve_references};
use super::labels::{LabelReach, PairRole, pair_role};
use super::object_kinds::is_file_member;
use super::pieces::{Pieces, VOID_ELEMENTS, local_name, tag_name};
use crate::secrets::is_exact;

/// The element of property lists whose value is the next element, whatever that is called.
const KEY: &str = "key";

/// Elements of HTML that have a label, and those whose next element has its value.
const LABELS: [&str; 4] = ["dt", "label", "td", "th"];
const LABELLED: [&str; 10] =
    ["b", "code", "dd", "em", "kbd", "output", "samp", "span", "strong", "td"];

/// Longer texts are not names, in bytes.
const MAX_TEXT_BYTES: usize = 128;

/// Returns the names of secrets by the places of the tags whose elements have the values.
pub(super) fn secret_values(text: &str, entities: &Entities<'_>) -> BTreeMap<usize, String> {
    let mut open = OpenElements::new(entities);
    for (at, piece) in Pieces::of(text) {
        match piece.as_bytes() {
            [b'<', b'/', ..] => open.close_named(end_tag_name(piece)),
            [b'<', b'?', ..] => {}
            [b'<', b'!', ..] => open.add_text(cdata_text(piece)),
            [b'<', next, ..] if !next.is_ascii_whitespace() => open.open_element(piece, at),
            _ => open.add_text(piece),
        }
    }
    while open.close_innermost() {}
    open.found
}

/// An element that is open.
#[derive(Default)]
struct Element<'a> {
    name: &'a str,
    /// The place of its tag.
    start: usize,
    /// The beginning of the text in it.
    text: String,
    /// The name of a secret that a child has, and its reach.
    secret: Option<(String, LabelReach)>,
    /// The name of a secret, if the last child was a key that has it.
    key: Option<String>,
    /// The name of a secret, if the last child was a label of HTML that has it.
    label: Option<String>,
    /// The children that have values.
    values: Vec<(usize, PairRole)>,
}

fn cdata_text(piece: &str) -> &str {
    piece.strip_prefix("<![CDATA[").map_or("", |text| text.trim_end_matches("]]>"))
}

fn end_tag_name(piece: &str) -> &str {
    piece.trim_start_matches("</").trim_end_matches('>').trim()
}

/// The elements that are open, from the outermost to the innermost.
///
/// HTML leaves out end tags, so that elements of ordinary pages may be open in any number.
struct OpenElements<'a> {
    entities: &'a Entities<'a>,
    root: Element<'a>,
    stack: Vec<Element<'a>>,
    /// The positions in the stack by the names of the elements, in small letters.
    positions: HashMap<String, Vec<usize>>,
    found: BTreeMap<usize, String>,
}

impl<'a> OpenElements<'a> {
    fn new(entities: &'a Entities<'a>) -> Self {
        let (root, stack) = (Element::default(), Vec::new());
        Self { entities, root, stack, positions: HashMap::new(), found: BTreeMap::new() }
    }

    fn innermost(&mut self) -> &mut Element<'a> {
        self.stack.last_mut().unwrap_or(&mut self.root)
    }

    fn add_text(&mut self, text: &'a str) {
        let element = self.innermost();
        if element.text.len() < MAX_TEXT_BYTES {
            element.text.extend(text.trim().chars().take(MAX_TEXT_BYTES));
        }
    }

    fn open_element(&mut self, piece: &'a str, at: usize) {
        let name = tag_name(piece);
        let is = |known: &[&str]| known.iter().any(|it| local_name(name).eq_ignore_ascii_case(it));
        if let Some(secret) = self.innermost().key.take()
            && !is(&[KEY])
            && !is_file_member(local_name(name))
        {
            self.found.insert(at, secret);
        }
        if let Some(secret) = self.innermost().label.take()
            && is(&LABELLED)
        {
            self.found.insert(at, secret);
        }
        let is_void = VOID_ELEMENTS.iter().any(|known| name.eq_ignore_ascii_case(known));
        if !piece.ends_with("/>") && !is_void {
            let positions = self.positions.entry(name.to_ascii_lowercase()).or_default();
            positions.push(self.stack.len());
            self.stack.push(Element { name, start: at, ..Element::default() });
        }
    }

    /// Closes the innermost element of this name, and those in it.
    fn close_named(&mut self, name: &str) {
        let positions = self.positions.get(&name.to_ascii_lowercase());
        let Some(&position) = positions.and_then(|positions| positions.last()) else { return };
        while self.stack.len() > position {
            self.close_innermost();
        }
    }

    /// Closes the innermost element. After the outermost one, closes the document and returns false.
    fn close_innermost(&mut self) -> bool {
        let Some(element) = self.stack.pop() else {
            let root = std::mem::take(&mut self.root);
            self.add_values(root);
            return false;
        };
        if let Some(positions) = self.positions.get_mut(&element.name.to_ascii_lowercase()) {
            positions.pop();
        }
        let name = local_name(element.name);
        if LABELS.iter().any(|known| name.eq_ignore_ascii_case(known)) && is_exact(&element.text) {
            self.innermost().label = Some(element.text.clone());
        }
        match pair_role(name) {
            Some(PairRole::Name) => {
                let text = resolve_references(&element.text, self.entities).into_owned();
                if let Some(reach) = LabelReach::from_label(name, &text) {
                    let parent = self.innermost();
                    parent.key = name.eq_ignore_ascii_case(KEY).then(|| text.clone());
                    parent.secret = Some((text, reach));
                }
            }
            Some(role) => self.innermost().values.push((element.start, role)),
            None => {}
        }
        self.add_values(element);
        true
    }

    /// Adds the children of an element that have values, if another child has the name of a secret.
    fn add_values(&mut self, element: Element<'a>) {
        let Some((secret, reach)) = element.secret else { return };
        let hidden = element.values.into_iter().filter(|(_, role)| reach.hides_role(*role));
        self.found.extend(hidden.map(|(value, _)| (value, secret.clone())));
    }
}

#[cfg(test)]
mod tests {
    use super::super::MASK;
    use super::super::markup;

    fn masked(source: &str) -> String {
        markup::mask_markup(source, &str::to_owned)
    }

    #[test]
    fn values_in_pairs_with_a_secret_name_are_hidden() {
        for (source, expected) in [
            (
                "<dict><key>password</key><string>fish</string><key>b</key><true/></dict>",
                "<dict><key>password</key><string>$</string><key>b</key><true/></dict>",
            ),
            (
                "<key>tokens</key>\n<array><string>fish</string></array><a>kept</a>",
                "<key>tokens</key>\n<array>$</array><a>kept</a>",
            ),
            (
                "<p><name>password</name><value>fish</value></p><p><value>kept</value></p>",
                "<p><name>password</name><value>$</value></p><p><value>kept</value></p>",
            ),
            (
                "<p><x:value><b>fish</b></x:value><x:name>password</x:name></p>",
                "<p><x:value>$</x:value><x:name>password</x:name></p>",
            ),
            (
                "<p><name><![CDATA[password]]></name><value>fi",
                "<p><name><![CDATA[password]]></name><value>$",
            ),
            (
                "<dl><dt>Password</dt>\n<dd>sword <b>fish</b></dd><dt>b</dt><dd>kept</dd></dl>",
                "<dl><dt>Password</dt>\n<dd>$</dd><dt>b</dt><dd>kept</dd></dl>",
            ),
            (
                "<tr><th>API key</th><td>fish</td></tr><tr><td>b</td><td>kept</td></tr>",
                "<tr><th>API key</th><td>$</td></tr><tr><td>b</td><td>kept</td></tr>",
            ),
            ("<label>Password</label> <b>fish</b>", "<label>Password</label> <b>$</b>"),
            (
                "<label>Password</label><input name='a'><b>kept</b>",
                "<label>Password</label><input name='a'><b>kept</b>",
            ),
            ("<tr><td>Password</td></tr><td>kept</td>", "<tr><td>Password</td></tr><td>kept</td>"),
            (
                "<Contents><Key>token.txt</Key><LastModified>kept</LastModified></Contents>",
                "<Contents><Key>token.txt</Key><LastModified>kept</LastModified></Contents>",
            ),
            (
                "<p><name>shop</name><value>kept</value></p>",
                "<p><name>shop</name><value>kept</value></p>",
            ),
            (
                "<p><name>pass&#119;ord</name><value>fish</value></p>",
                "<p><name>pass&#119;ord</name><value>$</value></p>",
            ),
            (
                "<p><name>pass<!-- a -->word</name><text>fish</text></p>",
                "<p><name>pass<!-- a -->word</name><text>$</text></p>",
            ),
            (
                "<p><name>auth-service</name><text>kept</text></p>",
                "<p><name>auth-service</name><text>kept</text></p>",
            ),
            (
                "<p><name>max_tokens</name><value>5</value></p>",
                "<p><name>max_tokens</name><value>5</value></p>",
            ),
        ] {
            assert_eq!(masked(source), expected.replace('$', MASK), "{source}");
        }
    }

    #[test]
    fn values_are_hidden_at_any_depth() {
        let pair = "<p><name>password</name><value>swordfish</value></p>";
        let hidden = pair.replace("swordfish", MASK);
        for (start, end) in [("<a>", "</a>"), ("<p>", ""), ("<td>text", ""), ("<A><b>", "</b></a>")]
        {
            for depth in [1, 253, 254, 255, 256, 300, 10_000] {
                let around = |pair: &str| start.repeat(depth) + pair + &end.repeat(depth);

                assert_eq!(masked(&around(pair)), around(&hidden), "{depth} {start}");
            }
        }
        let nested = "<p><name>password</name>".to_owned() + &"<p></p>".repeat(300);
        let value = "<value>swordfish</value></p><p><value>kept</value></p>";
        let expected = nested.clone() + &value.replace("swordfish", MASK);
        assert_eq!(masked(&(nested + value)), expected);
    }
}

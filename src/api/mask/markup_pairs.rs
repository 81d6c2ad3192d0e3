//! Elements of XML that have the name and the value of a secret: `<name>password</name><value>x</value>`, and in
//! property lists `<key>password</key><string>x</string>`.

use std::collections::{BTreeMap, HashMap};

use super::markup::{VOID_ELEMENTS, length, local, tag_name};
use super::name_value::{PairRole, pair_role};
use crate::api::secrets::is_secret;

/// The element of property lists whose value is the next element, whatever that is called.
const KEY: &str = "key";

/// Returns the names of secrets by the places of the tags whose elements have the values.
pub(super) fn secret_values(text: &str) -> BTreeMap<usize, &str> {
    let mut found = BTreeMap::new();
    let mut open = OpenElements::new();
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let piece = rest.get(..length(rest)).unwrap_or(rest);
        match piece.as_bytes() {
            [b'<', b'/', ..] => open.close_named(end_tag_name(piece), &mut found),
            [b'<', b'?', ..] => {}
            [b'<', b'!', ..] => open.add_text(cdata(piece)),
            [b'<', ..] => open.start(piece, at, &mut found),
            _ => open.add_text(piece),
        }
        at += piece.len();
    }
    while open.close_innermost(&mut found) {}
    found
}

/// An element that is open.
struct Element<'a> {
    name: &'a str,
    /// The place of its tag.
    start: usize,
    /// The first text in it.
    text: &'a str,
    /// The name of a secret that a child has.
    secret: Option<&'a str>,
    /// The name of a secret, if the last child was a key that has it.
    key: Option<&'a str>,
    /// The children that have values.
    values: Vec<usize>,
}

impl<'a> Element<'a> {
    fn new(name: &'a str, start: usize) -> Self {
        Self { name, start, text: "", secret: None, key: None, values: Vec::new() }
    }

    /// Adds the children that have values, if another child has the name of a secret.
    fn add_values(&self, found: &mut BTreeMap<usize, &'a str>) {
        let Some(secret) = self.secret else { return };
        found.extend(self.values.iter().map(|value| (*value, secret)));
    }
}

fn cdata(piece: &str) -> &str {
    piece.strip_prefix("<![CDATA[").map_or("", |text| text.trim_end_matches("]]>"))
}

fn end_tag_name(piece: &str) -> &str {
    piece.trim_start_matches("</").trim_end_matches('>').trim()
}

/// The elements that are open, from the outermost to the innermost.
///
/// HTML leaves out end tags, so that elements of ordinary pages may be open in any number.
struct OpenElements<'a> {
    root: Element<'a>,
    stack: Vec<Element<'a>>,
    /// The positions in the stack by the names of the elements, in small letters.
    positions: HashMap<String, Vec<usize>>,
}

impl<'a> OpenElements<'a> {
    fn new() -> Self {
        Self { root: Element::new("", 0), stack: Vec::new(), positions: HashMap::new() }
    }

    fn innermost(&mut self) -> &mut Element<'a> {
        self.stack.last_mut().unwrap_or(&mut self.root)
    }

    fn add_text(&mut self, text: &'a str) {
        let element = self.innermost();
        if element.text.is_empty() {
            element.text = text.trim();
        }
    }

    fn start(&mut self, piece: &'a str, at: usize, found: &mut BTreeMap<usize, &'a str>) {
        let name = tag_name(piece);
        if let Some(secret) = self.innermost().key.take()
            && !local(name).eq_ignore_ascii_case(KEY)
        {
            found.insert(at, secret);
        }
        let is_void = VOID_ELEMENTS.iter().any(|known| name.eq_ignore_ascii_case(known));
        if !piece.ends_with("/>") && !is_void {
            let positions = self.positions.entry(name.to_ascii_lowercase()).or_default();
            positions.push(self.stack.len());
            self.stack.push(Element::new(name, at));
        }
    }

    /// Closes the innermost element of this name, and those in it.
    fn close_named(&mut self, name: &str, found: &mut BTreeMap<usize, &'a str>) {
        let positions = self.positions.get(&name.to_ascii_lowercase());
        let Some(&position) = positions.and_then(|positions| positions.last()) else { return };
        while self.stack.len() > position {
            self.close_innermost(found);
        }
    }

    /// Closes the innermost element. After the outermost one, closes the document and returns false.
    fn close_innermost(&mut self, found: &mut BTreeMap<usize, &'a str>) -> bool {
        let Some(element) = self.stack.pop() else {
            self.root.add_values(found);
            return false;
        };
        element.add_values(found);
        if let Some(positions) = self.positions.get_mut(&element.name.to_ascii_lowercase()) {
            positions.pop();
        }
        let parent = self.innermost();
        let name = local(element.name);
        match pair_role(name) {
            Some(PairRole::Name) if is_secret(element.text) => {
                parent.secret = Some(element.text);
                parent.key = name.eq_ignore_ascii_case(KEY).then_some(element.text);
            }
            Some(PairRole::Value) => parent.values.push(element.start),
            _ => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::super::MASK;
    use super::super::markup::masked;

    #[test]
    fn values_in_pairs_with_a_secret_name_are_hidden() {
        for (source, expected) in [
            (
                "<dict><key>password</key><string>fish</string><key>b</key><true/></dict>",
                "<dict><key>#</key><string>#</string><key>#</key><true/></dict>",
            ),
            (
                "<key>tokens</key>\n<array><string>fish</string></array><a>kept</a>",
                "<key>#</key>\n<array>#</array><a>kept</a>",
            ),
            (
                "<p><name>password</name><value>fish</value></p><p><value>kept</value></p>",
                "<p><name>password</name><value>#</value></p><p><value>kept</value></p>",
            ),
            (
                "<p><x:value><b>fish</b></x:value><x:name>password</x:name></p>",
                "<p><x:value>#</x:value><x:name>password</x:name></p>",
            ),
            (
                "<p><name><![CDATA[password]]></name><value>fi",
                "<p><name><![CDATA[password]]></name><value>#",
            ),
            (
                "<p><name>shop</name><value>kept</value></p>",
                "<p><name>shop</name><value>kept</value></p>",
            ),
            (
                "<p><name>max_tokens</name><value>5</value></p>",
                "<p><name>max_tokens</name><value>5</value></p>",
            ),
        ] {
            assert_eq!(masked(source), expected.replace('#', MASK), "{source}");
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

//! Paths in the one form that routes and rules look at, and what could be read in two ways.
//!
//! Whoever keeps visitors from `/admin` means `//admin` and `/%61dmin` as well, because servers do.
//! So octets that need no escape lose it (RFC 3986, section 6.2.2), those that need one get it, and
//! slashes are not repeated. What servers disagree about is not for rules to guess: an [`Ambiguity`].

mod readings;

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;
use std::str::FromStr;

use ginnel_settings::{Bounds, SettingValue};

/// What is done with an ambiguous path where routes or rules look at paths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AmbiguousPaths {
    /// As `Reject` if rules of the route look at paths, and as `Preserve` if only routes do.
    #[default]
    Auto,
    /// The request gets 400.
    Reject,
    /// The request goes on with the path that is meant most likely, as [`RequestPath::resolve_path`] gives it.
    Normalize,
    /// The request goes on as it came, unless one of the readings of its path leads to another route or
    /// to another result of a rule: then it gets 400.
    Preserve,
}

impl AmbiguousPaths {
    /// The words of the setting.
    pub const WORDS: [&str; 4] = ["auto", "reject", "normalize", "preserve"];

    /// The word of the setting.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Reject => "reject",
            Self::Normalize => "normalize",
            Self::Preserve => "preserve",
        }
    }
}

/// Other readings of the path of a request, each in the form that rules look at: an extension of a request
/// that goes on as it came. No rule may have another result with one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PathReadings(pub Vec<String>);

/// The path of a request as it was sent, where it goes on with another one: an extension of the
/// request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawPath(pub String);

/// A word is not one of [`AmbiguousPaths::WORDS`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("ambiguous_paths: {0:?} is neither \"auto\", \"reject\", \"normalize\" nor \"preserve\"")]
pub struct AmbiguousPathsError(String);

impl FromStr for AmbiguousPaths {
    type Err = AmbiguousPathsError;

    fn from_str(text: &str) -> Result<Self, AmbiguousPathsError> {
        let all = [Self::Auto, Self::Reject, Self::Normalize, Self::Preserve];
        let found = all.into_iter().find(|it| it.as_str() == text);
        found.ok_or_else(|| AmbiguousPathsError(text.to_owned()))
    }
}

/// Why a path means one thing to one server and something else to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ambiguity {
    /// `%2F`.
    Slash,
    /// `\`, or `%5C`.
    Backslash,
    /// `.` or `..`, also with escapes, and with parameters behind it.
    DotSegment,
    /// Nothing but parameters, such as `;x`, between two slashes: without them, it is a second slash.
    EmptySegment,
    /// `%00`.
    Nul,
    /// A percent sign without two hexadecimal digits.
    Escape,
    /// Anything else that leads one server to another route than the others.
    Readings,
}

macro_rules! contents {
    ($( $name:ident = $content:literal; )+) => {
        impl Ambiguity {
            /// What the path holds.
            pub fn content(self) -> &'static str {
                match self {
                    $( Self::$name => $content, )+
                }
            }

            /// What is said to a visitor.
            pub fn sentence(self) -> &'static str {
                match self {
                    $( Self::$name => concat!("The path is ambiguous: it holds ", $content, "."), )+
                }
            }
        }
    };
}

contents! {
    Slash = "an encoded slash";
    Backslash = "a backslash";
    DotSegment = "a dot segment";
    EmptySegment = "an empty segment with parameters";
    Nul = "an encoded NUL";
    Escape = "an incomplete percent escape";
    Readings = "what servers read in different ways";
}

/// The path of a request: as it was sent, and as routes and rules look at it.
///
/// Paths that mean the same to every server have the same normal form. The normal form of an ambiguous path is
/// ambiguous as well.
#[derive(Debug, Clone)]
pub struct RequestPath<'p> {
    raw: &'p str,
    normal: Cow<'p, str>,
}

impl<'p> RequestPath<'p> {
    /// Reads a path as it was sent, without its query.
    pub fn new(raw: &'p str) -> Self {
        let normal = if is_normal(raw.as_bytes()) {
            Cow::Borrowed(raw)
        } else {
            Cow::Owned(rewrite_path(raw))
        };
        Self { raw, normal }
    }

    /// The bytes to forward.
    pub fn raw(&self) -> &'p str {
        self.raw
    }

    /// The form that routes and rules look at.
    pub fn normal(&self) -> &str {
        &self.normal
    }

    /// The normal form without the raw one.
    pub fn into_normal(self) -> Cow<'p, str> {
        self.normal
    }

    /// Returns true if the path is in its normal form.
    pub fn is_normal(&self) -> bool {
        matches!(self.normal, Cow::Borrowed(_))
    }

    /// The path with one slash at its beginning, if it has more.
    ///
    /// Rules read `//x/admin` as `/x/admin`, but a server that takes it for a reference to the host `x`
    /// (RFC 3986, section 4.2) would serve `/admin`.
    pub fn rooted(&self) -> Option<String> {
        let has_more = self.raw.starts_with("//");
        has_more.then(|| format!("/{}", self.raw.trim_start_matches('/')))
    }

    /// The reason why servers may read the path in different ways.
    pub fn ambiguity(&self) -> Option<Ambiguity> {
        if is_plain(self.raw) {
            return None;
        }
        if has_broken_escape(self.raw) {
            return Some(Ambiguity::Escape);
        }
        let normal = self.normal();
        let escapes =
            [("%00", Ambiguity::Nul), ("%2F", Ambiguity::Slash), ("%5C", Ambiguity::Backslash)];
        let escaped = escapes.into_iter().find(|(escape, _)| normal.contains(escape));
        let dotted = || normal.split('/').any(is_dotted).then_some(Ambiguity::DotSegment);
        let empty = || empty_segment(normal);
        escaped.map(|(_, ambiguity)| ambiguity).or_else(dotted).or_else(empty)
    }

    /// The paths that servers read, each in its normal form.
    pub fn readings(&self) -> impl Iterator<Item = String> {
        readings::server_readings(self.raw)
    }

    /// The readings that differ from the normal form.
    pub fn other_readings(&self) -> PathReadings {
        let mut others: Vec<String> = self.readings().filter(|it| it != self.normal()).collect();
        others.sort_unstable();
        others.dedup();
        PathReadings(others)
    }

    /// The path that an ambiguous one means most likely: backslashes and encoded slashes are slashes, and
    /// dot segments lead up.
    ///
    /// # Errors
    /// If servers disagree about the path in every reading.
    pub fn resolve_path(&self) -> Result<String, Ambiguity> {
        if let Some(ambiguity @ (Ambiguity::Escape | Ambiguity::Nul)) = self.ambiguity() {
            return Err(ambiguity);
        }
        let slashes = self.normal.replace("%2F", "/").replace("%5C", "/");
        if let Some(ambiguity) = empty_segment(&slashes) {
            return Err(ambiguity);
        }
        let mut segments: Vec<&str> = Vec::new();
        let (mut rest, mut is_folder) = (slashes.split('/').peekable(), false);
        while let Some(segment) = rest.next() {
            is_folder = rest.peek().is_none() && matches!(segment, "" | "." | "..");
            match segment {
                "" | "." => {}
                ".." => drop(segments.pop()),
                // With parameters, it is one to some servers only.
                dotted if is_dotted(dotted) => return Err(Ambiguity::DotSegment),
                segment => segments.push(segment),
            }
        }
        let end = if is_folder && !segments.is_empty() { "/" } else { "" };
        let resolved = format!("/{}{end}", segments.join("/"));
        // Without the segments before it, a segment may have become one of these.
        match empty_segment(&resolved) {
            Some(ambiguity) => Err(ambiguity),
            None => Ok(resolved),
        }
    }
}

/// Returns true if a path is normalized and has neither dot segments nor parameters: all servers read it in the
/// same way.
pub fn is_plain(path: &str) -> bool {
    let bytes = path.as_bytes();
    is_normal(bytes) && !bytes.contains(&b';') && !path.starts_with('.') && !path.contains("/.")
}

/// A segment before the last one that is empty without its parameters.
fn empty_segment(path: &str) -> Option<Ambiguity> {
    let (folders, _) = path.rsplit_once('/')?;
    (folders.starts_with(';') || folders.contains("/;")).then_some(Ambiguity::EmptySegment)
}

/// Whether a segment is a dot segment to some server, whatever its parameters.
fn is_dotted(segment: &str) -> bool {
    matches!(segment.split(';').next(), Some("." | ".."))
}

fn is_normal(path: &[u8]) -> bool {
    let mut before = 0;
    path.iter().all(|byte| {
        let repeated = *byte == b'/' && before == b'/';
        before = *byte;
        is_path(*byte) && !repeated
    })
}

fn rewrite_path(path: &str) -> String {
    normalize_escapes(path, true)
}

/// The path with each octet escaped if it must be and only then; with `merges`, slashes are not repeated.
fn normalize_escapes(path: &str, merges: bool) -> String {
    let bytes = path.as_bytes();
    let mut made = String::with_capacity(path.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at).copied() {
        match byte {
            b'%' => match decode_escape(bytes, at) {
                Some(octet) => {
                    put_escaped(&mut made, octet);
                    at += 2;
                }
                None => made.push('%'),
            },
            b'/' if merges && made.ends_with('/') => {}
            byte if is_path(byte) => made.push(char::from(byte)),
            byte => put_escaped(&mut made, byte),
        }
        at += 1;
    }
    made
}

fn put_escaped(made: &mut String, octet: u8) {
    if is_unreserved(octet) && !ends_within_escape(made) {
        made.push(char::from(octet));
    } else {
        // A text takes all that is written to it.
        let _ = write!(made, "%{octet:02X}");
    }
}

/// Whether a digit more could make an escape of a percent sign that begins none: `%%61d` is not `%ad`.
fn ends_within_escape(made: &str) -> bool {
    matches!(made.as_bytes(), [.., b'%'] | [.., b'%', b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F'])
}

fn has_broken_escape(path: &str) -> bool {
    let bytes = path.as_bytes();
    let mut signs = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'%');
    signs.any(|(at, _)| decode_escape(bytes, at).is_none())
}

/// The octet that is escaped here.
fn decode_escape(bytes: &[u8], at: usize) -> Option<u8> {
    let digit = |at: usize| char::from(*bytes.get(at)?).to_digit(16);
    u8::try_from(digit(at + 1)? * 16 + digit(at + 2)?).ok()
}

/// RFC 3986, section 2.3.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~".contains(&byte)
}

/// What a path may hold without an escape (RFC 3986, section 3.3).
fn is_path(byte: u8) -> bool {
    is_unreserved(byte) || b"/!$&'()*+,;=:@".contains(&byte)
}

impl SettingValue for AmbiguousPaths {
    const CHOICES: &'static [&'static str] = &Self::WORDS;

    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        let text = text.to_string_lossy();
        let parsed = text.parse();
        *self = parsed
            .map_err(|_| format!("'{text}' is neither auto, reject, normalize nor preserve"))?;
        Ok(())
    }

    fn text(&self) -> Option<String> {
        Some(self.as_str().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_begins_with_one_slash() {
        assert_eq!(RequestPath::new("///x//%61dmin").rooted().as_deref(), Some("/x//%61dmin"));
        assert_eq!(RequestPath::new("/x//admin").rooted(), None);
    }

    #[test]
    fn paths_that_mean_the_same_look_the_same() {
        for (path, form) in [
            ("/", "/"),
            ("", ""),
            ("*", "*"),
            ("/a/b", "/a/b"),
            ("//a///b//", "/a/b/"),
            ("/%61dmin", "/admin"),
            ("/%7euser", "/~user"),
            ("/a%2db%5Fc%2ed", "/a-b_c.d"),
            ("/a%2fb", "/a%2Fb"),
            ("/a%20b%c3%a9", "/a%20b%C3%A9"),
            ("/aé\"b", "/a%C3%A9%22b"),
            ("/a\\b", "/a%5Cb"),
            ("/a;x=1/b", "/a;x=1/b"),
            ("/a%3bx", "/a%3Bx"),
            ("/a:b@c+d", "/a:b@c+d"),
            ("/%2561", "/%2561"),
            ("/%zz/%/%4", "/%zz/%/%4"),
            ("/%%61d", "/%%61d"),
            ("/%6%31", "/%6%31"),
            ("/%2F%61/%%2f%61", "/%2Fa/%%2Fa"),
            ("/a/../b/./%2e", "/a/../b/./."),
        ] {
            assert_eq!(RequestPath::new(path).into_normal(), form, "{path}");
            assert_eq!(RequestPath::new(form).into_normal(), form, "{path}, twice");
        }
    }

    #[test]
    fn what_servers_disagree_about_is_ambiguous() {
        use Ambiguity::{Backslash, DotSegment, EmptySegment, Escape, Nul, Slash};
        for (path, expected) in [
            ("/", None),
            ("//a", None),
            ("/%61dmin", None),
            ("/.well-known/x", None),
            ("/a..b/...", None),
            ("/a;x", None),
            ("/a;x/b;y", None),
            ("/a/;x", None),
            ("/%3Bx/a", None),
            ("/;..", None),
            ("/;x/a", Some(EmptySegment)),
            ("/;/a", Some(EmptySegment)),
            ("//;a=b//a", Some(EmptySegment)),
            ("/a/;x/b", Some(EmptySegment)),
            (";x/a", Some(EmptySegment)),
            ("/%252f%252e", None),
            ("*", None),
            ("/%2fadmin", Some(Slash)),
            ("/x%2Fadmin", Some(Slash)),
            ("/x\\admin", Some(Backslash)),
            ("/x%5cadmin", Some(Backslash)),
            ("./a", Some(DotSegment)),
            (".", Some(DotSegment)),
            ("/./a", Some(DotSegment)),
            ("/x/../a", Some(DotSegment)),
            ("/x/..", Some(DotSegment)),
            ("/x/%2e%2E/a", Some(DotSegment)),
            ("/x/.%2e/a", Some(DotSegment)),
            ("/x/..;/a", Some(DotSegment)),
            ("/.;a=b/a", Some(DotSegment)),
            ("/a%00", Some(Nul)),
            ("/%zz", Some(Escape)),
            ("/%", Some(Escape)),
            ("/%4", Some(Escape)),
            ("/%u002fa", Some(Escape)),
            ("/%%2f", Some(Escape)),
            ("/%%61d", Some(Escape)),
        ] {
            assert_eq!(RequestPath::new(path).ambiguity(), expected, "{path}");
        }
    }

    #[test]
    fn an_ambiguous_path_can_be_resolved() {
        for (path, expected) in [
            ("/./a", "/a"),
            ("/x/../a", "/a"),
            ("/../../a", "/a"),
            ("/x/..", "/"),
            ("/x/y/..", "/x/"),
            ("/x/y/.", "/x/y/"),
            ("/x//y/", "/x/y/"),
            ("/%2fadmin", "/admin"),
            ("/x%2f..%2fadmin", "/admin"),
            ("/x\\..\\admin", "/admin"),
            ("/x%5c..%5cadmin%20b", "/admin%20b"),
            ("/%2e%2e%2fadmin", "/admin"),
            ("/..", "/"),
        ] {
            assert_eq!(RequestPath::new(path).resolve_path().as_deref(), Ok(expected), "{path}");
            assert_eq!(RequestPath::new(expected).ambiguity(), None, "{path}");
        }
        assert_eq!(RequestPath::new("/x/..;/a").resolve_path(), Err(Ambiguity::DotSegment));
        assert_eq!(RequestPath::new("/x%2f..;y%2fa").resolve_path(), Err(Ambiguity::DotSegment));
        assert_eq!(RequestPath::new("/;x%2fa").resolve_path(), Err(Ambiguity::EmptySegment));
        assert_eq!(RequestPath::new(";x/a").resolve_path(), Err(Ambiguity::EmptySegment));
        assert_eq!(RequestPath::new("./;[/e").resolve_path(), Err(Ambiguity::EmptySegment));
        assert_eq!(RequestPath::new("/%2f%00").resolve_path(), Err(Ambiguity::Nul));
        assert_eq!(RequestPath::new("/%2f%0").resolve_path(), Err(Ambiguity::Escape));
    }

    #[test]
    fn a_plain_path_is_seen_at_a_glance() {
        for path in ["", "/", "/a/b.c/", "/a..b", "*", "/a=c@d:e"] {
            assert!(is_plain(path), "{path}");
        }
        for path in [
            "//",
            "/a//b",
            "./a",
            "/.",
            "/../a",
            "/.well-known",
            "/%61",
            "/é",
            "/a\\b",
            "/a%2Fb",
            "/a;b",
        ] {
            assert!(!is_plain(path), "{path}");
        }
    }

    /// Calls `check` with each path of up to so many of the pieces.
    fn each(path: &str, pieces: usize, check: &impl Fn(&str)) {
        check(path);
        for piece in ["/", ".", "%2e", "%2F", "\\", "%5c", ";", "a", "%", "%25", "%61"] {
            if pieces > 0 {
                each(&format!("{path}{piece}"), pieces - 1, check);
            }
        }
    }

    #[test]
    fn no_path_comes_out_ambiguous() {
        each("/", 4, &|path| match RequestPath::new(path).ambiguity() {
            None => {
                let form = RequestPath::new(path).into_normal();
                assert_eq!(RequestPath::new(&form).into_normal(), form, "{path}");
                assert_eq!(RequestPath::new(&form).ambiguity(), None, "{path}");
                assert!(form.split('/').all(|it| !matches!(it, "." | "..")), "{path}");
            }
            Some(_) => {
                let Ok(resolved) = RequestPath::new(path).resolve_path() else { return };
                assert_eq!(RequestPath::new(&resolved).into_normal(), resolved, "{path}");
                assert_eq!(RequestPath::new(&resolved).ambiguity(), None, "{path}: {resolved}");
            }
        });
    }

    #[test]
    fn the_option_is_one_of_four_words() {
        assert_eq!("normalize".parse(), Ok(AmbiguousPaths::Normalize));
        assert_eq!("auto".parse(), Ok(AmbiguousPaths::default()));
        for word in AmbiguousPaths::WORDS {
            assert_eq!(word.parse().map(AmbiguousPaths::as_str), Ok(word));
        }
        let error = "Reject".parse::<AmbiguousPaths>().map_err(|it| it.to_string());
        let words = "ambiguous_paths: \"Reject\" is neither \"auto\", \"reject\", \"normalize\" nor \
                     \"preserve\"";
        assert_eq!(error, Err(words.to_owned()));
    }
}

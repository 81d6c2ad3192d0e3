//! What `User-Agent` says of the program of a visitor, as far as programs are known. Anybody can say
//! anything there: it is for statistics and for those who mean well.
//!
//! `woothee` has had no release since 2023, and stays: it is tables in code, without I/O and without a file of regular
//! expressions, which parsers with the data of `uap-core` read at the start. Names that it does not know, such as those of
//! newer robots, are read from the header itself.

use woothee::parser::{Parser, WootheeResult};

/// How much of the header is looked at, in bytes.
const LENGTH: usize = 1024;
/// What the parser calls what it does not know.
const UNKNOWN: &str = "UNKNOWN";
/// What the parser calls many programs together; their own name is in the header.
const COLLECTIVE_NAMES: [&str; 3] = [UNKNOWN, "HTTP Library", "misc crawler"];
/// What is in the name of a robot, in small letters.
const ROBOT_WORDS: [&str; 3] = ["bot", "crawler", "spider"];
/// Devices that say their own names.
const APPLE_DEVICES: [&str; 3] = ["iPhone", "iPad", "iPod"];

/// What is known of a program; what is not is empty, or false.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct UserAgentFacts {
    pub name: String,
    pub version: String,
    pub os: String,
    pub os_version: String,
    pub device: String,
    pub url: String,
    pub is_mobile: bool,
    pub is_tablet: bool,
    pub is_desktop: bool,
    pub is_bot: bool,
}

impl UserAgentFacts {
    /// Reads the value of the header.
    pub fn from_header(text: &str) -> Self {
        let mut ends = (0..=LENGTH.min(text.len())).rev();
        let end = ends.find(|end| text.is_char_boundary(*end)).unwrap_or_default();
        let text = &text[..end];
        let Some(known) = Parser::new().parse(text) else { return Self::from_unknown_agent(text) };
        if COLLECTIVE_NAMES.contains(&known.name) || known.category == UNKNOWN {
            let (os, os_version) = os_of(&known);
            let is_bot = known.category == "crawler" || is_robot(text);
            return Self { os, os_version, is_bot, ..Self::from_unknown_agent(text) };
        }
        let (os, os_version) = os_of(&known);
        let is_bot = known.category == "crawler";
        let is_handheld = ["smartphone", "mobilephone"].contains(&known.category);
        let is_tablet = is_handheld && is_tablet(text);
        Self {
            name: known_or_empty(known.name),
            version: known_or_empty(known.version),
            os,
            os_version,
            device: device_name(text),
            url: info_url(text),
            is_mobile: is_handheld && !is_tablet,
            is_tablet,
            is_desktop: known.category == "pc",
            is_bot,
        }
    }

    /// Of a program that is in no list: it is called what it calls itself.
    fn from_unknown_agent(text: &str) -> Self {
        let mut products = text.split([' ', ';', '(', ')']).filter_map(|it| it.split_once('/'));
        let is_bot = is_robot(text);
        let chosen = match is_bot {
            true => products.find(|(name, _)| is_robot(name)),
            false => products.next(),
        };
        let (name, version) = chosen.unwrap_or_default();
        let (name, version) = (name.to_owned(), version.to_owned());
        Self { name, version, url: info_url(text), is_bot, ..Self::default() }
    }
}

fn known_or_empty(text: &str) -> String {
    if text == UNKNOWN { String::new() } else { text.to_owned() }
}

/// The system and its version: versions are no part of the name, and devices are none either.
fn os_of(known: &WootheeResult<'_>) -> (String, String) {
    let os = match known.os {
        os if os.starts_with("Windows") && !os.starts_with("Windows Phone") => "Windows",
        os if APPLE_DEVICES.contains(&os) => "iOS",
        "Mac OSX" => "macOS",
        os => os,
    };
    let version = known_or_empty(&known.os_version);
    (known_or_empty(os), version.trim_start_matches("NT ").to_owned())
}

fn is_robot(text: &str) -> bool {
    let small = text.to_ascii_lowercase();
    ROBOT_WORDS.iter().any(|word| small.contains(word))
}

fn is_tablet(text: &str) -> bool {
    let is_android = text.contains("Android") && !text.contains("Mobile");
    is_android || text.contains("iPad") || text.contains("Tablet")
}

/// What the device calls itself: `iPhone`, or what Android has behind its version.
fn device_name(text: &str) -> String {
    if let Some(device) = APPLE_DEVICES.iter().find(|device| text.contains(**device)) {
        return (*device).to_owned();
    }
    let comment = text.split_once('(').and_then(|(_, rest)| rest.split_once(')'));
    let mut parts = comment.map_or("", |(comment, _)| comment).split(';').map(str::trim);
    let model = parts.find(|part| part.starts_with("Android")).and_then(|_| parts.next());
    let model = model.map_or("", |model| model.split(" Build/").next().unwrap_or_default());
    model.to_owned()
}

/// The address of a page about the program, as robots give one.
fn info_url(text: &str) -> String {
    let start = text.find("http://").or_else(|| text.find("https://"));
    let url = start.map_or("", |start| &text[start..]);
    let end = url.find([' ', ';', ')', ',']).unwrap_or(url.len());
    url[..end].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, version, system, its version, device, URL, and what is true.
    fn read(text: &str) -> (String, String, &'static str) {
        let UserAgentFacts { name, version, os, os_version, device, url, .. } =
            UserAgentFacts::from_header(text);
        let facts = UserAgentFacts::from_header(text);
        let kinds = [
            (facts.is_mobile, "mobile"),
            (facts.is_tablet, "tablet"),
            (facts.is_desktop, "desktop"),
            (facts.is_bot, "bot"),
        ];
        let mut kinds = kinds.iter().filter(|(is_one, _)| *is_one).map(|(_, kind)| *kind);
        let kind = kinds.next().unwrap_or("");
        assert_eq!(kinds.next(), None, "{text} is of two kinds");
        (format!("{name} {version}"), format!("{os} {os_version}|{device}|{url}"), kind)
    }

    #[test]
    fn browsers_robots_and_programs_are_told_apart() {
        let like = "AppleWebKit/537.36 (KHTML, like Gecko)";
        for (text, program, system, kind) in [
            (
                format!("Mozilla/5.0 (Windows NT 10.0; Win64; x64) {like} Chrome/126.0.0.0 Safari/537.36"),
                "Chrome 126.0.0.0",
                "Windows 10.0||",
                "desktop",
            ),
            (
                format!("Mozilla/5.0 (Windows NT 10.0; Win64; x64) {like} Chrome/126.0.0.0 Safari/537.36 Edg/126.0.1.2"),
                "Edge 126.0.1.2",
                "Windows 10.0||",
                "desktop",
            ),
            (
                format!("Mozilla/5.0 (Linux; Android 14; Pixel 8 Build/UD1A) {like} Chrome/126.0.0.0 Mobile Safari/537.36"),
                "Chrome 126.0.0.0",
                "Android 14|Pixel 8|",
                "mobile",
            ),
            (
                format!("Mozilla/5.0 (Linux; Android 13; SM-X200) {like} Chrome/126.0.0.0 Safari/537.36"),
                "Chrome 126.0.0.0",
                "Android 13|SM-X200|",
                "tablet",
            ),
            (
                "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) \
                 Version/17.5 Mobile/15E148 Safari/604.1"
                    .to_owned(),
                "Safari 17.5",
                "iOS 17.5|iPhone|",
                "mobile",
            ),
            (
                "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)".to_owned(),
                "Googlebot ",
                " ||http://www.google.com/bot.html",
                "bot",
            ),
            (
                format!("Mozilla/5.0 {like}; compatible; GPTBot/1.2; +https://openai.com/gptbot)"),
                "GPTBot 1.2",
                " ||https://openai.com/gptbot",
                "bot",
            ),
            ("curl/8.5.0".to_owned(), "curl 8.5.0", " ||", ""),
            (String::new(), " ", " ||", ""),
        ] {
            assert_eq!(read(&text), (program.to_owned(), system.to_owned(), kind), "{text}");
        }
    }

    #[test]
    fn a_long_header_is_cut_between_letters() {
        assert_eq!(UserAgentFacts::from_header(&"é".repeat(2000)), UserAgentFacts::default());
    }
}

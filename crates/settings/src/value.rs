//! Types of settings: how they are written, and how they are read.

use std::ffi::{OsStr, OsString};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use ginnel_api::{Secret, mask};
use ginnel_base::address::{AddressError, HostPort};
use ginnel_base::logging::{LogFormat, LogLevels};

use super::duration::{read_duration, write_duration};

/// The smallest and the largest value of a setting: a number, milliseconds or bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The smallest value.
    pub min: u64,
    /// The largest value.
    pub max: u64,
}

impl Bounds {
    /// Everything that the type can hold.
    pub const ALL: Self = Self { min: 0, max: u64::MAX };

    fn contains(self, value: u64) -> bool {
        (self.min..=self.max).contains(&value)
    }
}

/// How a setting is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    /// One value.
    Text,
    /// True or false; as a flag, it needs no value.
    Switch,
    /// The path of a file or folder.
    Path,
    /// Any number of values.
    List,
    /// One value that is never shown, and never on a command line.
    Secret,
    /// Whatever it is, it is not read.
    Unused,
}

/// A type that a setting can have.
pub trait SettingValue {
    /// How it is written.
    const KIND: ValueKind = ValueKind::Text;
    /// The words that it may be, where these are all.
    const CHOICES: &'static [&'static str] = &[];

    /// Reads one value, or one after another where the kind is a list.
    ///
    /// # Errors
    /// With what is wrong, for a sentence behind the name of the setting.
    fn read(&mut self, text: &OsStr, bounds: Bounds) -> Result<(), String>;

    /// Writes one of its bounds.
    fn bound(bound: u64) -> String {
        bound.to_string()
    }

    /// Drops what a list holds, before values are read that replace it.
    fn clear(&mut self) {}

    /// The value as it is read; none where nothing is set.
    fn text(&self) -> Option<String>;
}

/// A type of single values: an `Option` of it is a setting that may be unset, a `Vec` of it is a list.
pub trait SettingItem: Sized {
    /// The words that it may be, where these are all.
    const CHOICES: &'static [&'static str] = &[];

    /// Reads a value.
    ///
    /// # Errors
    /// With the problem, as the end of a sentence that begins with the name of the setting.
    fn from_text(text: &OsStr) -> Result<Self, String>;

    /// The value as it is read.
    fn to_text(&self) -> String;
}

impl<T: SettingItem> SettingValue for Option<T> {
    const CHOICES: &'static [&'static str] = T::CHOICES;

    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        *self = Some(T::from_text(text)?);
        Ok(())
    }

    fn text(&self) -> Option<String> {
        self.as_ref().map(T::to_text)
    }
}

impl<T: SettingItem> SettingValue for Vec<T> {
    const KIND: ValueKind = ValueKind::List;
    const CHOICES: &'static [&'static str] = T::CHOICES;

    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        self.push(T::from_text(text)?);
        Ok(())
    }

    fn clear(&mut self) {
        Vec::clear(self);
    }

    fn text(&self) -> Option<String> {
        let items: Vec<_> = self.iter().map(T::to_text).collect();
        (!items.is_empty()).then(|| items.join(","))
    }
}

impl SettingItem for LogLevels {
    fn from_text(text: &OsStr) -> Result<Self, String> {
        text.to_string_lossy().parse()
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

impl SettingItem for LogFormat {
    const CHOICES: &'static [&'static str] = &Self::NAMES;

    fn from_text(text: &OsStr) -> Result<Self, String> {
        let text = text.to_string_lossy();
        let choices = Self::NAMES.join(", ");
        Self::from_name(&text).ok_or_else(|| format!("'{text}' is none of {choices}"))
    }

    fn to_text(&self) -> String {
        self.name().to_owned()
    }
}

fn require_utf8(text: &OsStr) -> Result<&str, String> {
    text.to_str().ok_or_else(|| "is not UTF-8".to_owned())
}

/// Returns a text about a value without the user and the password in the value, in whatever form the text quotes it.
/// Users also write URLs at the wrong setting.
pub fn without_login(value: &OsStr, text: &str) -> String {
    let raw = value.to_string_lossy();
    if !raw.contains('@') {
        return text.to_owned();
    }
    let (of_raw, of_value) = (format!("{raw:?}"), format!("{value:?}"));
    let mut forms = vec![
        raw.escape_debug().to_string(),
        without_quotes(&of_raw).to_owned(),
        without_quotes(&of_value).to_owned(),
        raw.into_owned(),
    ];
    forms.dedup();
    forms.iter().fold(text.to_owned(), |text, form| text.replace(form, &mask::login(form)))
}

fn without_quotes(debug: &str) -> &str {
    debug.strip_prefix('"').and_then(|it| it.strip_suffix('"')).unwrap_or(debug)
}

/// A quoted value for a message; long ones are cut off.
pub(super) fn quote_value(text: &OsStr) -> String {
    const MAX_CHARS: usize = 64;
    // Users also write URLs at the wrong setting, with a login.
    let text = mask::login(&text.to_string_lossy());
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("'{}…'", text[..end].escape_debug()),
        None => format!("'{}'", text.escape_debug()),
    }
}

impl SettingValue for bool {
    const KIND: ValueKind = ValueKind::Switch;

    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        *self = match text.to_str() {
            Some("true" | "1") => true,
            Some("false" | "0") => false,
            _ => return Err(format!("{} is neither true nor false", quote_value(text))),
        };
        Ok(())
    }

    fn text(&self) -> Option<String> {
        Some(self.to_string())
    }
}

impl SettingValue for String {
    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        require_utf8(text)?.clone_into(self);
        Ok(())
    }

    fn text(&self) -> Option<String> {
        Some(self.clone())
    }
}

impl SettingValue for Option<String> {
    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        *self = Some(require_utf8(text)?.to_owned());
        Ok(())
    }

    fn text(&self) -> Option<String> {
        self.clone()
    }
}

impl SettingValue for Vec<String> {
    const KIND: ValueKind = ValueKind::List;

    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        self.push(require_utf8(text)?.to_owned());
        Ok(())
    }

    fn clear(&mut self) {
        Vec::clear(self);
    }

    fn text(&self) -> Option<String> {
        (!self.is_empty()).then(|| self.join(","))
    }
}

/// Parses an address for a setting. Port 0 picks a free port for listeners.
fn read_address(text: &OsStr) -> Result<HostPort, String> {
    let text = require_utf8(text)?;
    HostPort::parse_to_listen(text).map_err(|problem| address_problem(text, &problem))
}

/// A problem of an address. The cause follows where the form does not show it.
fn address_problem(text: &str, problem: &AddressError) -> String {
    // Users also write URLs here, with a login.
    let text = mask::url(text);
    match problem {
        AddressError::NoHost | AddressError::NoPort => {
            format!("{text:?} is not of the form HOST:PORT")
        }
        // Without a port, a number was not meant as an address.
        AddressError::Number if !text.contains(':') => {
            format!("{text:?} is not of the form HOST:PORT")
        }
        problem => format!("{text:?} is not of the form HOST:PORT: it {problem}"),
    }
}

impl SettingValue for Option<HostPort> {
    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        *self = Some(read_address(text)?);
        Ok(())
    }

    fn text(&self) -> Option<String> {
        self.as_ref().map(HostPort::to_string)
    }
}

/// Addresses to connect to.
impl SettingValue for Vec<HostPort> {
    const KIND: ValueKind = ValueKind::List;

    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        let text = require_utf8(text)?;
        self.push(HostPort::parse(text).map_err(|problem| address_problem(text, &problem))?);
        Ok(())
    }

    fn clear(&mut self) {
        Vec::clear(self);
    }

    fn text(&self) -> Option<String> {
        let shown: Vec<_> = self.iter().map(HostPort::to_string).collect();
        (!shown.is_empty()).then(|| shown.join(","))
    }
}

impl SettingValue for Vec<PathBuf> {
    const KIND: ValueKind = ValueKind::List;

    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        let path = PathBuf::from(text);
        if !path.is_absolute() {
            return Err(format!("{} is not an absolute path", quote_value(text)));
        }
        self.push(path);
        Ok(())
    }

    fn clear(&mut self) {
        Vec::clear(self);
    }

    fn text(&self) -> Option<String> {
        let shown: Vec<_> = self.iter().map(|path| path.to_string_lossy()).collect();
        (!shown.is_empty()).then(|| shown.join(","))
    }
}

impl SettingValue for Option<PathBuf> {
    const KIND: ValueKind = ValueKind::Path;

    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        if text.is_empty() {
            return Err("is empty".to_owned());
        }
        *self = Some(text.into());
        Ok(())
    }

    fn text(&self) -> Option<String> {
        self.as_ref().map(|path| path.to_string_lossy().into_owned())
    }
}

impl SettingValue for Option<Secret> {
    const KIND: ValueKind = ValueKind::Secret;

    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        *self = Some(Secret(require_utf8(text)?.trim().to_owned()));
        Ok(())
    }

    fn text(&self) -> Option<String> {
        self.as_ref().map(|secret| secret.0.clone())
    }
}

/// Reads a whole number within bounds; the error names these.
fn whole_number<T: TryFrom<u64>>(text: &OsStr, bounds: Bounds, max: u64) -> Result<T, String> {
    let bounds = Bounds { max: bounds.max.min(max), ..bounds };
    let number = text.to_str().and_then(plain_number);
    let number = number.filter(|number| bounds.contains(*number));
    number.and_then(|number| T::try_from(number).ok()).ok_or_else(|| {
        let Bounds { min, max } = bounds;
        format!("{} is not a whole number from {min} to {max}", quote_value(text))
    })
}

/// Parses decimal digits without a sign and without leading zeros, which other programs read as octal.
fn plain_number(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text).then_some(number)
}

macro_rules! whole_numbers {
    ($($number:ty),+) => {$(
        impl SettingValue for $number {
            fn read(&mut self, text: &OsStr, bounds: Bounds) -> Result<(), String> {
                *self = whole_number(text, bounds, <$number>::MAX as u64)?;
                Ok(())
            }

            fn text(&self) -> Option<String> {
                Some(self.to_string())
            }
        }
    )+};
}

whole_numbers!(u8, u16, u32, u64, usize);

/// A number that may be left to the program.
impl SettingValue for Option<usize> {
    fn read(&mut self, text: &OsStr, bounds: Bounds) -> Result<(), String> {
        *self = Some(whole_number(text, bounds, u32::MAX.into())?);
        Ok(())
    }

    fn text(&self) -> Option<String> {
        self.map(|number| number.to_string())
    }
}

/// A port that may be left to the program.
impl SettingValue for Option<NonZeroU16> {
    fn read(&mut self, text: &OsStr, bounds: Bounds) -> Result<(), String> {
        let bounds = Bounds { min: bounds.min.max(1), ..bounds };
        *self = NonZeroU16::new(whole_number(text, bounds, u16::MAX.into())?);
        Ok(())
    }

    fn text(&self) -> Option<String> {
        self.map(|port| port.to_string())
    }
}

/// A port, or `none` where nothing is listened on.
impl SettingValue for Option<u16> {
    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        let port = || u16::try_from(plain_number(text.to_str()?)?).ok();
        *self = match text.to_str() {
            Some("none") => None,
            _ => Some(port().ok_or_else(|| {
                format!("{} is neither a port from 0 to 65535 nor 'none'", quote_value(text))
            })?),
        };
        Ok(())
    }

    fn text(&self) -> Option<String> {
        Some(self.map_or_else(|| "none".to_owned(), |port| port.to_string()))
    }
}

impl SettingValue for Duration {
    fn read(&mut self, text: &OsStr, bounds: Bounds) -> Result<(), String> {
        let duration = text.to_str().and_then(read_duration);
        let fits = |duration: &Duration| {
            u64::try_from(duration.as_millis()).is_ok_and(|it| bounds.contains(it))
        };
        *self = duration.filter(fits).ok_or_else(|| {
            let [min, max] = [bounds.min, bounds.max].map(Self::bound);
            let range = match bounds {
                Bounds::ALL => String::new(),
                // What only keeps numbers small is no limit for people.
                Bounds { max, .. } if max >= u32::MAX.into() => format!(", at least {min}"),
                _ => format!(", from {min} to {max}"),
            };
            format!("{} is not a duration such as 500ms, 10s or 5m{range}", quote_value(text))
        })?;
        Ok(())
    }

    fn bound(bound: u64) -> String {
        write_duration(Self::from_millis(bound))
    }

    fn text(&self) -> Option<String> {
        Some(write_duration(*self))
    }
}

/// A time limit, or `off`.
impl SettingValue for Option<Duration> {
    fn read(&mut self, text: &OsStr, bounds: Bounds) -> Result<(), String> {
        *self = match text.to_str() {
            Some("off") => None,
            _ => {
                let mut limit = Duration::ZERO;
                limit.read(text, bounds).map_err(|problem| format!("{problem}, or 'off'"))?;
                Some(limit)
            }
        };
        Ok(())
    }

    fn bound(bound: u64) -> String {
        <Duration as SettingValue>::bound(bound)
    }

    fn text(&self) -> Option<String> {
        self.map_or_else(|| Some("off".to_owned()), |limit| limit.text())
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub usize);

/// Units of bytes, the largest first.
const BYTE_UNITS: [(&str, u64); 4] =
    [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("", 1)];

impl SettingValue for ByteSize {
    fn read(&mut self, text: &OsStr, bounds: Bounds) -> Result<(), String> {
        let read = || {
            let text = text.to_str()?;
            let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
            let (number, unit) = text.split_at(end);
            let (_, bytes) = BYTE_UNITS.into_iter().find(|(name, _)| *name == unit)?;
            let size = number.parse::<u64>().ok()?.checked_mul(bytes)?;
            usize::try_from(size).ok().filter(|_| bounds.contains(size))
        };
        *self = Self(read().ok_or_else(|| {
            let [min, max] = [bounds.min, bounds.max].map(write_bytes);
            format!(
                "{} is not a size such as 64KiB or 1MiB, from {min} to {max}",
                quote_value(text)
            )
        })?);
        Ok(())
    }

    fn bound(bound: u64) -> String {
        write_bytes(bound)
    }

    fn text(&self) -> Option<String> {
        Some(write_bytes(self.0 as u64))
    }
}

/// A number of bytes that has a default elsewhere.
impl SettingValue for Option<ByteSize> {
    fn read(&mut self, text: &OsStr, bounds: Bounds) -> Result<(), String> {
        let mut size = ByteSize(0);
        size.read(text, bounds)?;
        *self = Some(size);
        Ok(())
    }

    fn bound(bound: u64) -> String {
        ByteSize::bound(bound)
    }

    fn text(&self) -> Option<String> {
        self.as_ref().and_then(ByteSize::text)
    }
}

fn write_bytes(bytes: u64) -> String {
    let fits = |(_, unit): &(&str, u64)| bytes >= *unit && bytes.is_multiple_of(*unit);
    let (name, unit) = BYTE_UNITS.into_iter().find(fits).unwrap_or(("", 1));
    format!("{}{name}", bytes / unit)
}

/// So many requests in so many seconds, `120/60s`.
impl SettingValue for Option<(u32, Duration)> {
    fn read(&mut self, text: &OsStr, _: Bounds) -> Result<(), String> {
        let read = || {
            let (requests, window) = text.to_str()?.split_once('/')?;
            let seconds = window.strip_suffix('s').unwrap_or(window).parse().ok()?;
            Some((requests.parse().ok()?, Duration::try_from_secs_f64(seconds).ok()?))
        };
        let rate = read()
            .filter(|(requests, window): &(u32, Duration)| *requests > 0 && !window.is_zero());
        *self = Some(rate.ok_or_else(|| {
            let value = quote_value(text);
            format!("{value} is not a number of requests and of seconds, such as 120/60s")
        })?);
        Ok(())
    }

    fn text(&self) -> Option<String> {
        self.map(|(requests, window)| format!("{requests}/{}s", window.as_secs_f64()))
    }
}

/// Values for what holds none yet: texts as arguments of a command are.
pub(super) fn to_os_strings(values: &[impl AsRef<OsStr>]) -> Vec<OsString> {
    values.iter().map(|value| value.as_ref().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<T: SettingValue + Default>(text: &str, bounds: Bounds) -> Result<T, String> {
        let mut value = T::default();
        value.read(OsStr::new(text), bounds).map(|()| value)
    }

    #[test]
    fn a_wrong_address_is_shown_without_its_login() {
        let problem = read::<Option<HostPort>>("http://svc:swordfish@a.test:80", Bounds::ALL);

        let problem = problem.unwrap_err();
        assert!(problem.contains("@a.test:80") && !problem.contains("swordfish"), "{problem}");
    }

    #[test]
    fn a_login_is_masked_in_every_form_that_a_text_quotes() {
        for value in ["ada:sword\"fish\\@a.test", "ada:sword'fish\n@a.test", "a@b", "@b"] {
            let text =
                format!("{value} '{}' {value:?} {:?}", value.escape_debug(), OsStr::new(value));

            let shown = without_login(OsStr::new(value), &text);

            let host = value.rsplit_once('@').unwrap().1;
            let masked = mask::login(&format!("a@{host}"));
            assert_eq!(shown, format!("{masked} '{masked}' \"{masked}\" \"{masked}\""));
        }
        assert_eq!(without_login(OsStr::new("a"), "a is wrong"), "a is wrong");
    }

    #[test]
    fn a_rate_is_requests_and_seconds() {
        type Rate = Option<(u32, Duration)>;
        let read = |text| read::<Rate>(text, Bounds::ALL);
        assert_eq!(read("120/60s"), Ok(Some((120, Duration::from_secs(60)))));
        assert_eq!(read("1/1"), Ok(Some((1, Duration::from_secs(1)))));
        assert_eq!(read("5/0.5s"), Ok(Some((5, Duration::from_millis(500)))));
        for bad in ["", "120", "0/60s", "1/0s", "-1/60", "1/-1", "a/b", "1/60m", "1/inf"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_with_the_bounds() {
        let bounds = Bounds { min: 1000, max: 60_000 };

        assert_eq!(read::<Duration>("1m", bounds), Ok(Duration::from_secs(60)));
        let problem = read::<Duration>("61s", bounds);
        let expected = "'61s' is not a duration such as 500ms, 10s or 5m, from 1s to 1m";
        assert_eq!(problem, Err(expected.to_owned()));
        let problem = read::<u32>("999", bounds);
        assert_eq!(problem, Err("'999' is not a whole number from 1000 to 60000".to_owned()));
    }

    #[test]
    fn a_time_limit_may_be_off() {
        let bounds = Bounds { min: 1000, max: 60_000 };
        let read = |text| read::<Option<Duration>>(text, bounds);

        assert_eq!(read("5s"), Ok(Some(Duration::from_secs(5))));
        assert_eq!(read("off"), Ok(None));
        assert_eq!(Option::<Duration>::None.text().as_deref(), Some("off"));
        for bad in ["61s", "0", "none", "OFF", ""] {
            assert!(read(bad).is_err_and(|problem| problem.ends_with(", or 'off'")), "{bad}");
        }
    }

    #[test]
    fn sizes_are_bytes_or_have_units() {
        let read = |text| {
            let mut size = ByteSize(0);
            size.read(OsStr::new(text), Bounds { min: 1, max: 1 << 30 }).ok().map(|()| size)
        };
        for (text, bytes) in [("65536", 65536), ("64KiB", 65536), ("1MiB", 1 << 20)] {
            assert_eq!(read(text), Some(ByteSize(bytes)), "{text}");
        }
        for bad in ["", "0", "KiB", "1kb", "-1", "2GiB", "99999999999999999999"] {
            assert_eq!(read(bad), None, "{bad}");
        }
        assert_eq!(ByteSize(65536).text().as_deref(), Some("64KiB"));
    }

    #[test]
    fn a_long_value_is_cut_off_in_messages_and_has_no_control_characters() {
        let problem = read::<bool>(&format!("\u{1b}{}", "x".repeat(100_000)), Bounds::ALL);

        assert!(problem.is_err_and(|it| it.len() < 200 && !it.contains('\u{1b}')));
    }
}

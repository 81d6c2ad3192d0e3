//! Credentials that need no name, because their form or their place is enough.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use super::{MASK, work};

/// Credentials after a scheme and before the host of an address, tokens with a known beginning, JSON Web Tokens,
/// addresses that are secrets, and private keys. Borders of words are those of ASCII, since
/// searches for others are slow.
const CREDENTIALS: &str = r#"(?x)
    (?-u:\b)(?P<scheme>(?i:basic|bearer)\s{1,4})(?P<given>[A-Za-z0-9_.~+/=-]{8,})
    | (?-u:\b)(?P<digest>(?i:digest)\s{1,4})(?P<fields>
        [A-Za-z-]{1,20}\s?=\s?(?:\\?"[^"\\]*\\?"|[^\s,"]+)
        (?:\s?,\s{0,4}[A-Za-z-]{1,20}\s?=\s?(?:\\?"[^"\\]*\\?"|[^\s,"]+))*)
    | (?P<before>
        (?-u:\b)(?:(?:machine|login|account)\s{1,8}[!-~]{1,64}|default)\s{1,8}password\s{1,8}
        | (?i:(?-u:\b)identified(?:\s{1,4}(?:with|via)\s{1,4}[!-~]{1,64})?\s{1,4}(?:by|as|using)
            (?:\s{1,4}(?:values|password))?)\s{0,4}\(?\s{0,4}
        | (?i:(?-u:\b)set\s{1,4}password\s{1,4}for\s{1,4}[!-~]{1,64}\s{0,4}=)\s{0,4}
        | (?i:(?-u:\b)pass(?:word|wd|phrase))(?:\s{1,4}(?i:as\s{1,4})?|\s{0,4}\(\s{0,4})
        )(?P<quoted>[ENXenx]?(?:'(?:[^'\\]|\\.|'')*'?|"(?:[^"\\]|\\.)*"?))
    | (?P<entry>(?-u:\b)(?:(?:machine|login|account)\s{1,8}[!-~]{1,64}|default)\s{1,8}password\s{1,8}
        | (?-u:\b)IDENTIFIED\s{1,4}BY\s{1,4})(?P<word>[^\s;,'"]+)
    | (?m:^)(?P<line>[A-Za-z0-9_.*-]{1,64}:(?:[0-9]{1,5}|\*):[!-9;-\[\]-~]{1,64}:[!-9;-\[\]-~]{1,64}:)
        (?P<last>[^\s]+)[\ \t\r]{0,4}(?m:$)
    | (?P<slashes>(?:^|:)//)[^\s/?\#"'<>]+@
    | (?-u:\b)eyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?
    | (?-u:\b)[0-9A-Za-z]{27}_[0-9][0-9A-Za-z]{20}(?-u:\b)
    | (?-u:\b)(?:sk|rk|whsec|gh[opsur]|github_pat|gl[a-z]{2,5}|xox[a-z]|xapp)[_-][A-Za-z0-9_-]{8,}
    | (?-u:\b)(?:npm|hf|gsk|r8|ntn|figd|sntry[su]|rubygems|lin_(?:api|oauth))_[A-Za-z0-9]{16,}
    | (?-u:\b)(?:do[opr]_v1|shp(?:at|ss|ca|pa)|dckr_[op]at)_[A-Za-z0-9_-]{16,}
    | (?-u:\b)pypi-[A-Za-z0-9_]{16,}[A-Za-z0-9_-]*
    | (?-u:\b)(?:GOCSPX|xai|nvapi|PMAK|NRAK)-[A-Za-z0-9_-]{16,}
    | (?-u:\b)sq0[a-z]{3}-[A-Za-z0-9_-]{16,}
    | (?-u:\b)AGE-SECRET-KEY-[A-Z0-9-]{8,}
    | (?-u:\b)AIza[A-Za-z0-9_-]{30,}
    | (?-u:\b)(?:AKIA|ASIA)[A-Z0-9]{16}(?-u:\b)
    | (?-u:\b)AT[AC]TT3[A-Za-z0-9_=-]{16,}
    | (?-u:\b)SG\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}
    | (?-u:\b)(?:ya29|hv[bs])\.[A-Za-z0-9_-]{16,}
    | (?-u:\b)[0-9]{8,10}:AA[A-Za-z0-9_-]{30,}
    | (?-u:\b)LS0tLS1CRUdJTi[A-Za-z0-9+/]{0,40}(?:UFJJVkFUR|QUklWQVRF|BSSVZBVE)[A-Za-z0-9+/=]+
    | (?P<hook>(?i:
        hooks\.slack(?:-gov)?\.com\\?/(?:services|workflows|triggers)
        | (?-u:\b)discord(?:app)?\.com\\?/api\\?/(?:v[0-9]+\\?/)?webhooks
        | webhook\.office\.com\\?/[a-z0-9]+
        | (?-u:\b)outlook\.office(?:365)?\.com\\?/webhook
        | \.logic\.azure\.com(?::443)?\\?/(?:workflows|powerautomate)
        | \.powerplatform\.com(?::443)?\\?/powerautomate
        | (?-u:\b)hooks\.zapier\.com\\?/hooks
        | (?-u:\b)chat\.googleapis\.com\\?/v1\\?/spaces
        )\\?/
        |(?i:(?-u:\b)api\.telegram\.org\\?/(?:file\\?/)?bot))[^\s"'<>]+
    | (?P<bot>/bot[0-9]{4,16}(?::|%3[Aa]))[A-Za-z0-9_-]+
    | (?P<reset>(?i:/(?:
        (?:reset|forgot|recover|restore|change|set|new|choose)[_-]?password
        | passwords?(?:[_-]|\\?/)?(?:reset|recovery|change)s?
        | magic[_-]?(?:link|login)
        | (?:verify|confirm)[_-]?(?:e?mail|account)
        | (?:e?mail|account)[_-]?(?:verification|confirmation)
        )\\?/(?:(?:confirm|complete|edit|verify|new|key|token)\\?/)?))(?P<link>[^\s?\#"'<>&]+)
    | (?P<begin>-{4,5}[\ ]?BEGIN(?:[\ +]|%20)(?:[A-Z0-9]{1,16}(?:[\ +]|%20)){0,4}
        PRIVATE(?:[\ +]|%20)KEY(?:[\ +]BLOCK)?[\ ]?-{4,5}|(?-u:\b)Private-Lines:\s{0,4}[0-9]{1,4}\s)
        (?P<inner>(?s:.)*?)(?P<end>-{4,5}[\ ]?END|Private-MAC:|\z)
"#;
/// Words behind `Basic` and `Bearer` that are not credentials.
const OTHER_WORDS: [&str; 6] =
    ["authentication", "authorization", "credentials", "information", "knowledge", "understanding"];
/// Words behind the path of a page that changes a password, which are not the token of a link.
const PAGE_WORDS: [&str; 12] = [
    "complete", "confirm", "done", "edit", "expired", "help", "key", "new", "request", "sent",
    "success", "token",
];
/// Parts of the paths of links with a token.
const LINK_WORDS: [&str; 4] = ["assword", "magic", "mail", "account"];
/// Fields of a digest that prove that the sender has the password, or name the sender.
const DIGEST_FIELDS: [&str; 4] = ["response", "cnonce", "username", "rspauth"];
/// Beginnings of credentials without `-` and `_`.
const JOINED_BEGINNINGS: [&str; 5] = ["AIza", "AKIA", "ASIA", "LS0tLS1CRUdJTi", "AT"];
/// Beginnings of credentials with a dot.
const DOTTED_BEGINNINGS: [&str; 5] = ["eyJ", "SG.", "ya29.", "hvs.", "hvb."];
/// The minimum length of a token with a known beginning, in bytes.
const MIN_TOKEN_BYTES: usize = 11;

/// Returns a text without credentials that need no name.
pub(super) fn mask_credentials(shown: &str) -> Cow<'_, str> {
    if is_plain(shown) {
        return shown.into();
    }
    static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(CREDENTIALS).ok());
    let Some(pattern) = PATTERN.as_ref() else { return MASK.into() };
    work::count_bytes(shown.len());
    pattern.replace_all(shown, |found: &Captures<'_>| mask_match(found))
}

/// Hides the content of private keys, also of one whose lines are items of a list.
pub(super) fn private_keys(shown: &str) -> Cow<'_, str> {
    match shown.contains("PRIVATE KEY") && shown.contains("-----END") {
        true => mask_credentials(shown),
        false => shown.into(),
    }
}

fn mask_match(found: &Captures<'_>) -> String {
    let part = |name| found.name(name).map(|part| part.as_str());
    let both = |first, second| part(first).zip(part(second));
    let whole = found.get(0).map_or("", |whole| whole.as_str());
    let is_other = |word: &str| OTHER_WORDS.iter().any(|known| word.eq_ignore_ascii_case(known));
    let shown_unless = |is_visible: bool, hidden: String| match is_visible {
        true => whole.to_owned(),
        false => hidden,
    };
    if let Some((scheme, given)) = both("scheme", "given") {
        shown_unless(is_other(given.trim_end_matches('.')), format!("{scheme}{MASK}"))
    } else if let Some((digest, fields)) = both("digest", "fields") {
        shown_unless(!has_digest_field(fields), format!("{digest}{MASK}"))
    } else if let (Some((begin, inner)), Some(end)) = (both("begin", "inner"), part("end")) {
        private_key(begin, inner, end)
    } else if let Some((before, quoted)) = both("before", "quoted") {
        let quote = quoted.trim_start_matches(|it: char| it.is_ascii_alphabetic()).get(..1);
        let quote = quote.unwrap_or_default();
        let is_masked = quoted.trim_matches(['"', '\'']) == MASK;
        shown_unless(is_masked, format!("{before}{quote}{MASK}{quote}"))
    } else if let Some((entry, word)) = both("entry", "word") {
        shown_unless(is_other(word), format!("{entry}{MASK}"))
    } else if let Some((line, last)) = both("line", "last") {
        let end = whole.get(line.len() + last.len()..).unwrap_or_default();
        shown_unless(!is_password_entry(line), format!("{line}{MASK}{end}"))
    } else if let Some((reset, link)) = both("reset", "link") {
        let is_page = PAGE_WORDS.contains(&link.trim_end_matches('/'));
        shown_unless(is_page || link.starts_with(['{', ':', '*', '[']), format!("{reset}{MASK}"))
    } else if let Some(bot) = part("bot") {
        format!("{bot}{MASK}")
    } else if let Some(slashes) = part("slashes") {
        format!("{slashes}{MASK}@")
    } else {
        format!("{}{MASK}", part("hook").unwrap_or_default())
    }
}

/// Returns true for the fields of Digest authentication of which one proves that the password is known.
fn has_digest_field(fields: &str) -> bool {
    let names = fields.split(',').filter_map(|field| field.split_once('='));
    let mut names = names.map(|(name, _)| name.trim());
    names.any(|name| DIGEST_FIELDS.iter().any(|known| name.eq_ignore_ascii_case(known)))
}

/// Hides the content of a private key. The lines around it stay.
fn private_key(begin: &str, inner: &str, end: &str) -> String {
    let content = inner.trim();
    let (before, after) = inner.split_once(content).unwrap_or((inner, ""));
    let shown = if content.is_empty() { "" } else { MASK };
    [begin, before, shown, after, end].concat()
}

/// Returns true for the host, port, database and user of an entry in `.pgpass`, and false for other lines of numbers.
fn is_password_entry(line: &str) -> bool {
    let mut parts = line.split(':');
    let is_address = |part: &str| part.len() <= 4 && part.bytes().all(|it| it.is_ascii_hexdigit());
    let is_number = |part: &str| part.bytes().all(|it| it.is_ascii_digit());
    !parts.clone().filter(|part| !part.is_empty()).all(is_address)
        && !parts.nth(2).is_none_or(is_number)
}

/// Returns true if a text cannot hold a secret, as one look at its letters says: most paths and parameters are
/// such, and lines of the terminal are written for each request.
pub(super) fn is_plain(shown: &str) -> bool {
    let (mut joined, mut dotted, mut coded, mut parted) = (false, false, false, false);
    for byte in shown.bytes() {
        match byte {
            b':' | b'=' | b'<' => return false,
            b'_' | b'-' => joined = true,
            b'.' => dotted = true,
            b'%' => coded = true,
            b'/' => parted = true,
            byte if !byte.is_ascii() || byte.is_ascii_whitespace() => return false,
            _ => {}
        }
    }
    let has = |beginnings: &[&str]| beginnings.iter().any(|it| shown.contains(it));
    let is_link = parted && has(&LINK_WORDS);
    !(shown.starts_with("//") || coded || is_link)
        && (shown.len() < MIN_TOKEN_BYTES || !joined && !has(&JOINED_BEGINNINGS))
        && (!dotted || !has(&DOTTED_BEGINNINGS) && !shown.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mask::text;

    const LETTERS: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

    #[test]
    fn tokens_are_known_by_their_beginning() {
        let short = LETTERS.get(..40).unwrap_or_default();
        let capitals = LETTERS.get(26..52).unwrap_or_default();
        for (start, end) in [
            ("npm_", short),
            ("pypi-AgEI", short),
            ("hf_", short),
            ("AIzaSy", short),
            ("AGE-SECRET-KEY-1", capitals),
            ("glpat-", short),
            ("glptt-", short),
            ("xoxb-1-2-", short),
            ("xoxe-", short),
            ("ghp_", short),
            ("github_pat_", short),
            ("sk-ant-api03-", short),
            ("sk_live_", short),
            ("whsec_", short),
            ("GOCSPX-", short),
            ("shpat_", short),
            ("dckr_pat_", short),
            ("ya29.", short),
            ("hvs.", short),
            ("ATATT3x", short),
            ("AKIA", "IOSFODNN7EXAMPLE"),
            ("sq0atp-", short),
        ] {
            let token = format!("{start}{end}");
            assert_eq!(text(&token), MASK, "{token}");
            assert_eq!(text(&format!("a {token} b")), format!("a {MASK} b"), "{token}");
        }
        let mail = format!("SG.{}.{}", "aB1".repeat(7), "aB1".repeat(14));
        assert_eq!(text(&mail), MASK);
        for plain in ["npm_config_registry", "hf_hub_download", "AIza", "SG.a.b", "a.b/c_d"] {
            assert_eq!(text(plain), plain);
        }
    }

    #[test]
    fn credentials_in_free_text_are_hidden() {
        for (shown, expected) in [
            ("https://hooks.slack.com/services/T0/B0/fish", "https://hooks.slack.com/services/$"),
            ("hooks.slack.com/triggers/T0/1/fish", "hooks.slack.com/triggers/$"),
            (
                "https://discord.com/api/webhooks/1/sword-fish?wait=true",
                "https://discord.com/api/webhooks/$",
            ),
            (
                "https://discordapp.com/api/v10/webhooks/1/f",
                "https://discordapp.com/api/v10/webhooks/$",
            ),
            (
                "https://a.webhook.office.com/webhookb2/1@2/IncomingWebhook/fish/3",
                "https://a.webhook.office.com/webhookb2/$",
            ),
            ("https://outlook.office.com/webhook/fish", "https://outlook.office.com/webhook/$"),
            ("Digest username=\"a\", realm=\"r\", cnonce=\"b\", response=\"fish\"", "Digest $"),
            ("Digest realm=\"shop\", nonce=\"b\"", "Digest realm=\"shop\", nonce=\"b\""),
            ("a cnonce=fish, rspauth=\"fish\"", "a cnonce=$, rspauth=$"),
            ("curl -u a:fish https://b.test", "curl -u a:$ https://b.test"),
            ("curl -ua:fish https://b.test", "curl -ua:$ https://b.test"),
            ("curl --user 'a:sword fish' b.test", "curl --user 'a:$' b.test"),
            ("curl --user=a:fish b.test", "curl --user=a:$ b.test"),
            ("curl -U a:fish -b 'a=fish' b.test", "curl -U a:$ -b '$' b.test"),
            ("curl -u a -b file b.test", "curl -u a -b file b.test"),
            ("http -a me:fish b.test", "http -a me:$ b.test"),
            ("docker run -u 1000:1000 b", "docker run -u 1000:1000 b"),
            ("Basic authentication is used.", "Basic authentication is used."),
            ("machine a.test login ada password fish", "machine a.test login ada password $"),
            (
                "machine a.test\n  login ada\n  password fish\n",
                "machine a.test\n  login ada\n  password $\n",
            ),
            ("machine a.test password fish login ada", "machine a.test password $ login ada"),
            ("default login a password fish", "default login a password $"),
            ("a login with password authentication", "a login with password authentication"),
            ("db.test:5432:shop:ada:sword:fish", "db.test:5432:shop:ada:$"),
            ("# a\n*:*:*:ada:fish\nb\n", "# a\n*:*:*:ada:$\nb\n"),
            ("00:11:22:33:44:55", "00:11:22:33:44:55"),
            ("2001:1:b:c:d:e:f:1", "2001:1:b:c:d:e:f:1"),
            ("a.c:12:5:error:b", "a.c:12:5:error:b"),
            ("CREATE USER a IDENTIFIED BY 'sword fish';", "CREATE USER a IDENTIFIED BY '$';"),
            ("a identified with b by \"fish\" c", "a identified with b by \"$\" c"),
            ("ALTER USER a IDENTIFIED BY fish;", "ALTER USER a IDENTIFIED BY $;"),
            ("ALTER ROLE a WITH PASSWORD 'it''s fish' b", "ALTER ROLE a WITH PASSWORD '$' b"),
            (
                "SET PASSWORD FOR 'a'@'b' = PASSWORD('fish')",
                "SET PASSWORD FOR 'a'@'b' = PASSWORD('$')",
            ),
            ("SET PASSWORD FOR a = 'fish'", "SET PASSWORD FOR a = '$'"),
            ("Unexpected token 'kept'", "Unexpected token 'kept'"),
            ("/reset-password/fish?a=b", "/reset-password/$?a=b"),
            ("https://a.test/password_resets/fi-sh/edit", "https://a.test/password_resets/$"),
            ("/auth/password-reset/confirm/Mg/fish/", "/auth/password-reset/confirm/$"),
            ("/resetpassword/fish", "/resetpassword/$"),
            ("/password/reset/fish", "/password/reset/$"),
            ("/magic-link/fish", "/magic-link/$"),
            ("/reset-password/confirm", "/reset-password/confirm"),
            ("/reset-password/{token}", "/reset-password/{token}"),
            ("/reset-password", "/reset-password"),
            ("/bot123456:fish/getMe", "/bot123456:$/getMe"),
            ("/a/bot123456%3Afish/getMe", "/a/bot123456%3A$/getMe"),
        ] {
            assert_eq!(text(shown), expected.replace('$', MASK), "{shown}");
        }
    }

    #[test]
    fn private_keys_are_hidden_in_any_text() {
        for kind in
            ["PRIVATE KEY", "RSA PRIVATE KEY", "OPENSSH PRIVATE KEY", "PGP PRIVATE KEY BLOCK"]
        {
            for (before, after) in [("", "\n"), ("a: |\n  ", "\nb: kept\n"), ("say \"", "\" kept")]
            {
                let key = |inner: &str| {
                    format!("{before}-----BEGIN {kind}-----\n{inner}\n-----END {kind}-----{after}")
                };

                let shown = text(&key("sword\nfish+/=")).into_owned();

                assert_eq!(shown, key(MASK));
                assert_eq!(text(&shown), shown);
            }
        }
        let cut = "-----BEGIN PRIVATE KEY-----\nswordfish";
        assert_eq!(text(cut), format!("-----BEGIN PRIVATE KEY-----\n{MASK}"));
        let putty = |lines: &str, mac: &str| {
            format!("Public-Lines: 1\nkept\nPrivate-Lines: 2\n{lines}\nPrivate-MAC: {mac}\n")
        };
        assert_eq!(text(&putty("sword\nfish=", "fish")), putty(MASK, MASK));
        let public = "-----BEGIN PUBLIC KEY-----\nkept\n-----END PUBLIC KEY-----\n";
        assert_eq!(text(public), public);
    }
}

//! Texts of no form that is known: names with values, elements, and what credentials look like.

use std::borrow::Cow;

use super::credentials::{is_plain, mask_credentials};
use super::escapes::percent_decoded;
use super::script::ScriptPlaces;
use super::{MASK, commands, json, markup, name_value, named_value, work, yaml};

/// How many texts may be inside each other, such as JSON in a string of JSON.
pub(super) const MAX_DEPTH: u8 = 8;

/// How many texts may be inside of a text of XML that is written with references.
const MAX_REFERENCE_DEPTH: u8 = 2;

/// A text without what looks like a secret.
pub fn text(shown: &str) -> Cow<'_, str> {
    mask_nested_text(shown, MAX_DEPTH)
}

/// The same, where `depth` more texts may be inside.
pub(super) fn mask_nested_text(shown: &str, depth: u8) -> Cow<'_, str> {
    mask_nested_with(shown, depth, &mask_loose_text)
}

/// A page of HTML without what looks like a secret.
pub(super) fn mask_page(shown: &str) -> Cow<'_, str> {
    mask_nested_with(shown, MAX_DEPTH, &|shown| mask_loose_in(shown, false, ScriptPlaces::in_page))
}

fn mask_nested_with<'a>(
    shown: &'a str,
    depth: u8,
    loose: &dyn Fn(&str) -> Cow<'_, str>,
) -> Cow<'a, str> {
    if is_plain(shown) {
        return shown.into();
    }
    if shown.trim_start().starts_with(['{', '[']) {
        return json::mask_nested_json(shown, depth).into();
    }
    let elements = match shown.contains('<') {
        true => Cow::Owned(markup::mask_markup(shown, &|inner| {
            mask_nested_text(inner, depth.min(MAX_REFERENCE_DEPTH)).into_owned()
        })),
        false => Cow::Borrowed(shown),
    };
    match yaml::looks_like_yaml(&elements) {
        true => Cow::Owned(yaml::mask_yaml(&elements, false)),
        false => then_mask(elements, loose),
    }
}

/// A text without the values that follow the names of secrets or are in a pair with one, and without credentials.
pub(super) fn mask_loose_text(shown: &str) -> Cow<'_, str> {
    mask_loose_with(shown, false)
}

/// The same. If `is_typed` is true, numbers, booleans and null stay.
pub(super) fn mask_loose_with(shown: &str, is_typed: bool) -> Cow<'_, str> {
    mask_loose_in(shown, is_typed, |_| ScriptPlaces::nowhere())
}

fn mask_loose_in(
    shown: &str,
    is_typed: bool,
    find_scripts: impl Fn(&str) -> ScriptPlaces,
) -> Cow<'_, str> {
    let shown = then_mask(name_value::mask_name_values(shown), commands::mask_commands);
    let shown =
        then_mask(shown, |shown| named_value::masked(shown, is_typed, &find_scripts(shown)));
    then_mask(then_mask(shown, mask_encoded_words), mask_credentials)
}

/// How many times a text may be percent-encoded.
const MAX_CODINGS: usize = 3;

/// A text without words that are percent-encoded and contain a secret, such as an address with a login.
pub(super) fn mask_encoded_words(shown: &str) -> Cow<'_, str> {
    if !shown.contains('%') {
        return shown.into();
    }
    let is_other = |letter: char| !letter.is_ascii_alphanumeric() && !"-_.~*+!%".contains(letter);
    work::count_bytes(shown.len());
    let mut masked = String::new();
    let mut copied = 0;
    for word in shown.split(is_other).filter(|word| word.contains('%')) {
        let start = word.as_ptr().addr() - shown.as_ptr().addr();
        if has_coded_secret(word) {
            masked.push_str(shown.get(copied..start).unwrap_or_default());
            masked.push_str(MASK);
            copied = start + word.len();
        }
    }
    if copied == 0 {
        return shown.into();
    }
    masked.push_str(shown.get(copied..).unwrap_or_default());
    masked.into()
}

fn has_coded_secret(word: &str) -> bool {
    let mut text = Cow::Borrowed(word);
    for _ in 0..MAX_CODINGS {
        let inner = percent_decoded(&text.replace('+', " ")).into_owned();
        if inner == *text {
            return false;
        }
        let without_pairs = then_mask(name_value::mask_name_values(&inner), |shown| {
            named_value::masked(shown, false, &ScriptPlaces::nowhere())
        });
        if then_mask(without_pairs, mask_credentials) != inner {
            return true;
        }
        text = inner.into();
    }
    false
}

/// A style sheet without the values that follow the names of secrets and an equals sign, and without credentials.
pub(super) fn mask_style_sheet(source: &str) -> Cow<'_, str> {
    then_mask(named_value::masked(source, false, &ScriptPlaces::in_style_sheet()), mask_credentials)
}

/// Source text of JavaScript without the text literals that follow the names of secrets, and without credentials.
pub(super) fn mask_code(source: &str) -> Cow<'_, str> {
    let masked = then_mask(name_value::mask_name_values(source), |source| {
        named_value::masked(source, false, &ScriptPlaces::everywhere())
    });
    then_mask(masked, mask_credentials)
}

/// Masks what was masked before.
fn then_mask<'a>(shown: Cow<'a, str>, mask: impl Fn(&str) -> Cow<'_, str>) -> Cow<'a, str> {
    match shown {
        Cow::Borrowed(shown) => mask(shown),
        Cow::Owned(shown) => mask(&shown).into_owned().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_looks_like_a_secret_is_masked_and_nothing_else_changes() {
        for (shown, expected) in [
            ("Authorization: Basic swordfish", "Authorization: $"),
            ("see https://me:sword@fish@x.test/", "see https://$@x.test/"),
            ("see https://x.test/me@y.test", "see https://x.test/me@y.test"),
            ("a eyJhbGciOi.swordfish.0f1e2d b", "a $ b"),
            ("say bearer swordfish.", "say bearer $"),
            ("{\"password\": \"swordfish\", \"cut", "{\"password\": \"$\", \"cut"),
            ("<a><Token x='1'>swordfish</Token></a>", "<a><Token x='1'>$</Token></a>"),
            ("<a token=\"swordfish\" b='c'>d</a>", "<a token=\"$\" b='c'>d</a>"),
            ("a=1&%74oken=swordfish&b", "a=1&%74oken=$&b"),
            ("secret = 'sword fish', a", "secret = $, a"),
            ("nothing: here, at 12:30", "nothing: here, at 12:30"),
            ("eyJhbGciOi.swordfish", "$"),
            ("sk_12345678", "$"),
            ("sk_1234567", "sk_1234567"),
            ("//me:swordfish@x.test", "//$@x.test"),
            ("//me@x.test", "//$@x.test"),
            ("", ""),
            ("log {\"passwords\": [\"swordfish\", \"b\"]} end", "log {\"passwords\": $} end"),
            ("[info] tokens = ['swordfish', 2] user: me", "[info] tokens = $ user: me"),
            ("max_tokens=100 total_tokens: 5, pin: 1234", "max_tokens=100 total_tokens: 5, pin: $"),
            ("\"pin\": 1234", "\"pin\": 1234"),
            ("{:password=>\"swordfish\", :a=>1}", "{:password=>$, :a=>1}"),
            ("contraseña=swordfish", "contraseña=$"),
            ("recovery_codes: swordfish", "recovery_codes: $"),
            ("Total tokens: 512", "Total tokens: 512"),
            ("Authorization: see the manual", "Authorization: see the manual"),
            ("<p>Authorization: see the manual</p>", "<p>Authorization: see the manual</p>"),
            ("<p>Authorization: Bearer swordfish</p>", "<p>Authorization: $</p>"),
            ("Authorization: Custom swordfish", "Authorization: $"),
            ("Authorization: Token sword fish", "Authorization: $"),
            ("Authorization: sword-1 fish it", "Authorization: $"),
            ("Cookie: a small file", "Cookie: a small file"),
            ("<p>Cookies: we use cookies.</p>", "<p>Cookies: we use cookies.</p>"),
            ("Set-Cookie: see RFC 6265.", "Set-Cookie: see RFC 6265."),
            ("your password is: swordfish", "your password is: $"),
            ("Cookie: a=sword; b=fish", "Cookie: $"),
            ("Authentication-Info: nextnonce=\"sword\", qop=auth", "Authentication-Info: $"),
            ("Proxy-Authentication-Info: rspauth=sword fish", "Proxy-Authentication-Info: $"),
            ("token_endpoint: https://a.test/b", "token_endpoint: https://a.test/b"),
            ("const token = getToken()", "const token = getToken()"),
            ("let token = \"swordfish\"", "let token = $"),
            ("const token = await api.getToken();", "const token = await api.getToken();"),
            ("const token = process.env.TOKEN;", "const token = process.env.TOKEN;"),
            ("var DB_PASSWORD=swordfish", "var DB_PASSWORD=$"),
            ("export const API_KEY=abcd1234", "export const API_KEY=$"),
            ("--set var password=hunter2", "--set var password=$"),
            ("var password=hunter2.abc", "var password=$"),
            ("{\"msg\":\"please let password=x\"}", "{\"msg\":\"please let password=$\"}"),
            ("Authorization: correct horse battery staple", "Authorization: $"),
            ("the Cookie: see the cookie: swordfish", "the Cookie: see the cookie: $"),
            ("Cookie: see cookie: correct horse fish", "Cookie: see cookie: $"),
            ("Cookie: see the authorization: token of it", "Cookie: see the authorization: $"),
            ("a[\"password\"] = \"sword fish\"", "a[\"password\"] = $"),
            ("process.env['PASSWORD']='sword fish'; b", "process.env['PASSWORD']=$; b"),
            ("d[ 'password' ] += 'sword'", "d[ 'password' ] += $"),
            ("log a[\\\"token\\\"] = \\\"sword fish\\\" b", "log a[\\\"token\\\"] = $ b"),
            ("a[b['password']] ||= \"fish\"", "a[b['password']] ||= $"),
            ("user[password]=fish&b=c", "user[password]=$&b=c"),
            ("password := \"sword fish\"", "password := $"),
            ("a `token`: `sword fish` b", "a `token`: $ b"),
            ("PASSWORD ?= fish", "PASSWORD ?= $"),
            ("if password == \"sword fish\" {", "if password == $ {"),
            ("log {\"password\": /* a */ \"sword fish\"}", "log {\"password\": /* a */ $}"),
            ("log {'token' // a: b\n : \"fish\", b: 1}", "log {'token' // a: b\n : $, b: 1}"),
            ("log {token /* a */: // b\n [\"fish\"]}", "log {token /* a */: // b\n $}"),
            ("<p>Password:<br>fish</p>", "<p>Password:<br>$</p>"),
            ("<span>API key</span>: <i>fish</i> kept", "<span>API key</span>: <i>$</i> kept"),
            ("a['token'] !== 'sword fish'", "a['token'] !== $"),
            ("token != null", "token != null"),
            ("Your password is <b>fish</b>.", "Your password is <b>$</b>."),
            ("the token is <unknown> kept", "the token is <unknown> kept"),
            ("your verification code: fish", "your verification code: $"),
            ("One-time code is: fish, kept", "One-time code is: $, kept"),
            ("card number: 4111", "card number: $"),
            ("country code: kept, number: 5", "country code: kept, number: 5"),
            ("password = b\"sword fish\", PASSWORD = N'sword fish'", "password = $, PASSWORD = $"),
            ("token: /* cut off", "token: $ cut off"),
            ("log {\"token\": /* a */ null}", "log {\"token\": /* a */ null}"),
            ("password // is required", "password // is required"),
            ("a https%3A%2F%2Fada%3Afish%40a.test%2Fb c", "a $ c"),
            (
                "https://a.test/?b=https%253A%252F%252Fada%253Afish%2540c.test&d=e",
                "https://a.test/?b=$&d=e",
            ),
            ("a?next=%2Fb%3Ftoken%3Dfish&c=d", "a?next=$&c=d"),
            ("a=https%3A%2F%2Fkept.test%2Fb%40c 100%", "a=https%3A%2F%2Fkept.test%2Fb%40c 100%"),
            ("<p>Password: <b>sword fish</b> kept</p>", "<p>Password: <b>$</b> kept</p>"),
            ("<b>Password:</b> sword <i>kept</i>", "<b>Password:</b> $ <i>kept</i>"),
            (
                "<td>API key:</td>\n<td class='a'><code>fish</code></td>",
                "<td>API key:</td>\n<td class='a'>$</td>",
            ),
            ("<p>token is:&nbsp;<span>fish</span>", "<p>token is:&nbsp;<span>$</span>"),
            (
                "<label>Password: <input name=a></label> kept",
                "<label>Password: <input name=a></label> kept",
            ),
            ("<div>Password:</div><div>kept</div>", "<div>Password:</div><div>kept</div>"),
            ("<b>Token:</b> this is the token of it.", "<b>Token:</b> this is the token of it."),
            ("[session]\nuser = kept", "[session]\nuser = kept"),
        ] {
            let expected = expected.replace('$', MASK);
            assert_eq!(text(shown), expected, "{shown}");
            assert_eq!(text(&expected), expected, "{shown} twice");
        }
    }

    #[test]
    fn arguments_of_graphql_are_masked() {
        for (shown, expected) in [
            (
                "mutation { login(user: \"ada\", password: \"swordfish\") { id } }",
                "mutation { login(user: \"ada\", password: #) { id } }",
            ),
            ("mutation { a(tokens: [\"swordfish\"], b: 1) }", "mutation { a(tokens: #, b: 1) }"),
            (
                "mutation { a(in: {password: {v: \"swordfish\"}}) }",
                "mutation { a(in: {password: #}) }",
            ),
            ("{ a(secret: \"\"\"sword \"fish\" x\"\"\") }", "{ a(secret: #) }"),
            (
                "query A($password: String!) { a(max_tokens: 5) }",
                "query A($password: String!) { a(max_tokens: 5) }",
            ),
            ("query A($password: String = \"swordfish\") { a }", "query A($password: #) { a }"),
            (
                "mutation($p:String!) { login(password:$p) { id } }",
                "mutation($p:String!) { login(password:$p) { id } }",
            ),
            (
                "mutation($p: String = \"swordfish\") { login(password: $p) }",
                "mutation($p: #) { login(password: $p) }",
            ),
            (
                "mutation { login(password: # c\n \"swordfish\") }",
                "mutation { login(password: #) }",
            ),
        ] {
            assert_eq!(text(shown), expected.replace('#', MASK), "{shown}");
        }
    }
}
